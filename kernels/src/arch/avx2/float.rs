//! Floating-point words of AVX2. What each word means stands in the scalar tier.

use core::arch::x86_64::*;

pub(crate) use crate::ops::{attention::strip::avx2 as strip, math::avx2 as math, wide::avx2 as wide};

/// A register of `LANES` f32 lanes.
pub type F = __m256;

/// The same value in each lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn splat(x: f32) -> F {
    _mm256_set1_ps(x)
}

/// Loads `LANES` values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load(from: &[f32; 8]) -> F {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    unsafe { _mm256_loadu_ps(from.as_ptr()) }
}

/// Stores `LANES` values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store(to: &mut [f32; 8], a: F) {
    // SAFETY: the reference covers the 32 bytes that are written; the store asks for no alignment.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), a) }
}

/// Loads `LANES` f32 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_f32(bytes: &[u8; 32]) -> F {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    unsafe { _mm256_loadu_ps(bytes.as_ptr().cast()) }
}

/// Loads `LANES` f16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_f16(bytes: &[u8; 16]) -> F {
    // SAFETY: the reference covers the 16 bytes that are read; the load asks for no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// Loads `LANES` bf16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_bf16(bytes: &[u8; 16]) -> F {
    // SAFETY: the reference covers the 16 bytes that are read; the load asks for no alignment.
    let words = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words)))
}

/// Loads `LANES` f16 values.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_f16s(from: &[u16; 8]) -> F {
    // SAFETY: the reference covers the 16 bytes that are read; the load asks for no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.as_ptr().cast()) })
}

/// Stores `LANES` values as f16, rounded to nearest even; what is too large becomes an infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store_f16s(to: &mut [u16; 8], a: F) {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a);
    // SAFETY: the reference covers the 16 bytes that are written; the store asks for no alignment.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), halves) }
}

/// `a + b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn add(a: F, b: F) -> F {
    _mm256_add_ps(a, b)
}

/// `a - b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn sub(a: F, b: F) -> F {
    _mm256_sub_ps(a, b)
}

/// `a * b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn mul(a: F, b: F) -> F {
    _mm256_mul_ps(a, b)
}

/// `a / b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn div(a: F, b: F) -> F {
    _mm256_div_ps(a, b)
}

/// `a * b + c`, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn fma(a: F, b: F, c: F) -> F {
    _mm256_fmadd_ps(a, b, c)
}

/// The value with its sign bit flipped.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn neg(a: F) -> F {
    _mm256_xor_ps(a, _mm256_set1_ps(-0.0))
}

/// The value with its sign bit cleared.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn abs(a: F) -> F {
    _mm256_andnot_ps(_mm256_set1_ps(-0.0), a)
}

/// The magnitude of `a` with the sign bit of `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn copy_sign(a: F, b: F) -> F {
    let sign = _mm256_set1_ps(-0.0);
    _mm256_or_ps(_mm256_and_ps(sign, b), _mm256_andnot_ps(sign, a))
}

/// `a` where `a > b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn max(a: F, b: F) -> F {
    _mm256_max_ps(a, b)
}

/// `a` where `a < b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn min(a: F, b: F) -> F {
    _mm256_min_ps(a, b)
}

/// The larger of two values without sign, by their bits: a NaN is larger than infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn max_bits(a: F, b: F) -> F {
    _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)))
}

/// `x` where `a > b`, else `y`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn select_greater(a: F, b: F, x: F, y: F) -> F {
    _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b))
}

/// The square root.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn sqrt(a: F) -> F {
    _mm256_sqrt_ps(a)
}

/// The nearest integer, the even one of two.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn round_even(a: F) -> F {
    _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
}

/// The nearest f32 of an integer.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn from_i32(a: __m256i) -> F {
    _mm256_cvtepi32_ps(a)
}

/// The integer that the value is; it must be one below 2³¹ in magnitude.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn to_i32(a: F) -> __m256i {
    _mm256_cvttps_epi32(a)
}

/// Two to the power of an integer from -127 to 128; the ends give zero and infinity.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn pow2(n: __m256i) -> F {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
}

/// The lowest nine bits of the value's representation moved to where sign and exponent are.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn low_bits_to_exponent(a: F) -> F {
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a)))
}

/// The sum of sixteen lanes: lane l takes lane l + 8, then l + 4, l + 2, l + 1.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn reduce_add(v: [F; 2]) -> f32 {
    let eight = _mm256_add_ps(v[0], v[1]);
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The [`max`] of sixteen lanes in the order of [`reduce_add`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn reduce_max(v: [F; 2]) -> f32 {
    let eight = _mm256_max_ps(v[0], v[1]);
    let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
}

/// The [`max_bits`] of sixteen lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn reduce_max_bits(v: [F; 2]) -> f32 {
    let eight = _mm256_max_epi32(_mm256_castps_si256(v[0]), _mm256_castps_si256(v[1]));
    let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b11_10_11_10>(four));
    let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b01_01_01_01>(two));
    f32::from_bits(_mm_cvtsi128_si32(one) as u32)
}

/// Rounds sixteen values to the nearest integer, the even one of two, stores them as bytes and gives their sum. The
/// rounded values must be within -128 to 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store_codes(to: &mut [i8; 16], v: [F; 2]) -> i32 {
    let pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
    let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
    // SAFETY: the reference covers the 16 bytes that are written; the store asks for no alignment.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) };
    // Sums of eight bytes each, made unsigned by adding 128.
    let sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
    _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_unpackhi_epi64(sums, sums))) - 16 * 128
}
