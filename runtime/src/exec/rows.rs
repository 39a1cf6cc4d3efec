//! Operations on whole rows, and those that can be done to any columns of a row.

use super::{Pass, ROWS};
use crate::graph::op::{Index, Op};
use crate::graph::plan::Slot;
use crate::model::arch::{Activation, NormKind, RopeStyle};
use crate::weights::{VectorId, WeightId};
use std::ops::Range;

impl Pass<'_> {
    /// Runs operations on some rows, which no other thread works on in this step.
    pub(super) fn run_rows(&self, ops: &[Op<Slot>], rows: Range<usize>, thread: usize) {
        for first in rows.clone().step_by(ROWS) {
            let rows = first..rows.end.min(first + ROWS);
            for op in ops {
                if let Op::Quantise { x, out } = *op {
                    // SAFETY: 1, 2, 3: `x` was made before, and these rows of `out` are this thread's.
                    unsafe { self.quantise(x, out, thread, rows.clone(), 0..x.cols) };
                } else {
                    rows.clone().for_each(|row| self.row(op, row, thread));
                }
            }
        }
    }

    /// Runs operations that work on heads, for some of the heads of a single row.
    pub(super) fn run_heads(&self, ops: &[Op<Slot>], heads: Range<usize>, of: usize, thread: usize) {
        ops.iter().for_each(|op| self.part(op, 0, heads.clone(), of, thread));
    }

    /// Runs an operation that works on heads on some of the equal parts of a row, which no other thread works on.
    fn part(&self, op: &Op<Slot>, row: usize, parts: Range<usize>, of: usize, thread: usize) {
        let share = |whole: usize| whole / of * parts.start..whole / of * parts.end;
        match *op {
            Op::HeadNorm { x, width, weight } => {
                // SAFETY: 2, 3: this thread's heads of this row.
                let x = unsafe { self.floats_mut(x, thread, row, share(x.cols)) };
                let (weight, epsilon) = (self.engine.weights.vector(weight), self.engine.params.epsilon);
                self.engine.operations.norm.rms_norm_in_place(x, width, Some(weight), epsilon);
            }
            Op::Rope { x, rotation, head, style } => {
                // SAFETY: 1, 3: made before, by an earlier step or by this thread.
                let rotation = unsafe { self.floats(rotation, thread, row, 0..rotation.cols) };
                let (cos, sin) = rotation.split_at(rotation.len() / 2);
                // SAFETY: 2, 3: this thread's heads of this row.
                let x = unsafe { self.floats_mut(x, thread, row, share(x.cols)) };
                match style {
                    RopeStyle::Norm => self.engine.operations.rope.rope_norm(x, head, cos, sin),
                    RopeStyle::Neox => self.engine.operations.rope.rope_neox(x, head, cos, sin),
                }
            }
            Op::Store { k, v, layer } => {
                let heads = share(self.engine.cache.layers[layer].heads);
                self.store(k, v, layer, row, heads, thread);
            }
            _ => unreachable!("only operations that work on heads"),
        }
    }

    fn row(&self, op: &Op<Slot>, row: usize, thread: usize) {
        match *op {
            Op::Embed { table, by, scale, out } => self.embed(table, by, scale, out, row, thread),
            Op::Rotation { kind, out } => {
                // SAFETY: 2, 3: this thread's row.
                let out = unsafe { self.floats_mut(out, thread, row, 0..out.cols) };
                let (cos, sin) = out.split_at_mut(out.len() / 2);
                self.engine.tables[kind].row(self.position + row, cos, sin);
            }
            Op::Select { x, out } => {
                // SAFETY: 1: made in an earlier step.
                let x = unsafe { self.floats(x, thread, self.outputs.start + row, 0..x.cols) };
                // SAFETY: 2, 3: this thread's row.
                unsafe { self.floats_mut(out, thread, row, 0..out.cols) }.copy_from_slice(x);
            }
            Op::Norm { x, weight, bias, out } => self.norm(x, weight, bias, out, row, thread),
            Op::HeadNorm { .. } | Op::Rope { .. } | Op::Store { .. } => self.part(op, row, 0..1, 1, thread),
            Op::Bias { x, .. }
            | Op::Scale { x, .. }
            | Op::Cap { x, .. }
            | Op::Add { x, .. }
            | Op::Activate { x, .. }
            | Op::Gate { x, .. } => self.elements(op, row, 0..x.cols, thread),
            Op::Quantise { .. } => unreachable!("done for several rows at once"),
            Op::MatMul { .. } | Op::Attend { .. } => unreachable!("steps of their own"),
        }
    }

    /// Runs an elementwise operation on columns of a row that no other thread works on in this step.
    pub(super) fn elements(&self, op: &Op<Slot>, row: usize, cols: Range<usize>, thread: usize) {
        // SAFETY: 2, 3: this thread's columns of this row.
        let target = |x: Slot| unsafe { self.floats_mut(x, thread, row, cols.clone()) };
        // SAFETY: 1, 2, 3: made by an earlier step, or by this thread in columns of its own.
        let operand = |y: Slot| unsafe { self.floats(y, thread, row, cols.clone()) };
        let (elementwise, activation) =
            (self.engine.operations.elementwise, self.engine.operations.activation);
        match *op {
            Op::Bias { x, bias } => {
                elementwise.add(target(x), &self.engine.weights.vector(bias)[cols.clone()])
            }
            Op::Scale { x, factor } => elementwise.scale(target(x), factor),
            Op::Cap { x, cap } => elementwise.softcap(target(x), cap),
            Op::Add { x, y } => elementwise.add(target(x), operand(y)),
            Op::Activate { x, function } => match function {
                Activation::Silu => activation.silu(target(x)),
                Activation::Gelu => activation.gelu(target(x)),
                Activation::ReluSquared => activation.relu_squared(target(x)),
            },
            Op::Gate { x, up, function } => match function {
                Activation::Silu => activation.silu_mul(target(x), operand(up)),
                Activation::Gelu => activation.gelu_mul(target(x), operand(up)),
                Activation::ReluSquared => activation.relu_squared_mul(target(x), operand(up)),
            },
            Op::Embed { .. }
            | Op::Rotation { .. }
            | Op::Select { .. }
            | Op::Norm { .. }
            | Op::HeadNorm { .. }
            | Op::MatMul { .. }
            | Op::Rope { .. }
            | Op::Store { .. }
            | Op::Attend { .. }
            | Op::Quantise { .. } => unreachable!("operations on whole rows, or on several"),
        }
    }

    fn embed(&self, table: WeightId, by: Index, scale: f32, out: Slot, row: usize, thread: usize) {
        let table = self.engine.weights.matrix(table);
        let at = match by {
            Index::Token => self.tokens[row] as usize,
            Index::Position => self.position + row,
        };
        let bytes = &self.engine.weights.plain(table)[at * table.row_bytes..][..table.row_bytes];
        // SAFETY: 2, 3: this thread's row.
        let out = unsafe { self.floats_mut(out, thread, row, 0..out.cols) };
        table.kernels.dequantise(bytes, out);
        if scale != 1.0 {
            self.engine.operations.elementwise.scale(out, scale);
        }
    }

    fn norm(
        &self,
        x: Slot,
        weight: Option<VectorId>,
        bias: Option<VectorId>,
        out: Slot,
        row: usize,
        thread: usize,
    ) {
        // SAFETY: 1, 3: made before, by an earlier step or by this thread.
        let x = unsafe { self.floats(x, thread, row, 0..x.cols) };
        // SAFETY: 2, 3: this thread's row.
        let out = unsafe { self.floats_mut(out, thread, row, 0..out.cols) };
        let weights = &self.engine.weights;
        let [weight, bias] = [weight, bias].map(|id| id.map(|id| weights.vector(id)));
        let (norm, epsilon) = (self.engine.operations.norm, self.engine.params.epsilon);
        match self.norm_kind() {
            NormKind::Rms => norm.rms_norm(x, weight, epsilon, out),
            NormKind::Layer | NormKind::Bare => norm.layer_norm(x, weight, bias, epsilon, out),
        }
    }

    fn store(&self, k: Slot, v: Slot, layer: usize, row: usize, heads: Range<usize>, thread: usize) {
        let layer = &self.engine.cache.layers[layer];
        let (layout, position) = (layer.layout, self.position + row);
        let attention = self.engine.operations.attention;
        for head in heads {
            let (key, value) = (head * layout.k_dim(), head * layout.v_dim());
            // SAFETY: 1, 3: made before, by an earlier step or by this thread.
            let k = unsafe { self.floats(k, thread, row, key..key + layout.k_dim()) };
            // SAFETY: 1, 3: as above.
            let v = unsafe { self.floats(v, thread, row, value..value + layout.v_dim()) };
            // SAFETY: 4: this thread's chunk or head of the cache.
            unsafe { self.cache.store(attention, layer, head, position, [k, v]) };
        }
    }
}
