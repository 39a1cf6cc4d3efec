//! Two runs of `bench` beside each other.

use std::path::Path;

use serde::Deserialize;

use super::record::{Record, median};
use crate::failure::Failure;
use crate::table::{Align, Table};

/// What is needed of a test of an earlier run; the program may have been another one with the same fields.
#[derive(Deserialize)]
pub(super) struct Earlier {
    model_type: String,
    model_size: u64,
    n_threads: usize,
    n_prompt: usize,
    n_gen: usize,
    #[serde(default)]
    n_depth: usize,
    isa: Option<String>,
    n_batch: Option<usize>,
    n_ubatch: Option<usize>,
    type_k: Option<String>,
    type_v: Option<String>,
    repack: Option<bool>,
    samples_ts: Vec<f64>,
}

/// Reads the JSON or JSONL of an earlier run.
pub(super) fn read(path: &Path) -> Result<Vec<Earlier>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::run(format!("{}: cannot read: {e}", path.display())))?;
    let lines = || text.lines().filter(|l| !l.trim().is_empty()).map(serde_json::from_str).collect();
    let parsed = if text.trim_start().starts_with('[') { serde_json::from_str(&text) } else { lines() };
    parsed.map_err(|e| {
        Failure::run(format!(
            "{}: not the JSON of a bench: {e}; expected: what 'bench -o json' prints",
            path.display()
        ))
    })
}

/// Medians, spreads and ratios of the tests that both runs have.
pub(super) fn table(before: &[Earlier], now: &[Record]) -> Table {
    let mut table = Table::new([
        ("model", Align::Left),
        ("threads", Align::Right),
        ("isa", Align::Left),
        ("test", Align::Right),
        ("before", Align::Right),
        ("now", Align::Right),
        ("ratio", Align::Right),
    ]);
    for record in now {
        let same = |e: &&Earlier| {
            (e.n_prompt, e.n_gen, e.n_depth, e.n_threads)
                == (record.n_prompt, record.n_gen, record.n_depth, record.n_threads)
                && (e.model_type == record.model_type || e.model_size == record.model_size)
                && e.isa.as_deref().is_none_or(|isa| isa == record.isa)
                && e.n_batch.is_none_or(|n| n == record.n_batch)
                && e.n_ubatch.is_none_or(|n| n == record.n_ubatch)
                && e.type_k.as_deref().is_none_or(|ty| ty == record.type_k)
                && e.type_v.as_deref().is_none_or(|ty| ty == record.type_v)
                && e.repack.is_none_or(|repack| repack == record.repack)
        };
        let (then, ratio) = match before.iter().find(same) {
            Some(earlier) => {
                let ratio = median(&record.samples_ts) / median(&earlier.samples_ts);
                (shown(&earlier.samples_ts), format!("{ratio:.2}x"))
            }
            None => ("-".into(), "-".into()),
        };
        table.row([
            record.model_type.clone(),
            record.n_threads.to_string(),
            record.isa.to_owned(),
            record.test(),
            then,
            shown(&record.samples_ts),
            ratio,
        ]);
    }
    table
}

/// The median, and how far the middle half spreads.
fn shown(samples: &[f64]) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return "-".into() };
    let (low, high) = (sorted[last / 4], sorted[last - last / 4]);
    format!("{:.2} ({:.2} to {:.2})", median(samples), low, high)
}
