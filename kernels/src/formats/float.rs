//! Plain floating-point numbers.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// IEEE binary32.
    F32 = 0, 1 weights in 4 bytes;
    w: f32;
    weight = w;

    /// IEEE binary16.
    F16 = 1, 1 weights in 2 bytes;
    w: f16;
    weight = w;

    /// The upper half of an f32.
    BF16 = 30, 1 weights in 2 bytes;
    w: bf16;
    weight = w;
}
