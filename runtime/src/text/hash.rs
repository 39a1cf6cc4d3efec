//! A fast hash with a key of the process.
//!
//! Tables of vocabularies are looked up for every few bytes of text. The key comes from the operating system's
//! randomness, so a file cannot be built to make its own tables slow.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The keys of one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(u64, u64);

impl Keys {
    /// Draws new keys.
    pub(crate) fn new() -> Self {
        let source = RandomState::new();
        Self(source.hash_one(0u8) | 1, source.hash_one(1u8) | 1)
    }

    /// Hashes one number.
    pub(crate) fn number(self, n: u64) -> u64 {
        fold(n ^ self.0, self.1)
    }

    /// Hashes a byte string.
    pub(crate) fn bytes(self, bytes: &[u8]) -> u64 {
        let mut h = self.0 ^ bytes.len() as u64;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            h = fold(h ^ u64::from_le_bytes(*word), self.1);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        fold(h ^ u64::from_le_bytes(last), self.1)
    }
}

/// The two halves of a product, one over the other.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}
