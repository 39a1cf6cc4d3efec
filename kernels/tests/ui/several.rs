//! Every mistake of a declaration at once, each at its token.
use quantsmith_kernels::quant_format;

quant_format! {
    /// Five mistakes.
    WRONG = 900, 32 weights in 19 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = qx[i % 16] >> 4 * (i / 16) & 15;
    scale   = d * 0.3;
    bias    = d;
    weight  = scale * code - min;
}

fn main() {}
