//! What generated code calls. Not for people: it changes with the generator.

pub use crate::panel::{MAX_GROUPS, PackJob, PanelJob, RowJob, Shape, product, rows};
pub use crate::quantise::inverse::{Codes, FloatPlace, Grid, Inverse, Joint, Levels, Part};
pub use crate::{Derived, Field, FieldType, Format, Product, Tier, TierKernels, Values};
pub use crate::{arch, float, ops::float_product};

/// `N` bytes of a block.
#[inline(always)]
pub fn bytes<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..at + N].first_chunk().expect("a slice of N bytes")
}

/// The first `N` bytes of a buffer, to write.
#[inline(always)]
pub fn bytes_mut<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    buffer.first_chunk_mut().expect("a slice of N bytes")
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

/// An f16 from its bits.
#[inline(always)]
pub fn f16_bits(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32_const()
}

/// 2^(e - 128).
#[inline(always)]
pub fn e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

/// Unsigned E4M3 with bias 7; the eighth bit is ignored, but 0x7f is 0.
#[inline(always)]
pub fn e4m3(x: u8) -> f32 {
    if x == 0x7f { 0.0 } else { f32::from_bits(u32::from(x & 0x7f) << 20) * f32::from_bits(247 << 23) }
}

/// An exponent of a block.
#[inline(always)]
pub fn e8m0_at(block: &[u8], at: usize) -> f32 {
    e8m0(block[at])
}

/// An E4M3 number of a block.
#[inline(always)]
pub fn e4m3_at(block: &[u8], at: usize) -> f32 {
    e4m3(block[at])
}

macro_rules! integer_fields {
    ($($name:ident: $ty:ty),*) => {$(
        /// A whole number of an array of a block.
        #[inline(always)]
        pub fn $name(block: &[u8], at: usize, index: i64) -> i64 {
            i64::from(<$ty>::from_le_bytes(*bytes(block, at + index as usize * size_of::<$ty>())))
        }
    )*};
}

integer_fields!(int_u8: u8, int_i8: i8, int_u16: u16, int_i16: i16, int_u32: u32);
