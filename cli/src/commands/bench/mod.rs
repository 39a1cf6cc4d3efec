//! `bench`: speed of prompt and generation, with llama-bench's flags, tests and output formats.

mod compare;
mod grid;
mod record;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, ValueEnum};
use quantsmith::measure::Machine;
use quantsmith::threads::Topology;
use quantsmith::{CacheTypes, CellType, LoadOptions, Model, Session, Want};
use quantsmith_kernels::Supported;

use crate::App;
use crate::args::cell_type;
use crate::failure::Failure;
use crate::output::{note, write_file};
use crate::plot::Plot;
use crate::table::{Align, Table, bytes, count};
use grid::{Numbers, Pair};
use record::{Record, mean_and_deviation, median};

/// The flags of `bench`. Where a flag takes a list, every combination is measured.
#[derive(Args)]
pub(crate) struct Bench {
    /// Model file; may be given again
    #[arg(short, long, value_name = "FILE", required = true)]
    model: Vec<PathBuf>,
    /// Prompt lengths, as a list or range: 512  1,8  0-512+128  1-64*2; 0 measures none
    #[arg(short = 'p', long, value_name = "N", default_value = "512")]
    n_prompt: Vec<Numbers>,
    /// Numbers of generated tokens
    #[arg(short = 'n', long, value_name = "N", default_value = "128")]
    n_gen: Vec<Numbers>,
    /// A prompt and the tokens generated after it, timed together (-pg); may be given again
    #[arg(long, value_name = "PP,TG")]
    prompt_gen: Vec<Pair>,
    /// Tokens that are in the context before the clock starts
    #[arg(short = 'd', long, value_name = "N", default_value = "0")]
    n_depth: Vec<Numbers>,
    /// Largest number of prompt tokens in one call
    #[arg(short, long, value_name = "N", default_value = "2048")]
    batch_size: Vec<Numbers>,
    /// Largest number of prompt tokens evaluated at once (-ub)
    #[arg(long, value_name = "N", default_value = "512")]
    ubatch_size: Vec<Numbers>,
    /// Types of the keys in the cache: f32, f16, q8_0 or q4_0 (-ctk)
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cell_type, value_delimiter = ',')]
    cache_type_k: Vec<CellType>,
    /// Types of the values in the cache (-ctv)
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cell_type, value_delimiter = ',')]
    cache_type_v: Vec<CellType>,
    /// How often each test is repeated
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Seconds to wait between tests
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    delay: u64,
    /// Say what is being measured
    #[arg(long)]
    progress: bool,
    /// Use the weights as they lie in the file (-nr)
    #[arg(long, visible_alias = "no-pack")]
    no_repack: bool,
    #[arg(long, hide = true, value_name = "0|1", default_value = "1", value_delimiter = ',', conflicts_with = "no_repack",
          value_parser = clap::value_parser!(u8).range(..=1))]
    repack: Vec<u8>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Md)]
    output: Form,
    /// Print in this format to standard error, too (-oe)
    #[arg(long, value_enum, value_name = "FORMAT")]
    output_err: Option<Form>,
    /// Compare with the JSON that an earlier run printed
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Also draw the speeds into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    compat: crate::args::Compat,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Csv,
    Json,
    Jsonl,
    Md,
    Sql,
}

/// A test: tokens of the prompt, generated tokens, tokens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    prompt: usize,
    generated: usize,
    depth: usize,
}

impl Test {
    /// Whether its speed is bounded by that of reading the weights.
    fn reads_weights(self) -> bool {
        self.prompt == 0 && self.depth == 0
    }
}

/// What a model is loaded for.
#[derive(Clone, Copy, Debug)]
struct Setting {
    batch: usize,
    ubatch: usize,
    threads: usize,
    tier: Supported,
    cache: CacheTypes,
    pack: bool,
}

impl Bench {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        for warning in self.compat.warnings(None) {
            crate::output::warn(&warning);
        }
        let before = self.compare.as_deref().map(compare::read).transpose()?;
        let tests = self.tests()?;
        let mut records = Vec::new();
        // How fast memory is read by so many threads on a tier.
        let mut speeds = HashMap::new();
        for path in &self.model {
            for setting in self.settings(app)? {
                forget_peak();
                let model = self.load(app, path, setting, &tests)?;
                let mut session = Session::new(&model)?;
                let loaded = peak_rss();
                for test in &tests {
                    self.tell(&records, path, *test);
                    std::thread::sleep(Duration::from_secs(self.delay));
                    let key = (setting.threads, setting.tier.tier().name());
                    // Other programs take their share of the memory, now more and now less.
                    if test.reads_weights() || !speeds.contains_key(&key) {
                        speeds.insert(key, Machine::measure(setting.threads, setting.tier).read());
                    }
                    forget_peak();
                    let times = self.measure(&mut session, *test, setting.batch)?;
                    let peak_rss = peak_rss().max(loaded);
                    let record = describe(&model, path, setting, *test, &times, speeds[&key]);
                    records.push(Record { peak_rss, ..record });
                }
            }
        }
        let form = if app.global.json { Form::Json } else { self.output };
        if let Some(form) = self.output_err {
            note(write(&records, form)?.trim_end());
        }
        app.out.text(&write(&records, form)?)?;
        if let Some(path) = &self.svg {
            write_file(path, &plot(&records).svg())?;
        }
        if let Some(before) = before {
            note("");
            note(compare::table(&before, &records).plain().trim_end());
        }
        Ok(())
    }

    /// The tests, those of prompts first.
    fn tests(&self) -> Result<Vec<Test>, Failure> {
        let mut tests = Vec::new();
        for depth in all(&self.n_depth) {
            let prompts = all(&self.n_prompt).map(|prompt| Test { prompt, generated: 0, depth });
            let gens = all(&self.n_gen).map(|generated| Test { prompt: 0, generated, depth });
            let pairs =
                self.prompt_gen.iter().map(|&Pair(prompt, generated)| Test { prompt, generated, depth });
            tests.extend(prompts.chain(gens).chain(pairs).filter(|test| test.prompt + test.generated > 0));
        }
        if tests.is_empty() {
            return Err(Failure::usage("nothing is left to measure: -p and -n are 0"));
        }
        Ok(tests)
    }

    /// Every combination of what a model is loaded for.
    fn settings(&self, app: &App) -> Result<Vec<Setting>, Failure> {
        let threads = match app.global.thread_list() {
            [] => &[Topology::detect().choose().threads][..],
            list => list,
        };
        if all(&self.batch_size).chain(all(&self.ubatch_size)).any(|n| n == 0) {
            return Err(Failure::usage("-b and -ub must be at least 1"));
        }
        let mut settings = vec![Setting {
            batch: 0,
            ubatch: 0,
            threads: 0,
            tier: app.tier,
            cache: CacheTypes::default(),
            pack: !self.no_repack,
        }];
        vary(&mut settings, app.global.tiers()?, |s, tier| s.tier = tier);
        vary(&mut settings, all(&self.batch_size), |s, batch| s.batch = batch);
        vary(&mut settings, all(&self.ubatch_size), |s, ubatch| s.ubatch = ubatch);
        vary(&mut settings, self.cache_type_k.iter().copied(), |s, keys| s.cache.keys = keys);
        vary(&mut settings, self.cache_type_v.iter().copied(), |s, values| s.cache.values = values);
        if !self.no_repack {
            vary(&mut settings, self.repack.iter().copied(), |s, repack| s.pack = repack == 1);
        }
        vary(&mut settings, threads.iter().copied(), |s, threads| s.threads = threads);
        Ok(settings)
    }

    fn load(
        &self,
        app: &App,
        path: &std::path::Path,
        setting: Setting,
        tests: &[Test],
    ) -> Result<Arc<Model>, Failure> {
        let context = tests.iter().map(|t| t.prompt + t.generated + t.depth).max().unwrap_or(1);
        Ok(Model::load(
            path,
            LoadOptions {
                registry: app.registry.clone(),
                isa: Some(setting.tier.tier().name().to_owned()),
                threads: Some(setting.threads),
                context: Some(u32::try_from(context).map_err(|_| Failure::usage("a context beyond 2^32"))?),
                ubatch: setting.ubatch.min(setting.batch),
                cache: setting.cache,
                pack: setting.pack,
                ..LoadOptions::default()
            },
        )?)
    }

    fn tell(&self, records: &[Record], path: &std::path::Path, test: Test) {
        if self.progress || std::io::stderr().is_terminal() {
            note(&format!("test {}: {} {test:?}", records.len() + 1, path.display()));
        }
    }

    /// The times of the repetitions.
    fn measure(&self, session: &mut Session, test: Test, batch: usize) -> Result<Vec<Duration>, Failure> {
        let vocab = session.model().vocab_size();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut token = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % vocab as u64) as u32
        };
        if !self.compat.no_warmup() {
            session.reset();
            let tokens: Vec<u32> = (0..test.prompt.min(batch).max(1)).map(|_| token()).collect();
            session.eval(&tokens, Want::Last, &mut |_, _| {})?;
        }
        let mut times = Vec::new();
        for _ in 0..self.repetitions {
            let before: Vec<u32> = (0..test.depth).map(|_| token()).collect();
            let prompt: Vec<u32> = (0..test.prompt).map(|_| token()).collect();
            session.reset();
            session.eval(&before, Want::None, &mut |_, _| {})?;
            let clock = Instant::now();
            for batch in prompt.chunks(batch) {
                session.eval(batch, Want::Last, &mut |_, _| {})?;
            }
            for _ in 0..test.generated {
                session.eval(&[token()], Want::Last, &mut |_, _| {})?;
            }
            times.push(clock.elapsed());
        }
        Ok(times)
    }
}

/// The numbers of a flag that may be given several times.
fn all(numbers: &[Numbers]) -> impl Iterator<Item = usize> {
    numbers.iter().flat_map(|numbers| numbers.0.iter().copied())
}

/// Replaces each setting by as many as there are values.
fn vary<T: Copy>(
    settings: &mut Vec<Setting>,
    values: impl IntoIterator<Item = T>,
    set: impl Fn(&mut Setting, T),
) {
    let values: Vec<T> = values.into_iter().collect();
    let one = |setting: Setting, value: T| {
        let mut setting = setting;
        set(&mut setting, value);
        setting
    };
    *settings = settings.iter().flat_map(|s| values.iter().map(|v| one(*s, *v))).collect();
}

fn describe(
    model: &Model,
    path: &std::path::Path,
    setting: Setting,
    test: Test,
    times: &[Duration],
    read: f64,
) -> Record {
    let tokens = (test.prompt + test.generated) as f64;
    let samples_ns: Vec<u64> =
        times.iter().map(|t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)).collect();
    let samples_ts: Vec<f64> = times.iter().map(|t| tokens / t.as_secs_f64()).collect();
    let as_f64: Vec<f64> = samples_ns.iter().map(|&ns| ns as f64).collect();
    let ((avg_ns, stddev_ns), (avg_ts, stddev_ts)) =
        (mean_and_deviation(&as_f64), mean_and_deviation(&samples_ts));
    let plan = model.plan();
    let median_ts = median(&samples_ts);
    let roof = plan.bytes_per_token().filter(|_| test.reads_weights());
    let mut kernels: Vec<&str> = plan.tensors.iter().map(|t| t.kernel.as_str()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    Record {
        build_commit: env!("CARGO_PKG_VERSION"),
        build_number: 0,
        cpu_info: cpu_info(),
        gpu_info: "",
        backends: "CPU",
        model_filename: path.display().to_string(),
        model_type: format!("{} {} {}", model.architecture(), count(model.parameters()), main_format(&plan)),
        model_size: model.file().tensors().iter().map(|t| t.bytes).sum(),
        model_n_params: model.parameters(),
        n_batch: setting.batch,
        n_ubatch: setting.ubatch,
        n_threads: setting.threads,
        cpu_mask: "0x0",
        cpu_strict: false,
        poll: 0,
        type_k: setting.cache.keys.name(),
        type_v: setting.cache.values.name(),
        n_gpu_layers: 0,
        n_cpu_moe: 0,
        split_mode: "none",
        main_gpu: 0,
        no_kv_offload: false,
        flash_attn: true,
        devices: "none",
        tensor_split: "0.00",
        tensor_buft_overrides: "none",
        load_mode: "mmap",
        lazy_mode: "none",
        embeddings: false,
        no_op_offload: false,
        no_host: false,
        repack: setting.pack,
        fit_target: 0,
        fit_min_ctx: 0,
        n_prompt: test.prompt,
        n_gen: test.generated,
        n_depth: test.depth,
        test_time: now(),
        avg_ns: avg_ns as u64,
        stddev_ns: stddev_ns as u64,
        avg_ts,
        stddev_ts,
        isa: setting.tier.tier().name(),
        kernel_set: kernels.join(" "),
        mem_bw_gbs: read / 1e9,
        peak_rss: 0,
        median_ts,
        roof: roof.map(|bytes| median_ts * bytes as f64 / read),
        samples_ns,
        samples_ts,
    }
}

/// The format that most bytes of the model are in.
fn main_format(plan: &quantsmith::PlanReport) -> String {
    let mut sums = std::collections::BTreeMap::<&str, u64>::new();
    for tensor in &plan.tensors {
        *sums.entry(&tensor.format).or_default() += tensor.bytes;
    }
    sums.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name.to_owned()).unwrap_or_default()
}

fn cpu_info() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| quantsmith_kernels::cpu::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// The most memory that this process has had, in bytes, where the system says.
fn peak_rss() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Lets the most memory be counted from now on, where the system allows that.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The time as `2026-01-31T23:59:59Z`.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    // Years are counted from March, so that the leap day is the last; 719,468 days lie between year 0 and 1970.
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

fn write(records: &[Record], form: Form) -> Result<String, Failure> {
    let json = |e: serde_json::Error| Failure::run(format!("cannot write the result as JSON: {e}"));
    let all = |line: fn(&Record) -> String| records.iter().map(line).collect::<String>();
    let head = |line: fn(&Record) -> String| records.first().map(line).unwrap_or_default();
    Ok(match form {
        Form::Md => markdown(records).markdown(),
        Form::Csv => head(Record::csv_head) + &all(Record::csv),
        Form::Sql => head(Record::sql_head) + &all(Record::sql),
        Form::Json => serde_json::to_string_pretty(records).map_err(json)? + "\n",
        Form::Jsonl => {
            let mut text = String::new();
            for record in records {
                text.push_str(&serde_json::to_string(record).map_err(json)?);
                text.push('\n');
            }
            text
        }
    })
}

/// A column that is shown where it is not as usual.
type Extra = (&'static str, &'static str, fn(&Record) -> String);

/// Columns of the table by which tests may differ, and their usual values.
const EXTRAS: [Extra; 5] = [
    ("n_batch", "2048", |r| r.n_batch.to_string()),
    ("n_ubatch", "512", |r| r.n_ubatch.to_string()),
    ("type_k", "f16", |r| r.type_k.to_owned()),
    ("type_v", "f16", |r| r.type_v.to_owned()),
    ("repack", "1", |r| u8::from(r.repack).to_string()),
];

/// The table that people paste: llama-bench's columns, those whose values are not the usual ones, and ours.
fn markdown(records: &[Record]) -> Table {
    let extras: Vec<Extra> =
        EXTRAS.into_iter().filter(|(_, usual, of)| records.iter().any(|r| of(r) != *usual)).collect();
    let head = [
        ("model", Align::Left),
        ("size", Align::Right),
        ("params", Align::Right),
        ("backend", Align::Left),
        ("threads", Align::Right),
    ];
    let tail =
        [("isa", Align::Left), ("test", Align::Right), ("t/s", Align::Right), ("of roof", Align::Right)];
    let between = extras.iter().map(|(name, ..)| (*name, Align::Right));
    let mut table = Table::new(head.into_iter().chain(between).chain(tail));
    for r in records {
        let head = [
            r.model_type.clone(),
            bytes(r.model_size),
            count(r.model_n_params),
            r.backends.to_owned(),
            r.n_threads.to_string(),
        ];
        let tail = [
            r.isa.to_owned(),
            r.test(),
            format!("{:.2} ± {:.2}", r.avg_ts, r.stddev_ts),
            r.roof.map_or_else(|| "-".into(), |roof| format!("{:.0} %", 100.0 * roof)),
        ];
        table.row(head.into_iter().chain(extras.iter().map(|(_, _, of)| of(r))).chain(tail));
    }
    table
}

fn plot(records: &[Record]) -> Plot {
    let mut series: Vec<String> = Vec::new();
    for record in records {
        if !series.iter().any(|name| name == record.isa) {
            series.push(record.isa.to_owned());
        }
    }
    let mut groups: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for record in records {
        let name =
            format!("{} {}", record.model_type.split(' ').next_back().unwrap_or_default(), record.test());
        let at = series.iter().position(|s| s == record.isa).unwrap_or(0);
        let place = groups.iter().position(|(n, values)| *n == name && values[at].is_none());
        let place = place.unwrap_or_else(|| {
            groups.push((name, vec![None; series.len()]));
            groups.len() - 1
        });
        groups[place].1[at] = Some(record.median_ts);
    }
    Plot { title: "tokens per second, median".into(), series, groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_written_as_people_write_it() {
        let now = now();
        assert!(now.len() == 20 && now.starts_with("20") && now.ends_with('Z'), "{now}");
    }

    #[test]
    fn statistics() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 2.0f64.sqrt()));
        assert_eq!(mean_and_deviation(&[5.0]), (5.0, 0.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(median(&[]).is_nan());
    }
}
