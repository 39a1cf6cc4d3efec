//! The matrix kernels: packed panels of sixteen rows, and rows in the file's own layout.
//!
//! **A lane is a row.** A panel holds sixteen rows of a weight matrix. For each *unit* of 32 columns it has the codes'
//! bit planes: a plane of width `w` is `w` lines of 64 bytes, one 32-bit word for each row, and line `j` holds the
//! quads (four neighbouring columns) `j * 8/w …` at shifts of `w` within each byte. For each block of the format it has
//! a *record* with the sixteen rows' scale parts. All units of a panel come first, then all records.
//!
//! The kernels are written once for every format and tier. What a format adds is passed in: how a unit becomes eight
//! registers of codes, and how a record becomes scales and offsets. The arithmetic is the contract's:
//! per group `acc = fma(scale * x.scale, dot, acc)`, then with an offset `acc = fma(offset, x.scaled_sum, acc)`,
//! groups in order along the row. A row is never split, so neither the width of a register, nor the number of tokens
//! in a tile, nor the layout of the weights can change a bit.

use crate::{Activations, OutMut};
use core::ops::Range;
use quantsmith_macros::tiered;

/// Rows of a panel.
pub const PANEL: usize = 16;

/// Columns of a unit: one group of activations.
pub const UNIT_COLS: usize = 32;

/// How far ahead of one token's product the weights are asked for, in bytes.
const AHEAD: usize = 8192;

/// Bytes of a panel of rows of `blocks` blocks, rounded up to whole cache lines.
pub const fn panel_bytes(unit: usize, record: usize, units: usize, blocks: usize) -> usize {
    (blocks * (units * unit + record)).next_multiple_of(64)
}

/// The widths of the bit planes that hold codes of `bits` bits, from the low bits up.
pub const fn planes(bits: u32) -> &'static [u32] {
    match bits {
        0 | 1 => &[1],
        2 => &[2],
        3 => &[2, 1],
        4 => &[4],
        5 => &[4, 1],
        6 => &[4, 2],
        7 => &[4, 2, 1],
        _ => &[8],
    }
}

/// A product with packed weights.
#[derive(Debug)]
pub struct PanelJob<'a> {
    /// The packed matrix: panel after panel.
    pub packed: &'a [u8],
    /// Rows of the matrix; the last panel may be partly filled.
    pub rows: usize,
    /// The activations.
    pub x: Activations<'a>,
    /// The panels to compute.
    pub panels: Range<usize>,
    /// Where the result goes.
    pub out: OutMut<'a>,
}

/// A product with weights in the file's layout.
#[derive(Debug)]
pub struct RowJob<'a> {
    /// The matrix, row after row.
    pub bytes: &'a [u8],
    /// Bytes of a row.
    pub row_bytes: usize,
    /// The activations.
    pub x: Activations<'a>,
    /// The rows to compute.
    pub rows: Range<usize>,
    /// Where the result goes.
    pub out: OutMut<'a>,
}

/// Rows to be packed.
#[derive(Debug)]
pub struct PackJob<'a> {
    /// The matrix in the file's layout, row after row.
    pub bytes: &'a [u8],
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// The panels to pack.
    pub panels: Range<usize>,
    /// Where those panels go.
    pub out: &'a mut [u8],
}

/// Most weights of a block.
pub const MAX_BLOCK: usize = 1024;

/// Most groups of a block.
pub const MAX_GROUPS: usize = MAX_BLOCK / 16;

/// The numbers of a format that the kernels of the file's layout work with. A "block" here is what they take at once:
/// two blocks of the file where those have sixteen weights.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a block.
    pub bytes: usize,
    /// Units of 32 weights of a block.
    pub units: usize,
    /// Groups of a block.
    pub groups: usize,
    /// Bits of a stored code.
    pub bits: u32,
    /// What is subtracted from a code.
    pub bias: i32,
    /// Whether groups have an offset.
    pub offset: bool,
    /// Bytes of a packed unit.
    pub unit: usize,
    /// Bytes of a packed record.
    pub record: usize,
    /// The codes that stored codes stand for.
    pub table: Option<&'static [u8; 16]>,
}

impl Shape {
    /// The whole number that a stored code stands for.
    #[inline]
    pub fn value(&self, stored: u8) -> i32 {
        i32::from(self.table.map_or(stored, |table| table[usize::from(stored & 15)])) - self.bias
    }

    /// Replaces stored codes by codes.
    #[inline]
    pub fn look_up(&self, codes: &mut [u8]) {
        if let Some(table) = self.table {
            codes.iter_mut().for_each(|code| *code = table[usize::from(*code & 15)]);
        }
    }
}

/// Writes the stored codes of a block.
pub type Decode<'a> = dyn Fn(&[u8], &mut [u8]) + 'a;

/// Writes the scale and the offset of each group of a block.
pub type Parts<'a> = dyn Fn(&[u8], &mut [f32; MAX_GROUPS], &mut [f32; MAX_GROUPS]) + 'a;

/// Writes the scale parts of a block of one row into a record, for a lane.
pub type Fill<'a> = dyn Fn(&[u8], usize, &mut [u8]) + 'a;

/// Says something for each of `$count` tokens (at most 16), a pair at a time where there are two. Where registers are
/// many this is unrolled, so that what belongs to a token stays in them, which the compiler does not do by itself.
/// Where they are few it is a loop of `$rolled` rounds, a number that the compiler does not know: it would unroll the
/// loop and keep more for later than there is room for.
macro_rules! each_token {
    ($count:expr, $rolled:expr, $pair:ident => $two:block, $last:ident => $one:block) => {
        if isa::UNROLL {
            each_token!(@ $count, $pair, $two, 0 2 4 6 8 10 12 14);
        } else {
            for pair in 0..$rolled {
                let $pair = 2 * pair;
                $two
            }
        }
        if $count % 2 == 1 {
            let $last = $count - 1;
            $one
        }
    };
    (@ $count:expr, $pair:ident, $two:block, $($n:literal)*) => {
        $(if $n + 1 < $count {
            let $pair = $n;
            $two
        })*
    };
}

/// The kernels, once for each tier.
#[tiered]
pub mod kernel {
    use crate::act::{ActGroup, Quads, Tile, WIDE};
    use crate::panel::{AHEAD, MAX_BLOCK, MAX_GROUPS, PANEL, UNIT_COLS};
    use crate::panel::{Decode, Fill, PackJob, PanelJob, Parts, RowJob, Shape};
    use crate::panel::{panel_bytes, planes};
    use crate::plain::fma;

    /// The words of line `line` of a unit that belong to the register `sub` of the panel's sixteen lanes.
    pub fn words(unit: &[u8], line: usize, sub: usize) -> isa::I {
        isa::load_words(part(unit, 64 * line, 4, sub))
    }

    /// Sixteen f16 of a record, from byte `at`.
    pub fn f16_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::load_f16(part(record, at, 2, sub))
    }

    /// Sixteen bf16 of a record, from byte `at`.
    pub fn bf16_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::load_bf16(part(record, at, 2, sub))
    }

    /// Sixteen f32 of a record, from byte `at`.
    pub fn f32_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::load_f32(part(record, at, 4, sub))
    }

    /// Sixteen exponents of a record, from byte `at`.
    pub fn e8m0_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::load_e8m0(part(record, at, 1, sub))
    }

    /// Sixteen E4M3 numbers of a record, from byte `at`.
    pub fn e4m3_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::load_e4m3(part(record, at, 1, sub))
    }

    /// Sixteen unsigned bytes of a record, from byte `at`, as f32.
    pub fn u8_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::from_i32(isa::load_u8(part(record, at, 1, sub)))
    }

    /// Sixteen signed bytes of a record, from byte `at`, as f32.
    pub fn i8_at(record: &[u8], at: usize, sub: usize) -> isa::F {
        isa::from_i32(isa::load_i8(part(record, at, 1, sub)))
    }

    /// The bytes of the lanes of register `sub`, of `width` bytes each.
    fn part<const N: usize>(bytes: &[u8], at: usize, width: usize, sub: usize) -> &[u8; N] {
        let start = at + sub * isa::LANES * width;
        bytes[start..start + N].first_chunk().expect("a slice of N bytes")
    }

    /// Matrix product over packed panels.
    pub fn matmul<
        const UNIT: usize,
        const RECORD: usize,
        const UNITS: usize,
        const HALVES: bool,
        const MAX: i32,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        mut job: PanelJob<'_>,
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
    ) {
        let units = job.x.cols() / UNIT_COLS;
        let blocks = units / UNITS;
        let size = panel_bytes(UNIT, RECORD, UNITS, blocks);
        let tiles = if isa::TILES { Some(isa::Tiles::new()) } else { None };
        let panels = job.panels.clone();
        let panel = |panel: usize| {
            let bytes = &job.packed[panel * size..][..size];
            let (plane, rest) = bytes.split_at(units * UNIT);
            (&plane.as_chunks::<UNIT>().0[..units], &rest.as_chunks::<RECORD>().0[..blocks])
        };
        let mut write = |panel: usize, token: usize, acc: &[[isa::F; isa::SUBS]]| {
            let rows = panel * PANEL..job.rows.min(panel * PANEL + PANEL);
            for (t, acc) in acc.iter().enumerate() {
                let store = |to: &mut [f32; PANEL]| {
                    for (to, acc) in to.as_chunks_mut().0.iter_mut().zip(acc) {
                        isa::store(to, *acc);
                    }
                };
                let out = job.out.rows(token + t, rows.clone());
                match out.first_chunk_mut() {
                    Some(out) => store(out),
                    None => {
                        let mut lanes = [0.0; PANEL];
                        store(&mut lanes);
                        out.copy_from_slice(&lanes[..out.len()]);
                    }
                }
            }
        };
        // All panels for the same tokens, whose activations stay in the nearest cache.
        for first in (0..job.x.tokens()).step_by(WIDE) {
            let x = job.x.tile(first);
            if let (Some(tiles), WIDE) = (&tiles, x.width) {
                for at in panels.clone() {
                    let (plane, records) = panel(at);
                    let acc = wide::<UNIT, RECORD, UNITS, HALVES, BIAS, OFFSET>(
                        tiles, plane, records, &x, codes, scale, offset,
                    );
                    write(at, first, &acc);
                }
                continue;
            }
            let mut token = 0;
            macro_rules! tiles {
                ($width:expr) => {
                    while token + $width <= x.width {
                        for at in panels.clone() {
                            let (plane, records) = panel(at);
                            let acc = tile::<{ $width }, UNIT, RECORD, UNITS, HALVES, MAX, BIAS, OFFSET>(
                                plane, records, &x, token, codes, scale, offset,
                            );
                            write(at, first + token, &acc);
                        }
                        token += $width;
                    }
                };
            }
            // Not twice the same code where a tile is no larger.
            tiles!(isa::TILE);
            if isa::TILE > 4 {
                tiles!(4);
            }
            if isa::TILE > 2 {
                tiles!(2);
            }
            tiles!(1);
        }
    }

    /// The product of one panel with some tokens of a tile, from `first` on.
    fn tile<
        const T: usize,
        const UNIT: usize,
        const RECORD: usize,
        const UNITS: usize,
        const HALVES: bool,
        const MAX: i32,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        units: &[[u8; UNIT]],
        records: &[[u8; RECORD]],
        x: &Tile<'_>,
        first: usize,
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
    ) -> [[isa::F; isa::SUBS]; T] {
        let mut acc = [[isa::splat(0.0); isa::SUBS]; T];
        let pairs = core::hint::black_box(T / 2);
        // One flat loop, so that the code of a unit exists once however many units a block has.
        for (at, unit) in units.iter().enumerate() {
            let (record, u) = (&records[at / UNITS], at % UNITS);
            let y: &[Quads; T] = x.codes[at * x.width + first..].first_chunk().expect("so many tokens");
            let x: &[ActGroup; T] = x.groups[at * x.width + first..].first_chunk().expect("so many tokens");
            if T == 1 {
                // One token is bound by memory; several are not.
                ahead(unit);
                if u == 0 {
                    ahead(record);
                }
            }
            for sub in 0..isa::SUBS {
                let code = codes(unit, sub);
                if HALVES {
                    let [a0, a1, a2, a3, b0, b1, b2, b3] = code;
                    for (half, code) in [[a0, a1, a2, a3], [b0, b1, b2, b3]].iter().enumerate() {
                        let s = scale(record, 2 * u + half, sub);
                        let m = if OFFSET { offset(record, 2 * u + half, sub) } else { s };
                        let add = |acc: isa::F, dot: isa::I, x: &ActGroup| {
                            add::<OFFSET>(acc, s, m, dot, x.scale, x.scaled_halves[half])
                        };
                        each_token!(T, pairs, t => {
                            let y = [&y[t], &y[t + 1]].map(|y| &y.as_chunks::<4>().0[half]);
                            let minus = [x[t].minus_halves[half], x[t + 1].minus_halves[half]];
                            let dots = isa::dot2::<4, MAX, BIAS>(code, y, minus);
                            acc[t][sub] = add(acc[t][sub], dots[0], &x[t]);
                            acc[t + 1][sub] = add(acc[t + 1][sub], dots[1], &x[t + 1]);
                        }, t => {
                            let y = &y[t].as_chunks::<4>().0[half];
                            let dot = isa::dot::<4, MAX, BIAS>(code, y, x[t].minus_halves[half]);
                            acc[t][sub] = add(acc[t][sub], dot, &x[t]);
                        });
                    }
                } else {
                    let s = scale(record, u, sub);
                    let m = if OFFSET { offset(record, u, sub) } else { s };
                    let add = |acc: isa::F, dot: isa::I, x: &ActGroup| {
                        add::<OFFSET>(acc, s, m, dot, x.scale, x.scaled_sum)
                    };
                    each_token!(T, pairs, t => {
                        let minus = [x[t].minus, x[t + 1].minus];
                        let dots = isa::dot2::<8, MAX, BIAS>(&code, [&y[t], &y[t + 1]], minus);
                        acc[t][sub] = add(acc[t][sub], dots[0], &x[t]);
                        acc[t + 1][sub] = add(acc[t + 1][sub], dots[1], &x[t + 1]);
                    }, t => {
                        let dot = isa::dot::<8, MAX, BIAS>(&code, &y[t], x[t].minus);
                        acc[t][sub] = add(acc[t][sub], dot, &x[t]);
                    });
                }
            }
        }
        acc
    }

    /// Adds a group's part to the sums of a register of rows: the arithmetic contract.
    fn add<const OFFSET: bool>(
        acc: isa::F,
        scale: isa::F,
        offset: isa::F,
        dot: isa::I,
        x_scale: f32,
        x_sum: f32,
    ) -> isa::F {
        let acc = isa::fma(isa::mul(scale, isa::splat(x_scale)), isa::from_i32(dot), acc);
        if OFFSET { isa::fma(offset, isa::splat(x_sum), acc) } else { acc }
    }

    /// Asks for what lies a few KiB behind some bytes: as far as memory is slow, and what comes then is mostly the next
    /// panel or matrix.
    fn ahead<const N: usize>(bytes: &[u8; N]) {
        for at in (0..N).step_by(64) {
            isa::prefetch(bytes.as_ptr().wrapping_add(AHEAD + at));
        }
    }

    /// The product of one panel with sixteen tokens, by tiles.
    fn wide<
        const UNIT: usize,
        const RECORD: usize,
        const UNITS: usize,
        const HALVES: bool,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        tiles: &isa::Tiles,
        units: &[[u8; UNIT]],
        records: &[[u8; RECORD]],
        x: &Tile<'_>,
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
    ) -> [[isa::F; isa::SUBS]; WIDE] {
        let (y, groups) = (x.codes.as_chunks::<WIDE>().0, x.groups.as_chunks::<WIDE>().0);
        let mut acc = [[isa::splat(0.0); isa::SUBS]; WIDE];
        let mut lines = isa::Lines([[0; 64]; 8]);
        let mut products = isa::Products([[[0; PANEL]; WIDE]; 2]);
        for (at, unit) in units.iter().enumerate() {
            let (record, u) = (&records[at / UNITS], at % UNITS);
            for sub in 0..isa::SUBS {
                for (line, code) in lines.0.iter_mut().zip(codes(unit, sub)) {
                    let line = &mut line[4 * isa::LANES * sub..];
                    isa::store_words(line.first_chunk_mut().expect("a register of words"), code);
                }
            }
            isa::tile_dots::<HALVES>(tiles, &lines, &y[at], &mut products);
            for sub in 0..isa::SUBS {
                for half in 0..if HALVES { 2 } else { 1 } {
                    let group = if HALVES { 2 * u + half } else { u };
                    let s = scale(record, group, sub);
                    let m = if OFFSET { offset(record, group, sub) } else { s };
                    let dots = &products.0[half];
                    let add = |acc: isa::F, t: usize| {
                        let x = &groups[at][t];
                        let (minus, sum) = if HALVES {
                            (x.minus_halves[half], x.scaled_halves[half])
                        } else {
                            (x.minus, x.scaled_sum)
                        };
                        let dots = dots[t][isa::LANES * sub..].first_chunk().expect("a register of products");
                        add::<OFFSET>(acc, s, m, isa::load_more(dots, BIAS * minus), x.scale, sum)
                    };
                    each_token!(WIDE, WIDE / 2, t => {
                        acc[t][sub] = add(acc[t][sub], t);
                        acc[t + 1][sub] = add(acc[t + 1][sub], t + 1);
                    }, t => {
                        acc[t][sub] = add(acc[t][sub], t);
                    });
                }
            }
        }
        acc
    }

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
