//! Says which tiers a test ran: a tier that did not run is reported, never silently passed.

#[allow(dead_code, reason = "only some tests quantise")]
pub(crate) mod quantised;

use quantsmith_kernels::{Tier, cpu};
use std::fs::OpenOptions;
use std::io::Write;

#[allow(dead_code, reason = "not every test walks the tiers")]
/// Appends a line for each tier of this architecture to the file that `QUANTSMITH_TIER_LOG` names, if it is set.
pub(crate) fn log_tiers(test: &str) {
    let ran: Vec<_> = cpu::supported().into_iter().map(|tier| tier.tier()).collect();
    let Some(path) = std::env::var_os("QUANTSMITH_TIER_LOG") else { return };
    let mut log =
        OpenOptions::new().append(true).create(true).open(path).expect("the tier log can be written");
    for tier in Tier::ALL.iter().filter(|t| t.arch().is_none_or(|arch| arch == cpu::ARCH)) {
        let what = if ran.contains(tier) { "ran" } else { "skipped" };
        writeln!(log, "{}\t{test}\t{what}", tier.name()).expect("the tier log can be written");
    }
}
