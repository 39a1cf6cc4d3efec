//! Integer words: codes out of bit planes, codes out of a block's bytes, and exact dot products.

/// A register of 32-bit lanes, or of 4 × `LANES` bytes in the order of memory.
pub type I = [i32; 16];

/// Sixteen bytes: the codes of sixteen neighbouring weights.
pub type H = [u8; 16];

/// Loads `LANES` little-endian words.
#[inline]
pub fn load_words(bytes: &[u8; 64]) -> I {
    core::array::from_fn(|l| {
        i32::from_le_bytes([bytes[4 * l], bytes[4 * l + 1], bytes[4 * l + 2], bytes[4 * l + 3]])
    })
}

/// Stores the words of a register.
#[inline]
pub fn store_words(to: &mut [u8; 64], a: I) {
    for (to, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(a) {
        *to = word.to_le_bytes();
    }
}

/// Loads `LANES` whole numbers and adds the same to each.
#[inline]
pub fn load_more(from: &[i32; 16], more: i32) -> I {
    from.map(|v| v + more)
}

/// Loads `LANES` unsigned bytes, one to a lane.
#[inline]
pub fn load_u8(bytes: &[u8; 16]) -> I {
    bytes.map(i32::from)
}

/// Loads `LANES` signed bytes, one to a lane.
#[inline]
pub fn load_i8(bytes: &[u8; 16]) -> I {
    bytes.map(|b| i32::from(b as i8))
}

/// Shifts each lane right by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
pub fn shr_and<const N: i32>(a: I, mask: u8) -> I {
    a.map(|v| ((v as u32 >> N) & (0x0101_0101 * u32::from(mask))) as i32)
}

/// Shifts each lane left by `N` and keeps the bits of `mask` in each of its bytes.
#[inline]
pub fn shl_and<const N: i32>(a: I, mask: u8) -> I {
    a.map(|v| (((v as u32) << N) & (0x0101_0101 * u32::from(mask))) as i32)
}

/// Bitwise or.
#[inline]
pub fn or(a: I, b: I) -> I {
    core::array::from_fn(|l| a[l] | b[l])
}

/// Takes the same from each byte, modulo 256.
#[inline]
pub fn bytes_less(a: I, less: u8) -> I {
    a.map(|v| i32::from_le_bytes(v.to_le_bytes().map(|b| b.wrapping_sub(less))))
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
pub fn table(a: I, entries: &[u8; 16]) -> I {
    a.map(|v| i32::from_le_bytes(v.to_le_bytes().map(|b| entries[usize::from(b & 15)])))
}

/// The exact dot product of `4 × N` codes of each lane, less `BIAS` each, with `4 × N` activations. Codes are
/// unsigned bytes of at most `MAX`; `minus` is minus the sum of the activations.
///
/// Called, as [`fma`](super::fma) is, for the sake of the program's size.
#[inline(never)]
pub fn dot<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: &[[i8; 4]; N],
    minus: i32,
) -> I {
    let mut acc = [BIAS * minus; 16];
    for (code, y) in codes.iter().zip(y) {
        let y = y.map(i32::from);
        for (acc, code) in acc.iter_mut().zip(code) {
            let c = code.to_le_bytes().map(i32::from);
            *acc += c[0] * y[0] + c[1] * y[1] + c[2] * y[2] + c[3] * y[3];
        }
    }
    acc
}

/// Two tokens' [`dot`] products with the same codes.
#[inline]
pub fn dot2<const N: usize, const MAX: i32, const BIAS: i32>(
    codes: &[I; N],
    y: [&[[i8; 4]; N]; 2],
    minus: [i32; 2],
) -> [I; 2] {
    [dot::<N, MAX, BIAS>(codes, y[0], minus[0]), dot::<N, MAX, BIAS>(codes, y[1], minus[1])]
}

/// Asks for the cache line at an address that will be read soon; any address is fine.
#[inline]
pub fn prefetch(_address: *const u8) {}

/// Loads sixteen bytes.
#[inline]
pub fn h_load(bytes: &[u8; 16]) -> H {
    *bytes
}

/// Stores sixteen bytes.
#[inline]
pub fn h_store(out: &mut [u8; 16], a: H) {
    *out = a;
}

/// Shifts each byte right by `N` and keeps the bits of `mask`.
#[inline]
pub fn h_shr_and<const N: i32>(a: H, mask: u8) -> H {
    a.map(|b| (b >> N) & mask)
}

/// Shifts each byte left by `N`; no set bit may leave its byte.
#[inline]
pub fn h_shl<const N: i32>(a: H) -> H {
    a.map(|b| b << N)
}

/// Bitwise or.
#[inline]
pub fn h_or(a: H, b: H) -> H {
    core::array::from_fn(|l| a[l] | b[l])
}

/// Flips the bits of `mask` in each byte.
#[inline]
pub fn h_xor(a: H, mask: u8) -> H {
    a.map(|b| b ^ mask)
}

/// Replaces each byte (0 to 15) by an entry of a table.
#[inline]
pub fn h_table(a: H, entries: &[u8; 16]) -> H {
    a.map(|b| entries[usize::from(b & 15)])
}

/// Spreads sixteen fields of one bit, the lowest first, over sixteen bytes.
#[inline]
pub fn h_unpack1(bytes: &[u8; 2]) -> H {
    core::array::from_fn(|l| bytes[l / 8] >> (l % 8) & 1)
}

/// Spreads sixteen fields of two bits, the lowest first, over sixteen bytes.
#[inline]
pub fn h_unpack2(bytes: &[u8; 4]) -> H {
    core::array::from_fn(|l| bytes[l / 4] >> (2 * (l % 4)) & 3)
}

/// Spreads sixteen fields of four bits, the lowest first, over sixteen bytes.
#[inline]
pub fn h_unpack4(bytes: &[u8; 8]) -> H {
    core::array::from_fn(|l| bytes[l / 2] >> (4 * (l % 2)) & 15)
}

/// The exact dot product of sixteen unsigned codes with sixteen activations.
#[inline]
pub fn h_dot(codes: H, y: &[i8; 16]) -> i32 {
    codes.iter().zip(y).map(|(c, y)| i32::from(*c) * i32::from(*y)).sum()
}

/// Loads `LANES` exponents, one to a lane: 2^(e - 128), which for 0 and 1 is subnormal.
#[inline]
pub fn load_e8m0(bytes: &[u8; 16]) -> [f32; 16] {
    bytes.map(crate::emitted::e8m0)
}

/// Loads `LANES` unsigned E4M3 numbers, one to a lane: the eighth bit is ignored, but 0x7f is 0.
#[inline]
pub fn load_e4m3(bytes: &[u8; 16]) -> [f32; 16] {
    bytes.map(crate::emitted::e4m3)
}
