//! Rotary position embedding, in both orders of the pairs.
//!
//! A pair (a, b) becomes (a·cos - b·sin, a·sin + b·cos), each product and each sum rounded on its own. The tables
//! hold one cosine and sine per pair for the position at hand; whoever makes them decides on base, scaling and
//! factors.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use isa::wide;

    /// Rotates neighbouring elements 2j and 2j + 1 of each head; `cos` and `sin` have one entry per pair, and the
    /// elements of a head after those pairs stay.
    ///
    /// # Panics
    /// * if `head_dim` is zero or does not divide the length of `x`, the tables differ in length, or they have more
    ///   pairs than a head
    pub fn rope_norm(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        check(x.len(), head_dim, cos, sin);
        let turn = |[a, b]: [f32; 2], c: f32, s: f32| [a * c - b * s, a * s + b * c];
        let (cos, rest_cos) = cos.as_chunks::<8>();
        let (sin, rest_sin) = sin.as_chunks::<8>();
        for head in x.chunks_exact_mut(head_dim) {
            let (pairs, _) = head.as_chunks_mut::<2>();
            let (full, rest) = pairs.split_at_mut(8 * cos.len());
            // Eight pairs are a loop that the compiler makes vectors of.
            for ((pairs, c), s) in full.as_chunks_mut::<8>().0.iter_mut().zip(cos).zip(sin) {
                *pairs = core::array::from_fn(|i| turn(pairs[i], c[i], s[i]));
            }
            for ((pair, c), s) in rest.iter_mut().zip(rest_cos).zip(rest_sin) {
                *pair = turn(*pair, *c, *s);
            }
        }
    }

    /// Rotates elements j and j + n of each head, with n entries in `cos` and `sin`; the elements of a head after
    /// the first 2n stay.
    ///
    /// # Panics
    /// * as `rope_norm`
    pub fn rope_neox(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
        check(x.len(), head_dim, cos, sin);
        let pairs = cos.len();
        let (full_cos, rest_cos) = cos.as_chunks::<16>();
        let (full_sin, rest_sin) = sin.as_chunks::<16>();
        for head in x.chunks_exact_mut(head_dim) {
            let (first, second) = head[..2 * pairs].split_at_mut(pairs);
            let (full_a, rest_a) = first.as_chunks_mut::<16>();
            let (full_b, rest_b) = second.as_chunks_mut::<16>();
            for (((a, b), c), s) in full_a.iter_mut().zip(full_b).zip(full_cos).zip(full_sin) {
                let (va, vb, vc, vs) = (wide::load(a), wide::load(b), wide::load(c), wide::load(s));
                wide::store(a, wide::sub(wide::mul(va, vc), wide::mul(vb, vs)));
                wide::store(b, wide::add(wide::mul(va, vs), wide::mul(vb, vc)));
            }
            for (((a, b), c), s) in rest_a.iter_mut().zip(rest_b).zip(rest_cos).zip(rest_sin) {
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }

    fn check(len: usize, head_dim: usize, cos: &[f32], sin: &[f32]) {
        assert!(head_dim != 0 && len.is_multiple_of(head_dim), "heads that do not divide the values");
        assert_eq!(cos.len(), sin.len(), "tables of different lengths");
        assert!(2 * cos.len() <= head_dim, "more rotated elements than a head has");
    }
}
