//! The kernels of attention; what they compute stands in the parent module.
//!
//! Rows (a token's query head each) are taken in blocks of `ROWS`, the chunks one by one for all rows of a block, and
//! within a chunk in tiles of up to `TILE` rows, which share each load of a key or value. Where several tiles share a
//! chunk it is brought to f32 first; a single tile reads f16 and codes as they lie. What cells stand for is exact in f32,
//! so that changes no bit.
//!
//! A tile sees the positions that all its rows see at once, and those at the ends that only some rows see row by
//! row. Sums go on in memory, so the order stays.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use crate::OutMut;
    use crate::ops::attention::cells::{BLOCK, chunk_mut};
    use crate::ops::attention::layout::{CHUNK, LANES, ROWS, STRIP, TILE, Tiles, WIDTH, runs_at_once};
    use crate::ops::attention::room::{Codes, Room, Strips, Tile};
    use crate::ops::attention::{AttendJob, CellType, Cells, KvLayout, MergeJob, PartJob, Queries};
    use core::ops::Range;
    use isa::{math, strip, wide};

    const LANE: [f32; 16] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

    /// Runs of sixteen columns that a tile of so many rows takes at once.
    const RUNS: [usize; TILE + 1] = runs_at_once(isa::LANES);

    /// Stores the key of a position: the cells nearest to its elements.
    ///
    /// # Panics
    /// * if the key is not `k_dim` long or not whole blocks, or the cache holds no chunk
    pub fn store_k(ty: CellType, layout: KvLayout, k: &[f32], position: usize, cache: &mut [u8]) {
        assert_eq!(k.len(), layout.k_dim(), "a key of another length");
        strip::store_key(ty, k, position % CHUNK, chunk_mut(cache, ty.k_bytes(layout), position));
    }

    /// Stores the value of a position: the cells nearest to its elements.
    ///
    /// # Panics
    /// * if the value is not `v_dim` long or not whole blocks, or the cache holds no chunk
    pub fn store_v(ty: CellType, layout: KvLayout, v: &[f32], position: usize, cache: &mut [u8]) {
        assert_eq!(v.len(), layout.v_dim(), "a value of another length");
        strip::store_value(ty, v, position % CHUNK, chunk_mut(cache, ty.v_bytes(layout), position));
    }

    /// Reads the key of a position back.
    ///
    /// # Panics
    /// * if `k` is not `k_dim` long or not whole blocks, or the cache holds no chunk
    pub fn load_k(layout: KvLayout, cache: Cells<'_>, position: usize, k: &mut [f32]) {
        assert_eq!(k.len(), layout.k_dim(), "a key of another length");
        let (mut rows, mut codes) = ([[0.0; LANES]; STRIP], Codes::new());
        let strips = cache.strips(cache.ty.k_bytes(layout), position / CHUNK);
        for (k, cells) in k.chunks_mut(CHUNK).zip(strips) {
            strip::unpack_k(cache.ty, cells, &mut codes, &mut rows);
            let cells = rows.as_flattened()[position % CHUNK..].iter().step_by(CHUNK);
            k.iter_mut().zip(cells).for_each(|(k, cell)| *k = *cell);
        }
    }

    /// Reads the value of a position back.
    ///
    /// # Panics
    /// * if `v` is not `v_dim` long or not whole blocks, or the cache holds no chunk
    pub fn load_v(layout: KvLayout, cache: Cells<'_>, position: usize, v: &mut [f32]) {
        assert_eq!(v.len(), layout.v_dim(), "a value of another length");
        let (mut rows, mut codes) = ([[0.0; LANES]; STRIP], Codes::new());
        let (strips, at) = (cache.strips(cache.ty.v_bytes(layout), position / CHUNK), position % CHUNK);
        for (v, cells) in v.chunks_mut(WIDTH * LANES).zip(strips) {
            let width = v.len().div_ceil(LANES);
            strip::unpack_v(cache.ty, cells, width, at..at + 1, &mut codes, &mut rows);
            v.copy_from_slice(&rows[at * width..].as_flattened()[..v.len()]);
        }
    }

    /// Computes attention for a range of tokens.
    ///
    /// # Panics
    /// * if a slice is too short for what the job says, or a token sees more positions than the cache holds
    pub fn attend(job: AttendJob<'_>) {
        let queries = &job.queries;
        queries.check();
        let heads = queries.heads;
        let mut out = job.out;
        let mut room = Room::new(queries.layout, job.scratch);
        let rows = job.tokens.start * heads..job.tokens.end * heads;
        for start in rows.clone().step_by(ROWS) {
            let block = start..rows.end.min(start + ROWS);
            room.start(queries, &block);
            for chunk in queries.chunks(&block) {
                chunk_of_block(queries, &block, chunk, &mut room);
            }
            write_block(queries, &block, &mut room, &mut out, job.out_at);
        }
    }

    /// Computes what some chunks give for one token.
    ///
    /// # Panics
    /// * as `attend`; and if the token does not see a position of each of the chunks
    pub fn attend_part(job: PartJob<'_>) {
        let queries = &job.queries;
        queries.check();
        let mut room = Room::new(queries.layout, job.scratch);
        let rows = job.token * queries.heads..(job.token + 1) * queries.heads;
        let seen = queries.chunks(&rows);
        assert!(
            seen.start <= job.chunks.start && job.chunks.end <= seen.end,
            "a chunk that the token does not see"
        );
        let v_padded = queries.layout.v_padded();
        let mut parts = job.parts.chunks_exact_mut(v_padded + 2);
        for chunk in job.chunks {
            make_ready(queries, &rows, chunk, &mut room.strips);
            for tile in Tiles::new(rows.clone()) {
                tile_of_rows(queries, &tile, chunk, &mut room.strips, &mut room.tile);
                for i in 0..tile.len() {
                    let part = parts.next().expect("room for the parts of all chunks");
                    let (o, marks) = part.split_at_mut(v_padded);
                    o.copy_from_slice(&room.tile.o[i * v_padded..][..v_padded]);
                    marks.copy_from_slice(&room.tile.marks[i]);
                }
            }
        }
    }

    /// Merges a token's parts.
    ///
    /// # Panics
    /// * if there is not one part for each chunk that the token sees, or a slice is too short
    pub fn merge_parts(job: MergeJob<'_>) {
        let queries = &job.queries;
        queries.check();
        let mut out = job.out;
        let heads = queries.heads;
        let mut room = Room::new(queries.layout, job.scratch);
        let rows = job.token * heads..(job.token + 1) * heads;
        let v_padded = queries.layout.v_padded();
        let parts = job.parts.chunks_exact(v_padded + 2);
        assert_eq!(parts.len(), queries.chunks(&rows).len() * heads, "parts for another number of chunks");
        for start in (0..heads).step_by(ROWS) {
            let block = rows.start + start..rows.start + heads.min(start + ROWS);
            room.start(queries, &block);
            for chunk in job.parts.chunks_exact((v_padded + 2) * heads) {
                let parts = chunk.chunks_exact(v_padded + 2).skip(start);
                for (i, part) in parts.take(block.len()).enumerate() {
                    let (o, marks) = part.split_at(v_padded);
                    let (state_o, state_marks) = room.state(i);
                    merge(state_o, state_marks, o, [marks[0], marks[1]]);
                }
            }
            write_block(queries, &block, &mut room, &mut out, job.out_at);
        }
    }

    /// Takes one chunk into the states of a block of rows.
    fn chunk_of_block(queries: &Queries<'_>, block: &Range<usize>, chunk: usize, room: &mut Room<'_>) {
        make_ready(queries, block, chunk, &mut room.strips);
        for tile in Tiles::new(block.clone()) {
            tile_of_rows(queries, &tile, chunk, &mut room.strips, &mut room.tile);
            for (i, row) in tile.enumerate() {
                if !queries.visible_in(row, chunk).is_empty() {
                    let ((o, marks), (part, part_marks)) = room.state_and_part(row - block.start, i);
                    merge(o, marks, part, part_marks);
                }
            }
        }
    }

    /// Brings what a block of rows sees of a chunk to f32, if several tiles share it.
    fn make_ready(queries: &Queries<'_>, block: &Range<usize>, chunk: usize, strips: &mut Strips<'_>) {
        strips.ready = block.len() > TILE;
        let seen = queries.seen_in(block, chunk);
        if strips.ready && !seen.is_empty() {
            for (cells, to) in queries.k_strips(chunk).zip(strips.k.chunks_mut(STRIP)) {
                strip::unpack_k(queries.k.ty, cells, &mut strips.codes, to);
            }
            for (cells, to) in queries.v_strips(chunk).zip(strips.v.chunks_mut(STRIP)) {
                let width = to.len() / CHUNK;
                strip::unpack_v(queries.v.ty, cells, width, seen.clone(), &mut strips.codes, to);
            }
        }
    }

    /// Merges what a chunk gives into a row's state.
    fn merge(o: &mut [f32], marks: &mut [f32; 2], part: &[f32], [m, l]: [f32; 2]) {
        let largest = if m > marks[0] { m } else { marks[0] };
        let mut factors = [0.0; 16];
        factors[0] = marks[0] - largest;
        factors[1] = m - largest;
        let exps = math::exp(wide::load(&factors));
        wide::store(&mut factors, exps);
        let (old, new) = (wide::splat(factors[0]), wide::splat(factors[1]));
        let (o, _) = o.as_chunks_mut::<16>();
        let (part, _) = part.as_chunks::<16>();
        for (o, part) in o.iter_mut().zip(part) {
            let part = wide::mul(wide::load(part), new);
            wide::store(o, wide::fma(wide::load(o), old, part));
        }
        let l = wide::fma(wide::splat(marks[1]), old, wide::mul(wide::splat(l), new));
        wide::store(&mut factors, l);
        *marks = [largest, factors[0]];
    }

    /// Divides a block's states by their sums and writes them out.
    fn write_block(
        queries: &Queries<'_>,
        block: &Range<usize>,
        room: &mut Room<'_>,
        out: &mut OutMut<'_>,
        out_at: usize,
    ) {
        let v_dim = queries.layout.v_dim();
        for (i, row) in block.clone().enumerate() {
            let (o, marks) = room.state(i);
            let inverse = if marks[1] == 0.0 { 0.0 } else { 1.0 / marks[1] };
            wide::map(o, |o| wide::mul(o, wide::splat(inverse)));
            let at = out_at + row % queries.heads * v_dim;
            out.rows(row / queries.heads, at..at + v_dim).copy_from_slice(&o[..v_dim]);
        }
    }

    /// Computes `m`, `l` and `o` of a tile's rows for one chunk.
    fn tile_of_rows(
        queries: &Queries<'_>,
        rows: &Range<usize>,
        chunk: usize,
        strips: &mut Strips<'_>,
        tile: &mut Tile<'_>,
    ) {
        match rows.len() {
            1 => rows_at_once::<1, { RUNS[1] }>(queries, rows.start, chunk, strips, tile),
            2 => rows_at_once::<2, { RUNS[2] }>(queries, rows.start, chunk, strips, tile),
            3 => rows_at_once::<3, { RUNS[3] }>(queries, rows.start, chunk, strips, tile),
            4 => rows_at_once::<4, { RUNS[4] }>(queries, rows.start, chunk, strips, tile),
            5 => rows_at_once::<5, { RUNS[5] }>(queries, rows.start, chunk, strips, tile),
            6 => rows_at_once::<6, { RUNS[6] }>(queries, rows.start, chunk, strips, tile),
            other => unreachable!("a tile of {other} rows"),
        }
    }

    /// Where a strip of a chunk of so many runs is in the room, and how many runs it has.
    fn place(strip: usize, runs: usize, ready: bool) -> (usize, usize) {
        let at = strip * STRIP;
        (if ready { at } else { 0 }, STRIP.min(runs - at))
    }

    fn rows_at_once<const R: usize, const P: usize>(
        queries: &Queries<'_>,
        row: usize,
        chunk: usize,
        strips: &mut Strips<'_>,
        tile: &mut Tile<'_>,
    ) {
        let ranges: [Range<usize>; R] = core::array::from_fn(|i| queries.visible_in(row + i, chunk));
        let seen = ranges.iter().filter(|r| !r.is_empty());
        let (low, high) = seen.fold((CHUNK, 0), |(low, high), r| (low.min(r.start), high.max(r.end)));
        if low >= high {
            return;
        }
        let Strips { k, v, ready, codes } = strips;
        let seen = low..high;
        // Scores of whole runs of sixteen positions. What lies outside a row's range is masked before it is used.
        let columns = low / LANES..high.div_ceil(LANES);
        let scores = tile.scores[..R].as_flattened_mut();
        scores.fill(0.0);
        for (n, cells) in queries.k_strips(chunk).enumerate() {
            let q: [&[f32]; R] = core::array::from_fn(|i| &queries.query(row + i)[n * CHUNK..]);
            let (columns, ty) = (columns.clone(), queries.k.ty);
            match ty {
                CellType::F16 if !*ready => {
                    let rows = cells.as_chunks::<32>().0;
                    multiply::<R, P, _>(q, rows, WIDTH, columns, scores, CHUNK, |x, _, _| wide::load_f16(x));
                }
                CellType::Q8_0 | CellType::Q4_0 if !*ready => {
                    let (codes, scales) = strip::codes(ty, cells, codes);
                    let blocks = codes.chunks(BLOCK * WIDTH).zip(scales.as_chunks::<WIDTH>().0);
                    for (b, (codes, scales)) in blocks.enumerate() {
                        let q = q.map(|q| &q[b * BLOCK..]);
                        multiply::<R, P, _>(q, codes, WIDTH, columns.clone(), scores, CHUNK, |x, _, run| {
                            wide::mul(strip::code(x), wide::load(&scales[run]))
                        });
                    }
                }
                _ => {
                    let (at, len) = place(n, k.len(), *ready);
                    if !*ready {
                        strip::unpack_k(ty, cells, codes, &mut k[..len]);
                    }
                    let rows = &k[at..at + len];
                    multiply::<R, P, _>(q, rows, WIDTH, columns, scores, CHUNK, |x, _, _| wide::load(x));
                }
            }
        }

        for (i, range) in ranges.iter().enumerate() {
            if !range.is_empty() {
                tile.marks[i] = weigh(queries, row + i, chunk, range, &mut tile.scores[i]);
            }
        }

        // Values: what all rows see at once, what comes before and after row by row.
        let v_padded = queries.layout.v_padded();
        tile.o[..R * v_padded].fill(0.0);
        let low = ranges.iter().fold(0, |low, r| low.max(r.start));
        let high = ranges.iter().fold(CHUNK, |high, r| high.min(r.end));
        let joint = if low < high { low..high } else { CHUNK..CHUNK };
        let weights: [&[f32; CHUNK]; R] = core::array::from_fn(|i| &tile.scores[i]);
        for (n, cells) in queries.v_strips(chunk).enumerate() {
            let (at, len) = place(n, v.len(), *ready);
            let (width, ty) = (len / CHUNK, queries.v.ty);
            let o = &mut tile.o[n * WIDTH * LANES..];
            let sums = Sums { weights, ranges: &ranges, joint: joint.clone(), width, stride: v_padded };
            match ty {
                CellType::F16 if !*ready => {
                    let rows = cells.as_chunks::<32>().0;
                    weighted::<R, P, _>(sums, rows, o, |x, _, _| wide::load_f16(x));
                }
                CellType::Q8_0 | CellType::Q4_0 if !*ready => {
                    let (codes, scales) = strip::codes(ty, cells, codes);
                    let (scales, blocks) = (scales.as_flattened(), width / 2);
                    weighted::<R, P, _>(sums, codes, o, |x, row, run| {
                        wide::mul(strip::code(x), wide::splat(scales[row * blocks + run / 2]))
                    });
                }
                _ => {
                    if !*ready {
                        strip::unpack_v(ty, cells, width, seen.clone(), codes, &mut v[..len]);
                    }
                    weighted::<R, P, _>(sums, &v[at..at + len], o, |x, _, _| wide::load(x));
                }
            }
        }
    }

    /// What the sums over a strip of values are made of.
    struct Sums<'a, const R: usize> {
        /// For each row the weights of all positions.
        weights: [&'a [f32; CHUNK]; R],
        /// What each row sees.
        ranges: &'a [Range<usize>; R],
        /// What all rows see.
        joint: Range<usize>,
        /// Runs of the strip.
        width: usize,
        /// Distance of two rows' sums.
        stride: usize,
    }

    /// Adds the weighted values of a strip: those that all rows see at once, those before and after row by row.
    fn weighted<const R: usize, const P: usize, E>(
        sums: Sums<'_, R>,
        strip: &[E],
        o: &mut [f32],
        load: impl Fn(&E, usize, usize) -> wide::V,
    ) {
        let Sums { weights, ranges, joint, width, stride } = sums;
        let rows = |range: &Range<usize>| &strip[range.start * width..range.end * width];
        for (i, range) in ranges.iter().enumerate() {
            let before = range.start..range.end.min(joint.start);
            if !before.is_empty() {
                let (e, o) = ([&weights[i][before.clone()]], &mut o[i * stride..]);
                let load = |x: &E, row, run| load(x, before.start + row, run);
                multiply::<1, { RUNS[1] }, E>(e, rows(&before), width, 0..width, o, stride, load);
            }
        }
        if !joint.is_empty() {
            let e = weights.map(|e| &e[joint.clone()]);
            let load = |x: &E, row, run| load(x, joint.start + row, run);
            multiply::<R, P, E>(e, rows(&joint), width, 0..width, o, stride, load);
        }
        for (i, range) in ranges.iter().enumerate() {
            let after = range.start.max(joint.end)..range.end;
            if !after.is_empty() {
                let (e, o) = ([&weights[i][after.clone()]], &mut o[i * stride..]);
                let load = |x: &E, row, run| load(x, after.start + row, run);
                multiply::<1, { RUNS[1] }, E>(e, rows(&after), width, 0..width, o, stride, load);
            }
        }
    }

    /// Turns a row's scores of a chunk into exponentials, and gives `m` and `l`.
    fn weigh(
        queries: &Queries<'_>,
        row: usize,
        chunk: usize,
        range: &Range<usize>,
        scores: &mut [f32; CHUNK],
    ) -> [f32; 2] {
        wide::map(scores, |s| wide::mul(s, wide::splat(queries.scale)));
        if let Some(cap) = queries.softcap {
            let (factor, inverse) = (wide::splat(cap), wide::splat(1.0 / cap));
            wide::map(scores, |s| wide::mul(factor, math::tanh(wide::mul(s, inverse))));
        }
        if let Some(slopes) = queries.slopes {
            let slope = slopes[row % queries.heads];
            let last = queries.visible(row).end - 1;
            let (chunks, _) = scores.as_chunks_mut::<LANES>();
            for (i, s) in chunks.iter_mut().enumerate() {
                // Whole numbers, so that the difference and the sum are exact.
                let first = (chunk * CHUNK + i * LANES) as f32 - last as f32;
                let distance = wide::add(wide::splat(first), wide::load(&LANE));
                wide::store(s, wide::fma(wide::splat(slope), distance, wide::load(s)));
            }
        }
        scores[..range.start].fill(f32::NEG_INFINITY);
        scores[range.end..].fill(f32::NEG_INFINITY);
        let lowest = f32::NEG_INFINITY;
        let m = isa::reduce_max(wide::fold(scores, wide::splat(lowest), lowest, |acc, s| wide::max(s, acc)));
        wide::map(scores, |s| math::exp(wide::sub(s, wide::splat(m))));
        let l = isa::reduce_add(wide::fold(scores, wide::splat(0.0), 0.0, |acc, e| wide::add(acc, e)));
        [m, l]
    }

    /// Products of the rows `a` with a strip, a matrix whose rows are `width` runs of sixteen columns: for the given
    /// runs, `c[r] += sum of a[r][i] * strip[i]`, i in order. Row r of `c` starts at `r * stride`.
    fn multiply<const R: usize, const P: usize, E>(
        a: [&[f32]; R],
        strip: &[E],
        width: usize,
        runs: Range<usize>,
        c: &mut [f32],
        stride: usize,
        load: impl Fn(&E, usize, usize) -> wide::V,
    ) {
        let mut at = runs.start;
        while at + P <= runs.end {
            multiply_runs::<R, P, E>(a, strip, width, at, c, stride, &load);
            at += P;
        }
        while at < runs.end {
            multiply_runs::<R, 1, E>(a, strip, width, at, c, stride, &load);
            at += 1;
        }
    }

    /// `multiply` for `P` runs from `at` on, with all sums in registers.
    fn multiply_runs<const R: usize, const P: usize, E>(
        a: [&[f32]; R],
        strip: &[E],
        width: usize,
        at: usize,
        c: &mut [f32],
        stride: usize,
        load: impl Fn(&E, usize, usize) -> wide::V,
    ) {
        let len = strip.len() / width;
        let a = a.map(|a| &a[..len]);
        let mut acc = [[wide::splat(0.0); P]; R];
        for (r, acc) in acc.iter_mut().enumerate() {
            let (c, _) = c[r * stride + at * LANES..][..P * LANES].as_chunks();
            for (acc, c) in acc.iter_mut().zip(c) {
                *acc = wide::load(c);
            }
        }
        for (i, row) in strip.chunks_exact(width).enumerate() {
            let row = &row[at..at + P];
            let mut lanes = [wide::splat(0.0); P];
            for p in 0..P {
                lanes[p] = load(&row[p], i, at + p);
            }
            for r in 0..R {
                let x = wide::splat(a[r][i]);
                for p in 0..P {
                    acc[r][p] = wide::fma(lanes[p], x, acc[r][p]);
                }
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            let (c, _) = c[r * stride + at * LANES..][..P * LANES].as_chunks_mut();
            for (acc, c) in acc.iter().zip(c) {
                wide::store(c, *acc);
            }
        }
    }
}
