//! Blocks with one scale. In blocks of 32, nibbles lie in split halves: byte `j` holds weight `j` and weight `j + 16`.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// 32 weights of 4 bits, from -8 to 7.
    Q4_0 = 2, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8;
    scale   = d;
    weight  = scale * code;

    /// 32 weights of 4 bits above a minimum.
    Q4_1 = 3, 32 weights in 20 bytes;
    d: f16;  m: f16;  qs: [u8; 16];
    code(i) = qs[i % 16] >> 4 * (i / 16) & 15;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// 32 weights of 5 bits, from -16 to 15; the fifth bits lie together.
    Q5_0 = 6, 32 weights in 22 bytes;
    d: f16;  qh: [u8; 4];  qs: [u8; 16];
    code(i) = (qs[i % 16] >> 4 * (i / 16) & 15 | (qh[i / 8] >> i % 8 & 1) << 4) - 16;
    scale   = d;
    weight  = scale * code;

    /// 32 weights of 5 bits above a minimum; the fifth bits lie together.
    Q5_1 = 7, 32 weights in 24 bytes;
    d: f16;  m: f16;  qh: [u8; 4];  qs: [u8; 16];
    code(i) = qs[i % 16] >> 4 * (i / 16) & 15 | (qh[i / 8] >> i % 8 & 1) << 4;
    scale   = d;
    min     = m;
    weight  = scale * code + min;

    /// 32 weights of 8 bits.
    Q8_0 = 8, 32 weights in 34 bytes;
    d: f16;  qs: [i8; 32];
    code(i) = qs[i];
    scale   = d;
    weight  = scale * code;

    /// 32 weights of 8 bits with their sum, for activations.
    Q8_1 = 9, 32 weights in 36 bytes;
    d: f16;  s: f16 = scale * sum;  qs: [i8; 32];
    code(i) = qs[i];
    scale   = d;
    weight  = scale * code;

    /// 128 weights of one bit: minus or plus the scale.
    Q1_0 = 41, 128 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    table SIGN = [-1, 1];
    code(i) = SIGN[qs[i / 8] >> i % 8 & 1];
    scale   = d;
    weight  = scale * code;

    /// 64 weights of two bits, from -1 to 2.
    Q2_0 = 42, 64 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = (qs[i / 4] >> 2 * (i % 4) & 3) - 1;
    scale   = d;
    weight  = scale * code;
}
