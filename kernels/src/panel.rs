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

use crate::{ActGroup, Activations, OutMut};
use core::ops::Range;
use quantsmith_macros::tiered;

/// Rows of a panel.
pub const PANEL: usize = 16;

/// Columns of a unit: one group of activations.
pub const UNIT_COLS: usize = 32;

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

/// One token's activations as the kernels read them.
pub type Row<'a> = (&'a [[[i8; 4]; 8]], &'a [ActGroup]);

/// One token's codes in quads, and its groups.
#[inline]
pub fn act_row<'a>(x: &Activations<'a>, token: usize, units: usize) -> Row<'a> {
    let (codes, groups) = x.row(token);
    let units_of = codes.as_chunks::<4>().0.as_chunks::<8>().0;
    (&units_of[..units], &groups[..units])
}

/// The kernels, once for each tier.
#[tiered]
pub mod kernel {
    use crate::Activations;
    use crate::panel::{PANEL, PackJob, PanelJob, Row, RowJob, UNIT_COLS, act_row, panel_bytes, planes};

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
        for panel in job.panels.clone() {
            let bytes = &job.packed[panel * size..][..size];
            let (plane, rest) = bytes.split_at(units * UNIT);
            let plane = &plane.as_chunks::<UNIT>().0[..units];
            let records = &rest.as_chunks::<RECORD>().0[..blocks];
            let first = panel * PANEL;
            let rows = first..job.rows.min(first + PANEL);
            let mut token = 0;
            macro_rules! tiles {
                ($width:expr) => {
                    while token + $width <= job.x.tokens() {
                        let x: [Row<'_>; $width] =
                            core::array::from_fn(|t| act_row(&job.x, token + t, units));
                        let acc = tile::<{ $width }, UNIT, RECORD, UNITS, HALVES, MAX, BIAS, OFFSET>(
                            plane, records, &x, codes, scale, offset,
                        );
                        for (t, acc) in acc.iter().enumerate() {
                            let mut lanes = [0.0f32; PANEL];
                            for (lanes, acc) in lanes.as_chunks_mut().0.iter_mut().zip(acc) {
                                isa::store(lanes, *acc);
                            }
                            let out = job.out.rows(token + t, rows.clone());
                            out.copy_from_slice(&lanes[..out.len()]);
                        }
                        token += $width;
                    }
                };
            }
            tiles!(isa::TILE);
            tiles!(2);
            tiles!(1);
        }
    }

    /// The product of one panel with a tile of tokens.

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
        x: &[Row<'_>; T],
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
    ) -> [[isa::F; isa::SUBS]; T] {
        let mut acc = [[isa::splat(0.0); isa::SUBS]; T];
        for (b, record) in records.iter().enumerate() {
            for u in 0..UNITS {
                let at = b * UNITS + u;
                for sub in 0..isa::SUBS {
                    let code = codes(&units[at], sub);
                    if HALVES {
                        let [a0, a1, a2, a3, b0, b1, b2, b3] = code;
                        for (half, code) in [[a0, a1, a2, a3], [b0, b1, b2, b3]].iter().enumerate() {
                            let which = [1 - half as i16, half as i16];
                            let s = scale(record, 2 * u + half, sub);
                            let m = if OFFSET { offset(record, 2 * u + half, sub) } else { s };
                            for t in 0..T {
                                let (y, group) = (&x[t].0[at].as_chunks::<4>().0[half], &x[t].1[at]);
                                let dot = isa::dot::<4, MAX, BIAS>(code, y, group.sums, which);
                                let factor = isa::mul(s, isa::splat(group.scale));
                                acc[t][sub] = isa::fma(factor, isa::from_i32(dot), acc[t][sub]);
                                if OFFSET {
                                    let sum = isa::splat(group.scaled_halves[half]);
                                    acc[t][sub] = isa::fma(m, sum, acc[t][sub]);
                                }
                            }
                        }
                    } else {
                        let s = scale(record, u, sub);
                        let m = if OFFSET { offset(record, u, sub) } else { s };
                        for t in 0..T {
                            let (y, group) = (&x[t].0[at], &x[t].1[at]);
                            let dot = isa::dot::<8, MAX, BIAS>(&code, y, group.sums, [1, 1]);
                            let factor = isa::mul(s, isa::splat(group.scale));
                            acc[t][sub] = isa::fma(factor, isa::from_i32(dot), acc[t][sub]);
                            if OFFSET {
                                acc[t][sub] = isa::fma(m, isa::splat(group.scaled_sum), acc[t][sub]);
                            }
                        }
                    }
                }
            }
        }
        acc
    }

    /// Packs rows of the file's layout into panels; missing rows of the last panel become zeros.
    pub fn pack<
        const BYTES: usize,
        const RUNS: usize,
        const UNIT: usize,
        const RECORD: usize,
        const UNITS: usize,
        const BITS: u32,
    >(
        job: PackJob<'_>,
        raw: impl Fn(&[u8; BYTES]) -> [isa::H; RUNS] + Copy,
        record: impl Fn(&[u8; BYTES], usize, &mut [u8; RECORD]) + Copy,
    ) {
        let blocks = job.row_bytes / BYTES;
        let size = panel_bytes(UNIT, RECORD, UNITS, blocks);
        for (panel, out) in job.panels.clone().zip(job.out.chunks_exact_mut(size)) {
            out.fill(0);
            let (planes_out, rest) = out.split_at_mut(blocks * UNITS * UNIT);
            let records = rest.as_chunks_mut::<RECORD>().0;
            for lane in 0..PANEL {
                let row = panel * PANEL + lane;
                if row >= job.rows {
                    break;
                }
                let bytes = &job.bytes[row * job.row_bytes..][..job.row_bytes];
                for (b, block) in bytes.as_chunks::<BYTES>().0.iter().enumerate() {
                    record(block, lane, &mut records[b]);
                    let units = planes_out[b * UNITS * UNIT..][..UNITS * UNIT].as_chunks_mut::<UNIT>().0;
                    for (unit, runs) in units.iter_mut().zip(raw(block).as_chunks::<2>().0) {
                        let mut codes = [0u8; UNIT_COLS];
                        let (first, second) = codes.split_at_mut(16);
                        isa::h_store(first.first_chunk_mut().expect("16 bytes"), runs[0]);
                        isa::h_store(second.first_chunk_mut().expect("16 bytes"), runs[1]);
                        scatter::<BITS>(&codes, lane, unit);
                    }
                }
            }
        }
    }

    /// Distributes the 32 codes of one row of a unit over its bit planes.

    fn scatter<const BITS: u32>(codes: &[u8; UNIT_COLS], lane: usize, unit: &mut [u8]) {
        let quads: [u32; 8] = core::array::from_fn(|q| {
            u32::from_le_bytes([codes[4 * q], codes[4 * q + 1], codes[4 * q + 2], codes[4 * q + 3]])
        });
        let (mut line, mut low) = (0, 0);
        for &width in planes(BITS) {
            let mask = 0x0101_0101 * ((1u32 << width) - 1);
            let per_line = (8 / width) as usize;
            for quads in quads.chunks_exact(per_line) {
                let word = quads.iter().enumerate().fold(0, |w, (k, quad)| w | ((quad >> low & mask) << (k as u32 * width)));
                unit[64 * line + 4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
                line += 1;
            }
            low += width;
        }
    }

    /// The values of whole blocks.
    pub fn dequantise<const BYTES: usize, const RUNS: usize, const GROUPS: usize, const BIAS: i32, const OFFSET: bool>(
        bytes: &[u8],
        out: &mut [f32],
        codes: impl Fn(&[u8; BYTES]) -> [isa::H; RUNS] + Copy,
        scales: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
        offsets: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
    ) {
        for (block, out) in bytes.as_chunks::<BYTES>().0.iter().zip(out.chunks_exact_mut(16 * RUNS)) {
            let (runs, scale) = (codes(block), scales(block));
            let offset = if OFFSET { offsets(block) } else { [0.0; GROUPS] };
            for (r, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                let mut code = [0u8; 16];
                isa::h_store(&mut code, runs[r]);
                let group = r * GROUPS / RUNS;
                for (out, code) in out.iter_mut().zip(code) {
                    let value = scale[group] * (i32::from(code) - BIAS) as f32;
                    *out = if OFFSET { value + offset[group] } else { value };
                }
            }
        }
    }

    /// Matrix product over rows of the file's layout, with the same bits as over panels.
    pub fn matmul_rows<
        const BYTES: usize,
        const RUNS: usize,
        const GROUPS: usize,
        const MAX: i32,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        mut job: RowJob<'_>,
        codes: impl Fn(&[u8; BYTES]) -> [isa::H; RUNS] + Copy,
        scales: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
        offsets: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
    ) {
        for row in job.rows.clone() {
            let bytes = &job.bytes[row * job.row_bytes..][..job.row_bytes];
            let mut token = 0;
            macro_rules! tiles {
                ($width:expr) => {
                    while token + $width <= job.x.tokens() {
                        let acc = dot_rows::<{ $width }, BYTES, RUNS, GROUPS, MAX, BIAS, OFFSET>(
                            bytes, &job.x, token, codes, scales, offsets,
                        );
                        for (t, acc) in acc.into_iter().enumerate() {
                            job.out.rows(token + t, row..row + 1)[0] = acc;
                        }
                        token += $width;
                    }
                };
            }
            tiles!(4);
            tiles!(1);
        }
    }

    /// Dot products of one row with the rows of `T` tokens.

    fn dot_rows<
        const T: usize,
        const BYTES: usize,
        const RUNS: usize,
        const GROUPS: usize,
        const MAX: i32,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        bytes: &[u8],
        x: &Activations<'_>,
        token: usize,
        codes: impl Fn(&[u8; BYTES]) -> [isa::H; RUNS] + Copy,
        scales: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
        offsets: impl Fn(&[u8; BYTES]) -> [f32; GROUPS] + Copy,
    ) -> [f32; T] {
        let halves = GROUPS == RUNS;
        let mut acc = [0.0f32; T];
        for (b, block) in bytes.as_chunks::<BYTES>().0.iter().enumerate() {
            let (runs, scale) = (codes(block), scales(block));
            let offset = if OFFSET { offsets(block) } else { [0.0; GROUPS] };
            for u in 0..RUNS / 2 {
                let at = b * (RUNS / 2) + u;
                for (t, acc) in acc.iter_mut().enumerate() {
                    let (y, groups) = x.row(token + t);
                    let (y, act) = (y.as_chunks::<16>().0, &groups[at]);
                    let dots: [i32; 2] = core::array::from_fn(|h| {
                        isa::h_dot(runs[2 * u + h], &y[2 * at + h]) - BIAS * i32::from(act.sums[h])
                    });
                    let mut add = |group: usize, dot: i32, sum: f32| {
                        *acc = (scale[group] * act.scale).mul_add(dot as f32, *acc);
                        if OFFSET {
                            *acc = offset[group].mul_add(sum, *acc);
                        }
                    };
                    if halves {
                        add(2 * u, dots[0], act.scaled_halves[0]);
                        add(2 * u + 1, dots[1], act.scaled_halves[1]);
                    } else {
                        add(2 * u * GROUPS / RUNS, dots[0] + dots[1], act.scaled_sum);
                    }
                }
            }
        }
        acc
    }
}
