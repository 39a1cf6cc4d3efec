//! One product on its own, done as the steps of a model do it: what benchmarks time.
//!
//! f32 activations are quantised, multiplied with a matrix in panels, and f32 come out, on a team of threads. For one
//! token every thread quantises for itself, so there is one step; for several, the tokens are shared out first.

use super::ROWS;
use super::product::PIECE;
use super::split::Split;
use crate::error::Error;
use crate::graph::arena::{ALIGN, Arena};
use crate::threads::team::{Claim, Team, Work};
use quantsmith_kernels::act::GROUP;
use quantsmith_kernels::ops::quantise;
use quantsmith_kernels::{ActGroup, Activations, ActivationsMut, KernelSet, OutMut, PANEL, Supported};
use std::ops::Range;

/// A matrix, some activations, and threads.
pub struct Layer {
    team: Team,
    task: Task,
}

/// What the threads share.
struct Task {
    kernels: KernelSet,
    quantise: quantise::Set,
    /// The matrix in panels, or as rows where its weights are floats.
    matrix: Vec<u8>,
    rows: usize,
    cols: usize,
    tokens: usize,
    threads: usize,
    x: Vec<f32>,
    /// Areas of quantised activations, one for each thread or one for all, and then the output.
    arena: Arena,
    area: usize,
    out: usize,
}

impl Layer {
    /// A layer whose matrix is packed if its weights are codes; `x` has rows of `cols` activations.
    ///
    /// # Errors
    /// * if the system gives no memory or threads
    pub(crate) fn new(
        kernels: KernelSet,
        tier: Supported,
        matrix: Vec<u8>,
        rows: usize,
        cols: usize,
        x: Vec<f32>,
        threads: usize,
    ) -> Result<Self, Error> {
        let tokens = x.len() / cols;
        let codes = tokens * Activations::padded(cols);
        let area = (codes + codes / GROUP * size_of::<ActGroup>()).next_multiple_of(ALIGN);
        let out = area * if tokens == 1 { threads } else { 1 };
        let arena = Arena::new(out + tokens * rows * size_of::<f32>(), "a layer", "ask for fewer tokens")?;
        let quantise = quantise::Set::new(tier);
        let task = Task { kernels, quantise, matrix, rows, cols, tokens, threads, x, arena, area, out };
        Ok(Layer { team: Team::new(threads)?, task })
    }

    /// Runs it.
    ///
    /// # Errors
    /// * if a thread panicked, now or before
    pub fn run(&mut self) -> Result<(), Error> {
        let first = usize::from(self.task.quantises_alone());
        self.team.run(&self.task, first)
    }

    /// What came out, the rows of one token after those of another.
    pub fn out(&self) -> &[f32] {
        let Task { out, tokens, rows, .. } = self.task;
        // SAFETY: no run is going on, and only runs write.
        unsafe { self.task.arena.view(out, tokens * rows) }
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Task { rows, cols, tokens, threads, .. } = self.task;
        let shape = [rows, cols, tokens];
        f.debug_struct("Layer").field("shape", &shape).field("threads", &threads).finish_non_exhaustive()
    }
}

impl Work for Task {
    fn chunks(&self, step: usize) -> Option<usize> {
        (step < 2).then(|| self.split(step).count())
    }

    fn run(&self, claim: Claim) {
        let units = self.split(claim.step).range(claim.chunk);
        if claim.step == 0 {
            self.quantise(0, units);
            return;
        }
        if self.kernels.format().is_float() {
            self.multiply(0, units);
            return;
        }
        if !self.quantises_alone() {
            for first in units.clone().step_by(PIECE) {
                self.multiply(0, first..(first + PIECE).min(units.end));
            }
            return;
        }
        if claim.first {
            self.quantise(claim.thread, 0..1);
        }
        self.multiply(claim.thread, units);
    }
}

impl Task {
    /// Whether there is nothing to do for all threads before the product: for one token, and for weights that are floats.
    fn quantises_alone(&self) -> bool {
        self.tokens == 1 || self.kernels.format().is_float()
    }

    /// The cut of a step, over tokens or over panels.
    fn split(&self, step: usize) -> Split {
        let units = if step == 0 { self.tokens } else { self.rows.div_ceil(PANEL) };
        Split::new(units, 1, self.threads)
    }

    fn codes(&self) -> usize {
        self.tokens * Activations::padded(self.cols)
    }

    /// Quantises some tokens into an area.
    fn quantise(&self, area: usize, tokens: Range<usize>) {
        let at = area * self.area;
        let codes = self.arena.pointer(at, self.codes());
        let groups = self.arena.pointer(at + self.codes(), self.codes() / GROUP);
        // SAFETY: the area of this thread, or a common one, of which the rows of these tokens belong to this chunk alone.
        let mut out = unsafe { ActivationsMut::from_raw(codes, groups, self.cols, self.tokens) };
        for first in tokens.clone().step_by(ROWS) {
            let row = |token: usize| &self.x[token * self.cols..][..self.cols];
            let x: [&[f32]; ROWS] = std::array::from_fn(|i| row(first + i.min(tokens.end - 1 - first)));
            self.quantise.quantise(&x[..ROWS.min(tokens.end - first)], &mut out, first, 0);
        }
    }

    /// Multiplies some panels with the activations of an area.
    fn multiply(&self, area: usize, panels: Range<usize>) {
        let out = self.arena.pointer::<f32>(self.out, self.tokens * self.rows);
        // SAFETY: the output of so many rows; the panels of this chunk are its columns alone.
        let out = unsafe { OutMut::from_raw(out, self.rows, self.tokens) };
        if self.kernels.format().is_float() {
            let rows = panels.start * PANEL..(panels.end * PANEL).min(self.rows);
            self.kernels.matmul_float(&self.matrix, self.cols, rows, &self.x, out);
            return;
        }
        let at = area * self.area;
        // SAFETY: made before, by this thread or in the step before.
        let codes = unsafe { self.arena.view(at, self.codes()) };
        // SAFETY: as above.
        let groups = unsafe { self.arena.view(at + self.codes(), self.codes() / GROUP) };
        let x = Activations::new(codes, groups, self.cols, self.tokens);
        self.kernels.matmul_packed(&self.matrix, self.rows, x, panels, out);
    }
}
