//! Strips of a chunk from cells to f32, and positions from f32 to cells.
//!
//! A strip is a matrix of up to 64 rows and of up to four runs of sixteen columns. Cells of f32 and f16 lie as the matrix
//! does, little-endian. A strip of codes begins with its scales in f16, one for each block of 32 elements of a position:
//! `[block][64 positions]` for keys, `[64 positions][block]` for values. The codes follow as the matrix lies: a byte each
//! for q8_0, while for q4_0 eight runs share 64 bytes, whose low halves are the first four and whose high halves are the
//! others.
//!
//! What a code stands for is `scale · code`, which f32 holds exactly.

use quantsmith_macros::tiered;

pub(crate) use tiers::*;

#[tiered]
mod tiers {
    use crate::arch::scalar::{f16_to_f32, f32_to_f16};
    use crate::ops::attention::CellType;
    use crate::ops::attention::cells::{BLOCK, split, split_mut};
    use crate::ops::attention::layout::{CHUNK, LANES, STRIP, WIDTH};
    use crate::ops::attention::room::Codes;
    use core::ops::Range;
    use isa::wide;

    /// Brings a strip of keys to f32.
    pub(crate) fn unpack_k(ty: CellType, cells: &[u8], room: &mut Codes, to: &mut [[f32; LANES]]) {
        match ty {
            CellType::F32 => unpack(cells.as_chunks::<64>().0, to, |x| wide::load_f32(x)),
            CellType::F16 => unpack(cells.as_chunks::<32>().0, to, |x| wide::load_f16(x)),
            CellType::Q8_0 | CellType::Q4_0 => {
                let (codes, scales) = codes(ty, cells, room);
                let blocks = codes.chunks(BLOCK * WIDTH).zip(to.chunks_mut(BLOCK * WIDTH));
                for ((codes, to), scales) in blocks.zip(scales.as_chunks::<WIDTH>().0) {
                    for (codes, to) in codes.chunks_exact(WIDTH).zip(to.chunks_exact_mut(WIDTH)) {
                        for p in 0..WIDTH {
                            wide::store(&mut to[p], wide::mul(code(&codes[p]), wide::load(&scales[p])));
                        }
                    }
                }
            }
        }
    }

    /// Brings some positions of a strip of values of so many runs to f32.
    pub(crate) fn unpack_v(
        ty: CellType,
        cells: &[u8],
        width: usize,
        positions: Range<usize>,
        room: &mut Codes,
        to: &mut [[f32; LANES]],
    ) {
        let runs = positions.start * width..positions.end * width;
        let to = &mut to[runs.clone()];
        match ty {
            CellType::F32 => unpack(&cells.as_chunks::<64>().0[runs], to, |x| wide::load_f32(x)),
            CellType::F16 => unpack(&cells.as_chunks::<32>().0[runs], to, |x| wide::load_f16(x)),
            CellType::Q8_0 | CellType::Q4_0 => {
                let (codes, scales) = codes(ty, cells, room);
                let scales = &scales.as_flattened()[runs.start / 2..runs.end / 2];
                let blocks = codes[runs].as_chunks::<2>().0.iter().zip(to.as_chunks_mut::<2>().0);
                for ((codes, to), scale) in blocks.zip(scales) {
                    for p in 0..2 {
                        wide::store(&mut to[p], wide::mul(code(&codes[p]), wide::splat(*scale)));
                    }
                }
            }
        }
    }

    fn unpack<E>(cells: &[E], to: &mut [[f32; LANES]], load: impl Fn(&E) -> wide::V) {
        for (to, cells) in to.iter_mut().zip(cells) {
            wide::store(to, load(cells));
        }
    }

    /// The codes of a strip as bytes, and its scales.
    pub(crate) fn codes<'a>(
        ty: CellType,
        cells: &'a [u8],
        room: &'a mut Codes,
    ) -> (&'a [[u8; LANES]], &'a [[f32; LANES]]) {
        let (halves, codes) = split(ty, cells);
        unpack(halves.as_chunks::<32>().0, &mut room.scales, |x| wide::load_f16(x));
        let (codes, _) = codes.as_chunks::<LANES>();
        if ty == CellType::Q8_0 {
            return (codes, &room.scales);
        }
        for (both, codes) in
            room.codes.as_chunks_mut::<{ 2 * WIDTH }>().0.iter_mut().zip(codes.as_chunks::<WIDTH>().0)
        {
            let (low, high) = both.as_flattened_mut().split_at_mut(WIDTH * LANES);
            let (low, high) = (low.as_chunks_mut().0, high.as_chunks_mut().0);
            let parts = codes.as_flattened().as_chunks::<{ 4 * isa::LANES }>().0;
            for s in 0..isa::SUBS {
                let codes = isa::load_words(&parts[s]);
                isa::store_words(&mut low[s], isa::table(isa::shr_and::<0>(codes, 15), &NIBBLES));
                isa::store_words(&mut high[s], isa::table(isa::shr_and::<4>(codes, 15), &NIBBLES));
            }
        }
        (&room.codes[..2 * codes.len()], &room.scales)
    }

    /// What the codes of q4_0 stand for, as bytes.
    const NIBBLES: [u8; 16] = {
        let mut values = [0; 16];
        let mut code = 0;
        while code < 16 {
            values[code as usize] = (code - 8) as u8;
            code += 1;
        }
        values
    };

    /// Sixteen codes as floats.
    pub(crate) fn code(run: &[u8; LANES]) -> wide::V {
        let (parts, _) = run.as_chunks::<{ isa::LANES }>();
        let mut out = wide::splat(0.0);
        for s in 0..isa::SUBS {
            out[s] = isa::from_i32(isa::load_i8(&parts[s]));
        }
        out
    }

    /// Stores a key in a chunk of keys.
    pub(crate) fn store_key(ty: CellType, k: &[f32], position: usize, chunk: &mut [u8]) {
        match ty {
            CellType::F32 => {
                let (cells, _) = chunk.as_chunks_mut();
                cells[position..]
                    .iter_mut()
                    .step_by(CHUNK)
                    .zip(k)
                    .for_each(|(cell, k)| *cell = k.to_le_bytes());
            }
            CellType::F16 => {
                let (cells, _) = chunk.as_chunks_mut();
                let mut cells = cells[position..].iter_mut().step_by(CHUNK);
                for k in k.chunks(LANES) {
                    let halves = halves(k);
                    cells
                        .by_ref()
                        .zip(&halves[..k.len()])
                        .for_each(|(cell, half)| *cell = half.to_le_bytes());
                }
            }
            CellType::Q8_0 | CellType::Q4_0 => store_key_codes(ty, k, position, chunk),
        }
    }

    /// Stores a value in a chunk of values.
    pub(crate) fn store_value(ty: CellType, v: &[f32], position: usize, chunk: &mut [u8]) {
        let runs = v.len().div_ceil(LANES);
        let strip_bytes = chunk.len() / runs * WIDTH;
        let strips = v.chunks(WIDTH * LANES).zip(chunk.chunks_mut(strip_bytes));
        strips.for_each(|(v, cells)| {
            let width = v.len().div_ceil(LANES);
            match ty {
                CellType::F32 => {
                    let cells = &mut cells.as_chunks_mut().0[position * width * LANES..][..width * LANES];
                    let (now, rest) = cells.split_at_mut(v.len());
                    now.iter_mut().zip(v).for_each(|(cell, v)| *cell = v.to_le_bytes());
                    rest.fill([0; 4]);
                }
                CellType::F16 => {
                    let cells = &mut cells.as_chunks_mut().0[position * width * LANES..][..width * LANES];
                    for (cells, v) in cells.chunks_exact_mut(LANES).zip(v.chunks(LANES)) {
                        let halves = halves(v);
                        cells.iter_mut().zip(&halves).for_each(|(cell, half)| *cell = half.to_le_bytes());
                    }
                }
                CellType::Q8_0 | CellType::Q4_0 => store_value_codes(ty, v, position, cells),
            }
        });
    }

    /// At most sixteen values as f16; behind them come zeros.
    fn halves(x: &[f32]) -> [u16; LANES] {
        let mut halves = [0; LANES];
        wide::store_f16s(&mut halves, wide::load_tail(x, 0.0));
        halves
    }

    fn store_key_codes(ty: CellType, k: &[f32], position: usize, chunk: &mut [u8]) {
        let strips = chunk.chunks_mut(STRIP * ty.run_bytes());
        for (k, cells) in k.chunks(CHUNK).zip(strips) {
            let (scales, cells) = split_mut(ty, cells);
            let mut rows = cells.as_chunks_mut::<CHUNK>().0.iter_mut();
            for (b, k) in k.as_chunks().0.iter().enumerate() {
                let (scale, codes) = nearest(ty, k);
                scales.as_chunks_mut().0[b * CHUNK + position] = scale.to_le_bytes();
                if ty == CellType::Q8_0 {
                    codes.iter().zip(&mut rows).for_each(|(code, row)| row[position] = *code);
                } else {
                    // Eight runs are two elements.
                    let pairs = codes.as_chunks().0.iter();
                    pairs.zip(&mut rows).for_each(|([low, high], row)| row[position] = low | high << 4);
                }
            }
        }
    }

    fn store_value_codes(ty: CellType, v: &[f32], position: usize, cells: &mut [u8]) {
        let (scales, cells) = split_mut(ty, cells);
        let at = position * (v.len() / BLOCK);
        let runs = cells.as_chunks_mut::<LANES>().0;
        for (b, v) in v.as_chunks().0.iter().enumerate() {
            let (scale, codes) = nearest(ty, v);
            scales.as_chunks_mut().0[at + b] = scale.to_le_bytes();
            for (i, codes) in codes.as_chunks::<LANES>().0.iter().enumerate() {
                let run = 2 * (at + b) + i;
                if ty == CellType::Q8_0 {
                    runs[run] = *codes;
                } else {
                    let shift = run / WIDTH % 2 * 4;
                    let cells = &mut runs[run / (2 * WIDTH) * WIDTH + run % WIDTH];
                    for (cell, code) in cells.iter_mut().zip(codes) {
                        *cell = *cell & !(15 << shift) | code << shift;
                    }
                }
            }
        }
    }

    /// A block's scale and its codes: those nearest to the elements, with the largest element for the largest code.
    fn nearest(ty: CellType, x: &[f32; BLOCK]) -> (u16, [u8; BLOCK]) {
        let largest = largest(x);
        if ty == CellType::Q8_0 {
            let (half, inverse) = scale(largest / 127.0);
            return (half, rounded(x, inverse, 0.0, -128.0, 127.0));
        }
        let signed = x.iter().find(|x| x.abs() == largest && largest > 0.0);
        let (half, inverse) = scale(signed.copied().unwrap_or(0.0) / -8.0);
        (half, rounded(x, inverse, 8.0, 0.0, 15.0))
    }

    /// The largest magnitude; 0 where none is a number. Compared by bits: of floats that cannot be NaN on one side the
    /// compiler takes the larger by an instruction that lets signalling NaNs of the other through.
    fn largest(x: &[f32; BLOCK]) -> f32 {
        let zero = wide::splat(0.0);
        isa::reduce_max_bits(wide::fold(x, zero, 0.0, |acc, x| {
            let x = wide::abs(x);
            wide::max_bits(acc, wide::select_greater(x, wide::splat(-1.0), x, zero))
        }))
    }

    /// A scale as it is stored, and its inverse, which is 0 for a scale of 0.
    fn scale(scale: f32) -> (u16, f32) {
        let half = f32_to_f16(scale.clamp(-65504.0, 65504.0));
        let held = f16_to_f32(half);
        (half, if held == 0.0 { 0.0 } else { 1.0 / held })
    }

    /// The whole numbers nearest to `x · inverse + zero` within a range; 0 for what is no number.
    fn rounded(x: &[f32; BLOCK], inverse: f32, zero: f32, low: f32, high: f32) -> [u8; BLOCK] {
        let mut codes = [[0; LANES]; 2];
        for (codes, x) in codes.iter_mut().zip(x.as_chunks().0) {
            let x = wide::add(wide::mul(wide::load(x), wide::splat(inverse)), wide::splat(zero));
            let x = wide::select_greater(wide::abs(x), wide::splat(-1.0), x, wide::splat(0.0));
            isa::store_codes(codes, wide::min(wide::max(x, wide::splat(low)), wide::splat(high)));
        }
        core::array::from_fn(|i| codes[i / LANES][i % LANES] as u8)
    }
}
