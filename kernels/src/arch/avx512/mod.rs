//! The AVX-512 vocabulary. What each word means stands in the scalar tier.

pub mod float;
pub mod int;

pub use {super::scalar::tile::*, float::*, int::*};

/// 32-bit lanes of a register.
pub const LANES: usize = 16;
/// Registers that make 16 lanes.
pub const SUBS: usize = 16 / LANES;
/// Tokens that the matrix kernel takes at once.
pub const TILE: usize = 16;
/// Whether there are registers for the sums of so many tokens. If not, a loop over tokens keeps them in memory.
pub const UNROLL: bool = true;
