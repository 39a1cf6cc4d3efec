//! The scalar vocabulary: plain Rust that says what each word means. It is the specification of the other tiers.

pub mod float;
pub mod int;
pub mod tile;

pub use {float::*, int::*, tile::*};

/// 32-bit lanes of a register.
pub const LANES: usize = 16;
/// Registers that make 16 lanes.
pub const SUBS: usize = 16 / LANES;
/// Tokens whose sums registers hold in the matrix kernel, at most: none, two, four or sixteen.
pub const UNROLL: usize = 0;
