//! Attention: shared out by heads and blocks of tokens, or, for a single token, by heads and pieces of the context.
//!
//! A single token of a model with few key-value heads would keep one thread busy and the others idle. So its context
//! is cut into runs of chunks, and a second step merges what they gave, in order. The kernels promise the same bits
//! either way.

use super::{Pass, ROWS};
use crate::graph::plan::Attend;
use crate::kv::LayerCache;
use quantsmith_kernels::OutMut;
use quantsmith_kernels::ops::attention::{AttendJob, CHUNK, MergeJob, PartJob, Queries, Visible};
use std::ops::Range;

/// Rows, tokens times heads, of a block.
const BLOCK_ROWS: usize = 96;
/// The shortest run of chunks that is worth a thread's while.
const RUN: usize = 2;

/// How the context of a single token is shared out.
struct Runs {
    /// The chunks with something to see.
    chunks: Range<usize>,
    /// Runs of chunks per head.
    count: usize,
}

impl Runs {
    fn range(&self, run: usize) -> Range<usize> {
        let at = |run: usize| self.chunks.start + self.chunks.len() * run / self.count;
        at(run)..at(run + 1)
    }
}

impl Pass<'_> {
    fn layer(&self, attend: &Attend) -> &LayerCache {
        &self.engine.cache.layers[attend.layer]
    }

    fn visible(&self, layer: &LayerCache) -> &[Visible] {
        self.visible[usize::from(layer.window.is_some())]
    }

    /// Tokens of a block.
    fn block(layer: &LayerCache) -> usize {
        (BLOCK_ROWS / layer.group).max(1)
    }

    /// The runs, when the context is to be shared out.
    fn runs(&self, layer: &LayerCache) -> Option<Runs> {
        if self.plan.tokens > 1 || self.threads == 1 || layer.heads.is_multiple_of(self.threads) {
            return None;
        }
        let visible = self.visible(layer).first()?;
        let chunks = visible.first / CHUNK..visible.end.div_ceil(CHUNK);
        // As many runs in all as the threads can share evenly, with few left over.
        let count = (2 * self.threads).div_ceil(layer.heads).min(chunks.len() / RUN);
        (count > 1).then_some(Runs { chunks, count })
    }

    pub(super) fn attend_chunks(&self, attend: &Attend) -> usize {
        let layer = self.layer(attend);
        match self.runs(layer) {
            Some(runs) => layer.heads * runs.count,
            None => layer.heads * self.tokens.len().div_ceil(Self::block(layer)),
        }
    }

    pub(super) fn merge_chunks(&self, attend: &Attend) -> usize {
        let layer = self.layer(attend);
        self.runs(layer).map_or(0, |_| layer.heads)
    }

    fn queries<'a>(
        &'a self,
        attend: &Attend,
        layer: &'a LayerCache,
        head: usize,
        thread: usize,
    ) -> Queries<'a> {
        let tokens = self.tokens.len();
        let slopes = &self.engine.slopes[attend.layer];
        Queries {
            layout: layer.layout,
            // SAFETY: 4: no step that attends stores.
            k: unsafe { self.cache.keys(layer, head) },
            // SAFETY: 4: as above.
            v: unsafe { self.cache.values(layer, head) },
            // SAFETY: 1: made in an earlier step.
            q: unsafe { self.arena.view(self.at(attend.q, thread), tokens * attend.q.cols) },
            q_stride: attend.q.cols,
            q_at: head * layer.group * layer.layout.k_dim(),
            heads: layer.group,
            visible: self.visible(layer),
            scale: self.engine.params.attention_scale,
            softcap: self.engine.params.attention_cap,
            sinks: None,
            slopes: slopes.get(head * layer.group..(head + 1) * layer.group),
        }
    }

    /// Room for the kernels in a thread's own area, which holds nothing else in a step that attends.
    ///
    /// # Safety
    /// * only this thread calls, and the view of an earlier call is gone
    #[allow(
        clippy::mut_from_ref,
        reason = "the arena is shared between threads; the caller states exclusiveness"
    )]
    unsafe fn scratch(&self, layer: &LayerCache, thread: usize) -> &mut [f32] {
        let at = self.plan.common + thread * self.plan.own;
        // SAFETY: the caller's promise.
        unsafe { self.arena.view_mut(at, layer.layout.scratch_len()) }
    }

    fn output(&self, attend: &Attend, thread: usize) -> OutMut<'_> {
        let tokens = self.tokens.len();
        let out = self.arena.pointer::<f32>(self.at(attend.out, thread), tokens * attend.out.cols);
        // SAFETY: the place of a value of so many rows; 2: this thread's tokens and heads of it.
        unsafe { OutMut::from_raw(out, attend.out.cols, tokens) }
    }

    /// The pieces of a head: of all its chunks in order.
    fn parts_at(&self, layer: &LayerCache, runs: &Runs, head: usize, chunk: usize) -> usize {
        let index = head * runs.chunks.len() + chunk - runs.chunks.start;
        self.plan.parts + index * layer.layout.part_len(layer.group) * size_of::<f32>()
    }

    pub(super) fn attend(&self, attend: &Attend, chunk: usize, thread: usize) {
        let layer = self.layer(attend);
        if let Some(runs) = self.runs(layer) {
            let (head, run) = (chunk / runs.count, chunk % runs.count);
            let chunks = runs.range(run);
            let at = self.parts_at(layer, &runs, head, chunks.start);
            // SAFETY: 2: these pieces are this thread's.
            let parts = unsafe { self.arena.view_mut(at, chunks.len() * layer.layout.part_len(layer.group)) };
            let queries = self.queries(attend, layer, head, thread);
            // SAFETY: 3: the thread's own area.
            let scratch = unsafe { self.scratch(layer, thread) };
            self.engine.operations.attention.attend_part(PartJob {
                queries,
                token: 0,
                chunks,
                parts,
                scratch,
            });
            return;
        }
        let block = Self::block(layer);
        let count = layer.heads * self.tokens.len().div_ceil(block);
        // The last tokens see most, so they come first. Where there are more blocks than chunks of work, a chunk takes
        // several.
        let chunks = count.min(crate::threads::team::MAX_CHUNKS);
        for unit in (chunk..count).step_by(chunks) {
            let unit = count - 1 - unit;
            let (index, head) = (unit / layer.heads, unit % layer.heads);
            let tokens = index * block..((index + 1) * block).min(self.tokens.len());
            self.engine.operations.attention.attend(AttendJob {
                queries: self.queries(attend, layer, head, thread),
                tokens: tokens.clone(),
                out: self.output(attend, thread),
                out_at: head * layer.group * layer.layout.v_dim(),
                // SAFETY: 3: the thread's own area.
                scratch: unsafe { self.scratch(layer, thread) },
            });
            self.quantise_head(attend, layer, head, tokens, thread);
        }
    }

    pub(super) fn merge(&self, attend: &Attend, head: usize, thread: usize) {
        let layer = self.layer(attend);
        let Some(runs) = self.runs(layer) else { return };
        let at = self.parts_at(layer, &runs, head, runs.chunks.start);
        let len = runs.chunks.len() * layer.layout.part_len(layer.group);
        self.engine.operations.attention.merge_parts(MergeJob {
            queries: self.queries(attend, layer, head, thread),
            token: 0,
            // SAFETY: 1: made in the step before.
            parts: unsafe { self.arena.view(at, len) },
            out: self.output(attend, thread),
            out_at: head * layer.group * layer.layout.v_dim(),
            // SAFETY: 3: the thread's own area.
            scratch: unsafe { self.scratch(layer, thread) },
        });
        self.quantise_head(attend, layer, head, 0..1, thread);
    }

    /// Quantises the output of the query heads that share a key-value head.
    fn quantise_head(
        &self,
        attend: &Attend,
        layer: &LayerCache,
        head: usize,
        tokens: Range<usize>,
        thread: usize,
    ) {
        let Some(codes) = attend.codes else { return };
        let width = layer.group * layer.layout.v_dim();
        for first in tokens.clone().step_by(ROWS) {
            let (rows, cols) = (first..tokens.end.min(first + ROWS), head * width..(head + 1) * width);
            // SAFETY: 2: this thread has just written these heads of these tokens, and their groups are its own, since
            // a head is a number of whole groups where the plan asks for this.
            unsafe { self.quantise(attend.out, codes, thread, rows, cols) };
        }
    }
}
