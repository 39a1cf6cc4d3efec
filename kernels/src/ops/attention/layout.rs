//! Sizes and places in the key-value cache; see the parent module for the layout.

use core::ops::Range;

/// Positions of a chunk. Chunks lie at multiples of it.
pub const CHUNK: usize = 64;

/// Positions of a block of keys, and dimensions of a panel of values.
pub(super) const LANES: usize = 16;

/// Runs of sixteen columns in a strip.
pub(super) const WIDTH: usize = CHUNK / LANES;

/// Rows that are computed together against a chunk brought to f32.
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

    /// Length of the keys of so many positions: whole chunks.
    pub const fn k_len(self, positions: usize) -> usize {
        positions.div_ceil(CHUNK) * self.k_chunk()
    }

    /// Length of the values of so many positions: whole chunks.
    pub const fn v_len(self, positions: usize) -> usize {
        positions.div_ceil(CHUNK) * self.v_chunk()
    }

    /// Length of the scratch of a job.
    pub const fn scratch_len(self) -> usize {
        let chunk = self.k_chunk() + self.v_chunk();
        chunk + TILE * (CHUNK + self.v_padded()) + ROWS * (self.v_padded() + 2) + self.row_len()
    }

    /// Length of the longer of a key and a value.
    pub(super) const fn row_len(self) -> usize {
        if self.k_dim > self.v_padded() { self.k_dim } else { self.v_padded() }
    }

    /// Length of what one chunk gives for one token with so many query heads: per head its `o`, `m` and `l`.
    pub const fn part_len(self, heads: usize) -> usize {
        heads * (self.v_padded() + 2)
    }

    pub(super) const fn k_chunk(self) -> usize {
        CHUNK * self.k_dim
    }

    pub(super) const fn v_chunk(self) -> usize {
        CHUNK * self.v_padded()
    }

    /// The chunk of keys that holds a position, and where in it the position's first element is; the elements that
    /// follow are `CHUNK` apart.
    pub(super) fn k_place(self, len: usize, position: usize) -> usize {
        chunk_of(len, self.k_chunk(), position / CHUNK) * self.k_chunk() + position % CHUNK
    }

    /// Where the sixteen elements `run * LANES …` of a position's value are.
    pub(super) fn v_place(self, len: usize, position: usize, run: usize) -> usize {
        let chunk = chunk_of(len, self.v_chunk(), position / CHUNK) * self.v_chunk();
        let strip = run / WIDTH * WIDTH;
        let width = WIDTH.min(self.v_padded() / LANES - strip);
        chunk + (strip * CHUNK + position % CHUNK * width + run - strip) * LANES
    }
}

/// The place of a chunk in a cache of so many values: the cache is a ring of whole chunks.
///
/// # Panics
/// * if the cache has no chunk
pub(super) fn chunk_of(len: usize, chunk_len: usize, chunk: usize) -> usize {
    place_of(len / chunk_len, chunk)
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
