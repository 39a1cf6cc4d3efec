//! Floating-point words of NEON. What each word means stands in the scalar tier.
//!
//! The machine's own maximum and minimum return a NaN of either side, so those words compare and select instead.

use core::arch::aarch64::*;

pub(crate) use crate::ops::{attention::strip::neon as strip, math::neon as math, wide::neon as wide};

/// A register of `LANES` f32 lanes.
pub type F = float32x4_t;

/// The same value in each lane.
#[inline]
#[target_feature(enable = "neon")]
pub fn splat(x: f32) -> F {
    vdupq_n_f32(x)
}

/// Loads `LANES` values.
#[inline]
#[target_feature(enable = "neon")]
pub fn load(from: &[f32; 4]) -> F {
    // SAFETY: the reference covers the 16 bytes that are read.
    unsafe { vld1q_f32(from.as_ptr()) }
}

/// Stores `LANES` values.
#[inline]
#[target_feature(enable = "neon")]
pub fn store(to: &mut [f32; 4], a: F) {
    // SAFETY: the reference covers the 16 bytes that are written.
    unsafe { vst1q_f32(to.as_mut_ptr(), a) }
}

/// Loads `LANES` f32 values from little-endian bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_f32(bytes: &[u8; 16]) -> F {
    // SAFETY: the reference covers the 16 bytes that are read; a load of bytes asks for no alignment.
    vreinterpretq_f32_u8(unsafe { vld1q_u8(bytes.as_ptr()) })
}

/// Loads `LANES` f16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_f16(bytes: &[u8; 8]) -> F {
    // SAFETY: the reference covers the 8 bytes that are read; a load of bytes asks for no alignment.
    let halves = unsafe { vld1_u8(bytes.as_ptr()) };
    vcvt_f32_f16(vreinterpret_f16_u8(halves))
}

/// Loads `LANES` bf16 values from little-endian bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_bf16(bytes: &[u8; 8]) -> F {
    // SAFETY: the reference covers the 8 bytes that are read; a load of bytes asks for no alignment.
    let words = unsafe { vld1_u8(bytes.as_ptr()) };
    vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(words)))
}

/// Loads `LANES` f16 values.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_f16s(from: &[u16; 4]) -> F {
    // SAFETY: the reference covers the 8 bytes that are read.
    let halves = unsafe { vld1_u16(from.as_ptr()) };
    vcvt_f32_f16(vreinterpret_f16_u16(halves))
}

/// Stores `LANES` values as f16, rounded to nearest even; what is too large becomes an infinity.
#[inline]
#[target_feature(enable = "neon")]
pub fn store_f16s(to: &mut [u16; 4], a: F) {
    let halves = vreinterpret_u16_f16(vcvt_f16_f32(a));
    // SAFETY: the reference covers the 8 bytes that are written.
    unsafe { vst1_u16(to.as_mut_ptr(), halves) }
}

/// `a + b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn add(a: F, b: F) -> F {
    vaddq_f32(a, b)
}

/// `a - b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn sub(a: F, b: F) -> F {
    vsubq_f32(a, b)
}

/// `a * b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn mul(a: F, b: F) -> F {
    vmulq_f32(a, b)
}

/// `a / b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn div(a: F, b: F) -> F {
    vdivq_f32(a, b)
}

/// `a * b + c`, rounded once.
#[inline]
#[target_feature(enable = "neon")]
pub fn fma(a: F, b: F, c: F) -> F {
    vfmaq_f32(c, a, b)
}

/// The value with its sign bit flipped.
#[inline]
#[target_feature(enable = "neon")]
pub fn neg(a: F) -> F {
    vnegq_f32(a)
}

/// The value with its sign bit cleared.
#[inline]
#[target_feature(enable = "neon")]
pub fn abs(a: F) -> F {
    vabsq_f32(a)
}

/// The magnitude of `a` with the sign bit of `b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn copy_sign(a: F, b: F) -> F {
    vbslq_f32(vdupq_n_u32(1 << 31), b, a)
}

/// `a` where `a > b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn max(a: F, b: F) -> F {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

/// `a` where `a < b`, else `b`: a NaN in either gives `b`.
#[inline]
#[target_feature(enable = "neon")]
pub fn min(a: F, b: F) -> F {
    vbslq_f32(vcltq_f32(a, b), a, b)
}

/// The larger of two values without sign, by their bits: a NaN is larger than infinity.
#[inline]
#[target_feature(enable = "neon")]
pub fn max_bits(a: F, b: F) -> F {
    vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)))
}

/// `x` where `a > b`, else `y`.
#[inline]
#[target_feature(enable = "neon")]
pub fn select_greater(a: F, b: F, x: F, y: F) -> F {
    vbslq_f32(vcgtq_f32(a, b), x, y)
}

/// The square root.
#[inline]
#[target_feature(enable = "neon")]
pub fn sqrt(a: F) -> F {
    vsqrtq_f32(a)
}

/// The nearest integer, the even one of two.
#[inline]
#[target_feature(enable = "neon")]
pub fn round_even(a: F) -> F {
    vrndnq_f32(a)
}

/// The nearest f32 of an integer.
#[inline]
#[target_feature(enable = "neon")]
pub fn from_i32(a: int32x4_t) -> F {
    vcvtq_f32_s32(a)
}

/// The integer that the value is; it must be one below 2³¹ in magnitude.
#[inline]
#[target_feature(enable = "neon")]
pub fn to_i32(a: F) -> int32x4_t {
    vcvtq_s32_f32(a)
}

/// Two to the power of an integer from -127 to 128; the ends give zero and infinity.
#[inline]
#[target_feature(enable = "neon")]
pub fn pow2(n: int32x4_t) -> F {
    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(n, vdupq_n_s32(127))))
}

/// The lowest nine bits of the value's representation moved to where sign and exponent are.
#[inline]
#[target_feature(enable = "neon")]
pub fn low_bits_to_exponent(a: F) -> F {
    vreinterpretq_f32_u32(vshlq_n_u32::<23>(vreinterpretq_u32_f32(a)))
}

/// The sum of sixteen lanes: lane l takes lane l + 8, then l + 4, l + 2, l + 1.
#[inline]
#[target_feature(enable = "neon")]
pub fn reduce_add(v: [F; 4]) -> f32 {
    let four = add(add(v[0], v[2]), add(v[1], v[3]));
    vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
}

/// The [`max`] of sixteen lanes in the order of [`reduce_add`].
#[inline]
#[target_feature(enable = "neon")]
pub fn reduce_max(v: [F; 4]) -> f32 {
    let four = max(max(v[0], v[2]), max(v[1], v[3]));
    let (low, high) = (vget_low_f32(four), vget_high_f32(four));
    let two = vbsl_f32(vcgt_f32(low, high), low, high);
    let (a, b) = (vget_lane_f32::<0>(two), vget_lane_f32::<1>(two));
    if a > b { a } else { b }
}

/// The [`max_bits`] of sixteen lanes.
#[inline]
#[target_feature(enable = "neon")]
pub fn reduce_max_bits(v: [F; 4]) -> f32 {
    let four = max_bits(max_bits(v[0], v[2]), max_bits(v[1], v[3]));
    f32::from_bits(vmaxvq_u32(vreinterpretq_u32_f32(four)))
}

/// Rounds sixteen values to the nearest integer, the even one of two, stores them as bytes and gives their sum. The
/// rounded values must be within -128 to 127.
#[inline]
#[target_feature(enable = "neon")]
pub fn store_codes(to: &mut [i8; 16], v: [F; 4]) -> i32 {
    let low = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(v[0])), vqmovn_s32(vcvtnq_s32_f32(v[1])));
    let high = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(v[2])), vqmovn_s32(vcvtnq_s32_f32(v[3])));
    let bytes = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
    // SAFETY: the reference covers the 16 bytes that are written.
    unsafe { vst1q_s8(to.as_mut_ptr(), bytes) };
    i32::from(vaddlvq_s8(bytes))
}
