//! The command under test, run as a user would run it, and how it ended.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// A command line in the making.
pub struct Quantsmith {
    command: assert_cmd::Command,
}

/// How long one command may take: far more than any needs, so that one that waits for ever is found.
const PATIENCE: Duration = Duration::from_secs(300);

/// The program to test: the one at this path, unless `QUANTSMITH_BIN` names another.
pub fn program(built: &str) -> OsString {
    std::env::var_os("QUANTSMITH_BIN").unwrap_or_else(|| built.into())
}

impl Quantsmith {
    /// A program, with no input and a clean environment.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = assert_cmd::Command::new(program);
        command.env_remove("QUANTSMITH_ISA").env_remove("RUST_BACKTRACE").write_stdin("").timeout(PATIENCE);
        Self { command }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments, given in one line and separated by blanks.
    #[must_use]
    pub fn args(mut self, line: &str) -> Self {
        self.command.args(line.split_whitespace());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives standard input.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.command.write_stdin(text);
        self
    }

    /// Sets the folder to run in.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// When the program cannot be started, takes too long, or is ended by a signal.
    pub fn run(mut self) -> Ended {
        let output = self.command.output().expect("the program under test starts and ends");
        let code = output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", output.status));
        Ended {
            code,
            stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
        }
    }

    /// Runs it and reads the JSON that it prints.
    ///
    /// # Panics
    /// When it fails or prints anything but one JSON value.
    pub fn json(self) -> Value {
        let ended = self.run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e} in: {}", ended.stdout))
    }
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// The error of a command that failed as it should: this exit code, no result, one line that starts with
    /// `error: `, and no trace of a panic.
    ///
    /// # Panics
    /// When it ended in any other way.
    pub fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "a failure has no result");
        assert!(
            !self.stderr.contains("panicked") && !self.stderr.contains("internal fault"),
            "{}",
            self.stderr
        );
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        let [error] = errors[..] else { panic!("one line of error, not {}: {}", errors.len(), self.stderr) };
        assert_eq!(self.stderr.lines().last(), Some(error), "the error comes last");
        assert!(error.len() < 600, "an error is short: {error}");
        error
    }
}
