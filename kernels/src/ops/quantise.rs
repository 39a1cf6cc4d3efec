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

    /// Quantises the same columns of some tokens, from `token` on, that of the first column in the group `first`; the
    /// last group behaves as if zeros followed. Groups of neighbouring tokens lie together, so several tokens at once are
    /// faster than one after the other.
    ///
    /// # Panics
    /// * if `out` has no such tokens or groups, or the rows differ in length
    pub fn quantise(x: &[&[f32]], out: &mut ActivationsMut<'_>, token: usize, first: usize) {
        let cols = x.first().map_or(0, |x| x.len());
        for at in 0..cols.div_ceil(GROUP) {
            for (t, x) in x.iter().enumerate() {
                assert_eq!(x.len(), cols, "rows of different lengths");
                let (codes, to) = out.group(token + t, first + at);
                let rest = &x[at * GROUP..];
                *to = match rest.first_chunk() {
                    Some(x) => group(x, codes),
                    None => {
                        let mut padded = [0.0; GROUP];
                        padded[..rest.len()].copy_from_slice(rest);
                        group(&padded, codes)
                    }
                };
            }
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
