//! Blocks of files that are older than GGUF, and of a build option of 2023. They have no numbers of their own in files:
//! the container says which layout a number means. `V1`: interleaved nibbles, byte `j` holds weights `2j` and `2j + 1`;
//! `V2`: split halves. Scales are f32 where the name has a version. `64`: super-blocks of 64 weights.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// Version 1 of Q4_0.
    Q4_0_V1 = private, 32 weights in 20 bytes;
    d: f32;  qs: [u8; 16];
    code(i) = (qs[i / 2] >> 4 * (i % 2) & 15) - 8;
    scale   = d;
    weight  = scale * code;

    /// Version 1 of Q4_1.
    Q4_1_V1 = private, 32 weights in 24 bytes;
    d: f32;  m: f32;  qs: [u8; 16];
    code(i) = qs[i / 2] >> 4 * (i % 2) & 15;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// Sixteen weights of 4 bits; gone since version 2.
    Q4_2_V1 = private, 16 weights in 10 bytes;
    d: f16;  qs: [u8; 8];
    code(i) = (qs[i / 2] >> 4 * (i % 2) & 15) - 8;
    scale   = d;
    weight  = scale * code;

    /// Sixteen weights of 4 bits above a minimum; gone since version 2.
    Q4_3_V1 = private, 16 weights in 12 bytes;
    d: f16;  m: f16;  qs: [u8; 8];
    code(i) = qs[i / 2] >> 4 * (i % 2) & 15;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// Version 1 of Q5_0.
    Q5_0_V1 = private, 32 weights in 22 bytes;
    d: f16;  qh: [u8; 4];  qs: [u8; 16];
    code(i) = (qs[i / 2] >> 4 * (i % 2) & 15 | (qh[i / 8] >> i % 8 & 1) << 4) - 16;
    scale   = d;
    weight  = scale * code;

    /// Version 1 of Q5_1.
    Q5_1_V1 = private, 32 weights in 24 bytes;
    d: f16;  m: f16;  qh: [u8; 4];  qs: [u8; 16];
    code(i) = qs[i / 2] >> 4 * (i % 2) & 15 | (qh[i / 8] >> i % 8 & 1) << 4;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// Versions 1 and 2 of Q8_0.
    Q8_0_V1 = private, 32 weights in 36 bytes;
    d: f32;  qs: [i8; 32];
    code(i) = qs[i];
    scale   = d;
    weight  = scale * code;

    /// Version 2 of Q4_0.
    Q4_0_V2 = private, 32 weights in 20 bytes;
    d: f32;  qs: [u8; 16];
    code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8;
    scale   = d;
    weight  = scale * code;

    /// Version 2 of Q4_1.
    Q4_1_V2 = private, 32 weights in 24 bytes;
    d: f32;  m: f32;  qs: [u8; 16];
    code(i) = qs[i % 16] >> 4 * (i / 16) & 15;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// Q2_K of 64 weights.
    Q2_K_64 = private, 64 weights in 24 bytes, groups of 16;
    scales: [u8; 4];  qs: [u8; 16];  d: f16;  dmin: f16;
    code(i)  = qs[i % 16] >> 2 * (i / 16) & 3;
    scale(g) = d    * (scales[g] & 15);
    min(g)   = dmin * (scales[g] >> 4);
    weight   = scale * code - min;

    /// Q3_K of 64 weights.
    Q3_K_64 = private, 64 weights in 28 bytes, groups of 16;
    hmask: [u8; 8];  qs: [u8; 16];  scales: [u8; 2];  d: f16;
    code(i)  = (qs[i % 16] >> 2 * (i / 16) & 3 | (hmask[i % 8] >> i / 8 & 1) << 2) - 4;
    scale(g) = d * ((scales[g / 2] >> 4 * (g % 2) & 15) - 8);
    weight   = scale * code;

    /// Q4_K of 64 weights.
    Q4_K_64 = private, 64 weights in 38 bytes, groups of 32;
    d: f16;  dmin: f16;  scales: [u8; 2];  qs: [u8; 32];
    code(i)  = qs[i % 32] >> 4 * (i / 32) & 15;
    scale(g) = d    * (scales[g] & 15);
    min(g)   = dmin * (scales[g] >> 4);
    weight   = scale * code - min;

    /// Q5_K of 64 weights.
    Q5_K_64 = private, 64 weights in 46 bytes, groups of 16;
    d: f16;  scales: [i8; 4];  qh: [u8; 8];  qs: [u8; 32];
    code(i)  = (qs[i % 32] >> 4 * (i / 32) & 15 | (qh[i % 8] >> i / 8 & 1) << 4) - 16;
    scale(g) = d * scales[g];
    weight   = scale * code;

    /// Q6_K of 64 weights.
    Q6_K_64 = private, 64 weights in 54 bytes, groups of 16;
    ql: [u8; 32];  qh: [u8; 16];  scales: [i8; 4];  d: f16;
    code(i)  = (ql[i % 32] >> 4 * (i / 32) & 15 | (qh[i % 16] >> 2 * (i / 16) & 3) << 4) - 32;
    scale(g) = d * scales[g];
    weight   = scale * code;
}
