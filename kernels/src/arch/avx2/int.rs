//! Integer words of AVX2: codes out of bit planes, codes out of a block's bytes, and exact dot products.

use core::arch::x86_64::*;

/// A register of 32-bit lanes, or of 4 × `LANES` bytes in the order of memory.
pub type I = __m256i;

/// Sixteen bytes: the codes of sixteen neighbouring weights.
pub type H = __m128i;

/// Loads `LANES` little-endian words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_words(bytes: &[u8; 32]) -> I {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Stores the words of a register.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn store_words(to: &mut [u8; 32], a: I) {
    // SAFETY: the reference covers the 32 bytes that are written; the store asks for no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a) }
}

/// Loads `LANES` whole numbers and adds the same to each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_more(from: &[i32; 8], more: i32) -> I {
    // SAFETY: the reference covers the 32 bytes that are read; the load asks for no alignment.
    let a = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
    _mm256_add_epi32(a, _mm256_set1_epi32(more))
}

/// Loads `LANES` unsigned bytes, one to a lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_u8(bytes: &[u8; 8]) -> I {
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*bytes)))
}

/// Loads `LANES` signed bytes, one to a lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_i8(bytes: &[u8; 8]) -> I {
    _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*bytes)))
}

/// Shifts each lane right by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn shr_and<const N: i32>(a: I, mask: u8) -> I {
    _mm256_and_si256(_mm256_srli_epi32::<N>(a), _mm256_set1_epi8(mask as i8))
}

/// Shifts each lane left by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn shl_and<const N: i32>(a: I, mask: u8) -> I {
    _mm256_and_si256(_mm256_slli_epi32::<N>(a), _mm256_set1_epi8(mask as i8))
}

/// Bitwise or.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn or(a: I, b: I) -> I {
    _mm256_or_si256(a, b)
}

/// Takes the same from each byte, modulo 256.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn bytes_less(a: I, less: u8) -> I {
    _mm256_sub_epi8(a, _mm256_set1_epi8(less as i8))
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn table(a: I, entries: &[u8; 16]) -> I {
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(h_load(entries)), a)
}

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// `vpmaddubsw` adds two products in 16 bits with saturation. Codes of up to 127 cannot saturate it, and as many
/// results are added in 16 bits as provably fit. Larger codes are made signed; then |code| is at most 128 and the
/// sign moves to the activation, so two products are at most 2 × 128 × 127.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let ones = _mm256_set1_epi16(1);
    // Codes made signed lack 128 each, which goes back in with the bias.
    let bias = if MAX <= 127 { BIAS } else { BIAS - 128 };
    let mut acc = _mm256_set1_epi32(minus * bias);
    if MAX <= 127 {
        let fit = (32767 / (2 * 127 * MAX)) as usize;
        let mut sum = acc;
        // A plain loop, which the compiler unrolls: then all but the products is known.
        for q in 0..N {
            let product = _mm256_maddubs_epi16(codes[q], splat4(y[q]));
            sum = if q % fit == 0 { product } else { _mm256_add_epi16(sum, product) };
            if q % fit == fit - 1 || q == N - 1 {
                acc = _mm256_add_epi32(acc, _mm256_madd_epi16(sum, ones));
            }
        }
    } else {
        for q in 0..N {
            let code = _mm256_xor_si256(codes[q], _mm256_set1_epi8(-128));
            let product = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(splat4(y[q]), code));
            acc = _mm256_add_epi32(acc, _mm256_madd_epi16(product, ones));
        }
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], minus[0]), dot::<N, MAX, BIAS>(codes, y[1], minus[1])]
}

/// Four activations in each lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn splat4(y: [i8; 4]) -> I {
    _mm256_set1_epi32(i32::from_le_bytes(y.map(|b| b as u8)))
}

/// Asks for the cache line at an address that will be read soon; any address is fine.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn prefetch(address: *const u8) {
    _mm_prefetch::<_MM_HINT_T1>(address.cast());
}

/// Loads sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_load(bytes: &[u8; 16]) -> H {
    // SAFETY: the reference covers the 16 bytes that are read; the load asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Stores sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_store(out: &mut [u8; 16], a: H) {
    // SAFETY: the reference covers the 16 bytes that are written; the store asks for no alignment.
    unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), a) }
}

/// Shifts each byte right by `N` and keeps the bits of `mask`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_shr_and<const N: i32>(a: H, mask: u8) -> H {
    _mm_and_si128(_mm_srli_epi16::<N>(a), _mm_set1_epi8((mask & (0xff >> N)) as i8))
}

/// Shifts each byte left by `N`; no set bit may leave its byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_shl<const N: i32>(a: H) -> H {
    _mm_slli_epi16::<N>(a)
}

/// Bitwise or.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_or(a: H, b: H) -> H {
    _mm_or_si128(a, b)
}

/// Flips the bits of `mask` in each byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_xor(a: H, mask: u8) -> H {
    _mm_xor_si128(a, _mm_set1_epi8(mask as i8))
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_table(a: H, entries: &[u8; 16]) -> H {
    _mm_shuffle_epi8(h_load(entries), a)
}

/// Spreads sixteen fields of one bit, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_unpack1(bytes: &[u8; 2]) -> H {
    let spread = _mm_set_epi8(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    let bits = _mm_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let a = _mm_shuffle_epi8(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes(*bytes))), spread);
    let set = _mm_cmpeq_epi8(_mm_and_si128(a, bits), bits);
    _mm_and_si128(set, _mm_set1_epi8(1))
}

/// Spreads sixteen fields of two bits, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_unpack2(bytes: &[u8; 4]) -> H {
    // Each byte to four, then each of the four shifted by 0, 2, 4, 6 through a multiplication in 32 bits.
    let a = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(i32::from_le_bytes(*bytes)));
    let spread = _mm_or_si128(
        _mm_or_si128(a, _mm_slli_epi32::<6>(a)),
        _mm_or_si128(_mm_slli_epi32::<12>(a), _mm_slli_epi32::<18>(a)),
    );
    _mm_and_si128(spread, _mm_set1_epi8(3))
}

/// Spreads sixteen fields of four bits, the lowest first, over sixteen bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_unpack4(bytes: &[u8; 8]) -> H {
    let a = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(i64::from_le_bytes(*bytes)));
    _mm_and_si128(_mm_or_si128(a, _mm_slli_epi16::<4>(a)), _mm_set1_epi8(15))
}

/// The exact dot product of sixteen unsigned codes with sixteen activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn h_dot(codes: H, y: &[i8; 16]) -> i32 {
    // SAFETY: the reference covers the 16 bytes that are read; the load asks for no alignment.
    let y = unsafe { _mm_loadu_si128(y.as_ptr().cast()) };
    let pairs = _mm256_madd_epi16(_mm256_cvtepu8_epi16(codes), _mm256_cvtepi8_epi16(y));
    let four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)))
}

/// Loads `LANES` exponents, one to a lane: 2^(e - 128), which for 0 and 1 is subnormal.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_e8m0(bytes: &[u8; 8]) -> __m256 {
    let e = load_u8(bytes);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
    let small = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
    let is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small))
}

/// Loads `LANES` unsigned E4M3 numbers, one to a lane: the eighth bit is ignored, but 0x7f is 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn load_e4m3(bytes: &[u8; 8]) -> __m256 {
    let x = load_u8(bytes);
    let is_nan = _mm256_cmpeq_epi32(x, _mm256_set1_epi32(0x7f));
    let magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7f));
    let kept = _mm256_andnot_si256(is_nan, _mm256_slli_epi32::<20>(magnitude));
    // The bits as an f32 are the number times 2^-120, subnormal numbers included.
    _mm256_mul_ps(_mm256_castsi256_ps(kept), _mm256_set1_ps(f32::from_bits(247 << 23)))
}
