//! Floating-point words in plain Rust: what every other tier must compute, to the bit.
//!
//! Each word is one IEEE 754 operation per lane, rounded to nearest even, with subnormal numbers; so a word has one
//! right answer and the tiers can only differ in speed. Where the machines disagree a rule stands with the word: the
//! result of [`max`] for a NaN, the order in which [`reduce_add`] adds. The payload and the sign of a NaN are not
//! part of the contract. [`fma`] rounds once; without the instruction that is arithmetic in f64, slow and right.

pub(crate) use crate::ops::{attention::strip::scalar as strip, math::scalar as math, wide::scalar as wide};

/// A register of `LANES` f32 lanes.
pub type F = [f32; 16];

type I = [i32; 16];

#[inline]
fn map(a: F, f: impl Fn(f32) -> f32) -> F {
    a.map(f)
}

#[inline]
fn zip(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    let mut out = a;
    for (o, b) in out.iter_mut().zip(b) {
        *o = f(*o, b);
    }
    out
}

/// The same value in each lane.
#[inline]
pub fn splat(x: f32) -> F {
    [x; 16]
}

/// Loads `LANES` values.
#[inline]
pub fn load(from: &[f32; 16]) -> F {
    *from
}

/// Stores `LANES` values.
#[inline]
pub fn store(to: &mut [f32; 16], a: F) {
    *to = a;
}

/// Loads `LANES` f32 values from little-endian bytes.
#[inline]
pub fn load_f32(bytes: &[u8; 64]) -> F {
    let (words, _) = bytes.as_chunks::<4>();
    core::array::from_fn(|l| f32::from_le_bytes(words[l]))
}

/// Loads `LANES` f16 values from little-endian bytes.
#[inline]
pub fn load_f16(bytes: &[u8; 32]) -> F {
    let (words, _) = bytes.as_chunks::<2>();
    core::array::from_fn(|l| f16_to_f32(u16::from_le_bytes(words[l])))
}

/// Loads `LANES` bf16 values from little-endian bytes.
#[inline]
pub fn load_bf16(bytes: &[u8; 32]) -> F {
    let (words, _) = bytes.as_chunks::<2>();
    core::array::from_fn(|l| f32::from_bits(u32::from(u16::from_le_bytes(words[l])) << 16))
}

/// Loads `LANES` f16 values.
#[inline]
pub fn load_f16s(from: &[u16; 16]) -> F {
    from.map(f16_to_f32)
}

/// Stores `LANES` values as f16, rounded to nearest even; what is too large becomes an infinity.
#[inline]
pub fn store_f16s(to: &mut [u16; 16], a: F) {
    *to = a.map(f32_to_f16);
}

/// `a + b`.
#[inline]
pub fn add(a: F, b: F) -> F {
    zip(a, b, |a, b| a + b)
}

/// `a - b`.
#[inline]
pub fn sub(a: F, b: F) -> F {
    zip(a, b, |a, b| a - b)
}

/// `a * b`.
#[inline]
pub fn mul(a: F, b: F) -> F {
    zip(a, b, |a, b| a * b)
}

/// `a / b`.
#[inline]
pub fn div(a: F, b: F) -> F {
    zip(a, b, |a, b| a / b)
}

/// `a * b + c`, rounded once.
///
/// Called, since sixteen lanes in f64 are so much code that every kernel of every format would grow by it.
#[inline(never)]
pub fn fma(a: F, b: F, c: F) -> F {
    core::array::from_fn(|l| fma_lane(a[l], b[l], c[l]))
}

/// One fused multiply-add: the instruction where the program is compiled for one, else two operations in f64.
#[inline]
fn fma_lane(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        crate::plain::fma(a, b, c)
    } else {
        fma_in_f64(a, b, c)
    }
}

/// The product of two f32 is exact in f64; the sum is rounded to odd, so that rounding it again to f32 rounds once.
///
/// The rounding error of the sum is known exactly. If there is one and the last bit of the sum is even, the true
/// value lies between the sum and its neighbour on the error's side, which is odd.
#[inline]
pub fn fma_in_f64(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let c_part = sum - product;
    let error = (product - (sum - c_part)) + (c - c_part);
    let bits = sum.to_bits();
    let outward = u64::from(error > 0.0).wrapping_sub(u64::from(error < 0.0));
    // The sum's sign turns upwards into outwards; an odd sum stays.
    let outward = if bits >> 63 == 0 { outward } else { outward.wrapping_neg() };
    f64::from_bits(bits.wrapping_add(outward & (bits & 1).wrapping_sub(1))) as f32
}

/// The value with its sign bit flipped.
#[inline]
pub fn neg(a: F) -> F {
    map(a, |a| -a)
}

/// The value with its sign bit cleared.
#[inline]
pub fn abs(a: F) -> F {
    map(a, f32::abs)
}

/// The magnitude of `a` with the sign bit of `b`.
#[inline]
pub fn copy_sign(a: F, b: F) -> F {
    zip(a, b, f32::copysign)
}

/// `a` where `a > b`, else `b`: a NaN in either gives `b`.
#[inline]
pub fn max(a: F, b: F) -> F {
    zip(a, b, |a, b| if a > b { a } else { b })
}

/// `a` where `a < b`, else `b`: a NaN in either gives `b`.
#[inline]
pub fn min(a: F, b: F) -> F {
    zip(a, b, |a, b| if a < b { a } else { b })
}

/// The larger of two values without sign, by their bits: a NaN is larger than infinity.
#[inline]
pub fn max_bits(a: F, b: F) -> F {
    zip(a, b, |a, b| if a.to_bits() > b.to_bits() { a } else { b })
}

/// `x` where `a > b`, else `y`.
#[inline]
pub fn select_greater(a: F, b: F, x: F, y: F) -> F {
    core::array::from_fn(|l| if a[l] > b[l] { x[l] } else { y[l] })
}

/// The square root.
#[inline]
pub fn sqrt(a: F) -> F {
    map(a, crate::plain::sqrt)
}

/// The nearest integer, the even one of two.
#[inline]
pub fn round_even(a: F) -> F {
    map(a, crate::plain::round_even)
}

/// The nearest f32 of an integer.
#[inline]
pub fn from_i32(a: I) -> F {
    a.map(|a| a as f32)
}

/// The integer that the value is; it must be one below 2³¹ in magnitude.
#[inline]
pub fn to_i32(a: F) -> I {
    a.map(|a| a as i32)
}

/// Two to the power of an integer from -127 to 128; the ends give zero and infinity.
#[inline]
pub fn pow2(n: I) -> F {
    n.map(|n| f32::from_bits((n.wrapping_add(127) as u32) << 23))
}

/// The lowest nine bits of the value's representation moved to where sign and exponent are.
#[inline]
pub fn low_bits_to_exponent(a: F) -> F {
    map(a, |a| f32::from_bits(a.to_bits() << 23))
}

#[inline]
fn reduce(v: [F; 1], f: impl Fn(f32, f32) -> f32) -> f32 {
    let [mut v] = v;
    for step in [8, 4, 2, 1] {
        for l in 0..step {
            v[l] = f(v[l], v[l + step]);
        }
    }
    v[0]
}

/// The sum of sixteen lanes: lane l takes lane l + 8, then l + 4, l + 2, l + 1.
#[inline]
pub fn reduce_add(v: [F; 1]) -> f32 {
    reduce(v, |a, b| a + b)
}

/// The [`max`] of sixteen lanes in the order of [`reduce_add`].
#[inline]
pub fn reduce_max(v: [F; 1]) -> f32 {
    reduce(v, |a, b| if a > b { a } else { b })
}

/// The [`max_bits`] of sixteen lanes.
#[inline]
pub fn reduce_max_bits(v: [F; 1]) -> f32 {
    reduce(v, |a, b| if a.to_bits() > b.to_bits() { a } else { b })
}

/// Rounds sixteen values to the nearest integer, the even one of two, stores them as bytes and gives their sum. The
/// rounded values must be within -128 to 127.
#[inline]
pub fn store_codes(to: &mut [i8; 16], v: [F; 1]) -> i32 {
    *to = v[0].map(|x| crate::plain::round_even(x) as i8);
    to.iter().map(|&q| i32::from(q)).sum()
}

/// The value of an f16.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff) << 13;
    if magnitude >= 0x7c00 << 13 {
        return f32::from_bits(sign | 0x7f80_0000 | magnitude);
    }
    // The exponent's bias differs by 112, and a multiplication sets that right for subnormal values too.
    f32::from_bits(sign | (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits())
}

/// The f16 nearest to a value, the even one of two.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    sign | if magnitude > 0x7f80_0000 {
        0x7e00
    } else if magnitude >= (127 + 16) << 23 {
        0x7c00
    } else if magnitude < (127 - 14) << 23 {
        // A subnormal f16 is a multiple of 2⁻²⁴, the step of f32 from one half to one: the addition rounds.
        ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        // Half a step less one, plus the last bit that stays, carries exactly when rounding to even goes up.
        ((magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13) as u16
    }
}
