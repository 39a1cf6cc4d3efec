//! Sizes that do not add up: both places are shown.
use quantsmith_kernels::quant_format;

quant_format! {
    /// The fields sum to 18 bytes.
    STATED = 900, 32 weights in 20 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = qs[i % 16] >> 4 * (i / 16) & 15;
    scale   = d;
    weight  = scale * code;
}

quant_format! {
    /// Groups that do not divide the block.
    GROUPED = 901, 64 weights in 36 bytes, groups of 48;
    d: [f16; 2];  qs: [u8; 32];
    code(i)  = qs[i % 32] >> 4 * (i / 32) & 15;
    scale(g) = d[g];
    weight   = scale * code;
}

fn main() {}
