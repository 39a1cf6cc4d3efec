//! `perplexity`: how well a model predicts a text, and how far it is from another model.
//!
//! Flags, figures and the base file are llama.cpp's, so that results can be compared.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quantsmith::Session;
use quantsmith::perplexity::base::{Header, Reader, Writer};
use quantsmith::perplexity::{
    Cut, Divergence, DivergenceReport, Figure, Mean, Probabilities, Quantiles, predict,
};
use quantsmith::text::{EncodeOptions, Tokenizer};
use serde::Serialize;

use crate::App;
use crate::args::{ModelArgs, PromptArgs};
use crate::failure::Failure;
use crate::output::{note, warn};
use crate::table::{counted, grouped};

/// The flags of `perplexity`.
#[derive(Args)]
pub(crate) struct Perplexity {
    /// The model; the context (-c) is the size of a chunk here, and 512 unless given
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Largest number of chunks to evaluate; -1 is all
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..), help_heading = "Measure")]
    chunks: i32,
    /// Tokens from one chunk to the next, of which each then predicts as many; 0 predicts the half of each chunk
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "Measure",
        conflicts_with = "kl_divergence_base"
    )]
    ppl_stride: u32,
    /// 1 gives a line of figures for each chunk
    #[arg(long, value_name = "0|1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1),
          help_heading = "Measure")]
    ppl_output_type: u8,
    /// Compare with the model whose probabilities are in the base file
    #[arg(long, requires = "kl_divergence_base", conflicts_with_all = ["prompt", "binary_file"],
          help_heading = "Measure")]
    kl_divergence: bool,
    /// Base file: read with --kl-divergence, and otherwise written
    #[arg(long, visible_alias = "save-all-logits", value_name = "FILE", help_heading = "Measure")]
    kl_divergence_base: Option<PathBuf>,
}

/// The chunk of llama.cpp's perplexity tool.
const SIZE: u32 = 512;

#[derive(Serialize)]
struct Report {
    perplexity: f64,
    error: f64,
    tokens: usize,
    /// The perplexity after each chunk.
    chunks: Vec<f64>,
}

impl Perplexity {
    pub(crate) fn execute(mut self, app: &mut App) -> Result<(), Failure> {
        let size = if self.model.ctx_size == 0 { SIZE } else { self.model.ctx_size };
        if size < 4 {
            return Err(Failure::usage(format!("-c: found a chunk of {size} tokens; accepted: 4 or more")));
        }
        match self.kl_divergence_base.clone() {
            Some(path) if self.kl_divergence => self.diverge(app, &path),
            base => {
                let text = self.prompt.require()?;
                self.model.ctx_size = size.saturating_add(self.ppl_stride / 2);
                self.measure(app, &text, base.as_deref())
            }
        }
    }

    fn limit(&self, available: usize) -> usize {
        usize::try_from(self.chunks).map_or(available, |asked| asked.min(available))
    }

    /// Measures the perplexity of a text, and writes a base file if one is named.
    fn measure(&self, app: &mut App, text: &str, base: Option<&Path>) -> Result<(), Failure> {
        let model = app.load(&self.model)?;
        let options = EncodeOptions { add_special: true, parse_special: false };
        let mut tokens = model.tokenizer().encode(text, options)?;
        let cut = Cut {
            size: model.context(),
            stride: usize::try_from(self.ppl_stride).unwrap_or(usize::MAX),
            bos: bos(model.tokenizer()),
        };
        if tokens.len() < 2 * cut.size || cut.first() == 0 || cut.count(tokens.len()) == 0 {
            let (size, found) = (counted(cut.size, "token"), counted(tokens.len(), "token"));
            return Err(Failure::run(format!(
                "the text has {found}, and chunks of {size} need twice as many at least: give a longer text with -f, \
                 a smaller chunk with -c, or a smaller --ppl-stride"
            )));
        }
        let count = self.limit(cut.count(tokens.len()));
        let mut writer = None;
        if let Some(path) = base {
            tokens.truncate(count * cut.size);
            let header = Header { size: cut.size, vocab: model.vocab_size(), tokens: tokens.clone() };
            writer = Some((Writer::create(path, &header).map_err(|e| at(path, &e))?, path));
        }
        let mut session = Session::new(&model)?;
        let mut show = Show::new(app, count, &cut);
        let (mut costs, mut chunks) = (Mean::default(), Vec::with_capacity(count));
        for chunk in 0..count {
            let mut failure: Option<Failure> = None;
            predict(&mut session, &cut.piece(&tokens, chunk), &mut |logits, next| {
                let mut take = || {
                    let probabilities = Probabilities::new(logits).ok_or_else(no_numbers)?;
                    costs.push(probabilities.cost(next));
                    match &mut writer {
                        Some((writer, path)) => writer.row(&probabilities).map_err(|e| at(path, &e)),
                        None => Ok(()),
                    }
                };
                if failure.is_none() {
                    failure = take().err();
                }
            })?;
            failure.map_or(Ok(()), Err)?;
            let (ppl, _) = costs.perplexity();
            chunks.push(ppl);
            let done = (chunk + 1) * cut.size;
            let line = match self.ppl_output_type {
                0 => format!("[{}]{ppl:.4},", chunk + 1),
                _ => format!("{done:>8}  {ppl:.4}  {:.4}  {:.4}\n", costs.mean(), costs.error()),
            };
            show.chunk(app, chunk, &line)?;
        }
        if let Some((writer, path)) = writer {
            writer.finish().map_err(|e| at(path, &e))?;
        }
        let ((perplexity, error), tokens) = (costs.perplexity(), costs.count());
        if app.global.json {
            return app.out.json(&Report { perplexity, error, tokens, chunks });
        }
        show.end(app)?;
        app.out.line(&format!("Final estimate: PPL = {perplexity:.4} +/- {error:.5}"))
    }

    /// Compares with the probabilities of a base file.
    fn diverge(&mut self, app: &mut App, path: &Path) -> Result<(), Failure> {
        let mut reader = Reader::open(path).map_err(|e| at(path, &e))?;
        let Header { size, vocab, tokens } = reader.header().clone();
        let size_in_file = u32::try_from(size).unwrap_or(u32::MAX);
        if ![0, size_in_file].contains(&self.model.ctx_size) {
            let asked = self.model.ctx_size;
            warn(&format!("-c {asked} is ignored: the base file has chunks of {size} tokens"));
        }
        self.model.ctx_size = size_in_file;
        let model = app.load(&self.model)?;
        if model.vocab_size() != vocab {
            let own = model.vocab_size();
            let what = format!("found a vocabulary of {vocab}, expected the {own} tokens of the model");
            return Err(Failure::run(format!("{}: {what}", path.display())));
        }
        let cut = Cut { size, stride: 0, bos: bos(model.tokenizer()) };
        let count = self.limit(cut.count(tokens.len()));
        let mut session = Session::new(&model)?;
        let mut show = Show::new(app, count, &cut);
        let mut divergence = Divergence::default();
        if !app.global.json {
            app.out.line(HEAD)?;
        }
        for chunk in 0..count {
            let mut failure: Option<Failure> = None;
            predict(&mut session, &cut.piece(&tokens, chunk), &mut |logits, next| {
                let mut take = || {
                    let probabilities = Probabilities::new(logits).ok_or_else(no_numbers)?;
                    divergence.push(&probabilities, &reader.row().map_err(|e| at(path, &e))?, next);
                    Ok(())
                };
                if failure.is_none() {
                    failure = take().err();
                }
            })?;
            failure.map_or(Ok(()), Err)?;
            if let Some(report) = divergence.report() {
                show.chunk(app, chunk, &row(chunk + 1, &report))?;
            }
        }
        let report =
            divergence.report().ok_or_else(|| Failure::usage("--chunks: found 0; accepted: 1 or more"))?;
        if app.global.json {
            return app.out.json(&report);
        }
        show.end(app)?;
        app.out.text(&statistics(&report))
    }
}

/// The mark that texts begin with, if the model wants one.
fn bos(tokenizer: &Tokenizer) -> Option<u32> {
    tokenizer.bos().filter(|_| tokenizer.adds_bos())
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::run(format!("{}: {error}", path.display()))
}

fn no_numbers() -> Failure {
    Failure::run("the model's logits are no finite numbers")
}

/// What a person sees while it goes on: figures as they come, how far it is, and how long it will take.
struct Show {
    start: Instant,
    count: usize,
    bar: Option<ProgressBar>,
    quiet: bool,
    json: bool,
    /// Where figures and the bar would go to the same terminal, the figures wait until the end.
    held: Option<String>,
}

impl Show {
    fn new(app: &App, count: usize, cut: &Cut) -> Self {
        let quiet = app.global.quiet;
        if !quiet {
            note(&format!(
                "chunks:  {} of {} tokens, of which {} each are predicted",
                grouped(count as u64),
                grouped(cut.size as u64),
                grouped(cut.predicted() as u64)
            ));
        }
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left");
            ProgressBar::new(count as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let held = (bar.is_some() && std::io::stdout().is_terminal()).then(String::new);
        Self { start: Instant::now(), count, bar, quiet, json: app.global.json, held }
    }

    /// Shows the figures of a chunk.
    fn chunk(&mut self, app: &mut App, chunk: usize, figures: &str) -> Result<(), Failure> {
        match &self.bar {
            Some(bar) => bar.set_position(chunk as u64 + 1),
            None if chunk == 0 && !self.quiet => {
                let seconds = self.start.elapsed().as_secs_f64();
                let all = seconds * self.count as f64;
                note(&format!(
                    "time:    {seconds:.2} seconds for a chunk, {:.1} minutes for all",
                    all / 60.0
                ));
            }
            None => {}
        }
        match &mut self.held {
            _ if self.json => Ok(()),
            Some(held) => {
                held.push_str(figures);
                Ok(())
            }
            None => app.out.stream(figures),
        }
    }

    /// Ends the list of figures.
    fn end(&mut self, app: &mut App) -> Result<(), Failure> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        app.out.text(&self.held.take().unwrap_or_default())?;
        app.out.text("\n")
    }
}

const HEAD: &str = "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              Δp RMS            \
                    Same top p";

fn row(chunk: usize, r: &DivergenceReport) -> String {
    let five = |f: Figure| format!("{:>10.5} ± {:>10.5}", f.value, f.error);
    let percent = |f: Figure| format!("{:>6.3} ± {:>6.3} %", 100.0 * f.value, 100.0 * f.error);
    format!(
        "{chunk:>4}  {:>10.4} ± {:>10.4}  {}  {}  {}  {}\n",
        r.ppl.value,
        r.ppl.error,
        five(r.log_ratio),
        five(r.kld),
        percent(r.change_rms),
        percent(r.same_top)
    )
}

/// The figures of all chunks.
fn statistics(r: &DivergenceReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let (head, name) = name.rsplit_once('\n').map_or(("", name), |(head, name)| (head, name));
        let gap = if head.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{head}{gap}{name:<30}: {value}\n"));
    };
    let six = |f: Figure| format!("{:>10.6} ± {:>10.6}", f.value, f.error);
    let percent = |f: Figure| format!("{:>6.3} ± {:.3} %", 100.0 * f.value, 100.0 * f.error);
    line("====== Perplexity statistics ======\nMean PPL(Q)", six(r.ppl));
    line("Mean PPL(base)", six(r.base_ppl));
    line("Cor(ln(PPL(Q)), ln(PPL(base)))", format!("{:>6.2}%", 100.0 * r.correlation));
    line("Mean ln(PPL(Q)/PPL(base))", six(r.log_ratio));
    line("Mean PPL(Q)/PPL(base)", six(r.ratio));
    line("Mean PPL(Q)-PPL(base)", six(r.difference));
    line("\n====== KL divergence statistics ======\nMean    KLD", six(r.kld));
    for (name, value) in ranks(&r.kld_quantiles) {
        line(&format!("{name} KLD"), format!("{value:>10.6}"));
    }
    line("\n====== Token probability statistics ======\nMean    Δp", percent(r.change));
    for (name, value) in ranks(&r.change_quantiles) {
        line(&format!("{name} Δp"), format!("{:>6.3}%", 100.0 * value));
    }
    line("RMS Δp", percent(r.change_rms));
    line("Same top p", percent(r.same_top));
    text
}

fn ranks(q: &Quantiles) -> [(&'static str, f64); 13] {
    [
        ("Maximum", q.maximum),
        ("99.9%  ", q.p99_9),
        ("99.0%  ", q.p99),
        ("95.0%  ", q.p95),
        ("90.0%  ", q.p90),
        ("75.0%  ", q.p75),
        ("Median ", q.median),
        ("25.0%  ", q.p25),
        ("10.0%  ", q.p10),
        (" 5.0%  ", q.p5),
        (" 1.0%  ", q.p1),
        (" 0.1%  ", q.p0_1),
        ("Minimum", q.minimum),
    ]
}
