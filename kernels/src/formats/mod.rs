//! The built-in formats, by family. A format's facts stand here and nowhere else.

pub mod float;
pub mod fp4;
pub mod historic;
pub mod i_quants;
pub mod k_quants;
pub mod legacy;
pub mod ternary;

use crate::Format;

/// The families of built-in formats.
const FAMILIES: &[&[&Format]] = &[
    float::FORMATS,
    legacy::FORMATS,
    k_quants::FORMATS,
    i_quants::FORMATS,
    ternary::FORMATS,
    fp4::FORMATS,
    historic::FORMATS,
];

/// The built-in formats, family after family.
pub fn families() -> impl Iterator<Item = &'static [&'static Format]> {
    FAMILIES.iter().copied()
}
