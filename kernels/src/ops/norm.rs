//! Normalisation of rows: RMS norm, layer norm and the Euclidean norm.
//!
//! Sums run over sixteen lanes with fused multiply-adds and end in the fixed tree; what follows is one division,
//! one square root and, per element, the multiplications in the order that each function states.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use isa::wide;

    /// `out = (x · s) · weight` with `s = 1 / √(Σx² / n + eps)`. Without a weight `out = x · s`.
    ///
    /// # Panics
    /// * if the rows have different lengths
    pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
        let factor = rms_factor(x, eps);
        assert_eq!(x.len(), out.len(), "rows of different lengths");
        out.copy_from_slice(x);
        apply(out, weight, factor);
    }

    /// `rms_norm` of each run of `len` values of `x`, in place, each with the same weight: the norm
    /// of queries and keys per head.
    ///
    /// # Panics
    /// * if `len` is zero or does not divide the length of `x`, or the weight is not `len` long
    pub fn rms_norm_in_place(x: &mut [f32], len: usize, weight: Option<&[f32]>, eps: f32) {
        assert!(len != 0 && x.len().is_multiple_of(len), "rows that do not divide the values");
        for row in x.chunks_exact_mut(len) {
            let factor = rms_factor(row, eps);
            apply(row, weight, factor);
        }
    }

    /// Divides each run of `len` values by `max(√Σx², eps)`, in place.
    ///
    /// # Panics
    /// * if `len` is zero or does not divide the length of `x`
    pub fn l2_norm_in_place(x: &mut [f32], len: usize, eps: f32) {
        assert!(len != 0 && x.len().is_multiple_of(len), "rows that do not divide the values");
        for row in x.chunks_exact_mut(len) {
            let norm = crate::plain::sqrt(sum_squares(row));
            let factor = 1.0 / if norm < eps { eps } else { norm };
            apply(row, None, factor);
        }
    }

    /// `out = ((x - mean) · s) · weight + bias` with `s = 1 / √(Σ(x - mean)² / n + eps)`; the last two are one fused
    /// operation where there is a bias.
    ///
    /// # Panics
    /// * if the rows have different lengths
    pub fn layer_norm(x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "rows of different lengths");
        let n = x.len() as f32;
        let sum = wide::fold(x, wide::splat(0.0), 0.0, |acc, x| wide::add(acc, x));
        let mean = isa::reduce_add(sum) / n;
        out.copy_from_slice(x);
        wide::map(out, |x| wide::sub(x, wide::splat(mean)));
        let factor = 1.0 / crate::plain::sqrt(sum_squares(out) / n + eps);
        match bias {
            None => apply(out, weight, factor),
            Some(bias) => {
                apply(out, None, factor);
                assert_eq!(bias.len(), out.len(), "rows of different lengths");
                match weight {
                    None => wide::zip(out, bias, |x, b| wide::add(x, b)),
                    Some(weight) => scale_and_shift(out, weight, bias),
                }
            }
        }
    }

    fn sum_squares(x: &[f32]) -> f32 {
        // Four runs of sixteen at once would hide the latency, but the order of the sum is the contract's.
        isa::reduce_add(wide::fold(x, wide::splat(0.0), 0.0, |acc, x| wide::fma(x, x, acc)))
    }

    fn rms_factor(x: &[f32], eps: f32) -> f32 {
        1.0 / crate::plain::sqrt(sum_squares(x) / x.len() as f32 + eps)
    }

    fn apply(x: &mut [f32], weight: Option<&[f32]>, factor: f32) {
        let factor = wide::splat(factor);
        match weight {
            None => wide::map(x, |x| wide::mul(x, factor)),
            Some(weight) => wide::zip(x, weight, |x, w| wide::mul(wide::mul(x, factor), w)),
        }
    }

    /// `x · weight + bias`, fused.
    fn scale_and_shift(x: &mut [f32], weight: &[f32], bias: &[f32]) {
        let (chunks, tail) = x.as_chunks_mut::<16>();
        let (weights, weight) = weight.as_chunks::<16>();
        let (biases, bias) = bias.as_chunks::<16>();
        assert!(chunks.len() == weights.len() && tail.len() == weight.len(), "rows of different lengths");
        for ((x, w), b) in chunks.iter_mut().zip(weights).zip(biases) {
            wide::store(x, wide::fma(wide::load(x), wide::load(w), wide::load(b)));
        }
        let y =
            wide::fma(wide::load_tail(tail, 0.0), wide::load_tail(weight, 0.0), wide::load_tail(bias, 0.0));
        wide::store_tail(tail, y);
    }
}
