//! Bits that nothing uses, and bits that are not there.
use quantsmith_kernels::quant_format;

quant_format! {
    /// The upper halves of the bytes are never used.
    UNUSED = 900, 32 weights in 34 bytes;
    d: f16;  qs: [u8; 32];
    code(i) = qs[i] & 15;
    scale   = d;
    weight  = scale * code;
}

quant_format! {
    /// Eight groups and six scales.
    NARROW = 901, 256 weights in 136 bytes, groups of 32;
    d: f16;  scales: [u8; 6];  qs: [u8; 128];
    code(i)  = qs[i / 2] >> 4 * (i % 2) & 15;
    scale(g) = d * scales[g];
    weight   = scale * code;
}

fn main() {}
