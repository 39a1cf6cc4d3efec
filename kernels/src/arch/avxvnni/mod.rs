//! The AVX-VNNI vocabulary: that of AVX2, with dot products by one instruction.

use core::arch::x86_64::*;

pub use super::avx2::*;

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `sums` are the sums of the activations of a group's halves, and `which` has a 1
/// for each half that the codes cover.
///
/// `vpdpbusd` adds four products of unsigned and signed bytes in 32 bits, so nothing can saturate, and `vpdpwssd`
/// takes the bias out with the sums: one instruction each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    sums: [i16; 2],
    which: [i16; 2],
) -> I {
    let mut acc = _mm256_setzero_si256();
    if BIAS != 0 {
        acc = _mm256_dpwssd_avx_epi32(acc, splat2(sums), splat2(which.map(|w| w * -BIAS as i16)));
    }
    for q in 0..N {
        acc = _mm256_dpbusd_avx_epi32(acc, codes[q], splat4(y[q]));
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    sums: [[i16; 2]; 2],
    which: [i16; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], sums[0], which), dot::<N, MAX, BIAS>(codes, y[1], sums[1], which)]
}
