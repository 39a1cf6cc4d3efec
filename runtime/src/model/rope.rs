//! Rotary positions: frequencies, scaling, and the cosines and sines of a position.
//!
//! All of it is computed in f64 by the `libm` crate and plain multiplication, so it is the same on every machine.
//! A table over all positions would take as much memory as the weights of a small model. Instead two small ones
//! are made at load, of every `FINE`th position and of the positions in between; the angle addition formulas
//! put any position together when it is needed, with an error far below what f32 can hold.

use super::arch::{Architecture, RopeStyle};
use super::reader::Reader;
use crate::error::Error;
use crate::files::ModelFile;
use std::f64::consts::PI;

/// Positions between two entries of the coarse table.
const FINE: usize = 64;

/// How frequencies change with the length of the context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// They all take the same factor.
    Linear,
    /// Low frequencies take the factor, high ones stay, those between are mixed.
    Yarn {
        /// Weight of the unscaled frequencies.
        mix: f64,
        /// Turns over the original context above which a frequency stays.
        fast: f64,
        /// Turns over the original context below which a frequency takes the whole factor.
        slow: f64,
        /// Context of the training before scaling.
        original: f64,
    },
}

/// One kind of rotation.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeParams {
    /// Which dimensions are turned together.
    pub style: RopeStyle,
    /// Dimensions that are rotated, the first ones of a head.
    pub dims: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// Factor of the frequencies.
    pub scale: f32,
    /// How the factor is applied.
    pub scaling: Scaling,
    /// Factor of cosine and sine.
    pub magnitude: f32,
    /// The tensor of divisors of the angles, if the file has it.
    pub divisors: Option<&'static str>,
}

impl RopeParams {
    /// Reads the kinds of rotation of a model: one, or a second one for layers with a window.
    pub(crate) fn read(
        reader: &Reader,
        file: &ModelFile,
        arch: &Architecture,
        head_dim: usize,
        trained: usize,
        context: usize,
    ) -> Result<Vec<RopeParams>, Error> {
        let dims = reader.count("rope.dimension_count")?.unwrap_or(head_dim);
        if dims == 0 || dims % 2 == 1 || dims > head_dim {
            let accepted = format!("an even number from 2 to {head_dim}");
            return Err(reader.refuse("rope.dimension_count", format_args!("found {dims}"), accepted));
        }
        let base = positive(reader, "rope.freq_base", 10_000.0)?;
        let (scale, scaling, magnitude, long) = scaling(reader, trained, context)?;
        let divisors = divisors(file, long);
        let global = RopeParams { style: arch.rope, dims, base, scale, scaling, magnitude, divisors };
        if arch.window.is_none() {
            return Ok(vec![global]);
        }
        let local_base = positive(reader, "rope.freq_base_swa", arch.local_base.unwrap_or(base))?;
        let mut local = RopeParams { base: local_base, ..global.clone() };
        if !arch.local_scaling {
            local =
                RopeParams { scale: 1.0, scaling: Scaling::Linear, magnitude: 1.0, divisors: None, ..local };
        }
        Ok(if local == global { vec![global] } else { vec![global, local] })
    }

    /// The frequency of each pair, in radians per position.
    fn frequencies(&self, divisors: Option<&[f32]>) -> Vec<f64> {
        let (n, base) = (self.dims as f64, f64::from(self.base));
        (0..self.dims / 2)
            .map(|j| {
                let plain = libm::pow(base, -2.0 * j as f64 / n) / divisors.map_or(1.0, |d| f64::from(d[j]));
                let scaled = plain * f64::from(self.scale);
                match self.scaling {
                    Scaling::Linear => scaled,
                    Scaling::Yarn { mix, fast, slow, original } => {
                        let dim = |turns: f64| {
                            n * libm::log(original / (2.0 * PI * turns)) / (2.0 * libm::log(base))
                        };
                        let low = libm::floor(dim(fast)).max(0.0);
                        let high = libm::ceil(dim(slow)).min(n - 1.0);
                        let ramp = ((j as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                        let keep = (1.0 - ramp) * mix;
                        scaled * (1.0 - keep) + plain * keep
                    }
                }
            })
            .collect()
    }
}

fn positive(reader: &Reader, key: &str, absent: f32) -> Result<f32, Error> {
    match reader.number(key)?.unwrap_or(absent) {
        value if value > 0.0 => Ok(value),
        value => Err(reader.refuse(key, format_args!("found {value}"), "a number above 0")),
    }
}

/// The factor of frequencies, how it applies, the magnitude, and whether the context is longer than the original.
fn scaling(reader: &Reader, trained: usize, context: usize) -> Result<(f32, Scaling, f32, bool), Error> {
    let kind = reader.text("rope.scaling.type")?.unwrap_or("linear");
    let mut factor = reader.number("rope.scaling.factor")?;
    if factor.is_none() {
        factor = reader.number("rope.scale_linear")?;
    }
    // In files, 0 stands for "not set".
    let factor = factor.filter(|&f| f != 0.0).unwrap_or(1.0);
    if factor < 0.0 {
        return Err(reader.refuse("rope.scaling.factor", format_args!("found {factor}"), "a number above 0"));
    }
    let scale = 1.0 / factor;
    let original =
        reader.count("rope.scaling.original_context_length")?.filter(|&n| n > 0).unwrap_or(trained);
    let stated = reader.number("rope.scaling.attn_factor")?.filter(|&f| f > 0.0).unwrap_or(1.0);
    let long = context > original;
    match kind {
        "none" => Ok((1.0, Scaling::Linear, stated, long)),
        "linear" => Ok((scale, Scaling::Linear, stated, long)),
        "longrope" => Ok((scale, Scaling::Linear, stated, long)),
        "yarn" => {
            let number = |key, absent| Ok::<_, Error>(reader.number(key)?.unwrap_or(absent));
            if number("rope.scaling.yarn_log_multiplier", 0.0)? != 0.0 {
                let accepted = "0: the multiplier belongs to architectures that do not run here";
                return Err(reader.refuse(
                    "rope.scaling.yarn_log_multiplier",
                    "found another value",
                    accepted,
                ));
            }
            let mix = number("rope.scaling.yarn_ext_factor", -1.0)?;
            let mix = if mix < 0.0 { 1.0 } else { f64::from(mix) };
            let (fast, slow) = (
                positive(reader, "rope.scaling.yarn_beta_fast", 32.0)?,
                positive(reader, "rope.scaling.yarn_beta_slow", 1.0)?,
            );
            let yarn = Scaling::Yarn { mix, fast: fast.into(), slow: slow.into(), original: original as f64 };
            let grown = if factor > 1.0 { 1.0 + 0.1 * libm::log(f64::from(factor)) } else { 1.0 };
            let grown = if mix == 0.0 { 1.0 } else { grown };
            let magnitude =
                grown * f64::from(stated) * f64::from(number("rope.scaling.yarn_attn_factor", 1.0)?);
            Ok((scale, yarn, magnitude as f32, long))
        }
        other => {
            let found: String = other.chars().filter(|c| !c.is_control()).take(40).collect();
            Err(reader.refuse(
                "rope.scaling.type",
                format_args!("found '{found}'"),
                "none, linear, yarn, longrope",
            ))
        }
    }
}

/// The tensor that divides angles, if the file has one for this length of context.
fn divisors(file: &ModelFile, long: bool) -> Option<&'static str> {
    let by_length = if long { "rope_factors_long.weight" } else { "rope_factors_short.weight" };
    [by_length, "rope_freqs.weight"].into_iter().find(|name| file.tensor(name).is_some())
}

/// Cosines and sines of one kind of rotation, for any position below a limit.
#[derive(Debug)]
pub(crate) struct RopeTable {
    pairs: usize,
    magnitude: f32,
    /// (cos, sin) of position `i` at `i * pairs`.
    fine: Vec<(f64, f64)>,
    /// (cos, sin) of position `i * FINE` at `i * pairs`.
    coarse: Vec<(f64, f64)>,
}

impl RopeTable {
    /// Makes the tables for positions below `context`.
    ///
    /// # Panics
    /// When `divisors` is shorter than the pairs.
    pub(crate) fn new(params: &RopeParams, divisors: Option<&[f32]>, context: usize) -> Self {
        let frequencies = params.frequencies(divisors);
        let table = |count: usize, step: usize| -> Vec<(f64, f64)> {
            let angles = (0..count).flat_map(|i| frequencies.iter().map(move |f| (i * step) as f64 * f));
            angles.map(|angle| (libm::cos(angle), libm::sin(angle))).collect()
        };
        RopeTable {
            pairs: frequencies.len(),
            magnitude: params.magnitude,
            fine: table(FINE.min(context), 1),
            coarse: table(context.div_ceil(FINE), FINE),
        }
    }

    /// Writes the cosines and sines of a position.
    pub(crate) fn row(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        let fine = &self.fine[position % FINE * self.pairs..][..self.pairs];
        let coarse = &self.coarse[position / FINE * self.pairs..][..self.pairs];
        let out = cos[..self.pairs].iter_mut().zip(&mut sin[..self.pairs]);
        for ((cos, sin), (&(fc, fs), &(cc, cs))) in out.zip(fine.iter().zip(coarse)) {
            *cos = (fc * cc - fs * cs) as f32 * self.magnitude;
            *sin = (fc * cs + fs * cc) as f32 * self.magnitude;
        }
    }

    /// Bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.fine) + size_of_val(&*self.coarse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(dims: usize) -> RopeParams {
        RopeParams {
            style: RopeStyle::Neox,
            dims,
            base: 10_000.0,
            scale: 1.0,
            scaling: Scaling::Linear,
            magnitude: 1.0,
            divisors: None,
        }
    }

    #[test]
    fn a_row_is_the_cosine_and_sine_of_its_position_to_the_last_bit_of_f32() {
        let params = plain(8);
        let table = RopeTable::new(&params, None, 5000);
        for position in [0, 1, 63, 64, 65, 1000, 4999] {
            let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]);
            table.row(position, &mut cos, &mut sin);
            for j in 0..4 {
                let angle = position as f64 * libm::pow(10_000.0, -2.0 * j as f64 / 8.0);
                let (c, s) = (libm::cos(angle), libm::sin(angle));
                assert!((f64::from(cos[j]) - c).abs() < 6.1e-8, "cos {position} {j}: {} {c}", cos[j]);
                assert!((f64::from(sin[j]) - s).abs() < 6.1e-8, "sin {position} {j}: {} {s}", sin[j]);
            }
        }
    }

    #[test]
    fn divisors_divide_and_the_factor_multiplies_the_angle() {
        let halved = RopeParams { scale: 0.5, magnitude: 2.0, ..plain(4) };
        let table = RopeTable::new(&halved, Some(&[4.0, 1.0]), 100);
        let (mut cos, mut sin) = ([0.0; 2], [0.0; 2]);
        table.row(80, &mut cos, &mut sin);
        assert!(
            (cos[0] - 2.0 * libm::cosf(10.0)).abs() < 1e-6 && (sin[0] - 2.0 * libm::sinf(10.0)).abs() < 1e-6
        );
        assert!(
            (cos[1] - 2.0 * libm::cosf(0.4)).abs() < 1e-6 && (sin[1] - 2.0 * libm::sinf(0.4)).abs() < 1e-6
        );
    }

    #[test]
    fn yarn_leaves_high_frequencies_and_scales_low_ones() {
        let scaling = Scaling::Yarn { mix: 1.0, fast: 32.0, slow: 1.0, original: 4096.0 };
        let yarn = RopeParams { scale: 0.25, scaling, ..plain(128) };
        let (plain, yarn) = (plain(128).frequencies(None), yarn.frequencies(None));
        assert_eq!(yarn[0], plain[0]);
        assert_eq!(yarn[63], plain[63] * 0.25);
        let middle = yarn[35] / plain[35];
        assert!(middle > 0.25 && middle < 1.0, "{middle}");
    }
}
