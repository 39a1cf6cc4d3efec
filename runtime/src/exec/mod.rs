//! The executor: runs the steps of a plan.
//!
//! A [`Pass`] is everything that one forward pass looks at. It only reads, apart from the arena and the cache, and
//! these through views; so all threads share it. No step allocates, asks for a name, or decides on a format or an
//! instruction set.
//!
//! # Why views do not overlap
//! Every view is made while a chunk of the current step is held, and the step is not over before all its chunks are.
//! 1. Values that live at the same time have different places, by the plan; so what a step reads is not written.
//! 2. The chunks of a step write different rows (steps over rows), different columns (products), or different heads,
//!    tokens or pieces (attention, and steps over a single row).
//! 3. A thread's own area is touched by that thread only; what it publishes is written with the first chunk alone.
//! 4. The cache is written in steps over rows only, whose chunks end at the borders of its chunks or of its heads, and
//!    read in others.
//!
//! The comments at the unsafe lines name these by number.

mod attention;
pub(crate) mod layer;
mod product;
mod rows;
pub(crate) mod split;

use crate::graph::arena::Arena;
use crate::graph::op::{Kind, Op, Rows};
use crate::graph::plan::{Body, Plan, Publish, Slot, Step};
use crate::kv::{Cache, CachePlan};
use crate::model::arch::NormKind;
use crate::model::hparams::HParams;
use crate::model::rope::RopeTable;
use crate::threads::team::{Claim, MAX_CHUNKS, Work};
use crate::weights::Weights;
use quantsmith_kernels::act::GROUP;
use quantsmith_kernels::ops::attention::{CHUNK, Visible};
use quantsmith_kernels::ops::{activation, attention as attend, elementwise, norm, quantise, rope};
use quantsmith_kernels::{ActGroup, Activations, ActivationsMut, Supported};
use split::Split;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Rows that operations on whole rows take together: they fit in the nearest cache, and their quantised groups fill
/// whole lines of it.
const ROWS: usize = 4;

/// The float operations of one tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operations {
    pub(crate) activation: activation::Set,
    pub(crate) attention: attend::Set,
    pub(crate) elementwise: elementwise::Set,
    pub(crate) norm: norm::Set,
    pub(crate) quantise: quantise::Set,
    pub(crate) rope: rope::Set,
}

impl Operations {
    pub(crate) fn new(tier: Supported) -> Self {
        Operations {
            activation: activation::Set::new(tier),
            attention: attend::Set::new(tier),
            elementwise: elementwise::Set::new(tier),
            norm: norm::Set::new(tier),
            quantise: quantise::Set::new(tier),
            rope: rope::Set::new(tier),
        }
    }
}

/// What does not change from pass to pass.
pub(crate) struct Engine {
    pub(crate) weights: Weights,
    pub(crate) params: HParams,
    pub(crate) tables: Vec<RopeTable>,
    /// For each layer what attention of a head loses with each position of distance; none where it loses nothing.
    pub(crate) slopes: Vec<Vec<f32>>,
    pub(crate) cache: CachePlan,
    pub(crate) operations: Operations,
}

/// What the steps of a pass take, in nanoseconds.
pub(crate) struct Clock {
    start: Instant,
    /// When each step began, since `start`; one more is the end of the last.
    began: Vec<AtomicU64>,
    /// How long threads were at work on each, all together.
    busy: Vec<AtomicU64>,
}

impl Clock {
    /// A clock for so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Clock { start: Instant::now(), began: zeros(steps + 1), busy: zeros(steps) }
    }

    /// How long a step of a pass that is over took, and how long threads were at work on it; forgets the latter.
    pub(crate) fn take(&self, step: usize) -> (Duration, Duration) {
        let began = |step: usize| self.began[step].load(Ordering::Relaxed);
        let time = began(step + 1).saturating_sub(began(step));
        (Duration::from_nanos(time), Duration::from_nanos(self.busy[step].swap(0, Ordering::Relaxed)))
    }
}

/// What a step over rows is cut by.
enum Cut {
    Rows,
    /// Chunks of the cache, since something is stored.
    Chunks,
    /// So many heads of the cache, since there is but one row.
    Heads(usize),
}

/// One forward pass.
pub(crate) struct Pass<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) plan: &'a Plan,
    pub(crate) arena: &'a Arena,
    pub(crate) cache: &'a Cache,
    pub(crate) tokens: &'a [u32],
    /// The position of the first token.
    pub(crate) position: usize,
    /// The tokens whose logits are computed.
    pub(crate) outputs: Range<usize>,
    /// Steps from here on are not run.
    pub(crate) end: usize,
    pub(crate) threads: usize,
    /// What each token sees, in layers without a window and in layers with one.
    pub(crate) visible: [&'a [Visible]; 2],
    pub(crate) clock: Option<&'a Clock>,
}

impl Work for Pass<'_> {
    fn chunks(&self, step: usize) -> Option<usize> {
        if let Some(clock) = self.clock {
            clock.began[step].store(clock.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        if step >= self.end {
            return None;
        }
        Some(self.count(&self.plan.steps[step]))
    }

    fn run(&self, claim: Claim) {
        let Some(clock) = self.clock else { return self.chunk(claim) };
        let begin = Instant::now();
        self.chunk(claim);
        clock.busy[claim.step].fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Pass<'_> {
    fn chunk(&self, claim: Claim) {
        let step = &self.plan.steps[claim.step];
        let thread = claim.thread;
        if claim.first && !step.prologue.is_empty() {
            self.run_rows(&step.prologue, 0..self.rows(step.rows), thread);
        }
        if claim.chunk == 0 {
            for publish in &step.publish {
                self.publish(publish, thread);
            }
        }
        match &step.body {
            Body::Rows(ops) => {
                if let Some(split) = self.split(step) {
                    let units = split.range(claim.chunk);
                    match self.cut(ops, step.rows) {
                        Cut::Rows => self.run_rows(ops, units, thread),
                        Cut::Chunks => self.run_rows(ops, self.rows_of(units), thread),
                        Cut::Heads(of) => self.run_heads(ops, units, of, thread),
                    }
                }
            }
            Body::Product(parts) => {
                if let Some(split) = self.split(step) {
                    self.product(parts, split.range(claim.chunk), thread);
                }
            }
            Body::Lockstep { parts, epilogue, .. } => {
                if let Some(split) = self.split(step) {
                    self.lockstep(parts, epilogue, split.range(claim.chunk), thread);
                }
            }
            Body::Attend(attend) => self.attend(attend, claim.chunk, thread),
            Body::Merge(attend) => self.merge(attend, claim.chunk, thread),
        }
    }

    /// How many rows a step works on.
    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens.len(),
            Rows::Outputs => self.outputs.len(),
        }
    }

    fn count(&self, step: &Step) -> usize {
        match &step.body {
            Body::Attend(attend) => self.attend_chunks(attend).min(MAX_CHUNKS),
            Body::Merge(attend) => self.merge_chunks(attend).min(MAX_CHUNKS),
            Body::Rows(_) | Body::Product(_) | Body::Lockstep { .. } => {
                self.split(step).map_or(0, |s| s.count())
            }
        }
    }

    /// The cut of a step over rows or panels.
    fn split(&self, step: &Step) -> Option<Split> {
        let units = match &step.body {
            Body::Rows(ops) => {
                let rows = self.rows(step.rows);
                match self.cut(ops, step.rows) {
                    Cut::Heads(heads) => heads,
                    Cut::Chunks if rows > 0 => (self.position + rows - 1) / CHUNK - self.position / CHUNK + 1,
                    Cut::Chunks | Cut::Rows => rows,
                }
            }
            Body::Product(parts) => parts.iter().map(|p| p.panels).sum(),
            Body::Lockstep { panels, .. } => *panels,
            Body::Attend(_) | Body::Merge(_) => return None,
        };
        Some(Split::new(units, step.align, self.threads))
    }

    /// What a step over rows is cut by.
    fn cut(&self, ops: &[Op<Slot>], rows: Rows) -> Cut {
        let stored =
            ops.iter().find_map(|op| if let Op::Store { layer, .. } = op { Some(*layer) } else { None });
        let Some(layer) = stored else { return Cut::Rows };
        let heads = self.engine.cache.layers[layer].heads;
        let whole = |cols: usize, width: usize| cols.is_multiple_of(heads * width);
        let by_heads = ops.iter().all(|op| match *op {
            Op::HeadNorm { x, width, .. } => whole(x.cols, width),
            Op::Rope { x, head, .. } => whole(x.cols, head),
            Op::Store { .. } => true,
            _ => false,
        });
        if by_heads && self.rows(rows) == 1 { Cut::Heads(heads) } else { Cut::Chunks }
    }

    /// The rows in some chunks of the cache, counted from that of the first row.
    fn rows_of(&self, chunks: Range<usize>) -> Range<usize> {
        let first = self.position / CHUNK;
        let row =
            |chunk: usize| ((first + chunk) * CHUNK).saturating_sub(self.position).min(self.tokens.len());
        row(chunks.start)..row(chunks.end)
    }

    /// Where a place starts in the arena.
    fn at(&self, slot: Slot, thread: usize) -> usize {
        if slot.own { self.plan.common + thread * self.plan.own + slot.at } else { slot.at }
    }

    fn groups_at(&self, slot: Slot, thread: usize) -> usize {
        self.at(slot, thread) + slot.groups - slot.at
    }

    /// Columns of a row of a value.
    ///
    /// # Safety
    /// * nobody writes them while the view is alive
    unsafe fn floats(&self, slot: Slot, thread: usize, row: usize, cols: Range<usize>) -> &[f32] {
        let at = self.at(slot, thread) + (row * slot.cols + cols.start) * size_of::<f32>();
        // SAFETY: the caller's promise.
        unsafe { self.arena.view(at, cols.len()) }
    }

    /// Columns of a row of a value, to write.
    ///
    /// # Safety
    /// * nobody else reads or writes them while the view is alive
    #[allow(
        clippy::mut_from_ref,
        reason = "the arena is shared between threads; the caller states exclusiveness"
    )]
    unsafe fn floats_mut(&self, slot: Slot, thread: usize, row: usize, cols: Range<usize>) -> &mut [f32] {
        let at = self.at(slot, thread) + (row * slot.cols + cols.start) * size_of::<f32>();
        // SAFETY: the caller's promise.
        unsafe { self.arena.view_mut(at, cols.len()) }
    }

    /// Quantises columns of up to [`ROWS`] rows; they start at a group and end at one or at the end of the row.
    ///
    /// # Safety
    /// * nobody writes the columns of `x`, and nobody reads or writes those of `out`, during the call
    unsafe fn quantise(&self, x: Slot, out: Slot, thread: usize, rows: Range<usize>, cols: Range<usize>) {
        let (all, padded) = (self.rows(out.rows), Activations::padded(out.cols));
        let codes = self.arena.pointer(self.at(out, thread), all * padded);
        let groups = self.arena.pointer(self.groups_at(out, thread), all * (padded / GROUP));
        // SAFETY: the place of a value of so many rows, and the caller's promise.
        let mut out = unsafe { ActivationsMut::from_raw(codes, groups, out.cols, all) };
        let mut views: [&[f32]; ROWS] = [&[]; ROWS];
        for (view, row) in views.iter_mut().zip(rows.clone()) {
            // SAFETY: the caller's promise.
            *view = unsafe { self.floats(x, thread, row, cols.clone()) };
        }
        let first = cols.start / GROUP;
        self.engine.operations.quantise.quantise(&views[..rows.len()], &mut out, rows.start, first);
    }

    /// Copies what a thread has made for itself to where later steps read it.
    fn publish(&self, publish: &Publish, thread: usize) {
        let Publish { from, to, kind } = *publish;
        let copy = |from: usize, to: usize, bytes: usize| {
            // SAFETY: 3: the thread's own area.
            let from = unsafe { self.arena.view::<u8>(from, bytes) };
            // SAFETY: 3: with the first chunk, which only one thread holds, and in this step nobody reads it.
            unsafe { self.arena.view_mut::<u8>(to, bytes) }.copy_from_slice(from);
        };
        let (from_at, to_at) = (self.at(from, thread), self.at(to, thread));
        match kind {
            // Prologues exist in plans for one row only.
            Kind::Floats => copy(from_at, to_at, from.cols * size_of::<f32>()),
            Kind::Codes => {
                let padded = Activations::padded(from.cols);
                copy(from_at, to_at, padded);
                let bytes = padded / GROUP * size_of::<ActGroup>();
                copy(self.groups_at(from, thread), self.groups_at(to, thread), bytes);
            }
        }
    }

    fn norm_kind(&self) -> NormKind {
        self.engine.params.arch.norm
    }
}
