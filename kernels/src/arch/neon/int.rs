//! Integer words of NEON: codes out of bit planes, codes out of a block's bytes, and exact dot products.

use core::arch::aarch64::*;

/// A register of 32-bit lanes, or of 4 × `LANES` bytes in the order of memory.
pub type I = int32x4_t;

/// Sixteen bytes: the codes of sixteen neighbouring weights.
pub type H = uint8x16_t;

/// Loads `LANES` little-endian words.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_words(bytes: &[u8; 16]) -> I {
    vreinterpretq_s32_u8(h_load(bytes))
}

/// Stores the words of a register.
#[inline]
#[target_feature(enable = "neon")]
pub fn store_words(to: &mut [u8; 16], a: I) {
    h_store(to, vreinterpretq_u8_s32(a));
}

/// Loads `LANES` whole numbers and adds the same to each.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_more(from: &[i32; 4], more: i32) -> I {
    // SAFETY: the reference covers the 16 bytes that are read.
    let a = unsafe { vld1q_s32(from.as_ptr()) };
    vaddq_s32(a, vdupq_n_s32(more))
}

/// Loads `LANES` unsigned bytes, one to a lane.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_u8(bytes: &[u8; 4]) -> I {
    let wide = vmovl_u8(vcreate_u8(u64::from(u32::from_le_bytes(*bytes))));
    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)))
}

/// Loads `LANES` signed bytes, one to a lane.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_i8(bytes: &[u8; 4]) -> I {
    let wide = vmovl_s8(vcreate_s8(u64::from(u32::from_le_bytes(*bytes))));
    vmovl_s16(vget_low_s16(wide))
}

/// Shifts each lane right by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn shr_and<const N: i32>(a: I, mask: u8) -> I {
    let shifted = vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-N));
    vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_u32(shifted), vdupq_n_u8(mask)))
}

/// Shifts each lane left by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn shl_and<const N: i32>(a: I, mask: u8) -> I {
    let shifted = vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(N));
    vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_u32(shifted), vdupq_n_u8(mask)))
}

/// Bitwise or.
#[inline]
#[target_feature(enable = "neon")]
pub fn or(a: I, b: I) -> I {
    vorrq_s32(a, b)
}

/// Takes the same from each byte, modulo 256.
#[inline]
#[target_feature(enable = "neon")]
pub fn bytes_less(a: I, less: u8) -> I {
    vreinterpretq_s32_u8(vsubq_u8(vreinterpretq_u8_s32(a), vdupq_n_u8(less)))
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
#[target_feature(enable = "neon")]
pub fn table(a: I, entries: &[u8; 16]) -> I {
    vreinterpretq_s32_u8(h_table(vreinterpretq_u8_s32(a), entries))
}

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// The multiplication is signed: codes above 127 are made signed first. Two products are at most 2 × 128 × 127, so
/// pairs are added in 16 bits.
#[inline]
#[target_feature(enable = "neon")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let (flip, bias) = if MAX <= 127 { (0, BIAS) } else { (0x80, BIAS - 128) };
    let mut acc = vdupq_n_s32(bias * minus);
    for q in 0..N {
        let code = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_s32(codes[q]), vdupq_n_u8(flip)));
        let y = vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(y[q].map(|b| b as u8))));
        let low = vmull_s8(vget_low_s8(code), vget_low_s8(y));
        acc = vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(code, y)));
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
#[inline]
#[target_feature(enable = "neon")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], minus[0]), dot::<N, MAX, BIAS>(codes, y[1], minus[1])]
}

/// Asks for the cache line at an address that will be read soon; any address is fine.
#[inline]
#[target_feature(enable = "neon")]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch reads nothing that the program can see, and never faults.
    unsafe { core::arch::asm!("prfm pldl2strm, [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Loads sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_load(bytes: &[u8; 16]) -> H {
    // SAFETY: the reference covers the 16 bytes that are read.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Stores sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_store(out: &mut [u8; 16], a: H) {
    // SAFETY: the reference covers the 16 bytes that are written.
    unsafe { vst1q_u8(out.as_mut_ptr(), a) }
}

/// Shifts each byte right by `N` and keeps the bits of `mask`.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_shr_and<const N: i32>(a: H, mask: u8) -> H {
    vandq_u8(vshlq_u8(a, vdupq_n_s8(-N as i8)), vdupq_n_u8(mask))
}

/// Shifts each byte left by `N`; no set bit may leave its byte.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_shl<const N: i32>(a: H) -> H {
    vshlq_u8(a, vdupq_n_s8(N as i8))
}

/// Bitwise or.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_or(a: H, b: H) -> H {
    vorrq_u8(a, b)
}

/// Flips the bits of `mask` in each byte.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_xor(a: H, mask: u8) -> H {
    veorq_u8(a, vdupq_n_u8(mask))
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_table(a: H, entries: &[u8; 16]) -> H {
    vqtbl1q_u8(h_load(entries), a)
}

/// Spreads sixteen fields of one bit, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_unpack1(bytes: &[u8; 2]) -> H {
    let bits = vcombine_u8(vcreate_u8(0x8040_2010_0804_0201), vcreate_u8(0x8040_2010_0804_0201));
    let a = vcombine_u8(vdup_n_u8(bytes[0]), vdup_n_u8(bytes[1]));
    vandq_u8(vtstq_u8(a, bits), vdupq_n_u8(1))
}

/// Spreads sixteen fields of two bits, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_unpack2(bytes: &[u8; 4]) -> H {
    let spread = vcombine_u8(vcreate_u8(0x0101_0101_0000_0000), vcreate_u8(0x0303_0303_0202_0202));
    let shifts = vreinterpretq_s8_u32(vdupq_n_u32(u32::from_le_bytes([0, 0xfe, 0xfc, 0xfa])));
    let a = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(*bytes))), spread);
    vandq_u8(vshlq_u8(a, shifts), vdupq_n_u8(3))
}

/// Spreads sixteen fields of four bits, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_unpack4(bytes: &[u8; 8]) -> H {
    let a = vcreate_u8(u64::from_le_bytes(*bytes));
    let (low, high) = (vand_u8(a, vdup_n_u8(15)), vshr_n_u8::<4>(a));
    vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high))
}

/// The exact dot product of sixteen unsigned codes with sixteen activations.
#[inline]
#[target_feature(enable = "neon")]
pub fn h_dot(codes: H, y: &[i8; 16]) -> i32 {
    // SAFETY: the reference covers the 16 bytes that are read.
    let y = unsafe { vld1q_s8(y.as_ptr()) };
    let (low, high) = (vmovl_u8(vget_low_u8(codes)), vmovl_high_u8(codes));
    let (low, high) = (vreinterpretq_s16_u16(low), vreinterpretq_s16_u16(high));
    let (ylow, yhigh) = (vmovl_s8(vget_low_s8(y)), vmovl_high_s8(y));
    let mut acc = vmull_s16(vget_low_s16(low), vget_low_s16(ylow));
    acc = vmlal_high_s16(acc, low, ylow);
    acc = vmlal_s16(acc, vget_low_s16(high), vget_low_s16(yhigh));
    vaddvq_s32(vmlal_high_s16(acc, high, yhigh))
}

/// Loads `LANES` exponents, one to a lane: 2^(e - 128), which for 0 and 1 is subnormal.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_e8m0(bytes: &[u8; 4]) -> float32x4_t {
    let e = load_u8(bytes);
    let normal = vshlq_n_s32::<23>(vsubq_s32(e, vdupq_n_s32(1)));
    let small = vshlq_s32(vdupq_n_s32(0x0020_0000), e);
    vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, normal))
}

/// Loads `LANES` unsigned E4M3 numbers, one to a lane: the eighth bit is ignored, but 0x7f is 0.
#[inline]
#[target_feature(enable = "neon")]
pub fn load_e4m3(bytes: &[u8; 4]) -> float32x4_t {
    let x = load_u8(bytes);
    let is_nan = vceqq_s32(x, vdupq_n_s32(0x7f));
    let magnitude = vandq_s32(x, vdupq_n_s32(0x7f));
    let kept = vbslq_s32(is_nan, vdupq_n_s32(0), vshlq_n_s32::<20>(magnitude));
    // The bits as an f32 are the number times 2^-120, subnormal numbers included.
    vmulq_f32(vreinterpretq_f32_s32(kept), vdupq_n_f32(f32::from_bits(247 << 23)))
}
