//! The scratch of a job, cut into what the kernels need, and the rows' places and ranges.

use super::layout::{CHUNK, KvLayout, LANES, ROWS, STRIP, TILE};
use super::{Queries, Visible};
use core::ops::Range;

/// The scratch, cut up.
pub(super) struct Room<'a> {
    /// Keys and values in f32.
    pub(super) strips: Strips<'a>,
    /// What a tile computes.
    pub(super) tile: Tile<'a>,
    /// The rows' state so far: `O`, padded.
    o: &'a mut [f32],
    /// The rows' `M` and `L`.
    marks: &'a mut [[f32; 2]],
    v_padded: usize,
}

/// Keys and values of one chunk in f32.
pub(super) struct Strips<'a> {
    /// Room for a chunk of keys.
    pub(super) k: &'a mut [[f32; LANES]],
    /// Room for a chunk of values.
    pub(super) v: &'a mut [[f32; LANES]],
    /// Whether the chunk is there, for several tiles; otherwise a tile reads cells strip by strip, those of f32 by way of the
    /// begin of the room.
    pub(super) ready: bool,
    /// A strip's codes.
    pub(super) codes: Codes,
}

/// Room for the codes of a strip, one to a byte, and for its scales.
pub(crate) struct Codes {
    pub(super) codes: [[u8; LANES]; STRIP],
    pub(super) scales: [[f32; LANES]; STRIP / 2 / LANES],
}

impl Codes {
    pub(super) fn new() -> Self {
        Codes { codes: [[0; LANES]; STRIP], scales: [[0.0; LANES]; STRIP / 2 / LANES] }
    }
}

/// What a tile computes for one chunk.
pub(super) struct Tile<'a> {
    /// Per row its scores, and then the exponentials.
    pub(super) scores: &'a mut [[f32; CHUNK]],
    /// Per row `o`, padded.
    pub(super) o: &'a mut [f32],
    /// Per row `m` and `l`.
    pub(super) marks: [[f32; 2]; TILE],
}

impl<'a> Room<'a> {
    /// Cuts up the scratch.
    ///
    /// # Panics
    /// * if it is shorter than [`KvLayout::scratch_len`]
    pub(super) fn new(layout: KvLayout, scratch: &'a mut [f32]) -> Self {
        let (have, need) = (scratch.len(), layout.scratch_len());
        assert!(have >= need, "scratch of {have} values where {need} are needed");
        let v_padded = layout.v_padded();
        let (k, rest) = scratch.split_at_mut(layout.k_runs() * LANES);
        let (v, rest) = rest.split_at_mut(layout.v_runs() * LANES);
        let (scores, rest) = rest.split_at_mut(TILE * CHUNK);
        let (tile_o, rest) = rest.split_at_mut(TILE * v_padded);
        let (o, rest) = rest.split_at_mut(ROWS * v_padded);
        let (marks, _) = rest[..2 * ROWS].as_chunks_mut();
        let (k, v, scores) = (k.as_chunks_mut().0, v.as_chunks_mut().0, scores.as_chunks_mut().0);
        let tile = Tile { scores, o: tile_o, marks: [[0.0; 2]; TILE] };
        Room { strips: Strips { k, v, ready: false, codes: Codes::new() }, tile, o, marks, v_padded }
    }

    /// Starts the states of a block of rows.
    pub(super) fn start(&mut self, queries: &Queries<'_>, block: &Range<usize>) {
        self.o[..block.len() * self.v_padded].fill(0.0);
        for (mark, row) in self.marks.iter_mut().zip(block.clone()) {
            *mark = match queries.sinks {
                None => [f32::NEG_INFINITY, 0.0],
                Some(sinks) => [sinks[row % queries.heads], 1.0],
            };
        }
    }

    /// A row's `O`, padded, and its `M` and `L`; the row counts from the block's first.
    pub(super) fn state(&mut self, row: usize) -> (&mut [f32], &mut [f32; 2]) {
        (&mut self.o[row * self.v_padded..][..self.v_padded], &mut self.marks[row])
    }

    /// The state of a row and what the tile has for it.
    pub(super) fn state_and_part(&mut self, row: usize, tile_row: usize) -> (State<'_>, Part<'_>) {
        let o = &mut self.o[row * self.v_padded..][..self.v_padded];
        let part = &self.tile.o[tile_row * self.v_padded..][..self.v_padded];
        ((o, &mut self.marks[row]), (part, self.tile.marks[tile_row]))
    }
}

/// A row's `O` and its `M` and `L`.
pub(super) type State<'a> = (&'a mut [f32], &'a mut [f32; 2]);

/// A row's `o` of one chunk and its `m` and `l`.
pub(super) type Part<'a> = (&'a [f32], [f32; 2]);

impl Queries<'_> {
    /// Checks what the kernels rely on.
    ///
    /// # Panics
    /// * if it does not hold
    pub(super) fn check(&self) {
        let fits = |list: Option<&[f32]>| list.is_none_or(|list| list.len() == self.heads);
        assert!(
            self.heads > 0 && fits(self.sinks) && fits(self.slopes),
            "not one sink or slope per query head"
        );
        assert!(
            self.capacity() == self.v.chunks(self.v.ty.v_bytes(self.layout)),
            "caches of different lengths"
        );
    }

    /// Chunks that the cache holds.
    fn capacity(&self) -> usize {
        self.k.chunks(self.k.ty.k_bytes(self.layout))
    }

    /// The strips of a chunk's keys.
    pub(super) fn k_strips(&self, chunk: usize) -> impl Iterator<Item = &[u8]> {
        self.k.strips(self.k.ty.k_bytes(self.layout), chunk)
    }

    /// The strips of a chunk's values.
    pub(super) fn v_strips(&self, chunk: usize) -> impl Iterator<Item = &[u8]> {
        self.v.strips(self.v.ty.v_bytes(self.layout), chunk)
    }

    /// The positions of a chunk that some row of a block sees, counted from the chunk's first one.
    pub(super) fn seen_in(&self, block: &Range<usize>, chunk: usize) -> Range<usize> {
        let rows = (block.start..block.end).step_by(self.heads).chain([block.end - 1]);
        let seen = rows.map(|row| self.visible_in(row, chunk)).filter(|range| !range.is_empty());
        seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
    }

    /// The query of a row.
    pub(super) fn query(&self, row: usize) -> &[f32] {
        let k_dim = self.layout.k_dim();
        &self.q[row / self.heads * self.q_stride + self.q_at + row % self.heads * k_dim..][..k_dim]
    }

    /// What a row sees.
    pub(super) fn visible(&self, row: usize) -> Visible {
        self.visible[row / self.heads]
    }

    /// What a row sees of a chunk, counted from the chunk's first position; `0..0` for nothing.
    pub(super) fn visible_in(&self, row: usize, chunk: usize) -> Range<usize> {
        let (Visible { first, end }, base) = (self.visible(row), chunk * CHUNK);
        let (low, high) = (first.max(base), end.min(base + CHUNK));
        if low < high { low - base..high - base } else { 0..0 }
    }

    /// The chunks of which some row of a block sees a position.
    ///
    /// # Panics
    /// * if a row sees more positions than the cache holds
    pub(super) fn chunks(&self, block: &Range<usize>) -> Range<usize> {
        let capacity = self.capacity() * CHUNK;
        let (mut low, mut high) = (usize::MAX, 0);
        for token in block.start / self.heads..block.end.div_ceil(self.heads) {
            let Visible { first, end } = self.visible[token];
            if first < end {
                assert!(
                    end - first <= capacity,
                    "{} visible positions in a cache of {capacity}",
                    end - first
                );
                (low, high) = (low.min(first / CHUNK), high.max(end.div_ceil(CHUNK)));
            }
        }
        if low < high { low..high } else { 0..0 }
    }
}
