//! The vocabulary of AArch64 with 8-bit matrix multiplication: that of the dot product extension, with unsigned codes as
//! they are (`usdot`), and two tokens at once by `usmmla`.

use core::arch::aarch64::*;
use core::arch::asm;

pub use super::dotprod::*;

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// `usdot` adds four products of unsigned and signed bytes in 32 bits, so nothing can saturate.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let mut acc = vdupq_n_s32(BIAS * minus);
    for (codes, y) in codes.as_chunks::<4>().0.iter().zip(y.as_chunks::<4>().0) {
        let y = quads(y);
        // SAFETY: `usdot` is there, as the function's features say, and touches nothing but its registers.
        unsafe {
            asm!(
                "usdot {acc:v}.4s, {a:v}.16b, {y:v}.4b[0]",
                "usdot {acc:v}.4s, {b:v}.16b, {y:v}.4b[1]",
                "usdot {acc:v}.4s, {c:v}.16b, {y:v}.4b[2]",
                "usdot {acc:v}.4s, {d:v}.16b, {y:v}.4b[3]",
                acc = inout(vreg) acc,
                a = in(vreg) codes[0],
                b = in(vreg) codes[1],
                c = in(vreg) codes[2],
                d = in(vreg) codes[3],
                y = in(vreg) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
///
/// `usmmla` multiplies two rows of eight codes with two tokens' eight activations each: the lanes of `low` and `high`
/// are (row, token) pairs until the end.
#[inline]
#[target_feature(enable = "neon,dotprod,i8mm")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
    for (q, codes) in codes.as_chunks::<2>().0.iter().enumerate() {
        let (rows01, rows23) = (vzip1q_s32(codes[0], codes[1]), vzip2q_s32(codes[0], codes[1]));
        let y = vcombine_s8(eight(y[0], q), eight(y[1], q));
        // SAFETY: `usmmla` is there, as the function's features say, and touches nothing but its registers.
        unsafe {
            asm!(
                "usmmla {low:v}.4s, {rows01:v}.16b, {y:v}.16b",
                "usmmla {high:v}.4s, {rows23:v}.16b, {y:v}.16b",
                low = inout(vreg) low,
                high = inout(vreg) high,
                rows01 = in(vreg) rows01,
                rows23 = in(vreg) rows23,
                y = in(vreg) y,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
    }
    let bias = minus.map(|minus| vdupq_n_s32(BIAS * minus));
    [vaddq_s32(vuzp1q_s32(low, high), bias[0]), vaddq_s32(vuzp2q_s32(low, high), bias[1])]
}

/// Two neighbouring quads of activations.
#[inline]
#[target_feature(enable = "neon")]
fn eight(y: &[[i8; 4]], pair: usize) -> int8x8_t {
    let at = 2 * pair;
    let (low, high) = (y[at].map(|b| b as u8), y[at + 1].map(|b| b as u8));
    let (low, high) = (u32::from_le_bytes(low), u32::from_le_bytes(high));
    vcreate_s8(u64::from(low) | u64::from(high) << 32)
}
