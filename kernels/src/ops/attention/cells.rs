//! What a cache is made of: types of cells, and where they lie.
//!
//! Whatever the type, a chunk is runs of sixteen cells in the order that the parent module states, cut into strips of up
//! to [`STRIP`] runs. What a run is in bytes, and how it becomes sixteen floats and back, is all that types differ in; the
//! latter is `strip`.

use super::layout::{CHUNK, KvLayout, STRIP, place_of};

/// Elements of a position that share a scale, in cells of codes.
pub(super) const BLOCK: usize = 32;

/// The type of keys or of values in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellType {
    /// Four bytes an element, nothing is rounded.
    F32,
    /// Two bytes.
    #[default]
    F16,
    /// A byte and a sixteenth.
    Q8_0,
    /// Half a byte and a sixteenth.
    Q4_0,
}

impl CellType {
    /// All of them, the largest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Q8_0, Self::Q4_0];

    /// The name, as llama.cpp's flags have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// What heads must be a multiple of.
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q8_0 | Self::Q4_0 => BLOCK,
        }
    }

    /// Bytes of sixteen cells, their part of the scales included.
    pub(super) fn run_bytes(self) -> usize {
        match self {
            Self::F32 => 64,
            Self::F16 => 32,
            Self::Q8_0 => 17,
            Self::Q4_0 => 9,
        }
    }

    /// Bytes of the keys of a chunk.
    ///
    /// # Panics
    /// * if keys are not whole blocks
    pub fn k_bytes(self, layout: KvLayout) -> usize {
        self.check(layout.k_dim());
        layout.k_runs() * self.run_bytes()
    }

    /// Bytes of the values of a chunk.
    ///
    /// # Panics
    /// * if values are not whole blocks
    pub fn v_bytes(self, layout: KvLayout) -> usize {
        self.check(layout.v_dim());
        layout.v_runs() * self.run_bytes()
    }

    fn check(self, dim: usize) {
        assert!(dim.is_multiple_of(self.block()), "a row of {dim} is not whole blocks of {}", self.name());
    }
}

/// The keys or values of a layer and head.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a> {
    /// Their type.
    pub ty: CellType,
    /// Whole chunks of them.
    pub bytes: &'a [u8],
}

impl<'a> Cells<'a> {
    /// How many chunks of so many bytes there are.
    pub(super) fn chunks(&self, chunk_bytes: usize) -> usize {
        self.bytes.len() / chunk_bytes
    }

    /// The strips of the chunk that holds a position: in a ring, at the place that is its.
    ///
    /// # Panics
    /// * if there is no chunk
    pub(super) fn strips(
        &self,
        chunk_bytes: usize,
        chunk: usize,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let place = place_of(self.chunks(chunk_bytes), chunk);
        self.bytes[place * chunk_bytes..][..chunk_bytes].chunks(STRIP * self.ty.run_bytes())
    }
}

/// The chunk of a cache that holds a position, to be written to.
///
/// # Panics
/// * if there is no chunk
pub(super) fn chunk_mut(cache: &mut [u8], chunk_bytes: usize, position: usize) -> &mut [u8] {
    let place = place_of(cache.len() / chunk_bytes, position / CHUNK);
    &mut cache[place * chunk_bytes..][..chunk_bytes]
}

/// The scales of a strip of codes and the codes.
pub(super) fn split(ty: CellType, cells: &[u8]) -> (&[u8], &[u8]) {
    cells.split_at(cells.len() / ty.run_bytes())
}

/// As `split`, to be written to.
pub(super) fn split_mut(ty: CellType, cells: &mut [u8]) -> (&mut [u8], &mut [u8]) {
    cells.split_at_mut(cells.len() / ty.run_bytes())
}
