//! `cpu`: what this CPU has, what that means for kernels and threads, and why.

use clap::Args;
use quantsmith::threads::{ThreadChoice, Topology};
use quantsmith_kernels::{Cpu, Tier, cpu};
use serde::Serialize;

use crate::App;
use crate::failure::Failure;
use crate::table::{Align, Table};

/// The flags of `cpu`.
#[derive(Args)]
pub(crate) struct CpuArgs {}

#[derive(Serialize)]
struct Report<'a> {
    features: &'a [&'static str],
    available: Vec<&'static str>,
    chosen: &'static str,
    threads: usize,
}

impl CpuArgs {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let cpu = Cpu::detect();
        let chosen = app.tier.tier();
        let threads = match app.global.threads() {
            Some(threads) => ThreadChoice { threads, reason: "as asked for".into() },
            None => Topology::detect().choose(),
        };
        let available = cpu.tiers();
        if app.global.json {
            return app.out.json(&Report {
                features: cpu.features().names(),
                available: available.iter().map(|tier| tier.name()).collect(),
                chosen: chosen.name(),
                threads: threads.threads,
            });
        }
        let mut table = Table::new([("tier", Align::Left), ("", Align::Left), ("", Align::Left)]);
        for &tier in Tier::ALL.iter().filter(|tier| tier.arch().is_none_or(|arch| arch == cpu::ARCH)) {
            let missing: Vec<&str> =
                tier.features().iter().copied().filter(|f| !cpu.features().has(f)).collect();
            let state = match (tier == chosen, missing.is_empty()) {
                (true, _) => "chosen".to_owned(),
                (false, true) => "available".to_owned(),
                (false, false) => format!("lacks {}", missing.join(", ")),
            };
            table.row([tier.name().to_owned(), state, tier.about().to_owned()]);
        }
        app.out.line(&format!("architecture: {}", cpu::ARCH))?;
        let features = cpu.features().names();
        app.out.line(&format!(
            "features:     {}",
            if features.is_empty() { "none that a tier needs".into() } else { features.join(" ") }
        ))?;
        let best = available.last().copied() == Some(chosen);
        let why = if best { "the best that this CPU has" } else { "as asked for" };
        app.out.line(&format!("chosen:       {}, {why}", chosen.name()))?;
        app.out.line(&format!("threads:      {}, {}", threads.threads, threads.reason))?;
        app.out.line("")?;
        app.out.text(&table.plain())
    }
}
