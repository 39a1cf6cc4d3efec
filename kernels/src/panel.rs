//! The matrix kernels: packed panels of sixteen rows, and rows in the file's own layout.
//!
//! **A lane is a row.** A panel holds sixteen rows of a weight matrix. For each *unit* of 32 columns it has the codes'
//! bit planes: a plane of width `w` is `w` lines of 64 bytes, one 32-bit word for each row, and line `j` holds the
//! quads (four neighbouring columns) `j * 8/w …` at shifts of `w` within each byte. For each block of the format it has
//! a *record* with the sixteen rows' scale parts. All units of a panel come first, then all records.
//!
//! The kernels ([`product`], [`rows`]) are written once for every format and tier. What a format adds is passed in: how a
//! unit becomes eight registers of codes, and how a record becomes scales and offsets. The arithmetic is the contract's:
//! per group `acc = fma(scale * x.scale, dot, acc)`, then with an offset `acc = fma(offset, x.scaled_sum, acc)`,
//! groups in order along the row. A row is never split, so neither the width of a register, nor the number of tokens
//! in a tile, nor the layout of the weights can change a bit.

pub mod product;
pub mod rows;

use crate::{Activations, OutMut};
use core::ops::Range;

/// Rows of a panel.
pub const PANEL: usize = 16;

/// Columns of a unit: one group of activations.
pub const UNIT_COLS: usize = 32;

/// How far ahead of one token's product the weights are asked for, in bytes.
const AHEAD: usize = 8192;

/// Bytes of a panel of rows of `blocks` blocks, rounded up to whole cache lines.
pub const fn panel_bytes(unit: usize, record: usize, units: usize, blocks: usize) -> usize {
    (blocks * (units * unit + record)).next_multiple_of(64)
}

/// The widths of the bit planes that hold codes of `bits` bits, from the low bits up.
pub const fn planes(bits: u32) -> &'static [u32] {
    match bits {
        0 | 1 => &[1],
        2 => &[2],
        3 => &[2, 1],
        4 => &[4],
        5 => &[4, 1],
        6 => &[4, 2],
        7 => &[4, 2, 1],
        _ => &[8],
    }
}

/// A product with packed weights.
#[derive(Debug)]
pub struct PanelJob<'a> {
    /// The packed matrix: panel after panel.
    pub packed: &'a [u8],
    /// Rows of the matrix; the last panel may be partly filled.
    pub rows: usize,
    /// The activations.
    pub x: Activations<'a>,
    /// The panels to compute.
    pub panels: Range<usize>,
    /// Where the result goes.
    pub out: OutMut<'a>,
}

/// A product with weights in the file's layout.
#[derive(Debug)]
pub struct RowJob<'a> {
    /// The matrix, row after row.
    pub bytes: &'a [u8],
    /// Bytes of a row.
    pub row_bytes: usize,
    /// The activations.
    pub x: Activations<'a>,
    /// The rows to compute.
    pub rows: Range<usize>,
    /// Where the result goes.
    pub out: OutMut<'a>,
}

/// Rows to be packed.
#[derive(Debug)]
pub struct PackJob<'a> {
    /// The matrix in the file's layout, row after row.
    pub bytes: &'a [u8],
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// The panels to pack.
    pub panels: Range<usize>,
    /// Where those panels go.
    pub out: &'a mut [u8],
}

/// Most weights of a block.
pub const MAX_BLOCK: usize = 1024;

/// Most groups of a block.
pub const MAX_GROUPS: usize = MAX_BLOCK / 16;

/// The numbers of a format that the kernels of the file's layout work with. A "block" here is what they take at once:
/// two blocks of the file where those have sixteen weights.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a block.
    pub bytes: usize,
    /// Units of 32 weights of a block.
    pub units: usize,
    /// Groups of a block.
    pub groups: usize,
    /// Bits of a stored code.
    pub bits: u32,
    /// What is subtracted from a code.
    pub bias: i32,
    /// Whether groups have an offset.
    pub offset: bool,
    /// Bytes of a packed unit.
    pub unit: usize,
    /// Bytes of a packed record.
    pub record: usize,
    /// The codes that stored codes stand for.
    pub table: Option<&'static [u8; 16]>,
}

impl Shape {
    /// The whole number that a stored code stands for.
    #[inline]
    pub fn value(&self, stored: u8) -> i32 {
        i32::from(self.table.map_or(stored, |table| table[usize::from(stored & 15)])) - self.bias
    }

    /// Replaces stored codes by codes.
    #[inline]
    pub fn look_up(&self, codes: &mut [u8]) {
        if let Some(table) = self.table {
            codes.iter_mut().for_each(|code| *code = table[usize::from(*code & 15)]);
        }
    }
}

/// Writes the stored codes of a block.
pub type Decode<'a> = dyn Fn(&[u8], &mut [u8]) + 'a;

/// Writes the scale and the offset of each group of a block.
pub type Parts<'a> = dyn Fn(&[u8], &mut [f32; MAX_GROUPS], &mut [f32; MAX_GROUPS]) + 'a;

/// Writes the scale parts of a block of one row into a record, for a lane.
pub type Fill<'a> = dyn Fn(&[u8], usize, &mut [u8]) + 'a;
