//! Kernels of plain float weights: F32, F16 and BF16 against f32 activations.
//!
//! Rule 4 of the contract: element `i` goes into lane `i mod 16` of sixteen lanes with one fused multiply-add, and the
//! lanes are summed by one fixed tree. A row whose length is not a multiple of sixteen behaves as if zeros followed.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use crate::OutMut;
    use core::ops::Range;

    type V = [isa::F; isa::SUBS];

    /// Values of little-endian f32.
    pub fn dequantise_f32(bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *out = f32::from_le_bytes(*bytes);
        }
    }

    /// Values of little-endian f16.
    pub fn dequantise_f16(bytes: &[u8], out: &mut [f32]) {
        dequantise::<32, 2>(bytes, out, |bytes| load_f16(bytes));
    }

    /// Values of little-endian bf16.
    pub fn dequantise_bf16(bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }

    /// Matrix product with little-endian f32 weights.
    pub fn matmul_f32(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul::<64, 4>(bytes, cols, rows, x, out, |bytes| load_f32(bytes));
    }

    /// Matrix product with little-endian f16 weights.
    pub fn matmul_f16(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul::<32, 2>(bytes, cols, rows, x, out, |bytes| load_f16(bytes));
    }

    /// Matrix product with little-endian bf16 weights.
    pub fn matmul_bf16(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul::<32, 2>(bytes, cols, rows, x, out, |bytes| load_bf16(bytes));
    }

    fn load_f32(bytes: &[u8; 64]) -> V {
        let mut lanes = [isa::splat(0.0); isa::SUBS];
        for (lane, part) in lanes.iter_mut().zip(bytes.as_chunks().0) {
            *lane = isa::load_f32(part);
        }
        lanes
    }

    fn load_f16(bytes: &[u8; 32]) -> V {
        let mut lanes = [isa::splat(0.0); isa::SUBS];
        for (lane, part) in lanes.iter_mut().zip(bytes.as_chunks().0) {
            *lane = isa::load_f16(part);
        }
        lanes
    }

    fn load_bf16(bytes: &[u8; 32]) -> V {
        let mut lanes = [isa::splat(0.0); isa::SUBS];
        for (lane, part) in lanes.iter_mut().zip(bytes.as_chunks().0) {
            *lane = isa::load_bf16(part);
        }
        lanes
    }

    fn dequantise<const BYTES: usize, const WIDTH: usize>(
        bytes: &[u8],
        out: &mut [f32],
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) {
        for (bytes, out) in bytes.chunks(BYTES).zip(out.chunks_mut(16)) {
            let mut whole = [0u8; BYTES];
            whole[..bytes.len()].copy_from_slice(bytes);
            let mut values = [0.0f32; 16];
            for (part, lane) in values.as_chunks_mut().0.iter_mut().zip(load(&whole)) {
                isa::store(part, lane);
            }
            out.copy_from_slice(&values[..out.len()]);
        }
    }

    fn matmul<const BYTES: usize, const WIDTH: usize>(
        bytes: &[u8],
        cols: usize,
        rows: Range<usize>,
        x: &[f32],
        mut out: OutMut<'_>,
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) {
        for row in rows {
            let weights = &bytes[row * cols * WIDTH..][..cols * WIDTH];
            let mut token = 0;
            let tokens = x.len() / cols;
            while token + 4 <= tokens {
                let four = core::array::from_fn(|t| &x[(token + t) * cols..][..cols]);
                let sums = dots::<4, BYTES>(weights, four, load);
                for (t, sum) in sums.into_iter().enumerate() {
                    out.rows(token + t, row..row + 1)[0] = sum;
                }
                token += 4;
            }
            while token < tokens {
                let [sum] = dots::<1, BYTES>(weights, [&x[token * cols..][..cols]], load);
                out.rows(token, row..row + 1)[0] = sum;
                token += 1;
            }
        }
    }

    /// Dot products of one row with `T` rows of activations.
    fn dots<const T: usize, const BYTES: usize>(
        weights: &[u8],
        x: [&[f32]; T],
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) -> [f32; T] {
        let (chunks, tail) = weights.as_chunks::<BYTES>();
        let mut acc = [[isa::splat(0.0); isa::SUBS]; T];
        for (c, chunk) in chunks.iter().enumerate() {
            let w = load(chunk);
            for t in 0..T {
                let values = x[t].as_chunks::<16>().0[c];
                for (s, part) in values.as_chunks().0.iter().enumerate() {
                    acc[t][s] = isa::fma(w[s], isa::load(part), acc[t][s]);
                }
            }
        }
        if !tail.is_empty() {
            let mut whole = [0u8; BYTES];
            whole[..tail.len()].copy_from_slice(tail);
            let w = load(&whole);
            for t in 0..T {
                let rest = x[t].as_chunks::<16>().1;
                let mut values = [0.0f32; 16];
                values[..rest.len()].copy_from_slice(rest);
                for (s, part) in values.as_chunks().0.iter().enumerate() {
                    acc[t][s] = isa::fma(w[s], isa::load(part), acc[t][s]);
                }
            }
        }
        let mut sums = [0.0; T];
        for t in 0..T {
            sums[t] = isa::reduce_add(acc[t]);
        }
        sums
    }
}
