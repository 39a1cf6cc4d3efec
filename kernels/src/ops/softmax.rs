//! Softmax of a row, in place: exp(x - max) over its sum.
//!
//! Like everything here with the project's own exponential and the fixed tree of sixteen lanes; the division is a
//! multiplication by the rounded inverse of the sum. A row with a NaN, with plus infinity, or of nothing but minus
//! infinity becomes NaN throughout. An empty row stays empty.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use isa::{math, wide};

    /// Replaces a row by its softmax.
    pub fn softmax(x: &mut [f32]) {
        let sum = exp_less_max(x);
        let inverse = wide::splat(1.0 / sum);
        wide::map(x, |x| wide::mul(x, inverse));
    }

    /// Replaces x by exp(x - max) and gives the sum.
    fn exp_less_max(x: &mut [f32]) -> f32 {
        let lowest = f32::NEG_INFINITY;
        let max = isa::reduce_max(wide::fold(x, wide::splat(lowest), lowest, |acc, x| wide::max(x, acc)));
        let max = wide::splat(max);
        let (chunks, tail) = x.as_chunks_mut::<16>();
        let mut sum = wide::splat(0.0);
        for chunk in chunks {
            let e = math::exp(wide::sub(wide::load(chunk), max));
            wide::store(chunk, e);
            sum = wide::add(sum, e);
        }
        if !tail.is_empty() {
            let e = math::exp(wide::sub(wide::load_tail(tail, lowest), max));
            wide::store_tail(tail, e);
            sum = wide::add(sum, e);
        }
        isa::reduce_add(sum)
    }
}
