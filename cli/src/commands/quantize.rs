//! `quantize`: a model in other formats, with llama.cpp's arguments.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use quantsmith::files::{ModelFile, OpenOptions};
use quantsmith::quantise::{
    Importance, Plan, QuantiseOptions, QuantiseReport, Reason, Target, Workers, is_target, plan, quantise,
};
use serde_json::json;

use super::gguf::settings;
use crate::App;
use crate::failure::Failure;
use crate::interrupt::discard_on_interrupt;
use crate::output::{Output, note, printable, warn};
use crate::table::{Align, Table, bytes, counted, grouped};

/// The flags of `quantize`.
#[derive(Args)]
#[command(override_usage = "quantsmith quantize [OPTIONS] <IN> [OUT] <TYPE> [THREADS]")]
pub(crate) struct Quantize {
    /// Model file of any container; GGUF file to write, 'ggml-model-TYPE.gguf' beside the input when it is not given; what
    /// to quantise to: a mix such as Q4_K_M, any format of 'quantsmith formats', or COPY; number of threads
    #[arg(value_name = "IN [OUT] TYPE [THREADS]", required = true, num_args = 2..=4)]
    words: Vec<String>,
    /// Show what each tensor would become, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Give all matrices the same format
    #[arg(long)]
    pure: bool,
    /// Give tensors whose names match a regular expression a format; the first that matches decides
    #[arg(long, value_name = "REGEX=TYPE", value_parser = pattern)]
    tensor_type: Vec<(String, String)>,
    /// Read such patterns from a file, separated by blanks or lines
    #[arg(long, value_name = "FILE")]
    tensor_type_file: Option<PathBuf>,
    /// Format of the output matrix
    #[arg(long, value_name = "TYPE")]
    output_tensor_type: Option<String>,
    /// Format of the token embedding
    #[arg(long, value_name = "TYPE")]
    token_embedding_type: Option<String>,
    /// Leave the output matrix as it is
    #[arg(long)]
    leave_output_tensor: bool,
    /// Quantise again what is quantised already, which loses more
    #[arg(long)]
    allow_requantize: bool,
    /// Measured importance of columns, as GGUF or in the older binary form
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Use importance for tensors whose names hold this, and no others
    #[arg(long, value_name = "NAME", requires = "imatrix", conflicts_with = "exclude_weights")]
    include_weights: Vec<String>,
    /// Use no importance for tensors whose names hold this
    #[arg(long, value_name = "NAME", requires = "imatrix")]
    exclude_weights: Vec<String>,
    /// Leave out these layers
    #[arg(long, value_name = "L0,L1", value_delimiter = ',')]
    prune_layers: Vec<usize>,
    /// Write as many files as the model is in, with the same tensors in each
    #[arg(long)]
    keep_split: bool,
    /// Set metadata; types as 'gguf set' has them, and int, float, bool, str
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    override_kv: Vec<String>,
    /// Memory does not grow with the model, so there is nothing to bound
    #[arg(long, hide = true, value_name = "MIB")]
    max_buffer_size: Option<u64>,
}

/// The words of the command line by what they are.
#[derive(Debug, PartialEq)]
struct Words {
    input: PathBuf,
    output: Option<PathBuf>,
    target: String,
    threads: Option<usize>,
}

impl Words {
    /// Tells the words apart: the output may be missing, and a number of threads may follow.
    fn new(words: &[String], is_target: impl Fn(&str) -> bool) -> Result<Self, Failure> {
        let number = |word: &String| word.parse().ok().filter(|n| *n > 0);
        let (input, output, target, threads) = match words {
            [input, target] => (input, None, target, None),
            [input, target, threads] if is_target(target) && number(threads).is_some() => {
                (input, None, target, number(threads))
            }
            [input, output, target] => (input, Some(output), target, None),
            [input, output, target, threads] => match number(threads) {
                Some(n) => (input, Some(output), target, Some(n)),
                None => {
                    return Err(Failure::usage(format!(
                        "threads: found '{threads}', accepted: a number from 1"
                    )));
                }
            },
            _ => return Err(Failure::usage("accepted: IN [OUT] TYPE [THREADS]")),
        };
        let (input, output, target) = (input.into(), output.map(PathBuf::from), target.clone());
        Ok(Self { input, output, target, threads })
    }

    /// The output, or llama.cpp's name for it beside the input.
    fn output(&self) -> PathBuf {
        let named = || self.input.with_file_name(format!("ggml-model-{}.gguf", self.target.to_uppercase()));
        self.output.clone().unwrap_or_else(named)
    }
}

impl Quantize {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let words = Words::new(&self.words, |word| is_target(word, &app.registry))?;
        if self.max_buffer_size.is_some() {
            warn("--max-buffer-size is ignored: memory does not grow with the model");
        }
        let options = self.options(&words, app)?;
        let open = OpenOptions { separate_experts: true, ..OpenOptions::default() };
        let model = ModelFile::open_with(&words.input, &app.registry, &open)?;
        model.warnings().iter().for_each(|warning| warn(warning));
        if self.dry_run {
            let plan = plan(&model, &options, &app.registry)?;
            return show_plan(&plan, app);
        }
        discard_on_interrupt();
        let bar = progress_bar(app.global.quiet);
        let workers = Workers {
            registry: &app.registry,
            tier: app.tier,
            threads: words.threads.or(app.global.threads()),
            progress: &mut |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.done);
            },
        };
        let report = quantise(&model, &words.output(), &options, workers);
        bar.finish_and_clear();
        show_report(&report?, app)
    }

    fn options(&self, words: &Words, app: &App) -> Result<QuantiseOptions, Failure> {
        let target = match words.target.to_uppercase().as_str() {
            "COPY" => Target::Copy,
            _ => Target::Named(words.target.clone()),
        };
        let mut tensor_types = self.tensor_type.clone();
        if let Some(path) = &self.tensor_type_file {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::run(format!("{}: cannot read the file: {e}", path.display())))?;
            for word in text.split_whitespace() {
                let read =
                    pattern(word).map_err(|e| Failure::run(format!("{}: '{word}': {e}", path.display())))?;
                tensor_types.push(read);
            }
        }
        let importance = match &self.imatrix {
            Some(path) => Some(self.importance(path, app)?),
            None => None,
        };
        Ok(QuantiseOptions {
            pure: self.pure,
            tensor_types,
            output_type: self.output_tensor_type.clone(),
            embedding_type: self.token_embedding_type.clone(),
            leave_output: self.leave_output_tensor,
            allow_requantise: self.allow_requantize,
            importance,
            overrides: settings(&words.input, &self.override_kv, app)?,
            prune_layers: self.prune_layers.clone(),
            keep_split: self.keep_split,
            dry_run: self.dry_run,
            ..QuantiseOptions::new(target)
        })
    }

    fn importance(&self, path: &Path, app: &App) -> Result<Importance, Failure> {
        let mut importance = Importance::read(path, &app.registry)?;
        if !self.include_weights.is_empty() {
            importance.filter(&self.include_weights, true);
        }
        if !self.exclude_weights.is_empty() {
            importance.filter(&self.exclude_weights, false);
        }
        Ok(importance)
    }
}

/// Reads `REGEX=TYPE`. An expression may hold the sign, a type does not.
fn pattern(text: &str) -> Result<(String, String), String> {
    let parts = text.rsplit_once('=').filter(|(names, ty)| !names.is_empty() && !ty.is_empty());
    parts
        .map(|(names, ty)| (names.to_owned(), ty.to_owned()))
        .ok_or_else(|| "accepted: REGEX=TYPE".to_owned())
}

/// A bar on standard error, where a person sees it.
fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("quantising {wide_bar} {bytes} of {total_bytes}, {eta} left");
    let bar = ProgressBar::new(0).with_finish(ProgressFinish::AndClear);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show_plan(plan: &Plan, app: &mut App) -> Result<(), Failure> {
    if app.global.json {
        return app.out.json(&json!({ "plan": plan, "bits_per_weight": plan.bits_per_weight() }));
    }
    plan.warnings.iter().for_each(|warning| warn(warning));
    table(plan, None, &mut app.out)?;
    totals(plan, &mut app.out)
}

fn show_report(report: &QuantiseReport, app: &mut App) -> Result<(), Failure> {
    let plan = &report.plan;
    if app.global.json {
        return app.out.json(&json!({ "report": report, "bits_per_weight": plan.bits_per_weight() }));
    }
    plan.warnings.iter().for_each(|warning| warn(warning));
    if !app.global.quiet {
        table(plan, Some(&report.errors), &mut app.out)?;
    }
    totals(plan, &mut app.out)?;
    let files: Vec<String> = report.files.iter().map(|f| printable(&f.display().to_string())).collect();
    let size =
        format!("{} ({} bytes), read back and found as written", bytes(report.bytes), grouped(report.bytes));
    if !app.global.quiet {
        note(&format!("{}: {size}", files.join(", ")));
    }
    Ok(())
}

/// What each tensor becomes.
fn table(plan: &Plan, errors: Option<&[f64]>, out: &mut Output) -> Result<(), Failure> {
    let head = [("tensor", Align::Left), ("dims", Align::Left), ("from", Align::Left), ("to", Align::Left)];
    let tail = [("bytes", Align::Right), ("error", Align::Right), ("note", Align::Left)];
    let mut table = Table::new(head.into_iter().chain(tail));
    for (at, t) in plan.tensors.iter().enumerate() {
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        let error = errors.map(|e| e[at]).filter(|_| t.from != t.to);
        let note = match &t.reason {
            Reason::Fallback { wanted } => format!("{wanted} does not fit rows of {}", dims[0]),
            Reason::Option => "as asked".to_owned(),
            Reason::Kept | Reason::Same | Reason::Mix => String::new(),
        };
        table.row([
            t.name.clone(),
            dims.join(" x "),
            t.from.to_owned(),
            t.to.to_owned(),
            grouped(t.bytes_after),
            error.map_or(String::new(), |e| format!("{:.3} %", 100.0 * e)),
            note,
        ]);
    }
    out.text(&table.plain())?;
    out.line("")
}

fn totals(plan: &Plan, out: &mut Output) -> Result<(), Failure> {
    let fallbacks = plan.tensors.iter().filter(|t| matches!(t.reason, Reason::Fallback { .. })).count();
    let (before, after) = (plan.bytes_before(), plan.bytes_after());
    out.line(&format!("data before:     {} ({} bytes)", bytes(before), grouped(before)))?;
    out.line(&format!("data after:      {} ({} bytes)", bytes(after), grouped(after)))?;
    out.line(&format!("bits per weight: {:.2}", plan.bits_per_weight()))?;
    out.line(&format!("fallbacks:       {}", counted(fallbacks, "tensor")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Words, Failure> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        Words::new(&words, |word| word == "Q4_0" || word == "2")
    }

    #[test]
    fn the_output_and_the_threads_may_be_missing() {
        let expected = |output: Option<&str>, threads| Words {
            input: "a".into(),
            output: output.map(PathBuf::from),
            target: "Q4_0".into(),
            threads,
        };
        assert_eq!(words("a Q4_0").expect("valid"), expected(None, None));
        assert_eq!(words("a Q4_0 8").expect("valid"), expected(None, Some(8)));
        assert_eq!(words("a b Q4_0").expect("valid"), expected(Some("b"), None));
        assert_eq!(words("a b Q4_0 8").expect("valid"), expected(Some("b"), Some(8)));
        // A file may have the name of a type.
        assert_eq!(words("a Q4_0 Q4_0").expect("valid"), expected(Some("Q4_0"), None));
        assert!(words("a b Q4_0 0").is_err() && words("a b Q4_0 x").is_err());
        assert_eq!(words("d/a Q4_0").expect("valid").output(), Path::new("d/ggml-model-Q4_0.gguf"));
    }

    #[test]
    fn a_pattern_may_hold_the_sign_that_ends_it() {
        assert_eq!(pattern("a=b=Q4_0"), Ok(("a=b".into(), "Q4_0".into())));
        assert!(pattern("Q4_0").is_err() && pattern("=x").is_err() && pattern("x=").is_err());
    }
}
