//! Products with weight matrices, and what is done to each piece of their outputs while it is in the cache.

use super::{Pass, ROWS};
use crate::graph::op::{Op, Rows};
use crate::graph::plan::{Part, Slot};
use crate::weights::Bytes;
use quantsmith_kernels::act::{GROUP, WIDE};
use quantsmith_kernels::{Activations, OutMut, PANEL};
use std::ops::Range;

/// Panels of a piece, when there are several tokens.
pub(super) const PIECE: usize = 4;

/// Rows that a piece is multiplied with at once, whole tiles of activations: what they give stays in the nearest cache
/// until it is worked on, and so does the piece for the next rows.
const BLOCK: usize = 4 * WIDE;

impl Pass<'_> {
    /// Runs the parts one after the other; `units` counts the panels of all of them.
    pub(super) fn product(&self, parts: &[Part], units: Range<usize>, thread: usize) {
        let mut first = 0;
        for part in parts {
            let panels =
                units.start.max(first) - first..units.end.min(first + part.panels).max(first) - first;
            first += part.panels;
            for (piece, rows) in self.pieces(part.rows, panels) {
                self.multiply(part, piece.clone(), rows.clone(), thread);
                self.finish(&part.epilogue, part, piece, rows, thread);
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
        for (piece, rows) in self.pieces(parts[0].rows, panels) {
            for part in parts {
                self.multiply(part, piece.clone(), rows.clone(), thread);
            }
            self.finish(epilogue, &parts[0], piece, rows, thread);
        }
    }

    /// Cuts panels into pieces, and the rows that each of them is multiplied with into blocks.
    fn pieces(
        &self,
        rows: Rows,
        panels: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + use<> {
        let size = if self.tokens.len() == 1 { panels.len().max(1) } else { PIECE };
        let cut = |range: Range<usize>, size: usize| {
            let end = range.end;
            range.step_by(size).map(move |first| first..(first + size).min(end))
        };
        let rows = self.rows(rows);
        cut(panels, size).flat_map(move |piece| cut(0..rows, BLOCK).map(move |rows| (piece.clone(), rows)))
    }

    /// The columns of the output that some panels give.
    fn columns(part: &Part, panels: Range<usize>) -> Range<usize> {
        panels.start * PANEL..(panels.end * PANEL).min(part.out.cols)
    }

    fn multiply(&self, part: &Part, panels: Range<usize>, block: Range<usize>, thread: usize) {
        let (all, first, tokens) = (self.rows(part.rows), block.start, block.len());
        let weights = &self.engine.weights;
        let weight = weights.matrix(part.weight);
        let (kernels, rows) = (weight.kernels, Self::columns(part, panels.clone()));
        let at = self.at(part.out, thread) + first * part.out.cols * size_of::<f32>();
        let out = self.arena.pointer::<f32>(at, tokens * part.out.cols);
        // SAFETY: the place of these rows of a value; 2: this thread's columns of it.
        let out = unsafe { OutMut::from_raw(out, part.out.cols, tokens) };
        if !part.codes {
            let at = self.at(part.x, thread) + first * part.x.cols * size_of::<f32>();
            // SAFETY: 1, 3: made before, by an earlier step or by this thread.
            let x = unsafe { self.arena.view::<f32>(at, tokens * part.x.cols) };
            kernels.matmul_float(weights.plain(weight), weight.cols, rows, x, out);
            return;
        }
        let padded = Activations::padded(part.x.cols);
        // SAFETY: 1, 3: made before, by an earlier step or by this thread.
        let codes = unsafe { self.arena.view(self.at(part.x, thread), all * padded) };
        // SAFETY: 1, 3: as above.
        let groups = unsafe { self.arena.view(self.groups_at(part.x, thread), all * (padded / GROUP)) };
        let x = Activations::new(codes, groups, part.x.cols, all).tiles(block);
        match weights.bytes(weight) {
            Bytes::Packed(packed) => kernels.matmul_packed(packed, weight.rows, x, panels, out),
            Bytes::Plain(bytes) => kernels.matmul_rows(bytes, weight.rows, x, rows, out),
        }
    }

    fn finish(
        &self,
        epilogue: &[Op<Slot>],
        part: &Part,
        panels: Range<usize>,
        rows: Range<usize>,
        thread: usize,
    ) {
        let columns = Self::columns(part, panels);
        for first in rows.clone().step_by(ROWS) {
            let rows = first..rows.end.min(first + ROWS);
            for op in epilogue {
                if let Op::Quantise { x, out } = *op {
                    // SAFETY: 1, 2, 3: `x` was made before, and the columns of `out` are this thread's.
                    unsafe { self.quantise(x, out, thread, rows.clone(), columns.clone()) };
                } else {
                    rows.clone().for_each(|row| self.elements(op, row, columns.clone(), thread));
                }
            }
        }
    }
}
