//! `plan`: what was decided before the first token is evaluated: the steps, the place and lifetime of every value,
//! the kernel of every tensor and why, and the memory in all.

use clap::Args;
use quantsmith::{NodeReport, PassReport, PlanReport, ValueReport};

use crate::App;
use crate::args::ModelArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::{Align, Table, bytes, grouped};

/// The flags of `plan`.
#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    model: ModelArgs,
    /// Show the plan for a batch of prompt tokens, too
    #[arg(long)]
    prompt_batch: bool,
}

impl Plan {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        // The table of kernels is part of the result; once is enough.
        app.global.verbose = 0;
        let model = app.load(&self.model)?;
        let plan = model.plan();
        if app.global.json { app.out.json(&plan) } else { show(&plan, self.prompt_batch, &mut app.out) }
    }
}

fn show(plan: &PlanReport, batch: bool, out: &mut Output) -> Result<(), Failure> {
    let PlanReport { architecture, isa, threads, context, .. } = plan;
    out.line(&format!("architecture {architecture}, {isa}, {threads} threads, context of {context} tokens"))?;
    show_pass("a single token", &plan.decode, out)?;
    if batch {
        show_pass(&format!("a batch of {}", plan.batch.tokens), &plan.batch, out)?;
    }
    out.line(&format!("\ntensors and their kernels: {}", plan.tensors.len()))?;
    out.text(&kernel_table(plan).plain())?;
    if !plan.unused.is_empty() {
        let names: Vec<String> = plan.unused.iter().map(|name| crate::output::printable(name)).collect();
        out.line(&format!("\ntensors of the file that nothing uses: {}", names.join(", ")))?;
    }
    out.line("\nmemory")?;
    let mut table = Table::new([("", Align::Left), ("bytes", Align::Right), ("", Align::Right)]);
    let parts = [
        ("weights in the file's map", plan.weight_bytes),
        ("packed weights", plan.packed_bytes),
        ("norms, biases, tables", plan.other_bytes),
        ("cache of keys and values", plan.kv_bytes),
        ("arena", plan.arena_bytes),
        ("in all", plan.total_bytes),
    ];
    for (name, n) in parts {
        table.row([name.to_owned(), grouped(n), bytes(n)]);
    }
    out.text(&table.plain())
}

fn show_pass(what: &str, pass: &PassReport, out: &mut Output) -> Result<(), Failure> {
    out.line(&format!("\nsteps for {what}: {}", pass.nodes.len()))?;
    let head =
        [("step", Align::Right), ("kind", Align::Left), ("rows", Align::Left), ("operations", Align::Left)];
    let tail = [("tensors", Align::Left), ("reads", Align::Left), ("makes", Align::Left)];
    let mut table = Table::new(head.into_iter().chain(tail));
    for node in &pass.nodes {
        table.row(step(node));
    }
    out.text(&table.plain())?;
    let (common, thread) = (grouped(pass.common_bytes), grouped(pass.thread_bytes));
    out.line(&format!("\nvalues for {what}: {common} bytes in common, {thread} for each thread"))?;
    let head =
        [("value", Align::Right), ("name", Align::Left), ("shape", Align::Right), ("kind", Align::Left)];
    let place =
        [("area", Align::Left), ("offset", Align::Right), ("bytes", Align::Right), ("steps", Align::Right)];
    let mut table = Table::new(head.into_iter().chain(place));
    for value in &pass.values {
        table.row(placed(value));
    }
    out.text(&table.plain())
}

fn step(node: &NodeReport) -> [String; 7] {
    let numbers = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    [
        node.step.to_string(),
        node.kind.to_owned(),
        node.rows.to_owned(),
        node.ops.clone(),
        node.tensors.join(" "),
        numbers(&node.reads),
        numbers(&node.writes),
    ]
}

fn placed(value: &ValueReport) -> [String; 8] {
    let [rows, cols] = value.shape;
    [
        value.value.to_string(),
        value.name.clone(),
        format!("{rows} x {cols}"),
        value.kind.to_owned(),
        value.area.to_owned(),
        value.offset.to_string(),
        value.bytes.to_string(),
        format!("{}-{}", value.first, value.last),
    ]
}

/// Which kernel every tensor got, and why.
pub(crate) fn kernel_table(plan: &PlanReport) -> Table {
    let head =
        [("tensor", Align::Left), ("format", Align::Left), ("dims", Align::Left), ("bytes", Align::Right)];
    let tail = [("packed", Align::Right), ("kernel", Align::Left), ("reason", Align::Left)];
    let mut table = Table::new(head.into_iter().chain(tail));
    for t in &plan.tensors {
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        let packed = if t.packed_bytes == 0 { "-".to_owned() } else { grouped(t.packed_bytes) };
        let row = [t.name.clone(), t.format.clone(), dims.join(" x "), grouped(t.bytes)];
        table.row(row.into_iter().chain([packed, t.kernel.clone(), t.reason.clone()]));
    }
    table
}
