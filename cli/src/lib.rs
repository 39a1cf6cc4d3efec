//! The command line of Quantsmith as a library, so that a program with formats of its own is three lines.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     quantsmith_cli::main(quantsmith_cli::Registry::builtin())
//! }
//! ```
//!
//! [`main`] reads the arguments, runs one command and turns its end into an exit code: 0 done, 1 a file or the
//! run failed, 2 the request makes no sense. Each command is one file under `commands/`: it parses, calls the
//! runtime, prints. Standard output carries the result and nothing else.

mod args;
mod argv;
mod commands;
mod constraint;
mod conversation;
mod escape;
mod exchange;
mod failure;
mod generate;
mod interrupt;
mod load;
mod logprob;
mod output;
mod plot;
mod profile;
mod prompt;
mod promptcache;
mod sampling;
mod table;
mod talk;
mod terminal;

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use quantsmith_kernels::{Supported, cpu};

pub use quantsmith_kernels::Registry;

use args::{Cli, Command, Global};
use failure::Failure;
use output::{Output, note};

/// What every command gets: the formats, the flags that all share, and where the result goes.
pub(crate) struct App {
    registry: Registry,
    global: Global,
    /// The tier that was chosen, which is the best or the one that was asked for.
    tier: Supported,
    out: Output,
}

/// Runs the command that the arguments of the process ask for, with these formats.
pub fn main(registry: Registry) -> ExitCode {
    panic::set_hook(Box::new(report_panic));
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(registry)));
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            if let Some(line) = failure.line() {
                note(&line);
            }
            ExitCode::from(failure.exit_code())
        }
        // The hook has spoken.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says in one line that the program itself is at fault, and where.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
    note(&output::printable(&format!("error: internal fault{place}: {message}; please report it")));
}

fn run(registry: Registry) -> Result<(), Failure> {
    let mut definition = Cli::command();
    let argv = argv::rewrite(std::env::args_os(), &argv::Flags::of(&definition)).map_err(Failure::Usage)?;
    let parsed =
        definition.try_get_matches_from_mut(argv).and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { global, command } = match parsed {
        Ok(cli) => cli,
        Err(error) => return answer(&error),
    };
    if global.thread_list().len() > 1 && !command.compares_threads() {
        return Err(Failure::usage("-t takes one number here; only 'bench' compares several"));
    }
    let one = global.isa().filter(|_| !command.compares_tiers());
    let tier = cpu::choose(one).map_err(Failure::usage)?;
    let mut app = App { registry, global, tier, out: Output::new() };
    match command {
        Command::Run(args) => args.execute(&mut app),
        Command::Chat(args) => args.execute(&mut app),
        Command::Cpu(args) => args.execute(&mut app),
        Command::Formats(args) => args.execute(&mut app),
        Command::Inspect(args) => args.execute(&mut app),
        Command::Pack(args) => args.execute(&mut app),
        Command::Convert(args) => args.execute(&mut app),
        Command::Quantize(args) => args.execute(&mut app),
        Command::Gguf(args) => args.execute(&mut app),
        Command::Perplexity(args) => args.execute(&mut app),
        Command::Plan(args) => args.execute(&mut app),
        Command::Tokenize(args) => args.execute(&mut app),
        Command::Logits(args) => args.execute(&mut app),
        Command::Fingerprint(args) => args.execute(&mut app),
        Command::Bench(args) => args.execute(&mut app),
        Command::Kernels(args) => args.execute(&mut app),
        Command::Completions(args) => args.execute(&mut app),
        Command::Man(args) => args.execute(&mut app),
    }?;
    app.out.flush()
}

/// What the parser has to say instead of a command: help that was asked for, or what is wrong.
fn answer(error: &clap::Error) -> Result<(), Failure> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => error.print().map_err(|e| Failure::output(&e)),
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Err(Failure::usage("no command was given; see the list above"))
        }
        _ => Err(failure::from_clap(error)),
    }
}
