//! Arithmetic on whole rows, in place, and conversion of rows between f32 and f16.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use isa::{math, wide};

    /// Adds `y` to `x`.
    ///
    /// # Panics
    /// * if the rows have different lengths, like every function of two rows here
    pub fn add(x: &mut [f32], y: &[f32]) {
        wide::zip(x, y, |x, y| wide::add(x, y));
    }

    /// Subtracts `y` from `x`.
    pub fn sub(x: &mut [f32], y: &[f32]) {
        wide::zip(x, y, |x, y| wide::sub(x, y));
    }

    /// Multiplies `x` by `y`.
    pub fn mul(x: &mut [f32], y: &[f32]) {
        wide::zip(x, y, |x, y| wide::mul(x, y));
    }

    /// Adds `factor · y` to `x`, rounded once.
    pub fn add_scaled(x: &mut [f32], y: &[f32], factor: f32) {
        wide::zip(x, y, |x, y| wide::fma(wide::splat(factor), y, x));
    }

    /// Multiplies `x` by a number.
    pub fn scale(x: &mut [f32], factor: f32) {
        wide::map(x, |x| wide::mul(x, wide::splat(factor)));
    }

    /// Holds `x` within `low` and `high`; a NaN stays.
    pub fn clamp(x: &mut [f32], low: f32, high: f32) {
        wide::map(x, |x| wide::min(wide::splat(high), wide::max(wide::splat(low), x)));
    }

    /// Replaces x by cap · tanh(x · (1 / cap)).
    pub fn softcap(x: &mut [f32], cap: f32) {
        let (factor, inverse) = (wide::splat(cap), wide::splat(1.0 / cap));
        wide::map(x, |x| wide::mul(factor, math::tanh(wide::mul(x, inverse))));
    }

    /// The largest value of `x`, minus infinity for an empty row; a NaN is passed over or returned.
    pub fn max(x: &[f32]) -> f32 {
        let lowest = wide::splat(f32::NEG_INFINITY);
        isa::reduce_max(wide::fold(x, lowest, f32::NEG_INFINITY, |acc, x| wide::max(x, acc)))
    }

    /// Converts f32 to f16, rounded to nearest even; what is too large becomes an infinity.
    pub fn f32_to_f16(x: &[f32], out: &mut [u16]) {
        assert_eq!(x.len(), out.len(), "rows of different lengths");
        let (chunks, tail) = x.as_chunks::<16>();
        let (outs, rest) = out.as_chunks_mut::<16>();
        for (x, out) in chunks.iter().zip(outs) {
            wide::store_f16s(out, wide::load(x));
        }
        if !tail.is_empty() {
            let mut buffer = [0; 16];
            wide::store_f16s(&mut buffer, wide::load_tail(tail, 0.0));
            rest.copy_from_slice(&buffer[..rest.len()]);
        }
    }

    /// Converts f16 to f32.
    pub fn f16_to_f32(x: &[u16], out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "rows of different lengths");
        let (chunks, tail) = x.as_chunks::<16>();
        let (outs, rest) = out.as_chunks_mut::<16>();
        for (x, out) in chunks.iter().zip(outs) {
            wide::store(out, wide::load_f16s(x));
        }
        if !tail.is_empty() {
            let mut buffer = [0; 16];
            buffer[..tail.len()].copy_from_slice(tail);
            wide::store_tail(rest, wide::load_f16s(&buffer));
        }
    }
}
