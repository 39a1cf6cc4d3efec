//! The plan as data, for `quantsmith plan` and for tests.

use super::op::{Kind, Rows, Value};
use super::plan::{Placed, Plan, Step};
use serde::Serialize;

/// Everything that was decided at load.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// The architecture.
    pub architecture: String,
    /// The instruction-set tier of the float operations, and of matrices whose format has it.
    pub isa: String,
    /// Threads.
    pub threads: usize,
    /// Positions that there is room for.
    pub context: usize,
    /// The plan for a single token.
    pub decode: PassReport,
    /// The plan for a batch.
    pub batch: PassReport,
    /// Every tensor that is used.
    pub tensors: Vec<TensorReport>,
    /// Tensors of the file that nothing uses.
    pub unused: Vec<String>,
    /// Bytes of the arena, which both plans share.
    pub arena_bytes: u64,
    /// Bytes of the key-value cache.
    pub kv_bytes: u64,
    /// Bytes of weights that are read from the file's map.
    pub weight_bytes: u64,
    /// Bytes of interleaved weights.
    pub packed_bytes: u64,
    /// Bytes of norm weights, biases and tables.
    pub other_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

impl PlanReport {
    /// Bytes of weights that a single token reads: all matrices that are multiplied, in the form that they have.
    /// `None` for a model with experts, of which a token reads only some.
    pub fn bytes_per_token(&self) -> Option<u64> {
        let experts = self.tensors.iter().any(|tensor| tensor.dims.len() > 2);
        (!experts).then(|| self.decode.nodes.iter().map(|node| node.bytes).sum())
    }
}

/// The plan of one kind of pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassReport {
    /// The most tokens of a pass.
    pub tokens: usize,
    /// The most rows whose logits are computed at once.
    pub outputs: usize,
    /// Steps, in order.
    pub nodes: Vec<NodeReport>,
    /// Values, in the order in which they are made.
    pub values: Vec<ValueReport>,
    /// Bytes that all threads share.
    pub common_bytes: u64,
    /// Bytes of each thread.
    pub thread_bytes: u64,
}

/// A step: what all threads do before they wait for each other.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    /// Its place in the order.
    pub step: usize,
    /// `rows`, `product`, `attend` or `merge`.
    pub kind: &'static str,
    /// The operations that were fused, in order.
    pub ops: String,
    /// Whether it works on all tokens or on those whose logits are asked for.
    pub rows: &'static str,
    /// Operations at the front that each thread does for itself.
    pub private: usize,
    /// The tensors that are multiplied.
    pub tensors: Vec<String>,
    /// Bytes of them that are read, in the form that they have.
    pub bytes: u64,
    /// Numbers of the values that are read.
    pub reads: Vec<usize>,
    /// Numbers of the values that are made or changed.
    pub writes: Vec<usize>,
}

/// A value and its place.
#[derive(Clone, Debug, Serialize)]
pub struct ValueReport {
    /// Its number.
    pub value: usize,
    /// What it is.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// `f32`, or `q8` for quantised activations.
    pub kind: &'static str,
    /// `common`, or `thread` in the area of each thread.
    pub area: &'static str,
    /// Where it starts in its area.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// The step that makes it.
    pub first: usize,
    /// The last step that reads it.
    pub last: usize,
}

/// A tensor and the kernel that it was bound to.
#[derive(Clone, Debug, Serialize)]
pub struct TensorReport {
    /// The name.
    pub name: String,
    /// The format.
    pub format: String,
    /// The dimensions, the length of a row first.
    pub dims: Vec<u64>,
    /// Bytes in the file.
    pub bytes: u64,
    /// Bytes of its interleaved form, 0 if there is none.
    pub packed_bytes: u64,
    /// The kernel, as format, tier and operation.
    pub kernel: String,
    /// The tier of the kernel.
    pub tier: String,
    /// Why this tier and this operation.
    pub reason: String,
}

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Floats => "f32",
        Kind::Codes => "q8",
    }
}

/// Reports one plan.
pub(crate) fn pass(
    plan: &Plan,
    values: &[Value],
    weights: impl Fn(&Step) -> (Vec<String>, u64),
) -> PassReport {
    let rows = |rows| match rows {
        Rows::Tokens => plan.tokens,
        Rows::Outputs => plan.outputs,
    };
    let value = |placed: &Placed| {
        let value = &values[placed.value.0];
        ValueReport {
            value: placed.value.0,
            name: value.name.clone(),
            shape: [rows(value.rows), value.cols],
            kind: kind_name(value.kind),
            area: if placed.slot.own { "thread" } else { "common" },
            offset: placed.slot.at as u64,
            bytes: placed.bytes as u64,
            first: placed.steps.start,
            last: placed.steps.end - 1,
        }
    };
    let nodes = plan.steps.iter().enumerate().map(|(i, step)| (i, step, weights(step)));
    let nodes = nodes.map(|(i, step, (tensors, bytes))| NodeReport {
        step: i,
        kind: step.body.name(),
        ops: step.name.clone(),
        rows: match step.rows {
            Rows::Tokens => "tokens",
            Rows::Outputs => "outputs",
        },
        private: step.prologue.len(),
        tensors,
        bytes,
        reads: step.reads.iter().map(|v| v.0).collect(),
        writes: step.writes.iter().map(|v| v.0).collect(),
    });
    PassReport {
        tokens: plan.tokens,
        outputs: plan.outputs,
        nodes: nodes.collect(),
        values: plan.placed.iter().map(value).collect(),
        common_bytes: plan.common as u64,
        thread_bytes: plan.own as u64,
    }
}
