//! The vocabulary of AArch64 with the dot product extension: that of NEON, with dot products by `sdot`.

use core::arch::aarch64::*;
use core::arch::asm;

pub use super::neon::*;

/// Tokens whose sums registers hold in the matrix kernel: more than with NEON, since activations need not be spread.
pub const UNROLL: usize = 4;

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// `sdot` adds four products of signed bytes in 32 bits, so nothing can saturate; codes above 127 are made signed first.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let (flip, bias) = if MAX <= 127 { (0, BIAS) } else { (0x80, BIAS - 128) };
    let mut acc = vdupq_n_s32(bias * minus);
    for (codes, y) in codes.as_chunks::<4>().0.iter().zip(y.as_chunks::<4>().0) {
        let codes = codes.map(|code| veorq_u8(vreinterpretq_u8_s32(code), vdupq_n_u8(flip)));
        let y = quads(y);
        // SAFETY: `sdot` is there, as the function's features say, and touches nothing but its registers.
        unsafe {
            asm!(
                "sdot {acc:v}.4s, {a:v}.16b, {y:v}.4b[0]",
                "sdot {acc:v}.4s, {b:v}.16b, {y:v}.4b[1]",
                "sdot {acc:v}.4s, {c:v}.16b, {y:v}.4b[2]",
                "sdot {acc:v}.4s, {d:v}.16b, {y:v}.4b[3]",
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
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], minus[0]), dot::<N, MAX, BIAS>(codes, y[1], minus[1])]
}

/// Sixteen activations in a register.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn quads(y: &[[i8; 4]; 4]) -> int8x16_t {
    // SAFETY: the reference covers the 16 bytes that are read.
    unsafe { vld1q_s8(y.as_flattened().as_ptr()) }
}
