//! Three values: -1, 0 and 1 times the scale.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// 256 ternary weights, five to a byte in base 3 (the last sixteen four to a byte).
    TQ1_0 = 34, 256 weights in 54 bytes;
    qs: [u8; 48];  qh: [u8; 4];  d: f16;
    table POWER = [1, 3, 9, 27, 81];
    byte(i)  = if i < 160 { qs[i % 32] } else { if i < 240 { qs[32 + i % 16] } else { qh[i % 4] } };
    digit(i) = if i < 160 { i / 32 } else { if i < 240 { (i - 160) / 16 } else { (i - 240) / 4 } };
    code(i)  = (byte(i) * POWER[digit(i)] % 256 * 3 >> 8) - 1;
    scale    = d;
    weight   = scale * code;

    /// 256 ternary weights of 2 bits.
    TQ2_0 = 35, 256 weights in 66 bytes;
    qs: [u8; 64];  d: f16;
    code(i) = (qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) - 1;
    scale   = d;
    weight  = scale * code;
}
