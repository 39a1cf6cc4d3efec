//! Two formats of a family with one number.
use quantsmith_kernels::quant_formats;

quant_formats! {
    /// The first.
    FIRST = 900, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = qs[i / 2] >> 4 * (i % 2) & 15;
    scale   = d;
    weight  = scale * code;

    /// The second.
    SECOND = 900, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = qs[i % 16] >> 4 * (i / 16) & 15;
    scale   = d;
    weight  = scale * code;
}

fn main() {}
