//! Words that the grammar does not have.
use quantsmith_kernels::quant_format;

quant_format! {
    /// An unknown type.
    TYPED = 900, 32 weights in 18 bytes;
    d: f17;  qs: [u8; 16];
    code(i) = qs[i / 2] >> 4 * (i % 2) & 15;
    scale   = d;
    weight  = scale * code;
}

quant_format! {
    /// A method call.
    CALLED = 901, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = qs[i / 2].rotate_left(4 * (i % 2)) & 15;
    scale   = d;
    weight  = scale * code;
}

fn main() {}
