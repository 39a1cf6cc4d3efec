//! `pack`: interleaves a model's weights ahead of time.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::App;
use crate::failure::Failure;
use crate::output::note;
use crate::table::bytes;

/// The flags of `pack`.
#[derive(Args)]
pub(crate) struct Pack {
    /// Model file
    input: PathBuf,
    /// File to write: only this program reads it, on any CPU
    output: PathBuf,
}

impl Pack {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let bar = if app.global.quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        };
        let mut tell = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let report = quantsmith::pack(&self.input, &self.output, &app.registry, app.tier, &mut tell)?;
        bar.finish_and_clear();
        if !app.global.quiet {
            note(&format!(
                "{}: {} matrices interleaved, {} from {}",
                self.output.display(),
                report.matrices,
                bytes(report.bytes[1]),
                bytes(report.bytes[0])
            ));
        }
        Ok(())
    }
}
