//! Products of float weights (F32, F16, BF16) with f32 activations.
//!
//! Rule 4 of the contract: element `i` goes into lane `i mod 16` of sixteen lanes with one fused multiply-add, in
//! order along the row, and the lanes are summed by the fixed tree. A row whose length is not a multiple of sixteen
//! behaves as if zeros followed.
//!
//! A tile is a few rows times a few tokens, with all its lanes in registers, so each load feeds several products. Rows
//! are taken in blocks that stay in the second-level cache while all tokens pass by. Neither changes a bit.

use quantsmith_macros::tiered;

pub use tiers::*;

/// Rows of a block.
const ROWS: usize = 32;

/// Runs of sixteen activations that are laid side by side at once.
const STEPS: usize = 32;

/// Rows and tokens of a register tile.
const fn shape(lanes: usize) -> [usize; 2] {
    match lanes {
        8 => [2, 2],
        4 => [2, 3],
        _ => [4, 5],
    }
}

/// Sixteen values in a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([f32; 16]);

/// A matrix, the tokens' activations and where the products go.
struct Job<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    cols: usize,
    x: &'a [f32],
    out: crate::OutMut<'a>,
}

#[tiered]
mod tiers {
    use crate::OutMut;
    use crate::ops::float_product::{Job, Line, ROWS, STEPS, shape};
    use core::ops::Range;
    use isa::wide::{self, V};

    const SHAPE: [usize; 2] = shape(isa::LANES);

    /// The dot product of a row of little-endian f32 weights with activations.
    ///
    /// # Panics
    /// * if the lengths do not match, like every function here
    pub fn dot_f32(weights: &[u8], x: &[f32]) -> f32 {
        dot(weights, x, |bytes: &[u8; 64]| wide::load_f32(bytes))
    }

    /// The dot product of a row of little-endian f16 weights with activations.
    pub fn dot_f16(weights: &[u8], x: &[f32]) -> f32 {
        dot(weights, x, |bytes: &[u8; 32]| wide::load_f16(bytes))
    }

    /// The dot product of a row of little-endian bf16 weights with activations.
    pub fn dot_bf16(weights: &[u8], x: &[f32]) -> f32 {
        dot(weights, x, |bytes: &[u8; 32]| wide::load_bf16(bytes))
    }

    /// The product of some rows of a matrix of little-endian f32 weights with each token's `cols` activations.
    pub fn matmul_f32(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul(bytes, cols, rows, x, out, |bytes: &[u8; 64]| wide::load_f32(bytes));
    }

    /// The product of some rows of a matrix of little-endian f16 weights with each token's `cols` activations.
    pub fn matmul_f16(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul(bytes, cols, rows, x, out, |bytes: &[u8; 32]| wide::load_f16(bytes));
    }

    /// The product of some rows of a matrix of little-endian bf16 weights with each token's `cols` activations.
    pub fn matmul_bf16(bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        matmul(bytes, cols, rows, x, out, |bytes: &[u8; 32]| wide::load_bf16(bytes));
    }

    fn dot<const BYTES: usize>(weights: &[u8], x: &[f32], load: impl Fn(&[u8; BYTES]) -> V + Copy) -> f32 {
        assert_eq!(weights.len(), x.len() * BYTES / 16, "a row of another length");
        let [sum] = dots([weights], x, load);
        sum
    }

    fn matmul<const BYTES: usize>(
        bytes: &[u8],
        cols: usize,
        rows: Range<usize>,
        x: &[f32],
        out: OutMut<'_>,
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) {
        assert!(cols > 0 && x.len().is_multiple_of(cols), "activations are not whole rows");
        let mut job = Job { bytes, row_bytes: cols * BYTES / 16, cols, x, out };
        let tokens = x.len() / cols;
        for start in rows.clone().step_by(ROWS) {
            let rows = start..rows.end.min(start + ROWS);
            let mut token = 0;
            while token < tokens {
                token += match tokens - token {
                    1 => one_token(&mut job, &rows, token, load),
                    left if left < SHAPE[1] => {
                        tokens_at_once::<{ SHAPE[0] }, 2, BYTES>(&mut job, &rows, token, load)
                    }
                    _ => tokens_at_once::<{ SHAPE[0] }, { SHAPE[1] }, BYTES>(&mut job, &rows, token, load),
                };
            }
        }
    }

    /// A block of rows with one token: two rows at once, which memory likes better than many. Gives one.
    fn one_token<const BYTES: usize>(
        job: &mut Job<'_>,
        rows: &Range<usize>,
        token: usize,
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) -> usize {
        let x = &job.x[token * job.cols..][..job.cols];
        let out = job.out.rows(token, rows.clone());
        let weights =
            job.bytes[rows.start * job.row_bytes..rows.end * job.row_bytes].chunks(2 * job.row_bytes);
        for (out, weights) in out.chunks_mut(2).zip(weights) {
            let (first, second) = weights.split_at(job.row_bytes);
            match out {
                [a, b] => [*a, *b] = dots([first, second], x, load),
                _ => out.copy_from_slice(&dots([first], x, load)),
            }
        }
        1
    }

    /// Dot products of `R` rows with one token.
    fn dots<const R: usize, const BYTES: usize>(
        weights: [&[u8]; R],
        x: &[f32],
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) -> [f32; R] {
        let (whole_x, rest_x) = x.as_chunks::<16>();
        let whole = weights.map(|w| &w.as_chunks::<BYTES>().0[..whole_x.len()]);
        let mut acc = [wide::splat(0.0); R];
        for (i, x) in whole_x.iter().enumerate() {
            let x = wide::load(x);
            for r in 0..R {
                acc[r] = wide::fma(load(&whole[r][i]), x, acc[r]);
            }
        }
        let mut sums = [0.0; R];
        for r in 0..R {
            if !rest_x.is_empty() {
                acc[r] = wide::fma(load_rest(weights[r], load), wide::load_tail(rest_x, 0.0), acc[r]);
            }
            sums[r] = isa::reduce_add(acc[r]);
        }
        sums
    }

    /// What a row has after its last sixteen weights, and zeros.
    fn load_rest<const BYTES: usize>(weights: &[u8], load: impl Fn(&[u8; BYTES]) -> V + Copy) -> V {
        let rest = weights.as_chunks::<BYTES>().1;
        let mut bytes = [0; BYTES];
        bytes[..rest.len()].copy_from_slice(rest);
        load(&bytes)
    }

    /// A block of rows with `T` tokens, of which `STEPS` runs of sixteen activations at a time are laid side by side,
    /// so that they stay in the first-level cache while the rows pass by. Gives `T`.
    fn tokens_at_once<const R: usize, const T: usize, const BYTES: usize>(
        job: &mut Job<'_>,
        rows: &Range<usize>,
        token: usize,
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) -> usize {
        let x: [&[f32]; T] = core::array::from_fn(|t| &job.x[(token + t) * job.cols..][..job.cols]);
        let weights = &job.bytes[rows.start * job.row_bytes..rows.end * job.row_bytes];
        let mut acc = [[Line([0.0; 16]); T]; ROWS];
        let mut side_by_side = [[Line([0.0; 16]); T]; STEPS];
        let steps = job.cols / 16;
        for first in (0..steps).step_by(STEPS) {
            let here = first..steps.min(first + STEPS);
            for (t, x) in x.iter().enumerate() {
                for (to, from) in side_by_side.iter_mut().zip(&x.as_chunks::<16>().0[here.clone()]) {
                    to[t] = Line(*from);
                }
            }
            let side_by_side = &side_by_side[..here.len()];
            let rows = weights.chunks(R * job.row_bytes);
            for (acc, rows) in acc[..weights.len() / job.row_bytes].chunks_mut(R).zip(rows) {
                let part = here.start * BYTES..here.end * BYTES;
                match acc.as_chunks_mut::<R>() {
                    ([acc], []) => {
                        let rows = core::array::from_fn(|r| &rows[r * job.row_bytes..][part.clone()]);
                        tile::<R, T, BYTES>(acc, rows, side_by_side, load);
                    }
                    (_, rest) => {
                        for (acc, row) in rest.iter_mut().zip(rows.chunks(job.row_bytes)) {
                            let acc = core::slice::from_mut(acc).as_chunks_mut::<1>().0;
                            tile::<1, T, BYTES>(&mut acc[0], [&row[part.clone()]], side_by_side, load);
                        }
                    }
                }
            }
        }
        for ((row, acc), weights) in rows.clone().zip(&acc).zip(weights.chunks(job.row_bytes)) {
            for t in 0..T {
                let mut lanes = wide::load(&acc[t].0);
                let rest = x[t].as_chunks::<16>().1;
                if !rest.is_empty() {
                    lanes = wide::fma(load_rest(weights, load), wide::load_tail(rest, 0.0), lanes);
                }
                job.out.rows(token + t, row..row + 1)[0] = isa::reduce_add(lanes);
            }
        }
        T
    }

    /// Takes a run of columns of `R` rows and `T` tokens into their lanes.
    fn tile<const R: usize, const T: usize, const BYTES: usize>(
        acc: &mut [[Line; T]; R],
        weights: [&[u8]; R],
        x: &[[Line; T]],
        load: impl Fn(&[u8; BYTES]) -> V + Copy,
    ) {
        let weights = weights.map(|w| &w.as_chunks::<BYTES>().0[..x.len()]);
        let mut lanes = [[wide::splat(0.0); T]; R];
        for r in 0..R {
            for t in 0..T {
                lanes[r][t] = wide::load(&acc[r][t].0);
            }
        }
        for (i, x) in x.iter().enumerate() {
            let mut w = [wide::splat(0.0); R];
            for r in 0..R {
                w[r] = load(&weights[r][i]);
            }
            for t in 0..T {
                let x = wide::load(&x[t].0);
                for r in 0..R {
                    lanes[r][t] = wide::fma(w[r], x, lanes[r][t]);
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                wide::store(&mut acc[r][t].0, lanes[r][t]);
            }
        }
    }
}
