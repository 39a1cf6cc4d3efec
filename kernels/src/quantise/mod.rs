//! Quantising: rows of f32 into blocks of a format, by one search for all formats.
//!
//! A format says what its bits mean; the generator finds out how to write them ([`inverse`]), and the search ([`search`])
//! needs only the structure that is left: levels or rows of a grid for codes, floats and whole numbers for scales. What is
//! made small is the squared error of each weight, times the importance of its column where there is one.
//!
//! * The result is the same bytes on every tier, machine and number of threads: blocks do not depend on each other, and
//!   sums have a fixed order.
//! * Weights must be finite. Those beyond what a block can hold become the nearest that it can: never an infinity.
//! * Blocks stand for the weights alone. A format that goes with a scale beside the tensor (NVFP4) is quantised as if that
//!   scale were 1; who wants to use it divides the weights by it first.

mod grid;
pub(crate) mod inverse;
#[allow(unreachable_pub, reason = "the table of a tiered module takes its public functions")]
mod lanes;
mod number;
mod search;
#[cfg(test)]
mod tests;

use crate::{Derived, Field, FieldType, Format, Supported, Values};
use core::fmt;
use search::Problem;

/// Why weights could not be quantised.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum QuantiseError {
    /// A weight is a NaN or an infinity.
    NotFinite {
        /// Row of the weight.
        row: usize,
        /// Column of the weight.
        col: usize,
        /// The weight.
        value: f32,
    },
    /// The importance of a column is not a finite number of at least 0.
    Importance {
        /// The column.
        col: usize,
        /// Its importance.
        value: f32,
    },
    /// The rules of the format cannot be turned round.
    NoInverse {
        /// The format.
        format: &'static str,
        /// Why not.
        reason: &'static str,
    },
}

impl fmt::Display for QuantiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuantiseError::NotFinite { row, col, value } => {
                write!(f, "the weight in row {row}, column {col} is {value}; a finite number is expected")
            }
            QuantiseError::Importance { col, value } => {
                write!(
                    f,
                    "the importance of column {col} is {value}; a finite number of at least 0 is expected"
                )
            }
            QuantiseError::NoInverse { format, reason } => {
                write!(f, "weights cannot be quantised to {format}: {reason}")
            }
        }
    }
}

impl std::error::Error for QuantiseError {}

/// The least importance, as a part of the largest: a group without any still gets sensible codes.
const LEAST_IMPORTANCE: f32 = 1.0 / (1u32 << 30) as f32;

/// Quantises whole rows; lengths have been checked.
pub(crate) fn rows(
    format: &'static Format,
    tier: Supported,
    weights: &[f32],
    cols: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), QuantiseError> {
    if let Some(at) = weights.iter().position(|w| !w.is_finite()) {
        return Err(QuantiseError::NotFinite { row: at / cols, col: at % cols, value: weights[at] });
    }
    let importance = importance.map(relative).transpose()?.flatten();
    let (group, inverse) = match (format.values, format.inverse) {
        (Values::Float(ty), _) => {
            for (out, w) in out.chunks_exact_mut(format.bytes).zip(weights) {
                out.copy_from_slice(&number::nearest(ty, f64::from(*w)).bits.to_le_bytes()[..format.bytes]);
            }
            return Ok(());
        }
        (Values::Codes { group, .. }, Ok(inverse)) => (group, inverse),
        (Values::Codes { .. }, Err(reason)) => {
            return Err(QuantiseError::NoInverse { format: format.name, reason });
        }
    };
    let problem = Problem::new(inverse, lanes::Set::new(tier), format.elements, group);
    let mut work = problem.work();
    let blocks = cols / format.elements;
    for (n, (block, x)) in
        out.chunks_exact_mut(format.bytes).zip(weights.chunks_exact(format.elements)).enumerate()
    {
        let first = n % blocks * format.elements;
        let w = importance.as_deref().map(|w| &w[first..first + format.elements]);
        block.fill(0);
        problem.block(x, w, &mut work, block);
        for field in format.fields {
            if let Some(derived) = field.derived {
                let covered = format.elements / field.count;
                for n in 0..field.count {
                    let sum = problem.sum(&work, n * covered..(n + 1) * covered);
                    let scale = if derived == Derived::Sum { 1.0 } else { problem.scale(&work) };
                    derive(field, n, scale, sum, block);
                }
            }
        }
    }
    Ok(())
}

/// The importance relative to the largest; `None` where there is none.
fn relative(importance: &[f32]) -> Result<Option<Vec<f32>>, QuantiseError> {
    if let Some(col) = importance.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        return Err(QuantiseError::Importance { col, value: importance[col] });
    }
    let largest = f64::from(importance.iter().fold(0.0f32, |m, w| m.max(*w)));
    let part = |w: &f32| ((f64::from(*w) / largest) as f32).max(LEAST_IMPORTANCE);
    Ok((largest > 0.0).then(|| importance.iter().map(part).collect()))
}

/// Fills value `n` of a field that repeats what the codes say.
fn derive(field: &Field, n: usize, scale: f64, sum: i32, block: &mut [u8]) {
    let bits = match field.ty {
        FieldType::F16 | FieldType::Bf16 | FieldType::F32 | FieldType::E8m0 | FieldType::E4m3 => {
            number::nearest(field.ty, scale * f64::from(sum)).bits
        }
        FieldType::U8 | FieldType::I8 | FieldType::U16 | FieldType::I16 | FieldType::U32 => sum as u32,
    };
    let width = field.ty.bytes();
    let at = field.offset + n * width;
    block[at..at + width].copy_from_slice(&bits.to_le_bytes()[..width]);
}
