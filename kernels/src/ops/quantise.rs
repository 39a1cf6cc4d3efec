//! Quantises activations to int8 in groups of 32, the right-hand side of every quantised weight format.
//!
//! `scale = max|x| / 127` and `q = x · (127 / max|x|)` rounded to the nearest integer, the even one of two, so codes
//! lie in -127 to 127. A group whose magnitudes are all zero, or so small that 127 / max|x| overflows, has scale and
//! codes zero. A group with a NaN or an infinity has codes zero and scale NaN: the fault stays visible in every
//! output that reads it.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use crate::act::{ActGroup, ActivationsMut, GROUP};
    use isa::wide;

    /// Quantises neighbouring columns of a token's row, of which the first belongs to the group `first`; the last group
    /// behaves as if zeros followed.
    ///
    /// # Panics
    /// * if `out` has no such token or groups
    pub fn quantise(x: &[f32], out: &mut ActivationsMut<'_>, token: usize, first: usize) {
        let (full, rest) = x.as_chunks::<GROUP>();
        for (g, x) in full.iter().enumerate() {
            let (codes, to) = out.group(token, first + g);
            *to = group(x, codes);
        }
        if !rest.is_empty() {
            let mut padded = [0.0; GROUP];
            padded[..rest.len()].copy_from_slice(rest);
            let (codes, to) = out.group(token, first + full.len());
            *to = group(&padded, codes);
        }
    }

    fn group(x: &[f32; GROUP], codes: &mut [i8; GROUP]) -> ActGroup {
        let (x, _) = x.as_chunks::<16>();
        let (codes, _) = codes.as_chunks_mut::<16>();
        let (a, b) = (wide::load(&x[0]), wide::load(&x[1]));
        // Compared by their bits a NaN is the largest magnitude, and infinity comes next.
        let largest = isa::reduce_max_bits(wide::max_bits(wide::abs(a), wide::abs(b)));
        let inverse = 127.0 / largest;
        if !(largest.is_finite() && inverse.is_finite()) {
            codes.fill([0; 16]);
            let scale = if largest.is_finite() { 0.0 } else { f32::NAN };
            return ActGroup { scaled_sum: scale, scaled_halves: [scale; 2], ..ActGroup::new(scale, [0; 2]) };
        }
        let inverse = wide::splat(inverse);
        let first = isa::store_codes(&mut codes[0], wide::mul(a, inverse));
        let second = isa::store_codes(&mut codes[1], wide::mul(b, inverse));
        ActGroup::new(largest / 127.0, [first, second])
    }
}
