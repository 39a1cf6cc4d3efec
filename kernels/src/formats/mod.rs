//! The built-in formats, by family. A format's facts stand here and nowhere else. Each family
//! but that of plain floats is a feature of the crate.

pub mod float;
#[cfg(feature = "fp4")]
pub mod fp4;
#[cfg(feature = "historic")]
pub mod historic;
#[cfg(feature = "i-quants")]
pub mod i_quants;
#[cfg(feature = "k-quants")]
pub mod k_quants;
#[cfg(feature = "legacy")]
pub mod legacy;
#[cfg(feature = "ternary")]
pub mod ternary;

use crate::Format;

/// The families of built-in formats.
const FAMILIES: &[&[&Format]] = &[
    float::FORMATS,
    #[cfg(feature = "legacy")]
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
