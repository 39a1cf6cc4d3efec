//! Blocks of 256 weights in groups, each group with a scale of its own below the block's.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// Sixteen groups of 16 weights of 2 bits, each with a 4-bit scale and a 4-bit minimum.
    Q2_K = 10, 256 weights in 84 bytes, groups of 16;
    scales: [u8; 16];  qs: [u8; 64];  d: f16;  dmin: f16;
    code(i)  = qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
    scale(g) = d    * (scales[g] & 15);
    min(g)   = dmin * (scales[g] >> 4);
    weight   = scale * code - min;

    /// Sixteen groups of 16 weights of 3 bits, from -4 to 3, each with a signed 6-bit scale.
    Q3_K = 11, 256 weights in 110 bytes, groups of 16;
    hmask: [u8; 32];  qs: [u8; 64];  scales: [u8; 12];  d: f16;
    code(i)  = (qs[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3 | (hmask[i % 32] >> i / 32 & 1) << 2) - 4;
    scale(g) = d * ((scales[g % 8] >> 4 * (g / 8) & 15 | (scales[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32);
    weight   = scale * code;

    /// Eight groups of 32 weights of 4 bits, each with a 6-bit scale and a 6-bit minimum.
    Q4_K = 12, 256 weights in 144 bytes, groups of 32;
    d: f16;  dmin: f16;  scales: [u8; 12];  qs: [u8; 128];
    code(i)  = qs[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
    scale(g) = d    * if g < 4 { scales[g] & 63 }     else { scales[g + 4] & 15 | (scales[g - 4] >> 6) << 4 };
    min(g)   = dmin * if g < 4 { scales[g + 4] & 63 } else { scales[g + 4] >> 4 | (scales[g] >> 6) << 4 };
    weight   = scale * code - min;

    /// Eight groups of 32 weights of 5 bits, each with a 6-bit scale and a 6-bit minimum.
    Q5_K = 13, 256 weights in 176 bytes, groups of 32;
    d: f16;  dmin: f16;  scales: [u8; 12];  qh: [u8; 32];  qs: [u8; 128];
    code(i)  = qs[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15 | (qh[i % 32] >> i / 32 & 1) << 4;
    scale(g) = d    * if g < 4 { scales[g] & 63 }     else { scales[g + 4] & 15 | (scales[g - 4] >> 6) << 4 };
    min(g)   = dmin * if g < 4 { scales[g + 4] & 63 } else { scales[g + 4] >> 4 | (scales[g] >> 6) << 4 };
    weight   = scale * code - min;

    /// Sixteen groups of 16 weights of 6 bits, from -32 to 31, each with a signed 8-bit scale.
    Q6_K = 14, 256 weights in 210 bytes, groups of 16;
    ql: [u8; 128];  qh: [u8; 64];  scales: [i8; 16];  d: f16;
    code(i)  = (ql[64 * (i / 128) + i % 64] >> 4 * (i % 128 / 64) & 15
              | (qh[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3) << 4) - 32;
    scale(g) = d * scales[g];
    weight   = scale * code;

    /// 256 weights of 8 bits with the sums of sixteen each, for activations.
    Q8_K = 15, 256 weights in 292 bytes;
    d: f32;  qs: [i8; 256];  bsums: [i16; 16] = sum;
    code(i) = qs[i];
    scale   = d;
    weight  = scale * code;
}
