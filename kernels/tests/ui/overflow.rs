//! Codes whose sums could overflow, and factors that do not fit.
use quantsmith_kernels::quant_format;

quant_format! {
    /// Codes of sixteen bits.
    WIDE = 900, 32 weights in 66 bytes;
    d: f16;  qs: [u16; 32];
    code(i) = qs[i];
    scale   = d;
    weight  = scale * code;
}

quant_format! {
    /// A factor of up to 510.
    FACTOR = 901, 32 weights in 20 bytes, groups of 16;
    d: f16;  s: [u8; 2];  qs: [u8; 16];
    code(i)  = qs[i / 2] >> 4 * (i % 2) & 15;
    scale(g) = d * (2 * s[g]);
    weight   = scale * code;
}

fn main() {}
