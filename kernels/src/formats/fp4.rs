//! E2M1 numbers with small floating-point scales. The codes are doubled, so that they are whole numbers.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// 32 E2M1 weights with a power of two as scale.
    MXFP4 = 39, 32 weights in 17 bytes;
    e: e8m0;  qs: [u8; 16];
    table E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    code(i) = E2M1[qs[i % 16] >> 4 * (i / 16) & 15];
    scale   = e;
    weight  = scale * code;

    /// Four groups of 16 E2M1 weights, each with an E4M3 scale. The tensor has a scale beside it.
    NVFP4 = 40, 64 weights in 36 bytes, groups of 16;
    s: [e4m3; 4];  qs: [u8; 32];
    table E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    code(i)  = E2M1[qs[8 * (i / 16) + i % 8] >> 4 * (i % 16 / 8) & 15];
    scale(g) = s[g] * 0.5;
    weight   = scale * code;
}
