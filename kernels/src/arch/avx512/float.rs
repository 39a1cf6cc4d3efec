//! Floating-point words of AVX-512. What each word means stands in the scalar tier.

use core::arch::x86_64::*;

pub(crate) use crate::ops::{attention::strip::avx512 as strip, math::avx512 as math, wide::avx512 as wide};

/// A register of `LANES` f32 lanes.
pub type F = __m512;

/// The same value in each lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn splat(x: f32) -> F {
    _mm512_set1_ps(x)
}

/// Loads `LANES` values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn load(from: &[f32; 16]) -> F {
    // SAFETY: the reference covers the 64 bytes that are read; the load asks for no alignment.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

/// Stores `LANES` values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn store(to: &mut [f32; 16], a: F) {
    // SAFETY: the reference covers the 64 bytes that are written; the store asks for no alignment.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), a) }
}

/// Loads `LANES` f32 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn load_f32(bytes: &[u8; 64]) -> F {
    // SAFETY: the reference covers the 64 bytes that are read; the load asks for no alignment.
    unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) }
}

/// Loads `LANES` f16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn load_f16(bytes: &[u8; 32]) -> F {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) })
}

/// Loads `LANES` bf16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn load_bf16(bytes: &[u8; 32]) -> F {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    let words = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)))
}

/// Loads `LANES` f16 values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn load_f16s(from: &[u16; 16]) -> F {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
}

/// Stores `LANES` values as f16, rounded to nearest even; what is too large becomes an infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn store_f16s(to: &mut [u16; 16], a: F) {
    let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
    // SAFETY: the reference covers the 32 bytes that are written; the store asks for no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), halves) }
}

/// `a + b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn add(a: F, b: F) -> F {
    _mm512_add_ps(a, b)
}

/// `a - b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn sub(a: F, b: F) -> F {
    _mm512_sub_ps(a, b)
}

/// `a * b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn mul(a: F, b: F) -> F {
    _mm512_mul_ps(a, b)
}

/// `a / b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn div(a: F, b: F) -> F {
    _mm512_div_ps(a, b)
}

/// `a * b + c`, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn fma(a: F, b: F, c: F) -> F {
    _mm512_fmadd_ps(a, b, c)
}

/// The value with its sign bit flipped.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn neg(a: F) -> F {
    _mm512_xor_ps(a, _mm512_set1_ps(-0.0))
}

/// The value with its sign bit cleared.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn abs(a: F) -> F {
    _mm512_andnot_ps(_mm512_set1_ps(-0.0), a)
}

/// The magnitude of `a` with the sign bit of `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn copy_sign(a: F, b: F) -> F {
    let sign = _mm512_set1_ps(-0.0);
    _mm512_or_ps(_mm512_and_ps(sign, b), _mm512_andnot_ps(sign, a))
}

/// `a` where `a > b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn max(a: F, b: F) -> F {
    _mm512_max_ps(a, b)
}

/// `a` where `a < b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn min(a: F, b: F) -> F {
    _mm512_min_ps(a, b)
}

/// The larger of two values without sign, by their bits: a NaN is larger than infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn max_bits(a: F, b: F) -> F {
    _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)))
}

/// `x` where `a > b`, else `y`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn select_greater(a: F, b: F, x: F, y: F) -> F {
    _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x)
}

/// The square root.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn sqrt(a: F) -> F {
    _mm512_sqrt_ps(a)
}

/// The nearest integer, the even one of two.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn round_even(a: F) -> F {
    _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
}

/// The nearest f32 of an integer.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn from_i32(a: __m512i) -> F {
    _mm512_cvtepi32_ps(a)
}

/// The integer that the value is; it must be one below 2³¹ in magnitude.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn to_i32(a: F) -> __m512i {
    _mm512_cvttps_epi32(a)
}

/// Two to the power of an integer from -127 to 128; the ends give zero and infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn pow2(n: __m512i) -> F {
    _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127))))
}

/// The lowest nine bits of the value's representation moved to where sign and exponent are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn low_bits_to_exponent(a: F) -> F {
    _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a)))
}

/// The sum of sixteen lanes: lane l takes lane l + 8, then l + 4, l + 2, l + 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn reduce_add(v: [F; 1]) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps::<1>(v[0]));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The [`max`] of sixteen lanes in the order of [`reduce_add`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn reduce_max(v: [F; 1]) -> f32 {
    let eight = _mm256_max_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps::<1>(v[0]));
    let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

/// The [`max_bits`] of sixteen lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn reduce_max_bits(v: [F; 1]) -> f32 {
    let v = _mm512_castps_si512(v[0]);
    let eight = _mm256_max_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
    let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b11_10_11_10>(four));
    let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b01_01_01_01>(two));
    f32::from_bits(_mm_cvtsi128_si32(one) as u32)
}

/// Rounds sixteen values to the nearest integer, the even one of two, stores them as bytes and gives their sum. The
/// rounded values must be within -128 to 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub fn store_codes(to: &mut [i8; 16], v: [F; 1]) -> i32 {
    let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v[0]));
    // SAFETY: the reference covers the 16 bytes that are written; the store asks for no alignment.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) };
    // Sums of eight bytes each, made unsigned by adding 128.
    let sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
    _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128
}
