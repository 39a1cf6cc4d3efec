//! The operations of a graph and the values between them.
//!
//! A value is a matrix with one row per token (or per token whose logits are asked for). An operation makes one
//! value, or changes one in place; values are numbered in the order in which they are made, and an operation reads
//! only what was made before. The same type serves the graph, whose operands are value numbers, and the plan, whose
//! operands are places in memory.

use crate::model::arch::{Activation, RopeStyle};
use crate::weights::{VectorId, WeightId};

/// A value of the graph, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) usize);

/// What the rows of a value stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// The tokens of the batch.
    Tokens,
    /// Those whose logits are asked for.
    Outputs,
}

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// f32 numbers.
    Floats,
    /// Quantised activations: codes and groups.
    Codes,
}

/// A value's shape and name.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) rows: Rows,
    pub(crate) cols: usize,
    pub(crate) kind: Kind,
}

/// What says which row of a table a token takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Its number.
    Token,
    /// Its position.
    Position,
}

/// One operation. `V` is what stands for a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op<V> {
    /// Reads the rows of the tokens, or of their positions, from a table.
    Embed { table: WeightId, by: Index, scale: f32, out: V },
    /// Cosines, then sines, of each token's position.
    Rotation { kind: usize, out: V },
    /// Takes the rows whose logits are asked for.
    Select { x: V, out: V },
    /// Normalises rows.
    Norm { x: V, weight: Option<VectorId>, bias: Option<VectorId>, out: V },
    /// Normalises, in place, each run of `width` values of a row.
    HeadNorm { x: V, width: usize, weight: VectorId },
    /// Quantises rows.
    Quantise { x: V, out: V },
    /// Multiplies with a matrix.
    MatMul { x: V, weight: WeightId, out: V },
    /// Adds a vector to each row.
    Bias { x: V, bias: VectorId },
    /// Multiplies by a number.
    Scale { x: V, factor: f32 },
    /// Caps softly.
    Cap { x: V, cap: f32 },
    /// Adds `y` to `x`.
    Add { x: V, y: V },
    /// Replaces x by f(x).
    Activate { x: V, function: Activation },
    /// Replaces x by f(x) · up.
    Gate { x: V, up: V, function: Activation },
    /// Rotates the heads of rows.
    Rope { x: V, rotation: V, head: usize, style: RopeStyle },
    /// Writes keys and values of the tokens into the cache of a layer.
    Store { k: V, v: V, layer: usize },
    /// Attends from the tokens to the cache of a layer.
    Attend { q: V, layer: usize, out: V },
}

impl<V: Copy> Op<V> {
    /// The value that is made.
    pub(crate) fn made(&self) -> Option<V> {
        match *self {
            Op::Embed { out, .. }
            | Op::Rotation { out, .. }
            | Op::Select { out, .. }
            | Op::Norm { out, .. }
            | Op::Quantise { out, .. }
            | Op::MatMul { out, .. }
            | Op::Attend { out, .. } => Some(out),
            Op::HeadNorm { .. }
            | Op::Bias { .. }
            | Op::Scale { .. }
            | Op::Cap { .. }
            | Op::Add { .. }
            | Op::Activate { .. }
            | Op::Gate { .. }
            | Op::Rope { .. }
            | Op::Store { .. } => None,
        }
    }

    /// The value that is changed in place.
    pub(crate) fn changed(&self) -> Option<V> {
        match *self {
            Op::HeadNorm { x, .. }
            | Op::Bias { x, .. }
            | Op::Scale { x, .. }
            | Op::Cap { x, .. }
            | Op::Add { x, .. }
            | Op::Activate { x, .. }
            | Op::Gate { x, .. }
            | Op::Rope { x, .. } => Some(x),
            Op::Embed { .. }
            | Op::Rotation { .. }
            | Op::Select { .. }
            | Op::Norm { .. }
            | Op::Quantise { .. }
            | Op::MatMul { .. }
            | Op::Store { .. }
            | Op::Attend { .. } => None,
        }
    }

    /// The values that are read and stay as they are.
    pub(crate) fn read(&self) -> [Option<V>; 2] {
        match *self {
            Op::Embed { .. } | Op::Rotation { .. } => [None, None],
            Op::Select { x, .. } | Op::Norm { x, .. } | Op::Quantise { x, .. } | Op::MatMul { x, .. } => {
                [Some(x), None]
            }
            Op::HeadNorm { .. }
            | Op::Bias { .. }
            | Op::Scale { .. }
            | Op::Cap { .. }
            | Op::Activate { .. } => [None, None],
            Op::Add { y, .. } => [Some(y), None],
            Op::Gate { up, .. } => [Some(up), None],
            Op::Rope { rotation, .. } => [Some(rotation), None],
            Op::Store { k, v, .. } => [Some(k), Some(v)],
            Op::Attend { q, .. } => [Some(q), None],
        }
    }

    /// All values that the operation has to do with.
    pub(crate) fn values(&self) -> impl Iterator<Item = V> {
        let [a, b] = self.read();
        [self.made(), self.changed(), a, b].into_iter().flatten()
    }

    /// Whether element i of the result depends on element i of the operands only, so that any range of columns can be
    /// done alone.
    pub(crate) fn is_elementwise(&self) -> bool {
        match self {
            Op::Bias { .. }
            | Op::Scale { .. }
            | Op::Cap { .. }
            | Op::Add { .. }
            | Op::Activate { .. }
            | Op::Gate { .. } => true,
            Op::Embed { .. }
            | Op::Rotation { .. }
            | Op::Select { .. }
            | Op::Norm { .. }
            | Op::HeadNorm { .. }
            | Op::Quantise { .. }
            | Op::MatMul { .. }
            | Op::Rope { .. }
            | Op::Store { .. }
            | Op::Attend { .. } => false,
        }
    }

    /// The same operation with other operands.
    pub(crate) fn map<W>(&self, mut f: impl FnMut(V) -> W) -> Op<W> {
        match *self {
            Op::Embed { table, by, scale, out } => Op::Embed { table, by, scale, out: f(out) },
            Op::Rotation { kind, out } => Op::Rotation { kind, out: f(out) },
            Op::Select { x, out } => Op::Select { x: f(x), out: f(out) },
            Op::Norm { x, weight, bias, out } => Op::Norm { x: f(x), weight, bias, out: f(out) },
            Op::HeadNorm { x, width, weight } => Op::HeadNorm { x: f(x), width, weight },
            Op::Quantise { x, out } => Op::Quantise { x: f(x), out: f(out) },
            Op::MatMul { x, weight, out } => Op::MatMul { x: f(x), weight, out: f(out) },
            Op::Bias { x, bias } => Op::Bias { x: f(x), bias },
            Op::Scale { x, factor } => Op::Scale { x: f(x), factor },
            Op::Cap { x, cap } => Op::Cap { x: f(x), cap },
            Op::Add { x, y } => Op::Add { x: f(x), y: f(y) },
            Op::Activate { x, function } => Op::Activate { x: f(x), function },
            Op::Gate { x, up, function } => Op::Gate { x: f(x), up: f(up), function },
            Op::Rope { x, rotation, head, style } => Op::Rope { x: f(x), rotation: f(rotation), head, style },
            Op::Store { k, v, layer } => Op::Store { k: f(k), v: f(v), layer },
            Op::Attend { q, layer, out } => Op::Attend { q: f(q), layer, out: f(out) },
        }
    }

    /// The name, as the plan and the profile show it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::Rotation { .. } => "rotation",
            Op::Select { .. } => "select",
            Op::Norm { .. } => "norm",
            Op::HeadNorm { .. } => "head_norm",
            Op::Quantise { .. } => "quantise",
            Op::MatMul { .. } => "matmul",
            Op::Bias { .. } => "bias",
            Op::Scale { .. } => "scale",
            Op::Cap { .. } => "cap",
            Op::Add { .. } => "add",
            Op::Activate { .. } => "activate",
            Op::Gate { .. } => "gate",
            Op::Rope { .. } => "rope",
            Op::Store { .. } => "store",
            Op::Attend { .. } => "attend",
        }
    }
}

/// A graph: operations in the order in which they run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) ops: Vec<Op<ValueId>>,
    pub(crate) values: Vec<Value>,
    /// The value that holds the logits.
    pub(crate) logits: Option<ValueId>,
}
