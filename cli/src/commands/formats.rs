//! `formats`: every format that is declared, and the tiers that have kernels for it.

use clap::Args;
use quantsmith_kernels::{Format, Registry, Tier};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::App;
use crate::failure::Failure;
use crate::table::{Align, Table};

/// The flags of `formats`.
#[derive(Args)]
pub(crate) struct FormatsArgs {
    /// Print the table as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

#[derive(Serialize)]
struct Report {
    name: &'static str,
    id: Option<u32>,
    block: usize,
    bytes: usize,
    bpw: f64,
    tiers: Map<String, Value>,
}

impl Report {
    fn new(format: &Format) -> Self {
        let tiers =
            format.tiers().into_iter().map(|tier| (tier.name().to_owned(), json!({ "bits": tier.bits() })));
        Self {
            name: format.name,
            id: format.id,
            block: format.elements,
            bytes: format.bytes,
            bpw: format.bits_per_weight(),
            tiers: tiers.collect(),
        }
    }
}

impl FormatsArgs {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        if app.global.json {
            let reports: Vec<Report> = app.registry.iter().map(Report::new).collect();
            return app.out.json(&reports);
        }
        let table = table(&app.registry);
        app.out.text(&if self.markdown { table.markdown() } else { table.plain() })
    }
}

fn table(registry: &Registry) -> Table {
    let facts = [
        ("format", Align::Left),
        ("id", Align::Right),
        ("block", Align::Right),
        ("bytes", Align::Right),
        ("bits per weight", Align::Right),
    ];
    let tiers = Tier::ALL.iter().map(|tier| (tier.name(), Align::Left));
    let mut table = Table::new(facts.into_iter().chain(tiers));
    for format in registry.iter() {
        let has = format.tiers();
        let facts = [
            format.name.to_owned(),
            format.id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            format.elements.to_string(),
            format.bytes.to_string(),
            format!("{:.4}", format.bits_per_weight()).trim_end_matches('0').trim_end_matches('.').to_owned(),
        ];
        let cells = Tier::ALL.iter().map(|tier| if has.contains(tier) { "yes" } else { "-" }.to_owned());
        table.row(facts.into_iter().chain(cells));
    }
    table
}
