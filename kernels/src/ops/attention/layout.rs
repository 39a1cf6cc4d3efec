//! Sizes and places in the key-value cache; see the parent module for the layout.

use core::ops::Range;

/// Positions of a chunk. Chunks lie at multiples of it.
pub const CHUNK: usize = 64;

/// Positions of a block of keys, and dimensions of a panel of values.
pub(super) const LANES: usize = 16;

/// Runs of sixteen columns in a strip.
pub(super) const WIDTH: usize = CHUNK / LANES;

/// Runs of a strip at most.
pub(super) const STRIP: usize = CHUNK * WIDTH;

/// Rows that are computed together against a chunk.
pub(super) const ROWS: usize = 96;

/// Rows of a register tile at most.
pub(super) const TILE: usize = 6;

/// The layout of the cache of one layer and key-value head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    k_dim: usize,
    v_dim: usize,
}

impl KvLayout {
    /// Keys of `k_dim` and values of `v_dim` elements.
    ///
    /// # Panics
    /// * if one of them is zero
    pub const fn new(k_dim: usize, v_dim: usize) -> Self {
        assert!(k_dim > 0 && v_dim > 0, "keys and values have at least one element");
        KvLayout { k_dim, v_dim }
    }

    /// Elements of a key.
    pub const fn k_dim(self) -> usize {
        self.k_dim
    }

    /// Elements of a value.
    pub const fn v_dim(self) -> usize {
        self.v_dim
    }

    /// Elements of a value in the cache: whole panels.
    pub(super) const fn v_padded(self) -> usize {
        self.v_dim.next_multiple_of(LANES)
    }

    /// Length of the scratch of a job.
    pub const fn scratch_len(self) -> usize {
        let chunk = (self.k_runs() + self.v_runs()) * LANES;
        chunk + TILE * (CHUNK + self.v_padded()) + ROWS * (self.v_padded() + 2)
    }

    /// Length of what one chunk gives for one token with so many query heads: per head its `o`, `m` and `l`.
    pub const fn part_len(self, heads: usize) -> usize {
        heads * (self.v_padded() + 2)
    }

    /// Runs of a chunk of keys.
    pub(super) const fn k_runs(self) -> usize {
        self.k_dim * WIDTH
    }

    /// Runs of a chunk of values.
    pub(super) const fn v_runs(self) -> usize {
        CHUNK * self.v_padded() / LANES
    }
}

/// The place of a chunk in a ring of so many.
///
/// # Panics
/// * if there are none
pub(super) fn place_of(chunks: usize, chunk: usize) -> usize {
    assert!(chunks > 0, "a cache without chunks");
    chunk % chunks
}

/// The tiles of a block of rows: as few as possible, of sizes that differ by one at most.
pub(super) struct Tiles {
    rows: Range<usize>,
    left: usize,
}

impl Tiles {
    pub(super) fn new(rows: Range<usize>) -> Self {
        Tiles { left: rows.len().div_ceil(TILE), rows }
    }
}

impl Iterator for Tiles {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let size = self.rows.len().div_ceil(self.left.max(1));
        let tile = self.rows.start..self.rows.start + size;
        self.rows.start = tile.end;
        self.left = self.left.saturating_sub(1);
        (!tile.is_empty()).then_some(tile)
    }
}

/// For each number of rows the panels that a tile takes at once: four at most, and as many sums of sixteen lanes as
/// the registers hold beside what is loaded.
pub(super) const fn runs_at_once(lanes: usize) -> [usize; TILE + 1] {
    // Registers for sums: of 16 registers where eight lanes are one, else of 32.
    let registers = if lanes == 8 { 8 } else { 24 };
    let mut panels = [1; TILE + 1];
    let mut rows = 1;
    while rows <= TILE {
        let fit = registers / (rows * 16 / lanes);
        if fit > 1 {
            panels[rows] = if fit < 4 { fit } else { 4 };
        }
        rows += 1;
    }
    panels
}
