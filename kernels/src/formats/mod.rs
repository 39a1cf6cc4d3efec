//! The built-in formats, by family. A format's facts stand here and nowhere else.

pub mod float;
pub mod k_quants;
pub mod legacy;

use crate::Format;

/// Every built-in format, by number.
pub static ALL: &[&Format] = &[
    &float::F32,
    &float::F16,
    &legacy::Q4_0,
    &legacy::Q4_1,
    &legacy::Q5_0,
    &legacy::Q5_1,
    &legacy::Q8_0,
    &k_quants::Q4_K,
    &k_quants::Q5_K,
    &k_quants::Q6_K,
    &float::BF16,
];
