//! Tensors of a model file: what they are, and how their bytes are brought into the form that is handed out.
//!
//! Most lie in the file as they are used. The others come in pieces (a model in several files, experts stored
//! one by one) or in another order of bytes, fields or rows; [`Stored`] says which, and [`Stored::collect`]
//! puts them right.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::types::Layout;

/// A tensor of a model file. Its extent lies within its file, and overlaps no other.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name, in the way of GGUF whatever the container.
    pub name: String,
    /// The dimensions, `ne[0]`, the one along which blocks are laid, first. None for a scalar.
    pub dims: Vec<u64>,
    /// The id of the type of the data as handed out.
    pub type_id: u32,
    /// Which layout of that id the data has, as handed out.
    pub layout: Layout,
    /// The name of the format, as in `Q4_K`.
    pub type_name: &'static str,
    /// Where the data, or its first piece, starts in its file.
    pub offset: u64,
    /// The number of bytes of data.
    pub bytes: u64,
    /// Which of the files of the model holds it, or its first piece; 0 for the first file.
    pub part: usize,
    pub(crate) stored: Stored,
}

impl TensorInfo {
    /// The number of elements: 1 for a scalar, 0 when a dimension is 0.
    pub fn elements(&self) -> u64 {
        // Checked when the file was opened.
        self.dims.iter().product()
    }

    /// In how many pieces the tensor is stored: 1, the number of files of an old model in several, or the
    /// number of experts.
    pub fn pieces(&self) -> usize {
        1 + self.stored.more.len()
    }

    /// How the file stores the data, where that differs from how it is handed out.
    pub fn stored_as(&self) -> Option<String> {
        let mut notes = Vec::new();
        match &self.stored.order {
            Order::Blocks => {}
            Order::OtherBytes { .. } => notes.push("in the other byte order".to_owned()),
            Order::Fields(_) => notes.push("as a struct of arrays".to_owned()),
            Order::Rows(rows) => notes.push(format!("as {}", rows.name())),
        }
        match (self.pieces(), self.stored.row_bytes) {
            (1, _) => {}
            (n, Some(_)) => notes.push(format!("in {n} pieces, split by columns")),
            (n, None) => notes.push(format!("in {n} pieces, split by rows")),
        }
        (!notes.is_empty()).then(|| notes.join(", "))
    }
}

/// How a tensor is stored: in one or more pieces of equal size, each in some order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stored {
    /// The order within a piece.
    pub(crate) order: Order,
    /// The pieces after the first, each a part and an offset.
    pub(crate) more: Vec<(usize, u64)>,
    /// The bytes that one piece has of each row, when pieces are joined along the row; otherwise they follow
    /// one another.
    pub(crate) row_bytes: Option<usize>,
}

/// The order of bytes within a piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Order {
    /// Block after block.
    #[default]
    Blocks,
    /// Block after block, in the other byte order: these fields (offset, width) are to be reversed.
    OtherBytes { block: usize, fields: Arc<[(usize, usize)]> },
    /// For each row first all of one field, then all of the next.
    Fields(FieldArrays),
    /// Several rows interleaved.
    Rows(InterleavedRows),
}

/// Rows of the first quantised files: all scales of a row, then all codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FieldArrays {
    /// True for Q4_1, whose minimums stand before the scales; false for Q4_0, which has none.
    pub(crate) with_min: bool,
    pub(crate) blocks_per_row: usize,
}

/// Q4_0 with the rows of a group interleaved: for each block first the scales of all rows, then their codes
/// in chunks that go round the rows, with the offset of 8 taken out of the codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InterleavedRows {
    /// Rows of a group.
    pub(crate) rows: usize,
    /// Bytes of codes of one row in a row.
    pub(crate) chunk: usize,
    pub(crate) blocks_per_row: usize,
}

impl Stored {
    /// Gives the data as it is handed out. `pieces` are the bytes of the pieces, all of one length.
    pub(crate) fn collect<'a>(&self, pieces: &[&'a [u8]]) -> Cow<'a, [u8]> {
        if let ([only], Order::Blocks) = (pieces, &self.order) {
            return Cow::Borrowed(only);
        }
        let ordered: Vec<Cow<'a, [u8]>> = pieces.iter().map(|piece| self.order.put_right(piece)).collect();
        match self.row_bytes {
            Some(row_bytes) if ordered.len() > 1 => Cow::Owned(join_columns(&ordered, row_bytes)),
            _ => match <[_; 1]>::try_from(ordered) {
                Ok([only]) => only,
                Err(many) => Cow::Owned(many.concat()),
            },
        }
    }
}

/// Joins pieces along the row: each row is the row of the first piece, then that of the second, and so on.
fn join_columns(pieces: &[Cow<'_, [u8]>], row_bytes: usize) -> Vec<u8> {
    let mut joined = Vec::with_capacity(pieces.iter().map(|p| p.len()).sum());
    let mut rows: Vec<_> = pieces.iter().map(|p| p.chunks_exact(row_bytes)).collect();
    while let Some(first) = rows[0].next() {
        joined.extend_from_slice(first);
        for rest in &mut rows[1..] {
            joined.extend_from_slice(rest.next().unwrap_or_default());
        }
    }
    joined
}

impl Order {
    /// Gives a piece as it is handed out.
    pub(crate) fn put_right<'a>(&self, raw: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Blocks => Cow::Borrowed(raw),
            Self::OtherBytes { block, fields } => {
                let mut data = raw.to_vec();
                for block in data.chunks_exact_mut(*block) {
                    for &(at, width) in fields.iter() {
                        block[at..at + width].reverse();
                    }
                }
                Cow::Owned(data)
            }
            Self::Fields(fields) => Cow::Owned(fields.to_blocks(raw)),
            Self::Rows(rows) => Cow::Owned(rows.to_blocks(raw)),
        }
    }
}

impl FieldArrays {
    const SCALE: usize = 4;
    const CODES: usize = 16;

    fn block(self) -> usize {
        Self::SCALE + if self.with_min { Self::SCALE } else { 0 } + Self::CODES
    }

    /// Gathers the fields of each block: scale, minimum if any, codes.
    fn to_blocks(self, raw: &[u8]) -> Vec<u8> {
        let n = self.blocks_per_row;
        let mut data = Vec::with_capacity(raw.len());
        for row in raw.chunks_exact((n * self.block()).max(1)) {
            let (mins, rest) = row.split_at(if self.with_min { n * Self::SCALE } else { 0 });
            let (scales, codes) = rest.split_at(n * Self::SCALE);
            for b in 0..n {
                data.extend_from_slice(&scales[b * Self::SCALE..][..Self::SCALE]);
                if self.with_min {
                    data.extend_from_slice(&mins[b * Self::SCALE..][..Self::SCALE]);
                }
                data.extend_from_slice(&codes[b * Self::CODES..][..Self::CODES]);
            }
        }
        data
    }
}

impl InterleavedRows {
    const SCALE: usize = 2;
    const CODES: usize = 16;
    const BLOCK: usize = Self::SCALE + Self::CODES;
    /// Turns codes that are signed nibbles into codes with an offset of 8.
    const OFFSET: u8 = 0x88;

    /// The type with this id, which is not used any more.
    pub(crate) fn of(type_id: u32, blocks_per_row: usize) -> Option<Self> {
        let (rows, chunk) = match type_id {
            31 => (4, 4),
            32 => (4, 8),
            33 => (8, 8),
            _ => return None,
        };
        Some(Self { rows, chunk, blocks_per_row })
    }

    fn name(self) -> &'static str {
        match (self.rows, self.chunk) {
            (4, 4) => "Q4_0_4_4",
            (4, _) => "Q4_0_4_8",
            _ => "Q4_0_8_8",
        }
    }

    /// Undoes the interleaving, which loses nothing.
    fn to_blocks(self, raw: &[u8]) -> Vec<u8> {
        let mut data = vec![0; raw.len()];
        let group = self.rows * self.blocks_per_row * Self::BLOCK;
        for (from, to) in raw.chunks_exact(group).zip(data.chunks_exact_mut(group)) {
            for (b, set) in from.chunks_exact(self.rows * Self::BLOCK).enumerate() {
                let (scales, codes) = set.split_at(self.rows * Self::SCALE);
                for (row, scale) in scales.chunks_exact(Self::SCALE).enumerate() {
                    to[self.block_at(row, b)..][..Self::SCALE].copy_from_slice(scale);
                }
                for (c, chunk) in codes.chunks_exact(self.chunk).enumerate() {
                    let at = self.block_at(c % self.rows, b) + Self::SCALE + self.chunk * (c / self.rows);
                    for (to, from) in to[at..][..self.chunk].iter_mut().zip(chunk) {
                        *to = from ^ Self::OFFSET;
                    }
                }
            }
        }
        data
    }

    /// Where a block of a row of a group starts.
    fn block_at(self, row: usize, block: usize) -> usize {
        (row * self.blocks_per_row + block) * Self::BLOCK
    }
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.type_name, self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_in_arrays_become_blocks() {
        // Two rows of two blocks of Q4_0: d0 d1, then codes of block 0 and 1.
        let row = |n: u8| [vec![n; 4], vec![n + 1; 4], vec![n + 2; 16], vec![n + 3; 16]].concat();
        let raw = [row(0), row(10)].concat();
        let order = FieldArrays { with_min: false, blocks_per_row: 2 };
        let block = |d: u8, q: u8| [vec![d; 4], vec![q; 16]].concat();
        assert_eq!(order.to_blocks(&raw), [block(0, 2), block(1, 3), block(10, 12), block(11, 13)].concat());

        // One row of two blocks of Q4_1: m0 m1 d0 d1, then codes.
        let raw = [vec![0; 4], vec![1; 4], vec![2; 4], vec![3; 4], vec![4; 16], vec![5; 16]].concat();
        let order = FieldArrays { with_min: true, blocks_per_row: 2 };
        let block = |d: u8, m: u8, q: u8| [vec![d; 4], vec![m; 4], vec![q; 16]].concat();
        assert_eq!(order.to_blocks(&raw), [block(2, 0, 4), block(3, 1, 5)].concat());
    }

    /// Interleaves the other way round, straight from the description of the format.
    fn interleave(order: InterleavedRows, blocks: &[u8]) -> Vec<u8> {
        let n = order.blocks_per_row;
        let rows = blocks.len() / 18 / n;
        let block = |row: usize, b: usize| &blocks[(row * n + b) * 18..][..18];
        let mut out = Vec::new();
        for first in (0..rows).step_by(order.rows) {
            for b in 0..n {
                for r in 0..order.rows {
                    out.extend_from_slice(&block(first + r, b)[..2]);
                }
                for c in 0..order.rows * 16 / order.chunk {
                    let codes = &block(first + c % order.rows, b)[2..];
                    let at = order.chunk * (c / order.rows);
                    out.extend(codes[at..at + order.chunk].iter().map(|x| x ^ 0x88));
                }
            }
        }
        out
    }

    #[test]
    fn interleaved_rows_become_rows() {
        for (id, name) in [(31, "Q4_0_4_4"), (32, "Q4_0_4_8"), (33, "Q4_0_8_8")] {
            let order = InterleavedRows::of(id, 3).expect("a removed type");
            let blocks: Vec<u8> = (0..16 * 3 * 18).map(|i: u32| (i * 7 % 256) as u8).collect();
            assert_eq!(order.to_blocks(&interleave(order, &blocks)), blocks, "{name}");
            assert_eq!(order.name(), name);
        }
    }

    #[test]
    fn pieces_are_joined_by_rows_or_by_columns() {
        let (a, b) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        let by_rows = Stored { more: vec![(1, 0)], ..Stored::default() };
        assert_eq!(&*by_rows.collect(&[&a, &b]), [1, 2, 3, 4, 5, 6, 7, 8]);
        let by_columns = Stored { row_bytes: Some(2), ..by_rows };
        assert_eq!(&*by_columns.collect(&[&a, &b]), [1, 2, 5, 6, 3, 4, 7, 8]);
    }
}
