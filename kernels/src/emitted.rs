//! What generated code calls. Not for people: it changes with the generator.

pub use crate::panel::{PackJob, PanelJob, RowJob, kernel};
pub use crate::{Field, FieldType, Format, Product, Tier, TierKernels, Values};
pub use crate::{arch, float};

/// `N` bytes of a block.
#[inline(always)]
pub fn bytes<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..at + N].first_chunk().expect("a slice of N bytes")
}

/// Writes `N` bytes into a record.
#[inline(always)]
pub fn put<const N: usize>(record: &mut [u8], at: usize, value: &[u8; N]) {
    record[at..at + N].copy_from_slice(value);
}

/// An f16 of a block.
#[inline(always)]
pub fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes(*bytes(block, at)).to_f32_const()
}

/// A bf16 of a block.
#[inline(always)]
pub fn bf16_at(block: &[u8], at: usize) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(*bytes(block, at))) << 16)
}

/// An f32 of a block.
#[inline(always)]
pub fn f32_at(block: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(*bytes(block, at))
}
