//! A 3-bit format of one's own, and the whole of Quantsmith with it.

use quantsmith_kernels::{Registry, quant_format};
use std::process::ExitCode;

quant_format! {
    /// 64 weights of 3 bits, from -4 to 3, in two groups with a 4-bit scale each.
    MY_Q3 = private, 64 weights in 27 bytes, groups of 32;
    d: f16;  scales: u8;  qs: [u8; 16];  qh: [u8; 8];
    code(i)  = (qs[i % 16] >> 2 * (i / 16) & 3 | (qh[i % 8] >> i / 8 & 1) << 2) - 4;
    scale(g) = d * (scales >> 4 * g & 15);
    weight   = scale * code;
}

fn main() -> ExitCode {
    quantsmith_cli::main(Registry::builtin().with(&MY_Q3))
}
