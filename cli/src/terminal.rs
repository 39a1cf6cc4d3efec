//! The terminal of a conversation: lines typed by a person, colours, and Ctrl-C.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, ColorMode, Config, Context, Editor, Helper};

use crate::conversation::COMMANDS;
use crate::failure::Failure;
use crate::output::note;

const PROMPT: &str = "> ";

/// What a person did at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Typed a text, of one line or several.
    Text(String),
    /// Pressed Ctrl-C.
    Cancelled,
    /// Pressed Ctrl-D, or went away.
    End,
}

/// Where a person types.
pub(crate) struct Terminal {
    /// None for terminals that know no cursor keys.
    editor: Option<Editor<Keys, MemHistory>>,
    colour: bool,
}

impl Terminal {
    /// Opens the terminal.
    pub(crate) fn new(colour: bool) -> Result<Self, Failure> {
        let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let open = || {
            // What is typed goes to the terminal, and only answers to standard output.
            let colours = if colour { ColorMode::Forced } else { ColorMode::Disabled };
            let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true);
            let config = config.color_mode(colours).build();
            let history = MemHistory::with_config(&config);
            let mut editor = Editor::with_history(config, history)?;
            editor.set_helper(Some(Keys));
            Ok(editor)
        };
        let editor = if plain { None } else { Some(open().map_err(|e| failed(&e))?) };
        Ok(Self { editor, colour })
    }

    /// Asks for a text. A backslash at the end of a line asks for another one.
    pub(crate) fn ask(&mut self) -> Result<Typed, Failure> {
        let styled = if self.colour { "\x1b[1;32m> \x1b[0m" } else { PROMPT };
        let Some(editor) = &mut self.editor else { return ask_plainly(styled) };
        match editor.readline(&(PROMPT, styled)) {
            Ok(text) => Ok(Typed::Text(text.replace("\\\n", "\n"))),
            Err(ReadlineError::Interrupted) => Ok(Typed::Cancelled),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Writes a remark, which is no part of an answer, to standard error.
    pub(crate) fn remark(&self, text: &str) {
        if self.colour { note(&format!("\x1b[2m{text}\x1b[0m")) } else { note(text) }
    }
}

fn failed(error: &ReadlineError) -> Failure {
    Failure::run(format!("the terminal: cannot read: {error}"))
}

/// Asks for a text on a terminal that can only show lines.
fn ask_plainly(prompt: &str) -> Result<Typed, Failure> {
    let mut text = String::new();
    loop {
        let _ = std::io::stderr().write_all(prompt.as_bytes());
        let read = std::io::stdin().lock().read_line(&mut text);
        match read {
            Ok(0) => {
                note("");
                return Ok(if text.is_empty() { Typed::End } else { Typed::Text(text) });
            }
            Ok(_) if text.ends_with("\\\n") => text.replace_range(text.len() - 2.., "\n"),
            Ok(_) => return Ok(Typed::Text(text.trim_end_matches(['\n', '\r']).to_owned())),
            Err(e) => return Err(Failure::run(format!("standard input: cannot read: {e}"))),
        }
    }
}

/// What keys do beyond editing: Tab completes commands, Enter after a backslash goes on.
struct Keys;

impl Helper for Keys {}
impl Highlighter for Keys {}

impl Hinter for Keys {
    type Hint = String;
}

impl Completer for Keys {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = line.get(..at).and_then(|text| text.strip_prefix('/'));
        let fits = |begun: &str| COMMANDS.iter().map(|c| c.name).filter(|n| n.starts_with(begun)).collect();
        let names: Vec<&str> = begun.map_or_else(Vec::new, fits);
        Ok((0, names.into_iter().map(|name| format!("/{name} ")).collect()))
    }
}

impl Validator for Keys {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Ctrl-C while the model speaks: it ends the answer and not the program.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over Ctrl-C. Pressed again before the first has had its effect, it does end the program.
    pub(crate) fn install() -> Result<Self, Failure> {
        use signal_hook::consts::SIGINT;
        use signal_hook::flag;
        let pressed = Arc::new(AtomicBool::new(false));
        // The order counts: the first press finds the flag down, and then raises it.
        flag::register_conditional_shutdown(SIGINT, 130, pressed.clone())
            .and_then(|_| flag::register(SIGINT, pressed.clone()))
            .map_err(|e| Failure::run(format!("cannot handle Ctrl-C: {e}")))?;
        Ok(Self(pressed))
    }

    /// Whether it was pressed since the last time this was asked.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Whether to use colours where nothing was said about it: on a terminal that has them, unless NO_COLOR is set.
pub(crate) fn colours_are_welcome() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stderr().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|t| t != "dumb")
}
