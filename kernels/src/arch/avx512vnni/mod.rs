//! The AVX-512 VNNI vocabulary: that of AVX-512, with dot products by one instruction.

use core::arch::x86_64::*;

pub use super::avx512::*;

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// `vpdpbusd` adds four products of unsigned and signed bytes in 32 bits, so nothing can saturate.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let mut acc = _mm512_set1_epi32(minus * BIAS);
    for q in 0..N {
        acc = _mm512_dpbusd_epi32(acc, codes[q], splat4(y[q]));
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], minus[0]), dot::<N, MAX, BIAS>(codes, y[1], minus[1])]
}
