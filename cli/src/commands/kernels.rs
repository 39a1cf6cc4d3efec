//! `kernels`: checks each kernel against the scalar tier and times it, beside what this machine can do at most.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quantsmith::measure::{Budget, Differs, KernelBench, KernelSpeed, LayerBench, Machine};
use quantsmith::threads::Topology;
use quantsmith_kernels::{Format, Registry, Supported};
use serde::Serialize;

use crate::App;
use crate::failure::Failure;
use crate::output::write_file;
use crate::plot::Plot;
use crate::table::{Align, Table};

/// The flags of `kernels`.
#[derive(Args)]
pub(crate) struct Kernels {
    /// Formats to time, for instance q4_k,q8_0; all if not given
    #[arg(short, long, value_delimiter = ',', value_name = "NAMES")]
    format: Vec<String>,
    /// Rows and columns of the matrix
    #[arg(long, default_value = "2048x4096", value_name = "RxC", value_parser = shape)]
    shape: (usize, usize),
    /// Numbers of tokens that are multiplied at once
    #[arg(short, long, value_delimiter = ',', default_values_t = [1, 512], value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: Vec<u32>,
    /// Time whole layers as models run them: activations are quantised, too, and the caches keep what fits in them
    #[arg(long)]
    layer: bool,
    /// Also draw the speeds into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn shape(text: &str) -> Result<(usize, usize), String> {
    let accepted = "accepted: ROWSxCOLUMNS, each from 1 to 65536, for instance 4096x4096";
    let (rows, cols) = text.split_once(['x', 'X']).ok_or(accepted)?;
    let number = |text: &str| text.parse().ok().filter(|n| (1..=65536).contains(n)).ok_or(accepted);
    Ok((number(rows)?, number(cols)?))
}

/// One measured kernel.
#[derive(Serialize)]
struct Row {
    format: &'static str,
    isa: &'static str,
    rows: usize,
    cols: usize,
    batch: usize,
    /// Seconds of one panel of sixteen rows on one thread, or of a whole layer.
    seconds: f64,
    spread: f64,
    runs: usize,
    gb_per_s: f64,
    gops: f64,
    /// Of the memory's speed for one token, of the tier's multiplications for more.
    share: f64,
}

#[derive(Serialize)]
struct Limit {
    isa: &'static str,
    gops: f64,
}

#[derive(Serialize)]
struct Report {
    threads: usize,
    /// Whether whole layers were timed.
    layer: bool,
    read_gb_per_s: f64,
    multiply: Vec<Limit>,
    kernels: Vec<Row>,
}

/// What is timed.
enum Bench<'m> {
    Kernel(KernelBench<'m>),
    Layer(LayerBench),
}

impl Bench<'_> {
    /// Checks and times one tier.
    fn time(&mut self, tier: Supported, batch: usize) -> Result<KernelSpeed, Failure> {
        let differs = |e: Differs| Failure::run(e.to_string());
        match self {
            Bench::Kernel(bench) => {
                bench.check(tier, batch).map_err(differs)?;
                Ok(bench.time(tier, batch, Budget::default()))
            }
            Bench::Layer(bench) => {
                bench.check(tier, batch)?.map_err(differs)?;
                Ok(bench.time(tier, batch, Budget::default())?)
            }
        }
    }
}

impl Kernels {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let formats = self.formats(&app.registry)?;
        let tiers = app.global.tiers()?;
        let threads = app.global.threads().unwrap_or_else(|| Topology::detect().choose().threads);
        let mut machine = Machine::measure(threads, app.tier);
        let multiply: Vec<f64> = tiers.iter().map(|tier| machine.multiply(*tier)).collect();
        let read = machine.read();
        let bar = self.bar(app, formats.len() * tiers.len() * self.batch.len());
        let mut kernels = Vec::new();
        for format in &formats {
            let mut bench = self.bench(format, app.tier, &mut machine);
            for (&tier, multiply) in tiers.iter().zip(&multiply) {
                bar.set_message(format!("{} {}", format.name, tier.tier().name()));
                for &batch in &self.batch {
                    let batch = batch as usize;
                    let speed = bench.time(tier, batch)?;
                    let share = if batch == 1 { speed.read / read } else { speed.operations / multiply };
                    kernels.push(Row {
                        format: format.name,
                        isa: tier.tier().name(),
                        rows: self.shape.0,
                        cols: self.shape.1,
                        batch,
                        seconds: speed.times.median(),
                        spread: speed.times.spread(),
                        runs: speed.times.runs(),
                        gb_per_s: speed.read / 1e9,
                        gops: speed.operations / 1e9,
                        share,
                    });
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let limit = |(tier, gops): (&Supported, &f64)| Limit { isa: tier.tier().name(), gops: gops / 1e9 };
        let multiply = tiers.iter().zip(&multiply).map(limit).collect();
        let report = Report { threads, layer: self.layer, read_gb_per_s: read / 1e9, multiply, kernels };
        if let Some(path) = &self.svg {
            write_file(path, &self.plot(&report, &tiers).svg())?;
        }
        if app.global.json { app.out.json(&report) } else { app.out.text(&text(&report)) }
    }

    fn bench<'m>(&self, format: &'static Format, tier: Supported, machine: &'m mut Machine) -> Bench<'m> {
        let (rows, cols) = self.shape;
        if self.layer {
            Bench::Layer(LayerBench::new(format, rows, cols, tier, machine.threads()))
        } else {
            Bench::Kernel(KernelBench::new(format, rows, cols, tier, machine))
        }
    }

    fn formats(&self, registry: &Registry) -> Result<Vec<&'static Format>, Failure> {
        let fits = |f: &&'static Format| f.row_bytes(self.shape.1).is_some();
        if self.format.is_empty() {
            let formats: Vec<_> = registry.iter().filter(fits).collect();
            return if formats.is_empty() { Err(self.misfit("any format")) } else { Ok(formats) };
        }
        let find = |name: &String| {
            let format = registry.by_name(name.trim()).ok_or_else(|| {
                let names: Vec<_> = registry.iter().map(|f| f.name).collect();
                Failure::usage(format!("no format is called '{name}', accepted: {}", names.join(", ")))
            })?;
            Some(format).filter(fits).ok_or_else(|| self.misfit(format.name))
        };
        self.format.iter().map(find).collect()
    }

    fn misfit(&self, what: &str) -> Failure {
        Failure::usage(format!("{} columns are not whole blocks of {what}", self.shape.1))
    }

    fn bar(&self, app: &App, steps: usize) -> ProgressBar {
        if app.global.quiet || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg:24} {eta}");
        ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }

    /// Formats as groups, tiers as series; of the largest batch.
    fn plot(&self, report: &Report, tiers: &[Supported]) -> Plot {
        let batch = self.batch.iter().copied().max().unwrap_or(1) as usize;
        let mut groups: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for row in report.kernels.iter().filter(|row| row.batch == batch) {
            if groups.last().is_none_or(|(name, _)| name != row.format) {
                groups.push((row.format.to_owned(), vec![None; tiers.len()]));
            }
            let at = tiers.iter().position(|tier| tier.tier().name() == row.isa);
            if let (Some((_, values)), Some(at)) = (groups.last_mut(), at) {
                values[at] = Some(if batch == 1 { row.gb_per_s } else { row.gops });
            }
        }
        let what = if self.layer { "layers" } else { "kernels" };
        let unit = if batch == 1 { "GB/s of weights" } else { "GOPS" };
        let tokens = if batch == 1 { "token" } else { "tokens" };
        Plot {
            title: format!(
                "{unit}, {what} of {}x{} with {batch} {tokens}, {} threads",
                self.shape.0, self.shape.1, report.threads
            ),
            series: tiers.iter().map(|tier| tier.tier().name().to_owned()).collect(),
            groups,
        }
    }
}

fn text(report: &Report) -> String {
    let threads = if report.threads == 1 { "1 thread".into() } else { format!("{} threads", report.threads) };
    let mut out = format!("this machine with {threads}: reads {:.1} GB/s", report.read_gb_per_s);
    for limit in &report.multiply {
        out.push_str(&format!(", {} multiplies at {:.0} GOPS", limit.isa, limit.gops));
    }
    let what = if report.layer { "a whole layer" } else { "sixteen rows on one thread" };
    out.push_str(&format!(
        "\nµs: {what}; share: of reading for a batch of 1, of multiplying for larger ones; spread: half the middle half\n\n"
    ));
    let mut table = Table::new([
        ("format", Align::Left),
        ("isa", Align::Left),
        ("batch", Align::Right),
        ("µs", Align::Right),
        ("GB/s", Align::Right),
        ("GOPS", Align::Right),
        ("share", Align::Right),
        ("spread", Align::Right),
    ]);
    for row in &report.kernels {
        table.row([
            row.format.to_owned(),
            row.isa.to_owned(),
            row.batch.to_string(),
            format!("{:.2}", 1e6 * row.seconds),
            format!("{:.2}", row.gb_per_s),
            format!("{:.1}", row.gops),
            format!("{:.0} %", 100.0 * row.share),
            format!("{:.1} %", 100.0 * row.spread),
        ]);
    }
    out + &table.plain()
}
