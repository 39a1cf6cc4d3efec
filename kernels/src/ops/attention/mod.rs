//! Attention over a key-value cache, and the cache's layout.
//!
//! # The cache
//!
//! Each layer and key-value head has two slices of cells ([`Cells`]), in chunks of [`CHUNK`] positions; position `p` lies
//! in chunk `p / CHUNK`, counted modulo the chunks that there are, so a cache of a sliding window can be a ring.
//!
//! * **Keys**, per chunk: `[dimension][64 positions]`. A lane is a position, so scores need no sum across lanes.
//! * **Values**, per chunk: strips of 64 dimensions (the last one narrower, of whole runs of 16), each
//!   `[64 positions][dimension]`. A lane is a dimension.
//!
//! So a chunk is a matrix of up to 64 columns that is read from its first byte to its last, which is what memory is good
//! at, and one small matrix kernel does both products. Every type of cell lies in that order; those of codes have
//! scales beside them (`strip`).
//!
//! # The arithmetic
//!
//! For a query row `q` and each chunk with a visible position, on its own:
//!
//! 1. `s[p]` = sum of `k[d][p] · q[d]`, fused, d in order; then `s · scale`, then the soft cap
//!    `cap · tanh(s · (1 / cap))`, then `+ slope · distance`, fused.
//! 2. `m` = the largest visible `s`, `e[p] = exp(s[p] - m)`, zero where not visible; `l` = their sum, lane by lane
//!    through the chunk and then the fixed tree.
//! 3. `o[d]` = sum of `e[p] · v[p][d]`, fused, over the visible positions in order.
//!
//! Chunks are merged in order: with `M' = max(M, m)`, `a = exp(M - M')` and `b = exp(m - M')`, the row's
//! `L = fma(L, a, l · b)` and `O[d] = fma(O[d], a, o[d] · b)`. It starts with `M = -∞, L = 0, O = 0`, or with a
//! sink `M = sink, L = 1`. The result is `O[d] · (1 / L)`, and zeros for a token that sees nothing.
//!
//! So a row's bits depend on its query and on the visible cells only: not on the rows computed beside it, nor on the
//! thread, nor on what lies in cells that it does not see (which may be NaN). A chunk's `m`, `l`, `o` depend on
//! nothing outside the chunk, so threads may also share out the chunks of one token ([`PartJob`]) and merge.

mod cells;
mod kernel;
mod layout;
mod room;
pub(crate) mod strip;

pub use cells::{CellType, Cells};
pub use kernel::*;
pub use layout::{CHUNK, KvLayout};

use crate::OutMut;
use core::ops::Range;

/// The positions that a token sees: from `first` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// The first position.
    pub first: usize,
    /// One past the last position; for a causal model the token's own position plus one.
    pub end: usize,
}

impl Visible {
    /// What a causal token at a position sees, with a window of so many positions that includes its own.
    pub fn causal(position: usize, window: Option<usize>) -> Self {
        let end = position + 1;
        Visible { first: window.map_or(0, |w| end.saturating_sub(w)), end }
    }
}

/// The queries of one key-value head: some tokens, times the query heads that share the head.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// The layout of the cache.
    pub layout: KvLayout,
    /// The keys of this layer and head.
    pub k: Cells<'a>,
    /// The values of this layer and head.
    pub v: Cells<'a>,
    /// The queries: head `h` of token `t` starts at `t * q_stride + q_at + h * k_dim`.
    pub q: &'a [f32],
    /// Distance between the queries of two tokens.
    pub q_stride: usize,
    /// Where a token's first query head of this key-value head starts.
    pub q_at: usize,
    /// Query heads that share the key-value head.
    pub heads: usize,
    /// What each token sees.
    pub visible: &'a [Visible],
    /// The factor of the scores.
    pub scale: f32,
    /// The soft cap of the scores.
    pub softcap: Option<f32>,
    /// A logit per query head that takes part in the softmax and has no value.
    pub sinks: Option<&'a [f32]>,
    /// A slope per query head (ALiBi): the score of position `p` gets `slope * (p - (end - 1))`.
    pub slopes: Option<&'a [f32]>,
}

/// Attention of a range of tokens.
#[derive(Debug)]
pub struct AttendJob<'a> {
    /// The queries.
    pub queries: Queries<'a>,
    /// The tokens to compute.
    pub tokens: Range<usize>,
    /// Where the result goes: head `h` of token `t` to rows `out_at + h * v_dim …` of token `t`.
    pub out: OutMut<'a>,
    /// The row of the first query head.
    pub out_at: usize,
    /// Room for [`KvLayout::scratch_len`] values; its contents do not matter.
    pub scratch: &'a mut [f32],
}

/// Attention of one token over some of its chunks, to be merged later.
#[derive(Debug)]
pub struct PartJob<'a> {
    /// The queries.
    pub queries: Queries<'a>,
    /// The token.
    pub token: usize,
    /// The chunks: of all positions, not only of the visible ones.
    pub chunks: Range<usize>,
    /// The parts of these chunks, [`KvLayout::part_len`] values each.
    pub parts: &'a mut [f32],
    /// Room for [`KvLayout::scratch_len`] values; its contents do not matter.
    pub scratch: &'a mut [f32],
}

/// The merging of a token's parts.
#[derive(Debug)]
pub struct MergeJob<'a> {
    /// The queries.
    pub queries: Queries<'a>,
    /// The token.
    pub token: usize,
    /// The parts of all its visible chunks in order.
    pub parts: &'a [f32],
    /// Where the result goes, as in [`AttendJob`].
    pub out: OutMut<'a>,
    /// The row of the first query head.
    pub out_at: usize,
    /// Room for [`KvLayout::scratch_len`] values; its contents do not matter.
    pub scratch: &'a mut [f32],
}
