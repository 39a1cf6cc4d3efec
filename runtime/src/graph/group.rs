//! Fusion: operations become steps, and at the end of each step all threads must agree that it is over.
//!
//! ```text
//! rows:    whole rows are independent      norm, quantise, rope, store, …    split by rows; a single one by heads, if
//!                                          all of it works on heads
//! product: output rows are independent     matrices that can run at the same time, then what can be done to a piece
//!                                          of their outputs alone: bias, gate, residual, quantise
//! attend:  heads and tokens are independent, then quantise
//! merge:   of a single token, long contexts are shared out in pieces; this puts the pieces of a head together
//! ```
//! With a single row there is nothing to split in a step over rows. Instead of one thread doing it while the others
//! wait, each thread does it for itself, in memory of its own, in front of the product that reads it; whoever takes
//! the first chunk copies out what later steps need. That saves a meeting of all threads per norm.

use super::op::{Graph, Kind, Op, Rows, ValueId};
use quantsmith_kernels::act::GROUP;

/// A step whose operands are still values.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// What the rows of the step stand for.
    pub(crate) rows: Rows,
    /// Done by each thread for itself before its first chunk.
    pub(crate) prologue: Vec<Op<ValueId>>,
    pub(crate) group: Group,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    Rows(Vec<Op<ValueId>>),
    Product {
        /// The products.
        parts: Vec<Op<ValueId>>,
        /// What is done to each piece of the outputs, in order.
        epilogue: Vec<Op<ValueId>>,
        /// Pieces cover the same rows of all parts, because the epilogue combines them.
        lockstep: bool,
    },
    Attend {
        attend: Op<ValueId>,
        quantise: Option<Op<ValueId>>,
    },
    /// The second half of the step before it.
    Merge {
        attend: Op<ValueId>,
        quantise: Option<Op<ValueId>>,
    },
}

impl Draft {
    /// The operations of the step, in order.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Op<ValueId>> {
        let (first, second, last) = match &self.group {
            Group::Rows(ops) => (&ops[..], &[][..], None),
            Group::Product { parts, epilogue, .. } => (&parts[..], &epilogue[..], None),
            Group::Attend { attend, quantise } | Group::Merge { attend, quantise } => {
                (std::slice::from_ref(attend), &[][..], quantise.as_ref())
            }
        };
        self.prologue.iter().chain(first).chain(second).chain(last)
    }
}

/// Forms steps. `single`: for one row.
pub(crate) fn group(graph: &Graph, head: usize, single: bool) -> Vec<Draft> {
    let mut steps: Vec<Draft> = Vec::new();
    for op in &graph.ops {
        let rows = graph.values[op.made().or(op.changed()).unwrap_or_else(|| first_read(op)).0].rows;
        let joined = steps.last_mut().is_some_and(|last| last.rows == rows && join(graph, head, last, op));
        if !joined {
            let group = match op {
                Op::MatMul { .. } => {
                    Group::Product { parts: vec![op.clone()], epilogue: Vec::new(), lockstep: false }
                }
                Op::Attend { .. } => Group::Attend { attend: op.clone(), quantise: None },
                _ => Group::Rows(vec![op.clone()]),
            };
            steps.push(Draft { rows, prologue: Vec::new(), group });
        }
    }
    if single { with_merges(with_prologues(steps)) } else { steps }
}

fn first_read(op: &Op<ValueId>) -> ValueId {
    op.read()[0].expect("an operation that neither makes nor changes a value reads one")
}

/// Adds an operation to the last step, if that is possible.
fn join(graph: &Graph, head: usize, last: &mut Draft, op: &Op<ValueId>) -> bool {
    match (&mut last.group, op) {
        (Group::Rows(_), Op::MatMul { .. }) | (_, Op::Attend { .. }) => false,
        (Group::Rows(ops), _) => {
            ops.push(op.clone());
            true
        }
        (Group::Product { parts, epilogue, .. }, Op::MatMul { x, .. }) => {
            let independent = !parts.iter().chain(&*epilogue).any(|p| p.made() == Some(*x));
            if independent {
                parts.push(op.clone());
            }
            independent
        }
        (Group::Product { parts, epilogue, lockstep }, _) => {
            let Some(fits) = fits_epilogue(graph, parts, op) else { return false };
            *lockstep |= fits == Fits::Lockstep;
            epilogue.push(op.clone());
            true
        }
        (Group::Attend { attend, quantise }, Op::Quantise { x, .. }) => {
            let fits = attend.made() == Some(*x) && quantise.is_none() && head.is_multiple_of(GROUP);
            if fits {
                *quantise = Some(op.clone());
            }
            fits
        }
        (Group::Attend { .. } | Group::Merge { .. }, _) => false,
    }
}

#[derive(PartialEq, Eq)]
enum Fits {
    Alone,
    Lockstep,
}

/// Whether an operation can be done to a piece of the outputs of some products.
fn fits_epilogue(graph: &Graph, parts: &[Op<ValueId>], op: &Op<ValueId>) -> Option<Fits> {
    let is_part = |value: ValueId| parts.iter().any(|p| p.made() == Some(value));
    let same_rows = || {
        let cols = |p: &Op<ValueId>| p.made().map(|v| graph.values[v.0].cols);
        parts.iter().all(|p| cols(p) == cols(&parts[0]))
    };
    if let Op::Quantise { x, .. } = op {
        // Groups must not be torn, so all parts must be cut at the same places.
        return (is_part(*x) && same_rows()).then_some(if parts.len() > 1 {
            Fits::Lockstep
        } else {
            Fits::Alone
        });
    }
    if !op.is_elementwise() || !op.changed().is_some_and(is_part) {
        return None;
    }
    if op.read().into_iter().flatten().any(is_part) {
        return same_rows().then_some(Fits::Lockstep);
    }
    Some(Fits::Alone)
}

/// Turns steps over rows into prologues of the products behind them, where each thread can do them for itself.
fn with_prologues(steps: Vec<Draft>) -> Vec<Draft> {
    let mut out: Vec<Draft> = Vec::new();
    let mut steps = steps.into_iter().peekable();
    while let Some(step) = steps.next() {
        let next = steps.peek();
        let fits = next.is_some_and(|n| n.rows == step.rows && matches!(n.group, Group::Product { .. }));
        match step.group {
            Group::Rows(ops) if fits && is_private(&ops) => {
                let next = steps.next().expect("it was peeked at");
                out.push(Draft { prologue: ops, ..next });
            }
            group => out.push(Draft { group, ..step }),
        }
    }
    out
}

/// Puts the second half behind each step that attends.
fn with_merges(steps: Vec<Draft>) -> Vec<Draft> {
    let mut out = Vec::new();
    for step in steps {
        let merge = match &step.group {
            Group::Attend { attend, quantise } => {
                Some(Group::Merge { attend: attend.clone(), quantise: quantise.clone() })
            }
            Group::Rows(_) | Group::Product { .. } | Group::Merge { .. } => None,
        };
        let rows = step.rows;
        out.push(step);
        out.extend(merge.map(|group| Draft { rows, prologue: Vec::new(), group }));
    }
    out
}

/// Whether the operations change nothing but what they make themselves.
fn is_private(ops: &[Op<ValueId>]) -> bool {
    ops.iter().enumerate().all(|(i, op)| {
        let own = |value| ops[..i].iter().any(|o| o.made() == Some(value));
        !matches!(op, Op::Store { .. }) && op.changed().is_none_or(own)
    })
}

/// Whether a piece of the outputs must start at a group of activations.
pub(crate) fn quantises(ops: &[Op<ValueId>], graph: &Graph) -> bool {
    ops.iter().any(|op| op.made().is_some_and(|v| graph.values[v.0].kind == Kind::Codes))
}
