//! The NEON vocabulary. What each word means stands in the scalar tier.

pub mod float;
pub mod int;

pub use {super::scalar::tile::*, float::*, int::*};

/// 32-bit lanes of a register.
pub const LANES: usize = 4;
/// Registers that make 16 lanes.
pub const SUBS: usize = 16 / LANES;
/// Tokens whose sums registers hold in the matrix kernel, at most: none, two, four or sixteen.
pub const UNROLL: usize = 2;
