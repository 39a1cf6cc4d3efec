//! The NEON vocabulary. What each word means stands in the scalar tier.

pub mod float;
pub mod int;

pub use {super::scalar::tile::*, float::*, int::*};

/// 32-bit lanes of a register.
pub const LANES: usize = 4;
/// Registers that make 16 lanes.
pub const SUBS: usize = 16 / LANES;
/// Tokens that the matrix kernel keeps in registers at once.
pub const TILE: usize = 4;

/// Whether there are registers for the sums of a whole tile of tokens.
pub const UNROLL: bool = false;
