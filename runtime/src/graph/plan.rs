//! The plan: steps whose operands are places in an arena.
//!
//! Every value gets its place by lifetime: from the step that makes it to the last that reads it, counted in whole
//! steps, so nothing that one thread still reads is written by another. Values that every thread makes for itself
//! live in a small area per thread, only as long as their step.

use super::arena::ALIGN;
use super::group::{Draft, Group, group, quantises};
use super::op::{Graph, Kind, Op, Rows, Value, ValueId};
use crate::weights::{WeightId, Weights};
use quantsmith_kernels::act::GROUP;
use quantsmith_kernels::{ActGroup, Activations, PANEL};
use std::ops::Range;

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// It lies in the area of each thread, not in the common one.
    pub(crate) own: bool,
    /// Where it starts in its area, in bytes.
    pub(crate) at: usize,
    /// Where the groups start, for quantised values.
    pub(crate) groups: usize,
    /// The length of a row.
    pub(crate) cols: usize,
    /// What its rows are.
    pub(crate) rows: Rows,
}

/// A product of a step.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) x: Slot,
    pub(crate) codes: bool,
    pub(crate) weight: WeightId,
    pub(crate) out: Slot,
    pub(crate) rows: Rows,
    pub(crate) panels: usize,
    /// What is done to each piece of this part's output alone.
    pub(crate) epilogue: Vec<Op<Slot>>,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Operations on whole rows, split by rows; those that work on heads, for a single row, by heads.
    Rows(Vec<Op<Slot>>),
    /// Products, split by panels of their outputs, one part after the other.
    Product(Vec<Part>),
    /// Products with as many rows each, split by panels, the same of each part, and what is done to the pieces.
    Lockstep { parts: Vec<Part>, panels: usize, epilogue: Vec<Op<Slot>> },
    /// Attention, split by heads and tokens, or by heads and pieces of the context.
    Attend(Attend),
    /// What is left to do when it was split by pieces of the context.
    Merge(Attend),
}

impl Body {
    /// The kind of step, as the plan and the profile show it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Body::Rows(_) => "rows",
            Body::Product(_) | Body::Lockstep { .. } => "product",
            Body::Attend(_) => "attend",
            Body::Merge(_) => "merge",
        }
    }

    /// The products.
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Body::Product(parts) | Body::Lockstep { parts, .. } => parts,
            Body::Rows(_) | Body::Attend(_) | Body::Merge(_) => &[],
        }
    }
}

/// The operands of attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend {
    pub(crate) q: Slot,
    pub(crate) layer: usize,
    pub(crate) out: Slot,
    /// The quantised form of the result, if that is made too.
    pub(crate) codes: Option<Slot>,
}

/// A value that a thread made for itself and that later steps read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish {
    pub(crate) from: Slot,
    pub(crate) to: Slot,
    pub(crate) kind: Kind,
}

/// A step.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) rows: Rows,
    pub(crate) prologue: Vec<Op<Slot>>,
    pub(crate) publish: Vec<Publish>,
    pub(crate) body: Body,
    /// Chunks of a product start at multiples of so many panels.
    pub(crate) align: usize,
    /// The operations, for reports: prologue, then the rest.
    pub(crate) name: String,
    /// The values that are read, for reports and for checking the plan.
    pub(crate) reads: Vec<ValueId>,
    /// The values that are made or changed.
    pub(crate) writes: Vec<ValueId>,
}

/// A value as placed.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) value: ValueId,
    pub(crate) slot: Slot,
    pub(crate) bytes: usize,
    pub(crate) steps: Range<usize>,
}

/// Steps and places for up to some number of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// The first step that works on the rows whose logits are asked for; all after it do.
    pub(crate) outputs_from: usize,
    /// The most tokens of a pass.
    pub(crate) tokens: usize,
    /// The most rows whose logits are computed at once.
    pub(crate) outputs: usize,
    /// Bytes of the common area.
    pub(crate) common: usize,
    /// Bytes of the area of each thread.
    pub(crate) own: usize,
    /// Where the pieces of attention lie in the common area, for a single token.
    pub(crate) parts: usize,
    pub(crate) logits: Slot,
    pub(crate) placed: Vec<Placed>,
}

/// How many rows a plan is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) tokens: usize,
    pub(crate) outputs: usize,
}

impl Sizes {
    fn rows(self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Outputs => self.outputs,
        }
    }
}

/// What attention needs beside its operands, in f32 values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionSizes {
    /// The width of a head of values.
    pub(crate) head: usize,
    /// Room for each thread.
    pub(crate) scratch: usize,
    /// Room for the pieces of the longest context.
    pub(crate) parts: usize,
}

/// Plans a graph.
pub(crate) fn plan(graph: &Graph, weights: &Weights, attention: AttentionSizes, sizes: Sizes) -> Plan {
    let single = sizes.tokens == 1;
    let drafts = group(graph, attention.head, single);
    let outputs_from = drafts.iter().position(|d| d.rows == Rows::Outputs).unwrap_or(drafts.len());
    let (places, mut common) = place(graph, &drafts, outputs_from, sizes);
    let parts = common;
    if single {
        common += (attention.parts * size_of::<f32>()).next_multiple_of(ALIGN);
    }
    let mut own_bytes = (attention.scratch * size_of::<f32>()).next_multiple_of(ALIGN);
    let mut placed: Vec<Placed> = places.iter().flatten().cloned().collect();
    let mut steps = Vec::with_capacity(drafts.len());
    for (i, draft) in drafts.iter().enumerate() {
        let mut own = OwnArea { slots: Vec::new(), end: 0 };
        for made in draft.prologue.iter().filter_map(Op::made) {
            let (slot, bytes) = own.add(graph, made, sizes);
            placed.push(Placed { value: made, slot, bytes, steps: i..i + 1 });
        }
        own_bytes = own_bytes.max(own.end);
        steps.push(step(graph, weights, draft, &places, &own));
    }
    let logits = graph.logits.and_then(|v| places[v.0].as_ref()).expect("a product makes the logits").slot;
    placed.sort_by_key(|p| (p.value, p.slot.own));
    let Sizes { tokens, outputs } = sizes;
    Plan { steps, outputs_from, tokens, outputs, common, own: own_bytes, parts, logits, placed }
}

/// The values that a thread makes for itself in one step.
struct OwnArea {
    slots: Vec<(ValueId, Slot)>,
    end: usize,
}

impl OwnArea {
    fn add(&mut self, graph: &Graph, value: ValueId, sizes: Sizes) -> (Slot, usize) {
        let (bytes, groups) = size(graph, value, sizes);
        let at = self.end;
        let Value { cols, rows, .. } = graph.values[value.0];
        let slot = Slot { own: true, at, groups: at + groups, cols, rows };
        self.slots.push((value, slot));
        self.end += bytes;
        (slot, bytes)
    }

    fn find(&self, value: ValueId) -> Option<Slot> {
        self.slots.iter().find(|(v, _)| *v == value).map(|(_, slot)| *slot)
    }
}

/// Bytes of a value and, within them, where its groups start.
fn size(graph: &Graph, value: ValueId, sizes: Sizes) -> (usize, usize) {
    let value = &graph.values[value.0];
    let rows = sizes.rows(value.rows);
    match value.kind {
        Kind::Floats => ((rows * value.cols * size_of::<f32>()).next_multiple_of(ALIGN), 0),
        Kind::Codes => {
            let padded = Activations::padded(value.cols);
            let codes = (rows * padded).next_multiple_of(ALIGN);
            let groups = rows * (padded / GROUP) * size_of::<ActGroup>();
            (codes + groups.next_multiple_of(ALIGN), codes)
        }
    }
}

/// Gives every value that outlives a prologue a place; two values whose lifetimes meet never share a byte.
fn place(graph: &Graph, drafts: &[Draft], outputs_from: usize, sizes: Sizes) -> (Vec<Option<Placed>>, usize) {
    let count = graph.values.len();
    let (mut first, mut last) = (vec![usize::MAX; count], vec![0; count]);
    let mut common = vec![false; count];
    for (i, draft) in drafts.iter().enumerate() {
        let own: Vec<_> = draft.prologue.iter().filter_map(Op::made).collect();
        for value in draft.ops().flat_map(Op::values) {
            common[value.0] |= !own.contains(&value);
            first[value.0] = first[value.0].min(i);
            last[value.0] = last[value.0].max(i);
        }
    }
    let mut places: Vec<Option<Placed>> = vec![None; count];
    let mut order: Vec<_> = (0..count).filter(|&v| common[v]).collect();
    for &v in &order {
        // Output steps may run several times over what the others have left.
        if first[v] < outputs_from && last[v] >= outputs_from {
            last[v] = drafts.len() - 1;
        }
    }
    // Large values first: the small ones fill the gaps.
    order.sort_by_key(|&v| (std::cmp::Reverse(size(graph, ValueId(v), sizes).0), v));
    let mut end = 0;
    for v in order {
        let (bytes, groups) = size(graph, ValueId(v), sizes);
        let steps = first[v]..last[v] + 1;
        let mut taken: Vec<_> = places
            .iter()
            .flatten()
            .filter(|p| p.steps.start < steps.end && steps.start < p.steps.end)
            .map(|p| p.slot.at..p.slot.at + p.bytes)
            .collect();
        taken.sort_by_key(|range| range.start);
        let mut at = 0;
        for range in taken {
            if at + bytes <= range.start {
                break;
            }
            at = at.max(range.end);
        }
        let Value { cols, rows, .. } = graph.values[v];
        let slot = Slot { own: false, at, groups: at + groups, cols, rows };
        places[v] = Some(Placed { value: ValueId(v), slot, bytes, steps });
        end = end.max(at + bytes);
    }
    (places, end)
}

/// Puts places where a draft has values.
fn step(graph: &Graph, weights: &Weights, draft: &Draft, places: &[Option<Placed>], own: &OwnArea) -> Step {
    let common = |value: ValueId| places[value.0].as_ref().map(|p| p.slot);
    let slot = |value: ValueId| own.find(value).or(common(value)).expect("every value has a place");
    let resolve = |ops: &[Op<ValueId>]| ops.iter().map(|op| op.map(slot)).collect();
    let publish = own.slots.iter().filter_map(|&(value, from)| {
        common(value).map(|to| Publish { from, to, kind: graph.values[value.0].kind })
    });
    let mut align = 1;
    let body = match &draft.group {
        Group::Rows(ops) => Body::Rows(resolve(ops)),
        Group::Product { parts, epilogue, lockstep } => {
            if quantises(epilogue, graph) {
                align = GROUP.div_ceil(PANEL);
            }
            let parts: Vec<_> = parts.iter().filter_map(|op| part(graph, weights, op, slot)).collect();
            let epilogue: Vec<Op<Slot>> = resolve(epilogue);
            product(parts, epilogue, *lockstep)
        }
        Group::Attend { attend, quantise } => Body::Attend(attention(attend, quantise.as_ref(), slot)),
        Group::Merge { attend, quantise } => Body::Merge(attention(attend, quantise.as_ref(), slot)),
    };
    let merges = matches!(draft.group, Group::Merge { .. });
    let names: Vec<_> =
        draft.ops().map(|op| if merges && op.made().is_some() { "merge" } else { op.name() }).collect();
    Step {
        rows: draft.rows,
        prologue: resolve(&draft.prologue),
        publish: publish.collect(),
        body,
        align,
        name: names.join("+"),
        reads: distinct(draft.ops().flat_map(|op| op.read().into_iter().flatten())),
        writes: distinct(draft.ops().flat_map(|op| [op.made(), op.changed()].into_iter().flatten())),
    }
}

fn distinct(values: impl Iterator<Item = ValueId>) -> Vec<ValueId> {
    let mut values: Vec<_> = values.collect();
    values.sort();
    values.dedup();
    values
}

fn part(graph: &Graph, weights: &Weights, op: &Op<ValueId>, slot: impl Fn(ValueId) -> Slot) -> Option<Part> {
    let Op::MatMul { x, weight, out } = *op else { return None };
    Some(Part {
        x: slot(x),
        codes: graph.values[x.0].kind == Kind::Codes,
        weight,
        out: slot(out),
        rows: graph.values[out.0].rows,
        panels: weights.matrix(weight).panels(),
        epilogue: Vec::new(),
    })
}

/// Gives each operation of the epilogue to the part that it belongs to, or to all of them together.
fn product(mut parts: Vec<Part>, epilogue: Vec<Op<Slot>>, lockstep: bool) -> Body {
    if lockstep {
        let panels = parts[0].panels;
        return Body::Lockstep { parts, panels, epilogue };
    }
    for op in epilogue {
        let x = op.changed().or(op.read()[0]);
        if let Some(part) = parts.iter_mut().find(|part| Some(part.out) == x) {
            part.epilogue.push(op);
        }
    }
    Body::Product(parts)
}

fn attention(attend: &Op<ValueId>, quantise: Option<&Op<ValueId>>, slot: impl Fn(ValueId) -> Slot) -> Attend {
    let Op::Attend { q, layer, out } = attend.map(&slot) else {
        unreachable!("a group that attends holds that operation")
    };
    Attend { q, layer, out, codes: quantise.and_then(Op::made).map(&slot) }
}
