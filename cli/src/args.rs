//! The command line: what all commands share, and the groups of flags that several of them take.
//!
//! Names, short forms and defaults are llama.cpp's wherever a flag means the same thing. Flags that mean nothing
//! here are accepted where commands are copied with them, and say so.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use quantsmith::{CacheTypes, CellType};
use quantsmith_kernels::{Supported, cpu};

use crate::commands;
use crate::failure::Failure;
use crate::terminal::colours_are_welcome;

/// The whole command line.
#[derive(Parser)]
#[command(
    name = "quantsmith",
    version,
    about = "Runs GGUF models on any CPU",
    long_about = "Runs GGUF models on any CPU.\n\nThe result goes to standard output; everything else (warnings, \
                  progress, speed) goes to standard error.\nExit codes: 0 done, 1 a file or the run failed, \
                  2 the request makes no sense.",
    propagate_version = true,
    disable_help_subcommand = true,
    args_override_self = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What all commands take.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "General")]
pub(crate) struct Global {
    /// Instruction set to use instead of the best: see 'quantsmith cpu'; where several are compared, a list or 'all'
    #[arg(long, global = true, value_name = "TIER", env = "QUANTSMITH_ISA", hide_env_values = true)]
    pub(crate) isa: Option<String>,
    /// Number of threads; -1 is one for each core that this process may use
    #[arg(short, long, global = true, value_name = "N", default_value = "-1", value_parser = threads,
          allow_negative_numbers = true, hide_default_value = true)]
    threads: Threads,
    /// Give the result as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more: which kernel each tensor got, and why
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but the result, warnings and errors
    #[arg(short, long, global = true, alias = "log-disable", conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

impl Global {
    /// The number of threads that was asked for, if any.
    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads.0.first().copied()
    }

    /// The numbers of threads that were asked for, for commands that compare them.
    pub(crate) fn thread_list(&self) -> &[usize] {
        &self.threads.0
    }

    /// The tiers that were asked for, for commands that compare them: names with commas between, or `all`.
    pub(crate) fn tiers(&self) -> Result<Vec<Supported>, Failure> {
        match self.isa() {
            Some(all) if all.eq_ignore_ascii_case("all") => Ok(cpu::supported()),
            Some(names) => {
                names.split(',').map(|name| cpu::choose(Some(name.trim())).map_err(Failure::usage)).collect()
            }
            None => Ok(vec![cpu::choose(None).map_err(Failure::usage)?]),
        }
    }

    /// The tier that was asked for, if any. An empty environment variable asks for none.
    pub(crate) fn isa(&self) -> Option<&str> {
        self.isa.as_deref().map(str::trim).filter(|name| !name.is_empty())
    }
}

/// Numbers of threads, or none for the default. Only commands that compare take more than one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Threads(Vec<usize>);

/// The largest number of threads that is taken seriously.
const MAX_THREADS: i64 = 1024;

fn threads(text: &str) -> Result<Threads, String> {
    let accepted = || format!("accepted: 1 to {MAX_THREADS}, or -1 for the default");
    let number = |text: &str| match text.trim().parse::<i64>() {
        Ok(n @ 1..=MAX_THREADS) => usize::try_from(n).map_err(|_| accepted()),
        Ok(_) | Err(_) => Err(accepted()),
    };
    match text.trim() {
        "-1" | "0" => Ok(Threads::default()),
        list => list.split(',').map(number).collect::<Result<_, _>>().map(Threads),
    }
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Complete a prompt, or answer it in chat mode
    Run(Box<commands::run::Run>),
    /// Converse with a model at the terminal
    Chat(Box<commands::chat::Chat>),
    /// Show the CPU's features, the instruction sets available and chosen, and the threads
    Cpu(commands::cpu::CpuArgs),
    /// List the quantisation formats and the instruction sets that each has kernels for
    Formats(commands::formats::FormatsArgs),
    /// Show what is in a model file
    Inspect(Box<commands::inspect::Inspect>),
    /// Turn a model file of any container into GGUF
    Convert(commands::convert::Convert),
    /// Write a model in other formats: Q4_K_M and kin, or any format of 'quantsmith formats'
    Quantize(Box<commands::quantize::Quantize>),
    /// Change, split, merge, hash, compare and verify model files
    Gguf(commands::gguf::Gguf),
    /// Show the planned graph: nodes, memory, and the kernel of each tensor
    Plan(commands::plan::Plan),
    /// Measure how well a model predicts a text, and how far it is from another model
    Perplexity(Box<commands::perplexity::Perplexity>),
    /// Turn text into token ids, and back
    Tokenize(commands::tokenize::Tokenize),
    /// Log-probabilities of the next token at each position of a prompt
    Logits(commands::logits::Logits),
    /// SHA-256 of the logits of a prompt: the same on every CPU, for any number of threads
    Fingerprint(commands::fingerprint::Fingerprint),
    /// Measure the speed of prompt and generation
    Bench(Box<commands::bench::Bench>),
    /// Interleave a model's weights ahead of time, so that it starts at once
    Pack(commands::pack::Pack),
    /// Check each kernel against the scalar one and time it, beside this machine's limits
    Kernels(commands::kernels::Kernels),
    /// Print a completion script for a shell
    Completions(commands::completions::Completions),
    /// Print the manual page
    Man(commands::man::Man),
}

impl Command {
    /// Whether the command compares tiers, so that `--isa` may name several.
    pub(crate) fn compares_tiers(&self) -> bool {
        matches!(self, Command::Kernels(_) | Command::Bench(_))
    }

    /// Whether the command compares numbers of threads, so that `-t` may name several.
    pub(crate) fn compares_threads(&self) -> bool {
        matches!(self, Command::Bench(_))
    }
}

/// The model and how it is loaded and evaluated.
#[derive(Args, Debug)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Model file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Size of the context in tokens; 0 is the model's own
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) ctx_size: u32,
    /// Largest number of prompt tokens in one call; no more than these are evaluated at once
    #[arg(short, long, value_name = "N", default_value = "2048")]
    batch_size: NonZeroU32,
    /// Largest number of prompt tokens evaluated at once (-ub)
    #[arg(long, value_name = "N", default_value = "512")]
    ubatch_size: NonZeroU32,
    /// Type of the keys in the cache: f32, f16, q8_0 or q4_0 (-ctk)
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cell_type)]
    cache_type_k: CellType,
    /// Type of the values in the cache (-ctv)
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cell_type)]
    cache_type_v: CellType,
    /// Use the weights as they lie in the file, without packing them for speed (-nr)
    #[arg(long, visible_alias = "no-pack")]
    pub(crate) no_repack: bool,
    #[command(flatten)]
    pub(crate) compat: Compat,
}

impl ModelArgs {
    /// The types of the cache.
    pub(crate) fn cache_types(&self) -> CacheTypes {
        CacheTypes { keys: self.cache_type_k, values: self.cache_type_v }
    }

    /// How many prompt tokens are evaluated at once: a larger physical than logical batch cannot be filled.
    pub(crate) fn ubatch(&self) -> usize {
        self.ubatch_size.min(self.batch_size).get().try_into().unwrap_or(usize::MAX)
    }
}

/// Reads the name of a type of the cache.
pub(crate) fn cell_type(text: &str) -> Result<CellType, String> {
    let found = CellType::ALL.into_iter().find(|ty| text.eq_ignore_ascii_case(ty.name()));
    found.ok_or_else(|| format!("accepted: {}", CellType::ALL.map(CellType::name).join(", ")))
}

/// Flags of llama.cpp that copied commands carry and that change nothing here.
#[derive(Args, Debug, Default)]
pub(crate) struct Compat {
    #[arg(long, hide = true, aliases = ["gpu-layers"], value_name = "N", allow_negative_numbers = true)]
    n_gpu_layers: Option<String>,
    #[arg(long, hide = true, value_name = "N", allow_negative_numbers = true)]
    threads_batch: Option<i32>,
    #[arg(long, hide = true, value_name = "MODE", num_args = 0..=1, default_missing_value = "on", value_delimiter = ',')]
    flash_attn: Vec<Switch>,
    #[arg(long, hide = true)]
    mlock: bool,
    #[arg(long, hide = true)]
    no_mmap: bool,
    #[arg(long, hide = true, value_name = "TYPE")]
    numa: Option<String>,
    #[arg(long, hide = true)]
    no_warmup: bool,
    #[arg(long, hide = true)]
    no_perf: bool,
    #[arg(long, hide = true)]
    no_context_shift: bool,
    /// Colours at the terminal: on, off, or auto, which is off where NO_COLOR is set (-co)
    #[arg(long, value_name = "MODE", num_args = 0..=1, default_missing_value = "on", hide_possible_values = true)]
    color: Option<Switch>,
    #[arg(long, hide = true, aliases = ["log-verbosity"], value_name = "N", allow_negative_numbers = true)]
    verbosity: Option<i32>,
}

/// A switch of llama.cpp that can be left to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    #[value(alias = "1")]
    On,
    #[value(alias = "0")]
    Off,
    #[value(alias = "-1")]
    Auto,
}

impl Compat {
    /// Whether nothing is to be run before the clock starts.
    pub(crate) fn no_warmup(&self) -> bool {
        self.no_warmup
    }

    /// Whether to use colours.
    pub(crate) fn colour(&self) -> bool {
        match self.color {
            Some(Switch::On) => true,
            Some(Switch::Off) => false,
            Some(Switch::Auto) | None => colours_are_welcome(),
        }
    }

    /// What to say about flags that were given in vain.
    pub(crate) fn warnings(&self, threads: Option<usize>) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |given: bool, text: &str| {
            if given {
                warnings.push(text.to_owned());
            }
        };
        warn(self.n_gpu_layers.is_some(), "-ngl is ignored: this program uses the CPU only");
        let asked_twice = self.threads_batch.filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
        warn(
            asked_twice.is_some() && asked_twice != threads,
            "-tb is ignored: prompt and generation use the same threads (-t)",
        );
        warn(self.flash_attn.contains(&Switch::Off), "-fa off is ignored: there is one kind of attention");
        warn(self.mlock, "--mlock is ignored: the file is mapped and not locked");
        warn(self.no_mmap, "--no-mmap is ignored: the file is always mapped");
        warn(self.numa.is_some(), "--numa is ignored: threads and memory are left to the system");
        warnings
    }
}

/// Where the prompt comes from.
#[derive(Args, Debug)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// Prompt; \n, \t, \r, \\, \', \" and \xHH are escapes
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["file", "binary_file"])]
    pub(crate) prompt: Option<String>,
    /// File with the prompt, of which one newline at the end is dropped; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "binary_file")]
    pub(crate) file: Option<PathBuf>,
    /// File with the prompt, taken as it is (-bf); - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) binary_file: Option<PathBuf>,
    /// Read escapes in the prompt of a file, too
    #[arg(short, long, conflicts_with = "no_escape")]
    pub(crate) escape: bool,
    /// Take backslashes in the prompt as they are
    #[arg(long)]
    pub(crate) no_escape: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_has_no_contradictions() {
        Cli::command().debug_assert();
    }

    fn run(line: &str) -> Result<Box<commands::run::Run>, clap::Error> {
        let cli = Cli::try_parse_from(
            std::iter::once("quantsmith run -m x").chain([line]).flat_map(|l| l.split_whitespace()),
        )?;
        match cli.command {
            Command::Run(run) => Ok(run),
            _ => unreachable!("the command is run"),
        }
    }

    #[test]
    fn defaults_are_those_of_llama_cpp() {
        let run = run("").expect("valid");
        let s = run.exchange.sampling.params(4096, true).expect("valid");
        assert_eq!((s.temperature, s.top_k, s.top_p, s.min_p), (0.8, 40, 0.95, 0.05));
        assert_eq!(
            (s.repeat_penalty, s.repeat_last_n, s.presence_penalty, s.frequency_penalty),
            (1.0, 64, 0.0, 0.0)
        );
        assert_eq!((run.exchange.sampling.seed(), run.exchange.sampling.ignore_eos), (None, false));
        assert_eq!((run.model.ctx_size, run.model.ubatch(), run.exchange.predict), (0, 512, -1));
    }

    #[test]
    fn negative_numbers_are_values_where_they_mean_something() {
        let cli =
            Cli::try_parse_from("q run -m x -n -2 -t -1 -s -1 --top-k -1 --repeat-last-n -1".split(' '))
                .expect("valid");
        assert_eq!(cli.global.threads(), None);
        assert!(run("-s -2").is_err());
        assert!(run("-t -2").is_err());
        assert!(run("-t 1025").is_err());
        assert!(run("-ub 0").is_err());
    }

    #[test]
    fn numbers_without_meaning_are_refused() {
        for bad in ["--temp nan", "--top-p -1", "--min-p 1.1", "--repeat-penalty 0", "--presence-penalty inf"]
        {
            let error = run(bad).expect("a number").exchange.sampling.params(10, true).expect_err(bad);
            assert_eq!(error.exit_code(), 2, "{bad}");
            let flag = bad.split(' ').next().expect("a flag");
            assert!(error.line().is_some_and(|l| l.contains(flag)), "{error:?}");
        }
    }

    #[test]
    fn of_a_flag_that_is_given_twice_the_last_counts() {
        let run = run("-n 5 --temp 0.5 -q -r a -n 7 --temp 0 -q -r b").expect("valid");
        assert_eq!(run.exchange.predict, 7);
        assert_eq!(run.exchange.sampling.params(10, true).expect("valid").temperature, 0.0);
    }

    #[test]
    fn the_physical_batch_is_at_most_the_logical_one() {
        assert_eq!(run("-b 64").expect("valid").model.ubatch(), 64);
        assert_eq!(run("-b 64 --ubatch-size 5").expect("valid").model.ubatch(), 5);
    }

    #[test]
    fn a_prompt_may_start_with_a_hyphen() {
        assert_eq!(run("-p -5").expect("valid").exchange.prompt.prompt.as_deref(), Some("-5"));
        assert_eq!(run("-p --temp").expect("valid").exchange.prompt.prompt.as_deref(), Some("--temp"));
        assert!(run("-p x -f y").is_err());
    }

    #[test]
    fn flags_without_effect_are_accepted_and_say_so() {
        let run = run("--n-gpu-layers 99 --threads-batch 3 --flash-attn --no-warmup --cache-type-k F16")
            .expect("valid");
        let warnings = run.model.compat.warnings(Some(3));
        assert_eq!(warnings, ["-ngl is ignored: this program uses the CPU only"]);
        assert!(run.model.compat.warnings(None)[1].starts_with("-tb is ignored"));
    }
}
