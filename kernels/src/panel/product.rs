//! Matrix products over packed panels.
//!
//! All panels of a job are multiplied with a tile of up to sixteen tokens, whose activations stay in the nearest cache,
//! then with the next. A unit's codes are decoded once for all tokens of a tile. Where registers are many the sums of
//! a whole tile stay in them; where they are few, and for what is left of a batch, a loop over tokens keeps them in
//! memory.

use quantsmith_macros::tiered;

pub use tiers::*;

/// Says something for each of `$count` tokens (at most 16), a pair at a time where there are two. Where registers are
/// many this is unrolled, so that what belongs to a token stays in them, which the compiler does not do by itself: then
/// `$count` is a constant. Where they are few it is a loop.
macro_rules! each_token {
    ($loop:expr, $count:expr, $pair:ident => $two:block, $last:ident => $one:block) => {
        if $loop {
            for pair in 0..$count / 2 {
                let $pair = 2 * pair;
                $two
            }
        } else {
            each_token!(@ $count, $pair, $two, 0 2 4 6 8 10 12 14);
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

#[tiered]
mod tiers {
    use crate::act::{ActGroup, Quads, Tile, WIDE};
    use crate::panel::{AHEAD, PANEL, PanelJob, UNIT_COLS, panel_bytes};
    use core::ops::Range;

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
        let whole = if isa::TILES { job.x.tokens() / WIDE * WIDE } else { 0 };
        if whole * units * panels.len() > 0 {
            let pair = |at: usize| {
                let (first, at) = (at / panels.len() * WIDE, panels.start + at % panels.len());
                let (x, (units, records)) = (job.x.tile(first), panel(at));
                let (y, groups) = (x.codes.as_chunks().0, x.groups.as_chunks().0);
                Pair { panel: at, first, units, records, y, groups }
            };
            let count = whole / WIDE * panels.len();
            wide::<UNIT, RECORD, UNITS, HALVES, MAX, BIAS, OFFSET>(
                count, pair, codes, scale, offset, &mut write,
            );
        }
        for first in (whole..job.x.tokens()).step_by(WIDE) {
            let x = job.x.tile(first);
            let mut token = 0;
            macro_rules! take {
                ($most:expr, $loop:expr) => {{
                    let tokens = token..x.width.min(token + $most);
                    for at in panels.clone() {
                        let (plane, records) = panel(at);
                        let acc = tile::<{ $most }, { $loop }, UNIT, RECORD, UNITS, HALVES, MAX, BIAS, OFFSET>(
                            plane,
                            records,
                            &x,
                            tokens.clone(),
                            codes,
                            scale,
                            offset,
                        );
                        write(at, first + token, if $loop { &acc[..tokens.len()] } else { &acc });
                    }
                    token = tokens.end;
                }};
            }
            // What is unrolled exists for some numbers of tokens; a loop takes any, where they are enough to be worth it.
            while token < x.width {
                let (left, most) = (x.width - token, isa::UNROLL);
                if most == 16 && !isa::TILES && left == 16 {
                    take!(16, false);
                } else if most > 2 && (left == 4 || most == 4 && left > 4) {
                    take!(4, false);
                } else if most == 0 || left > 4 || most > 2 && left == 3 {
                    take!(WIDE, true);
                } else if left >= 2 {
                    take!(2, false);
                } else {
                    take!(1, false);
                }
            }
        }
    }

    /// The product of one panel with some tokens of a tile: `T`, or at most so many where the code is not unrolled.
    fn tile<
        const T: usize,
        const LOOP: bool,
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
        tokens: Range<usize>,
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
    ) -> [[isa::F; isa::SUBS]; T] {
        let mut sums = [[isa::splat(0.0); isa::SUBS]; T];
        let count = if LOOP { tokens.len() } else { T };
        let acc = &mut sums[..count];
        // One flat loop, so that the code of a unit exists once however many units a block has.
        for (at, unit) in units.iter().enumerate() {
            let (record, u) = (&records[at / UNITS], at % UNITS);
            let (y, x) = (&x.codes[at * x.width + tokens.start..], &x.groups[at * x.width + tokens.start..]);
            let (y, x): (&[Quads], &[ActGroup]) = if LOOP {
                (&y[..count], &x[..count])
            } else {
                (y.first_chunk::<T>().expect("so many tokens"), x.first_chunk::<T>().expect("so many groups"))
            };
            if T == 1 {
                // One token is bound by memory; several are not.
                ahead(unit);
                if u == 0 {
                    ahead(record);
                }
            }
            for sub in 0..isa::SUBS {
                let code = codes(unit, sub);
                // A group of these codes for each token: its quads, minus their sum, and the scaled sum.
                macro_rules! group {
                    ($n:literal, $code:expr, $group:expr, $y:ident => $quads:expr, $x:ident => $minus:expr, $sum:expr) => {{
                        let (code, group) = ($code, $group);
                        let s = scale(record, group, sub);
                        let m = if OFFSET { offset(record, group, sub) } else { s };
                        let add = |acc: isa::F, dot: isa::I, $x: &ActGroup| {
                            add::<OFFSET>(acc, s, m, dot, $x.scale, $sum)
                        };
                        let minus = |$x: &ActGroup| $minus;
                        each_token!(LOOP, count, t => {
                            let y = [&y[t], &y[t + 1]].map(|$y| { let $y = anew(LOOP, $y); $quads });
                            let dots = isa::dot2::<$n, MAX, BIAS>(&code, y, [minus(&x[t]), minus(&x[t + 1])]);
                            acc[t][sub] = add(acc[t][sub], dots[0], &x[t]);
                            acc[t + 1][sub] = add(acc[t + 1][sub], dots[1], &x[t + 1]);
                        }, t => {
                            let $y = &y[t];
                            let dot = isa::dot::<$n, MAX, BIAS>(&code, $quads, minus(&x[t]));
                            acc[t][sub] = add(acc[t][sub], dot, &x[t]);
                        });
                    }};
                }
                if HALVES {
                    let [a0, a1, a2, a3, b0, b1, b2, b3] = code;
                    group!(4, [a0, a1, a2, a3], 2 * u, y => &y.as_chunks::<4>().0[0],
                        x => x.minus_halves[0], x.scaled_halves[0]);
                    group!(4, [b0, b1, b2, b3], 2 * u + 1, y => &y.as_chunks::<4>().0[1],
                        x => x.minus_halves[1], x.scaled_halves[1]);
                } else {
                    group!(8, code, u, y => y, x => x.minus, x.scaled_sum);
                }
            }
        }
        sums
    }

    /// The same reference, of which the compiler does not know that it is the same. Activations that are spread over a
    /// register for the first half of the rows are not kept for the second: on the stack they are eight times as large
    /// as they were, and there is no room elsewhere.
    fn anew<T>(really: bool, reference: &T) -> &T {
        if really { core::hint::black_box(reference) } else { reference }
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

    /// A panel and sixteen tokens, to be multiplied with each other.
    struct Pair<'a, const UNIT: usize, const RECORD: usize> {
        panel: usize,
        /// The first of the tokens.
        first: usize,
        units: &'a [[u8; UNIT]],
        records: &'a [[u8; RECORD]],
        y: &'a [[Quads; WIDE]],
        groups: &'a [[ActGroup; WIDE]],
    }

    /// The products of panels with sixteen tokens each, by tiles: one long row of steps over all of them. A step decodes
    /// two units, or one of two halves, whose codes go to the tiles in the next step, and scales what comes back from
    /// them. Codes go there with their sign, the bias taken out of them where it leaves bytes, so that no product has
    /// to be mended.
    fn wide<
        'a,
        const UNIT: usize,
        const RECORD: usize,
        const UNITS: usize,
        const HALVES: bool,
        const MAX: i32,
        const BIAS: i32,
        const OFFSET: bool,
    >(
        count: usize,
        pair: impl Fn(usize) -> Pair<'a, UNIT, RECORD>,
        codes: impl Fn(&[u8; UNIT], usize) -> [isa::I; 8] + Copy,
        scale: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        offset: impl Fn(&[u8; RECORD], usize, usize) -> isa::F + Copy,
        mut write: impl FnMut(usize, usize, &[[isa::F; isa::SUBS]]),
    ) {
        // What is decoded, what is scaled, and the first unit of the step of either.
        let (mut ahead, mut done) = (pair(0), pair(0));
        let (mut decoded, mut scaled) = (0, 0);
        let (mut begun, mut ended) = (1, 0);
        let (units, at_once) = (done.y.len(), if HALVES { 1 } else { 2 });
        let less = if MAX - BIAS <= 127 { BIAS } else { 128 };
        let mut tiles = isa::Tiles::<HALVES>::new();
        let mut lines = [isa::Lines([[0; 64]; 16]); 2];
        let mut y = [&done.y[0]; 2];
        let mut products = isa::Products([[[0; PANEL]; WIDE]; 2]);
        let mut acc = [[isa::splat(0.0); isa::SUBS]; WIDE];
        for step in 0.. {
            // What is loaded lies in the cache by now, and what is multiplied in the tiles. After the last step anything
            // is loaded.
            tiles.step(&lines[(step + 1) % 2], y, &mut products);
            if decoded < units {
                y = [&ahead.y[decoded], &ahead.y[(decoded + at_once - 1).min(units - 1)]];
                for (n, unit) in ahead.units[decoded..].iter().take(at_once).enumerate() {
                    for sub in 0..isa::SUBS {
                        for (line, code) in lines[step % 2].0[8 * n..].iter_mut().zip(codes(unit, sub)) {
                            let line = &mut line[4 * isa::LANES * sub..];
                            let line = line.first_chunk_mut().expect("a register of words");
                            isa::store_words(line, isa::bytes_less(code, less as u8));
                        }
                    }
                }
                decoded += at_once;
                if decoded >= units && begun < count {
                    (ahead, decoded) = (pair(begun), 0);
                    begun += 1;
                }
            }
            if step < 3 {
                continue;
            }
            for n in 0..2 {
                let (at, half) = if HALVES { (scaled, n) } else { (scaled + n, 0) };
                if at >= units {
                    break;
                }
                let (record, u) = (&done.records[at / UNITS], at % UNITS);
                let group = if HALVES { 2 * u + half } else { u };
                for sub in 0..isa::SUBS {
                    let s = scale(record, group, sub);
                    let m = if OFFSET { offset(record, group, sub) } else { s };
                    let dots = &products.0[n];
                    let add = |acc: isa::F, t: usize| {
                        let x = &done.groups[at][t];
                        let (minus, sum) = if HALVES {
                            (x.minus_halves[half], x.scaled_halves[half])
                        } else {
                            (x.minus, x.scaled_sum)
                        };
                        let dots = dots[t][isa::LANES * sub..].first_chunk().expect("a register of products");
                        add::<OFFSET>(acc, s, m, isa::load_more(dots, (BIAS - less) * minus), x.scale, sum)
                    };
                    each_token!(false, WIDE, t => {
                        acc[t][sub] = add(acc[t][sub], t);
                        acc[t + 1][sub] = add(acc[t + 1][sub], t + 1);
                    }, t => {
                        acc[t][sub] = add(acc[t][sub], t);
                    });
                }
            }
            scaled += at_once;
            if scaled >= units {
                let sums = acc;
                acc = [[isa::splat(0.0); isa::SUBS]; WIDE];
                write(done.panel, done.first, &sums);
                ended += 1;
                if ended == count {
                    break;
                }
                (done, scaled) = (pair(ended), 0);
            }
        }
    }
}
