//! The AMX vocabulary: that of AVX-512 VNNI, with the products of sixteen tokens by tiles.

pub mod tile;

pub use super::avx512vnni::*;
pub use tile::{TILES, Tiles};
