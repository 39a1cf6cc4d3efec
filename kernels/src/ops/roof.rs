//! What a tier can do at most: reading, and multiplying, with nothing else to do. Kernels are measured against these.

use quantsmith_macros::tiered;

/// Bytes that [`roof::Set::read`] takes at a time.
pub const READ_STEP: usize = 512;

/// Multiplications of a round of [`roof::Set::multiply`]: 32 columns of sixteen rows for sixteen tokens.
pub const ROUND: usize = 32 * 16 * 16;

/// The limits, once for each tier.
#[tiered]
pub mod roof {
    use crate::ops::roof::READ_STEP;

    /// Reads all bytes, whole steps of them, and gives something that depends on each.
    pub fn read(bytes: &[u8]) -> u32 {
        let mut acc = [isa::load_words(&[0; 4 * isa::LANES]); 4];
        for step in bytes.as_chunks::<READ_STEP>().0 {
            for line in step.as_chunks::<64>().0 {
                isa::prefetch(line.as_ptr().wrapping_add(8192));
            }
            for (n, words) in step.as_chunks::<{ 4 * isa::LANES }>().0.iter().enumerate() {
                acc[n % 4] = isa::or(acc[n % 4], isa::load_words(words));
            }
        }
        let mut words = [0; 4 * isa::LANES];
        isa::store_words(&mut words, isa::or(isa::or(acc[0], acc[1]), isa::or(acc[2], acc[3])));
        words.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
    }

    /// Multiplies codes of one bit with activations: `rounds` times, all in registers or the nearest cache.
    pub fn multiply(rounds: usize) -> i32 {
        let mut sum = 0i32;
        let y = core::hint::black_box([[[3i8; 4]; 8]; 16]);
        let ones = core::hint::black_box([1u8; 64]);
        if isa::TILES {
            let mut tiles = isa::Tiles::<false>::new();
            let mut products = isa::Products([[[0; 16]; 16]; 2]);
            let lines = isa::Lines([ones; 16]);
            for _ in 0..rounds.div_ceil(2) {
                tiles.step(core::hint::black_box(&lines), [&y, &y], &mut products);
            }
            return products.0[0][0][0];
        }
        let code = isa::load_words(ones.first_chunk().expect("a register of codes"));
        let codes = [code; 8];
        let mut least = isa::load_more(&[0; isa::LANES], 0);
        for _ in 0..rounds {
            let y = core::hint::black_box(&y);
            for pair in 0..8 {
                for _ in 0..isa::SUBS {
                    let dots = isa::dot2::<8, 1, 0>(&codes, [&y[2 * pair], &y[2 * pair + 1]], [0; 2]);
                    least = isa::or(isa::or(least, dots[0]), dots[1]);
                }
            }
        }
        let mut words = [0; 4 * isa::LANES];
        isa::store_words(&mut words, least);
        for byte in words {
            sum = sum.wrapping_add(i32::from(byte));
        }
        sum
    }
}
