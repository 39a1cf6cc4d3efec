//! How a command ends badly: one line on standard error and an exit code that says whose fault it was.

use std::fmt::Display;
use std::io;

use quantsmith::text::TextError;

use crate::output::printable;

/// Why a command stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The request makes no sense: exit code 2.
    Usage(String),
    /// A file or the run itself is at fault: exit code 1.
    Run(String),
    /// Nobody reads standard output any more: a quiet end, as of any filter whose reader has seen enough.
    Closed,
}

impl Failure {
    /// A request that makes no sense.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// A fault of a file or of the run.
    pub(crate) fn run(message: impl Display) -> Self {
        Self::Run(message.to_string())
    }

    /// Standard output did not take what was written.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Run(format!("standard output: cannot write: {error}")),
        }
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::Closed => 0,
        }
    }

    /// What to say, if anything: one line, whatever the message was made from.
    pub(crate) fn line(&self) -> Option<String> {
        match self {
            Self::Usage(message) | Self::Run(message) => {
                let words: Vec<&str> =
                    message.split(['\n', '\r']).map(str::trim).filter(|l| !l.is_empty()).collect();
                Some(format!("error: {}", printable(&words.join("; "))))
            }
            Self::Closed => None,
        }
    }
}

impl From<quantsmith::Error> for Failure {
    fn from(error: quantsmith::Error) -> Self {
        match error.exit_code() {
            2 => Self::usage(error),
            _ => Self::run(error),
        }
    }
}

impl From<quantsmith::files::FileError> for Failure {
    fn from(error: quantsmith::files::FileError) -> Self {
        Self::run(error)
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Parameter { .. } => Self::usage(error),
            // The error is open to new kinds; those that are no flags come from the model.
            other => Self::run(other),
        }
    }
}

/// Turns clap's message of several lines into one: what is wrong, clap's tip, and where to read more.
///
/// Clap closes with a usage text and a pointer to `--help`; the usage text is dropped and the pointer kept.
pub(crate) fn from_clap(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut parts: Vec<&str> = Vec::new();
    let mut skip = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        let line = line.trim();
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            skip = true;
        } else if line.is_empty() || !indented {
            skip = false;
        }
        if !skip && !line.is_empty() {
            parts.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    let mut message = String::new();
    for part in parts {
        if !message.is_empty() {
            message.push_str(if message.ends_with(':') { " " } else { "; " });
        }
        message.push_str(part);
    }
    Failure::Usage(format!("{message} (--help tells more)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_becomes_one() {
        let failure = Failure::run("template error\n  in line 3\n\n");
        assert_eq!(failure.line().as_deref(), Some("error: template error; in line 3"));
        assert_eq!(failure.exit_code(), 1);
        assert_eq!(Failure::usage("a\u{1b}[2Jb").line().as_deref(), Some("error: a\\u{1b}[2Jb"));
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
        let closed = Failure::output(&io::ErrorKind::BrokenPipe.into());
        assert_eq!((closed.line(), closed.exit_code()), (None, 0));
        let full = Failure::output(&io::ErrorKind::StorageFull.into());
        assert_eq!(full.exit_code(), 1);
        assert!(full.line().is_some_and(|l| l.contains("standard output")));
    }

    #[test]
    fn clap_messages_keep_the_fault_and_the_tip_and_lose_the_usage() {
        let command = || {
            clap::Command::new("x")
                .arg(clap::Arg::new("model").long("model").required(true).value_name("FILE"))
                .arg(clap::Arg::new("shell").long("shell").value_parser(["bash", "fish"]))
        };
        let line = |args: &[&str]| {
            let error = command().try_get_matches_from(args).expect_err("refused");
            from_clap(&error).line().expect("a line")
        };
        assert_eq!(
            line(&["x"]),
            "error: the following required arguments were not provided: --model <FILE> (--help tells more)"
        );
        assert_eq!(
            line(&["x", "--modle", "y"]),
            "error: unexpected argument '--modle' found; tip: a similar argument exists: '--model' \
             (--help tells more)"
        );
        assert_eq!(
            line(&["x", "--model", "y", "--shell", "fisch"]),
            "error: invalid value 'fisch' for '--shell <shell>'; [possible values: bash, fish]; \
             tip: a similar value exists: 'fish' (--help tells more)"
        );
    }
}
