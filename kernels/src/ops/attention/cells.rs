//! What a cache is made of: f16 as the kernels read it, or rows of a format.
//!
//! Rows of a format lie position by position. A chunk is dequantised by the format's own kernels before it is used, so
//! all that is particular to a type of the cache is how it is written.

use super::layout::{CHUNK, KvLayout, LANES, WIDTH};
use crate::formats::float::F32;
use crate::formats::legacy::{Q4_0, Q8_0};
use crate::plain::round_even;
use crate::{Format, KernelSet, Supported};
use core::ops::Range;

/// The type of keys or of values in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellType {
    /// Four bytes an element, nothing is rounded.
    F32,
    /// Two bytes.
    #[default]
    F16,
    /// A byte and a sixteenth.
    Q8_0,
    /// Half a byte and a sixteenth.
    Q4_0,
}

impl CellType {
    /// All of them, the largest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Q8_0, Self::Q4_0];

    /// The name, as llama.cpp's flags have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// The format of the rows; `None` for f16, which the kernels read as it is.
    fn format(self) -> Option<&'static Format> {
        match self {
            Self::F32 => Some(&F32),
            Self::F16 => None,
            Self::Q8_0 => Some(&Q8_0),
            Self::Q4_0 => Some(&Q4_0),
        }
    }

    /// What heads must be a multiple of.
    pub fn block(self) -> usize {
        self.format().map_or(1, |format| format.elements)
    }

    /// What dequantises rows of this type on a tier; `None` for f16.
    pub fn kernels(self, tier: Supported) -> Option<KernelSet> {
        self.format().map(|format| format.kernels(tier))
    }

    /// Bytes of the keys of a chunk.
    pub fn k_bytes(self, layout: KvLayout) -> usize {
        match self.format() {
            None => layout.k_chunk() * size_of::<u16>(),
            Some(format) => CHUNK * row_bytes(format, layout.k_dim()),
        }
    }

    /// Bytes of the values of a chunk.
    pub fn v_bytes(self, layout: KvLayout) -> usize {
        match self.format() {
            None => layout.v_chunk() * size_of::<u16>(),
            Some(format) => CHUNK * row_bytes(format, layout.v_dim()),
        }
    }

    /// Stores the row of a position in a chunk of rows: the codes are those nearest to the elements, with the largest
    /// one for the largest code.
    ///
    /// # Panics
    /// * if the type is f16, or the chunk is not of as many rows of whole blocks
    pub fn store(self, row: &[f32], position: usize, chunk: &mut [u8]) {
        let format = self.format().expect("rows of a format");
        let bytes = row_bytes(format, row.len());
        assert_eq!(chunk.len(), CHUNK * bytes, "a chunk of another length");
        let out = &mut chunk[position % CHUNK * bytes..][..bytes];
        let blocks = row.chunks(format.elements).zip(out.chunks_mut(format.bytes));
        match self {
            Self::Q8_0 => blocks.for_each(|(x, block)| {
                let (scale, inverse) = scale(largest(x).abs() / 127.0);
                block[..2].copy_from_slice(&scale);
                for (code, x) in block[2..].iter_mut().zip(x) {
                    // Casts of what is too large, and of NaN, saturate.
                    *code = round_even(x * inverse) as i8 as u8;
                }
            }),
            Self::Q4_0 => blocks.for_each(|(x, block)| {
                let (scale, inverse) = scale(largest(x) / -8.0);
                block[..2].copy_from_slice(&scale);
                let code = |x: f32| (round_even(x * inverse + 8.0) as u8).min(15);
                let (low, high) = x.split_at(x.len() / 2);
                for ((codes, low), high) in block[2..].iter_mut().zip(low).zip(high) {
                    *codes = code(*low) | code(*high) << 4;
                }
            }),
            Self::F32 | Self::F16 => {
                blocks.for_each(|(x, block)| block.copy_from_slice(x[0].to_le_bytes().as_slice()));
            }
        }
    }
}

fn row_bytes(format: &Format, dim: usize) -> usize {
    assert!(dim.is_multiple_of(format.elements), "a row of {dim} is not whole blocks of {}", format.name);
    dim / format.elements * format.bytes
}

/// The element of the largest magnitude; 0 where none is a number.
fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m: f32, &x| if x.abs() > m.abs() { x } else { m })
}

/// A scale as it is stored, and its inverse, which is 0 for a scale of 0.
fn scale(scale: f32) -> ([u8; 2], f32) {
    let half = half::f16::from_f32(scale.clamp(-65504.0, 65504.0));
    let inverse = if half.to_f32() == 0.0 { 0.0 } else { 1.0 / half.to_f32() };
    (half.to_le_bytes(), inverse)
}

/// The keys or values of a layer and head.
#[derive(Clone, Copy, Debug)]
pub enum Cells<'a> {
    /// In f16, in the layout of the kernels.
    F16(&'a [u16]),
    /// Rows of a format.
    Rows {
        /// What dequantises them.
        kernels: KernelSet,
        /// All rows, whole chunks.
        bytes: &'a [u8],
    },
}

impl<'a> Cells<'a> {
    /// How many chunks there are of rows of so many elements, which are so many values in f16.
    pub(super) fn chunks(&self, dim: usize, values: usize) -> usize {
        match self {
            Cells::F16(cells) => cells.len() / values,
            Cells::Rows { kernels, bytes } => bytes.len() / (CHUNK * row_bytes(kernels.format(), dim)),
        }
    }

    /// A chunk in f16, if that is what the cells are.
    pub(super) fn halves(&self, place: usize, values: usize) -> Option<&'a [[u16; LANES]]> {
        match self {
            Cells::F16(cells) => Some(cells[place * values..][..values].as_chunks().0),
            Cells::Rows { .. } => None,
        }
    }

    /// Dequantises positions of a chunk one after the other, and hands each to `take`.
    pub(super) fn rows(
        &self,
        place: usize,
        dim: usize,
        positions: Range<usize>,
        row: &mut [f32],
        take: &mut dyn FnMut(usize, &[f32]),
    ) {
        let Cells::Rows { kernels, bytes } = self else { return };
        let size = row_bytes(kernels.format(), dim);
        for position in positions {
            let at = (place * CHUNK + position) * size;
            kernels.dequantise(&bytes[at..at + size], &mut row[..dim]);
            take(position, &row[..dim]);
        }
    }
}

/// Puts a key's row into a chunk of keys.
pub(super) fn spread_key(position: usize, row: &[f32], to: &mut [[f32; LANES]]) {
    let cells = to.as_flattened_mut()[position..].iter_mut().step_by(CHUNK);
    for (cell, x) in cells.zip(row) {
        *cell = *x;
    }
}

/// Puts a value's row into a chunk of values.
pub(super) fn spread_value(layout: KvLayout, position: usize, row: &[f32], to: &mut [[f32; LANES]]) {
    let runs = layout.v_padded() / LANES;
    for (run, x) in row.chunks(LANES).enumerate() {
        let strip = run / WIDTH * WIDTH;
        let width = WIDTH.min(runs - strip);
        let cells = &mut to[strip * CHUNK + position * width + run - strip];
        cells[x.len()..].fill(0.0);
        cells[..x.len()].copy_from_slice(x);
    }
}
