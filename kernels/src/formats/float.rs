//! Plain floating-point numbers.

use quantsmith_macros::quant_format;

quant_format! {
    /// IEEE binary32.
    F32 = 0, 1 weights in 4 bytes;
    w: f32;
    weight = w;
}

quant_format! {
    /// IEEE binary16.
    F16 = 1, 1 weights in 2 bytes;
    w: f16;
    weight = w;
}

quant_format! {
    /// The upper half of an f32.
    BF16 = 30, 1 weights in 2 bytes;
    w: bf16;
    weight = w;
}
