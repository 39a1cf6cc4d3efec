//! Codebooks: a code is an entry of a table, or eight weights are a row of a grid, with signs.
//!
//! The grids are data beside this file (`grids/README.md` names their source and checksums). In `sign7` formats seven
//! bits give eight signs: the eighth makes the number of minus signs even.

use quantsmith_macros::quant_formats;

quant_formats! {
    /// 32 weights of 4 bits through a table of uneven steps.
    IQ4_NL = 20, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    table K = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    code(i) = K[qs[i % 16] >> 4 * (i / 16) & 15];
    scale   = d;
    weight  = scale * code;

    /// Eight groups of 32 weights of 4 bits through the same table, each with a signed 6-bit scale.
    IQ4_XS = 23, 256 weights in 136 bytes, groups of 32;
    d: f16;  sh: u16;  sl: [u8; 4];  qs: [u8; 128];
    table K = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    code(i)  = K[qs[16 * (i / 32) + i % 16] >> 4 * (i % 32 / 16) & 15];
    scale(g) = d * ((sl[g / 2] >> 4 * (g % 2) & 15 | (sh >> 2 * g & 3) << 4) - 32);
    weight   = scale * code;

    /// Rows of a grid of 256; per 32 weights four indices, four sevens of signs and a 4-bit scale.
    IQ2_XXS = 16, 256 weights in 66 bytes, groups of 32;
    d: f16;  q: [u16; 32];
    table G = grid "src/formats/grids/iq2_xxs.hex" [8, 25, 43];
    index(k)    = q[4 * (k / 4) + k % 4 / 2] >> 8 * (k % 2) & 255;
    a(g)        = q[4 * g + 2] | q[4 * g + 3] << 16;
    sign7(k)    = a(k / 4) >> 7 * (k % 4) & 127;
    negative(i) = if i % 8 < 7 { sign7(i / 8) >> i % 8 & 1 } else { parity(sign7(i / 8)) };
    code(i)     = G[8 * index(i / 8) + i % 8] * (1 - 2 * negative(i));
    scale(g)    = d * (2 * (a(g) >> 28) + 1) * 0.125;
    weight      = scale * code;

    /// Rows of a grid of 512 with seven signs each; a 4-bit scale per 16 weights.
    IQ2_XS = 17, 256 weights in 74 bytes, groups of 16;
    d: f16;  q: [u16; 32];  scales: [u8; 8];
    table G = grid "src/formats/grids/iq2_xs.hex" [8, 25, 43];
    sign7(k)    = q[k] >> 9;
    negative(i) = if i % 8 < 7 { sign7(i / 8) >> i % 8 & 1 } else { parity(sign7(i / 8)) };
    code(i)     = G[8 * (q[i / 8] & 511) + i % 8] * (1 - 2 * negative(i));
    scale(g)    = d * (2 * (scales[g / 2] >> 4 * (g % 2) & 15) + 1) * 0.125;
    weight      = scale * code;

    /// Rows of a grid of 1024 with eight signs each; a 4-bit scale per 16 weights.
    IQ2_S = 22, 256 weights in 82 bytes, groups of 16;
    d: f16;  qs: [u8; 32];  signs: [u8; 32];  qh: [u8; 8];  scales: [u8; 8];
    table G = grid "src/formats/grids/iq2_s.hex" [8, 25, 43];
    index(k) = qs[k] | (qh[k / 4] >> 2 * (k % 4) & 3) << 8;
    code(i)  = G[8 * index(i / 8) + i % 8] * (1 - 2 * (signs[i / 8] >> i % 8 & 1));
    scale(g) = d * (2 * (scales[g / 2] >> 4 * (g % 2) & 15) + 1) * 0.125;
    weight   = scale * code;

    /// Half rows of a grid of 256; per 32 weights four sevens of signs and a 4-bit scale.
    IQ3_XXS = 18, 256 weights in 98 bytes, groups of 32;
    d: f16;  qs: [u8; 64];  a: [u32; 8];
    table G = grid "src/formats/grids/iq3_xxs.hex" [4, 12, 20, 28, 36, 44, 52, 62];
    sign7(k)    = a[k / 4] >> 7 * (k % 4) & 127;
    negative(i) = if i % 8 < 7 { sign7(i / 8) >> i % 8 & 1 } else { parity(sign7(i / 8)) };
    code(i)     = G[4 * qs[i / 4] + i % 4] * (1 - 2 * negative(i));
    scale(g)    = d * (2 * (a[g] >> 28) + 1) * 0.25;
    weight      = scale * code;

    /// Half rows of a grid of 512 with signs; a 4-bit scale per 32 weights.
    IQ3_S = 21, 256 weights in 110 bytes, groups of 32;
    d: f16;  qs: [u8; 64];  qh: [u8; 8];  signs: [u8; 32];  scales: [u8; 4];
    table G = grid "src/formats/grids/iq3_s.hex" [1, 3, 5, 7, 9, 11, 13, 15];
    index(e) = qs[e] | (qh[e / 8] >> e % 8 & 1) << 8;
    code(i)  = G[4 * index(i / 4) + i % 4] * (1 - 2 * (signs[i / 8] >> i % 8 & 1));
    scale(g) = d * (2 * (scales[g / 2] >> 4 * (g % 2) & 15) + 1);
    weight   = scale * code;

    /// Rows of a ternary grid of 2048, shifted by an eighth up or down; a 3-bit scale per 32 weights.
    IQ1_S = 19, 256 weights in 50 bytes, groups of 32;
    d: f16;  qs: [u8; 32];  qh: [u16; 8];
    table G = grid "src/formats/grids/iq1_s.hex" [-1, 0, 1];
    index(k) = qs[k] | (qh[k / 4] >> 3 * (k % 4) & 7) << 8;
    code(i)  = 8 * G[8 * index(i / 8) + i % 8] + 1 - 2 * (qh[i / 32] >> 15);
    scale(g) = d * (2 * (qh[g] >> 12 & 7) + 1) * 0.125;
    weight   = scale * code;

    /// The same grid, shifted per 8 weights; a 3-bit scale per 16 weights, and the block's scale in what those leave.
    IQ1_M = 29, 256 weights in 56 bytes, groups of 16;
    qs: [u8; 32];  qh: [u8; 16];  sc: [u16; 4];
    table G = grid "src/formats/grids/iq1_s.hex" [-1, 0, 1];
    high(k)  = qh[k / 2] >> 4 * (k % 2) & 15;
    code(i)  = 8 * G[8 * (qs[i / 8] | (high(i / 8) & 7) << 8) + i % 8] + 1 - 2 * (high(i / 8) >> 3);
    scale(g) = f16(sc[0] >> 12 | (sc[1] >> 12) << 4 | (sc[2] >> 12) << 8 | (sc[3] >> 12) << 12)
             * (2 * (sc[g / 4] >> 3 * (g % 4) & 7) + 1) * 0.125;
    weight   = scale * code;
}
