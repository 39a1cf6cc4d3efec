//! What is done with rows in the file's own layout: packing, dequantising, and products without packing.
//!
//! A block is decoded as a whole, by a function that is passed in: none of this is what generation waits for.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use crate::act::{ActGroup, Quads};
    use crate::panel::{Decode, Fill, PackJob, Parts, RowJob, Shape};
    use crate::panel::{MAX_BLOCK, MAX_GROUPS, PANEL, UNIT_COLS, panel_bytes, planes};
    use crate::plain::fma;

    /// Packs rows of the file's layout into panels; missing rows of the last panel become zeros.
    pub fn pack(job: PackJob<'_>, shape: &Shape, decode: &Decode<'_>, fill: &Fill<'_>) {
        let blocks = job.row_bytes / shape.bytes;
        let size = panel_bytes(shape.unit, shape.record, shape.units, blocks);
        let mut codes = [0u8; MAX_BLOCK];
        let codes = &mut codes[..UNIT_COLS * shape.units];
        for (panel, out) in job.panels.clone().zip(job.out.chunks_exact_mut(size)) {
            out.fill(0);
            let (units, records) = out.split_at_mut(blocks * shape.units * shape.unit);
            for lane in 0..PANEL.min(job.rows - panel * PANEL) {
                let bytes = &job.bytes[(panel * PANEL + lane) * job.row_bytes..][..job.row_bytes];
                for (b, block) in bytes.chunks_exact(shape.bytes).enumerate() {
                    fill(block, lane, &mut records[b * shape.record..][..shape.record]);
                    decode(block, codes);
                    let units = &mut units[b * shape.units * shape.unit..][..shape.units * shape.unit];
                    for (unit, codes) in units.chunks_exact_mut(shape.unit).zip(codes.as_chunks().0) {
                        scatter(shape.bits, codes, lane, unit);
                    }
                }
            }
        }
    }

    /// Distributes the 32 codes of one row of a unit over its bit planes.
    fn scatter(bits: u32, codes: &[u8; UNIT_COLS], lane: usize, unit: &mut [u8]) {
        let mut quads = [0u32; 8];
        for (quad, codes) in quads.iter_mut().zip(codes.as_chunks().0) {
            *quad = u32::from_le_bytes(*codes);
        }
        let (mut line, mut low) = (0, 0);
        for &width in planes(bits) {
            let mask = 0x0101_0101 * ((1u32 << width) - 1);
            for quads in quads.chunks_exact(8 / width as usize) {
                let mut word = 0;
                for (k, quad) in quads.iter().enumerate() {
                    word |= (quad >> low & mask) << (k as u32 * width);
                }
                unit[64 * line + 4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
                line += 1;
            }
            low += width;
        }
    }

    /// The values of whole blocks.
    pub fn dequantise(bytes: &[u8], out: &mut [f32], shape: &Shape, decode: &Decode<'_>, parts: &Parts<'_>) {
        // A block of sixteen weights comes in pairs; the last may be alone.
        let mut last = [0u8; MAX_BLOCK];
        let mut codes = [0u8; MAX_BLOCK];
        let (mut scales, mut offsets) = ([0.0f32; MAX_GROUPS], [0.0f32; MAX_GROUPS]);
        let cols = UNIT_COLS * shape.units;
        let group = cols / shape.groups;
        for (block, out) in bytes.chunks(shape.bytes).zip(out.chunks_mut(cols)) {
            let block = if block.len() == shape.bytes {
                block
            } else {
                last[..block.len()].copy_from_slice(block);
                &last[..shape.bytes]
            };
            decode(block, &mut codes[..cols]);
            parts(block, &mut scales, &mut offsets);
            for (g, (out, codes)) in out.chunks_mut(group).zip(codes.chunks_exact(group)).enumerate() {
                let (scale, offset) = (scales[g], offsets[g]);
                for (out, code) in out.iter_mut().zip(codes) {
                    let value = scale * (shape.value(*code) as f32);
                    *out = if shape.offset { value + offset } else { value };
                }
            }
        }
    }

    /// Matrix product over rows of the file's layout, with the same bits as over panels.
    pub fn matmul_rows(mut job: RowJob<'_>, shape: &Shape, decode: &Decode<'_>, parts: &Parts<'_>) {
        let mut codes = [0u8; MAX_BLOCK];
        let (mut scales, mut offsets) = ([0.0f32; MAX_GROUPS], [0.0f32; MAX_GROUPS]);
        let cols = UNIT_COLS * shape.units;
        let codes = &mut codes[..cols];
        // Sixteen tokens share a decoded block.
        for first in (0..job.x.tokens()).step_by(16) {
            let tokens = first..job.x.tokens().min(first + 16);
            for row in job.rows.clone() {
                let bytes = &job.bytes[row * job.row_bytes..][..job.row_bytes];
                let mut acc = [0.0f32; 16];
                for (b, block) in bytes.chunks_exact(shape.bytes).enumerate() {
                    decode(block, codes);
                    shape.look_up(codes);
                    parts(block, &mut scales, &mut offsets);
                    for (acc, token) in acc.iter_mut().zip(tokens.clone()) {
                        let x =
                            (b * shape.units..(b + 1) * shape.units).map(|group| job.x.group(token, group));
                        *acc = dot_block(*acc, shape, codes, &scales, &offsets, x);
                    }
                }
                for (acc, token) in acc.iter().zip(tokens.clone()) {
                    job.out.rows(token, row..row + 1)[0] = *acc;
                }
            }
        }
    }

    /// Adds one block's part of a dot product.
    fn dot_block<'x>(
        mut acc: f32,
        shape: &Shape,
        codes: &[u8],
        scales: &[f32; MAX_GROUPS],
        offsets: &[f32; MAX_GROUPS],
        x: impl Iterator<Item = (&'x Quads, &'x ActGroup)>,
    ) -> f32 {
        let halves = shape.groups == 2 * shape.units;
        for (u, (y, act)) in x.enumerate() {
            let mut dots = [0i32; 2];
            for (h, dot) in dots.iter_mut().enumerate() {
                let at = UNIT_COLS * u + 16 * h;
                let code = isa::h_load(codes[at..].first_chunk().expect("16 codes"));
                let sum = isa::h_dot(code, y.as_flattened()[16 * h..].first_chunk().expect("16 activations"));
                *dot = sum + shape.bias * act.minus_halves[h];
            }
            let mut add = |group: usize, dot: i32, sum: f32| {
                acc = fma(scales[group] * act.scale, dot as f32, acc);
                if shape.offset {
                    acc = fma(offsets[group], sum, acc);
                }
            };
            if halves {
                add(2 * u, dots[0], act.scaled_halves[0]);
                add(2 * u + 1, dots[1], act.scaled_halves[1]);
            } else {
                add(u * shape.groups / shape.units, dots[0] + dots[1], act.scaled_sum);
            }
        }
        acc
    }
}
