//! Products with weight matrices, and what is done to each piece of their outputs while it is in the cache.

use super::Pass;
use crate::graph::op::Op;
use crate::graph::plan::{Part, Slot};
use crate::weights::Bytes;
use quantsmith_kernels::act::GROUP;
use quantsmith_kernels::{Activations, OutMut, PANEL};
use std::ops::Range;

/// Panels of a piece, when there are several tokens: what a piece gives stays in the cache until it is worked on.
pub(super) const PIECE: usize = 4;

impl Pass<'_> {
    /// Runs the parts one after the other; `units` counts the panels of all of them.
    pub(super) fn product(&self, parts: &[Part], units: Range<usize>, thread: usize) {
        let mut first = 0;
        for part in parts {
            let panels =
                units.start.max(first) - first..units.end.min(first + part.panels).max(first) - first;
            first += part.panels;
            for piece in self.pieces(panels) {
                self.multiply(part, piece.clone(), thread);
                self.finish(&part.epilogue, part, piece, thread);
            }
        }
    }

    /// Runs the same panels of all parts, and then what combines them.
    pub(super) fn lockstep(
        &self,
        parts: &[Part],
        epilogue: &[Op<Slot>],
        panels: Range<usize>,
        thread: usize,
    ) {
        for piece in self.pieces(panels) {
            for part in parts {
                self.multiply(part, piece.clone(), thread);
            }
            self.finish(epilogue, &parts[0], piece, thread);
        }
    }

    /// Cuts panels into pieces.
    fn pieces(&self, panels: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = if self.tokens.len() == 1 { panels.len().max(1) } else { PIECE };
        let end = panels.end;
        panels.step_by(size).map(move |first| first..(first + size).min(end))
    }

    /// The rows of some panels.
    fn columns(part: &Part, panels: Range<usize>) -> Range<usize> {
        panels.start * PANEL..(panels.end * PANEL).min(part.out.cols)
    }

    fn multiply(&self, part: &Part, panels: Range<usize>, thread: usize) {
        let tokens = self.rows(part.rows);
        let weights = &self.engine.weights;
        let weight = weights.matrix(part.weight);
        let (kernels, rows) = (weight.kernels, Self::columns(part, panels.clone()));
        let out = self.arena.pointer::<f32>(self.at(part.out, thread), tokens * part.out.cols);
        // SAFETY: the place of a value of so many rows; 2: this thread's columns of it.
        let out = unsafe { OutMut::from_raw(out, part.out.cols, tokens) };
        if !part.codes {
            // SAFETY: 1, 3: made before, by an earlier step or by this thread.
            let x = unsafe { self.arena.view::<f32>(self.at(part.x, thread), tokens * part.x.cols) };
            kernels.matmul_float(weights.plain(weight), weight.cols, rows, x, out);
            return;
        }
        let padded = Activations::padded(part.x.cols);
        // SAFETY: 1, 3: made before, by an earlier step or by this thread.
        let codes = unsafe { self.arena.view(self.at(part.x, thread), tokens * padded) };
        // SAFETY: 1, 3: as above.
        let groups = unsafe { self.arena.view(self.groups_at(part.x, thread), tokens * (padded / GROUP)) };
        let x = Activations::new(codes, groups, part.x.cols, tokens);
        match weights.bytes(weight) {
            Bytes::Packed(packed) => kernels.matmul_packed(packed, weight.rows, x, panels, out),
            Bytes::Plain(bytes) => kernels.matmul_rows(bytes, weight.rows, x, rows, out),
        }
    }

    fn finish(&self, epilogue: &[Op<Slot>], part: &Part, panels: Range<usize>, thread: usize) {
        if epilogue.is_empty() {
            return;
        }
        let columns = Self::columns(part, panels);
        for row in 0..self.rows(part.rows) {
            for op in epilogue {
                self.elements(op, row, columns.clone(), thread);
            }
        }
    }
}
