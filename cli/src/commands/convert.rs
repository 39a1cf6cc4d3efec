//! `convert`: a model file of any container as GGUF, and what that changed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quantsmith::files::OpenOptions;
use quantsmith::files::convert::{ConvertOptions, ConvertReport, Exact, convert};

use crate::App;
use crate::failure::Failure;
use crate::interrupt::discard_on_interrupt;
use crate::output::{Output, warn};
use crate::table::{Align, Table, bytes, counted, grouped};

/// The flags of `convert`.
#[derive(Args)]
pub(crate) struct Convert {
    /// Model file of any container
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// GGUF file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Change no weight: what no block of GGUF holds becomes F32, which every program reads and which takes more space;
    /// with =blocks it stays as it is, for this program alone
    #[arg(long, value_name = "f32|blocks", num_args = 0..=1, require_equals = true, default_missing_value = "f32")]
    exact: Option<KeepAs>,
    /// Context length, for containers that do not tell
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context_length: Option<u32>,
    /// Epsilon of RMS norm, for containers that do not tell
    #[arg(long, value_name = "X", value_parser = positive)]
    eps: Option<f32>,
    /// Base of RoPE, for containers that do not tell
    #[arg(long, value_name = "X", value_parser = positive)]
    rope_base: Option<f32>,
    /// Q4 tensors have all scales of a row before all codes: GGML files of early March 2023
    #[arg(long)]
    struct_of_arrays: bool,
}

/// How weights are kept that no block of GGUF holds.
#[derive(Clone, Copy, ValueEnum)]
enum KeepAs {
    F32,
    Blocks,
}

impl From<KeepAs> for Exact {
    fn from(keep: KeepAs) -> Self {
        match keep {
            KeepAs::F32 => Self::F32,
            KeepAs::Blocks => Self::Blocks,
        }
    }
}

impl Convert {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let open = OpenOptions {
            struct_of_arrays: self.struct_of_arrays,
            context_length: self.context_length,
            epsilon: self.eps,
            rope_base: self.rope_base,
            ..OpenOptions::default()
        };
        discard_on_interrupt();
        let options = ConvertOptions { exact: self.exact.map(Exact::from), open };
        let report = convert(&self.input, &self.output, &options, &app.registry)?;
        if app.global.json {
            return app.out.json(&report);
        }
        for warning in &report.warnings {
            warn(warning);
        }
        show(&report, app.global.quiet, &mut app.out)
    }
}

fn show(report: &ConvertReport, quiet: bool, out: &mut Output) -> Result<(), Failure> {
    if !quiet {
        let head = [("tensor", Align::Left), ("from", Align::Left), ("to", Align::Left)];
        let mut table = Table::new(head.into_iter().chain([("largest error", Align::Right)]));
        for t in &report.tensors {
            let error =
                if t.largest_error == 0.0 { "-".to_owned() } else { format!("{:e}", t.largest_error) };
            table.row([t.name.clone(), t.from.to_owned(), t.to.to_owned(), error]);
        }
        out.text(&table.plain())?;
        out.line("")?;
    }
    out.line(&format!("container:     {}", report.container))?;
    out.line(&format!("tensors:       {}", counted(report.tensors.len(), "tensor")))?;
    out.line(&format!("written:       {} ({} bytes)", bytes(report.bytes), grouped(report.bytes)))?;
    let error = report.largest_error();
    let error = if error == 0.0 { "none: no weight changed".to_owned() } else { format!("{error:e}") };
    out.line(&format!("largest error: {error}"))
}

fn positive(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|x: &f32| x.is_finite() && *x > 0.0);
    number.ok_or_else(|| "accepted: a number above 0".to_owned())
}
