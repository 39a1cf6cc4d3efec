//! The built-in formats, by family. A format's facts stand here and nowhere else. Each family
//! is a feature of the crate, but for plain floats and blocks with one scale, which the cache of keys and values can have.

pub mod float;
#[cfg(feature = "fp4")]
pub mod fp4;
#[cfg(feature = "historic")]
pub mod historic;
#[cfg(feature = "i-quants")]
pub mod i_quants;
#[cfg(feature = "k-quants")]
pub mod k_quants;
pub mod legacy;
#[cfg(feature = "ternary")]
pub mod ternary;

use crate::Format;

/// The families of built-in formats.
const FAMILIES: &[&[&Format]] = &[
    float::FORMATS,
    legacy::FORMATS,
    #[cfg(feature = "k-quants")]
    k_quants::FORMATS,
    #[cfg(feature = "i-quants")]
    i_quants::FORMATS,
    #[cfg(feature = "ternary")]
    ternary::FORMATS,
    #[cfg(feature = "fp4")]
    fp4::FORMATS,
    #[cfg(feature = "historic")]
    historic::FORMATS,
];

/// The built-in formats, family after family.
pub fn families() -> impl Iterator<Item = &'static [&'static Format]> {
    FAMILIES.iter().copied()
}
