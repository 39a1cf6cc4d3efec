//! Standard output and standard error: the result goes to one, everything else to the other.
//!
//! Neither panics when its reader is gone. A lost result ends the command; a lost remark does not.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// Standard output, for the result alone.
pub(crate) struct Output {
    to: io::BufWriter<io::Stdout>,
}

impl Output {
    /// Opens standard output.
    pub(crate) fn new() -> Self {
        Self { to: io::BufWriter::new(io::stdout()) }
    }

    /// Writes text.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.to.write_all(text.as_bytes()).map_err(|e| Failure::output(&e))
    }

    /// Writes text and the end of the line.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.text("\n")
    }

    /// Writes text and hands it on at once, for text that appears bit by bit.
    pub(crate) fn stream(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.flush()
    }

    /// Writes a value as JSON, without an end of line.
    pub(crate) fn json_part(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.to, value).map_err(|e| match e.io_error_kind() {
            Some(kind) => Failure::output(&kind.into()),
            None => Failure::run(format!("cannot write the result as JSON: {e}")),
        })
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.json_part(value)?;
        self.text("\n")
    }

    /// Runs something that writes for itself. What it says went wrong counts only where writing went well.
    pub(crate) fn with<E: Into<Failure>>(
        &mut self,
        work: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let mut watched = Watched { to: &mut self.to, fault: None };
        let result = work(&mut watched);
        match watched.fault {
            Some(fault) => Err(fault),
            None => result.map_err(Into::into),
        }
    }

    /// Hands on what has been written.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|e| Failure::output(&e))
    }
}

/// Writes a file beside the result.
pub(crate) fn write_file(path: &Path, content: &str) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|e| Failure::run(format!("{}: cannot write: {e}", path.display())))
}

/// A writer that remembers why it could not write.
struct Watched<'a> {
    to: &'a mut io::BufWriter<io::Stdout>,
    fault: Option<Failure>,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).inspect_err(|e| {
            if e.kind() != io::ErrorKind::Interrupted {
                self.fault = Some(Failure::output(e));
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().inspect_err(|e| self.fault = Some(Failure::output(e)))
    }
}

/// Writes one line to standard error. Nobody's reading it is no reason to stop.
pub(crate) fn note(text: &str) {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a warning to standard error.
pub(crate) fn warn(text: &str) {
    note(&format!("warning: {}", printable(text)));
}

/// Makes text from a file safe to show in one line of a terminal: what would move the cursor, break the line or
/// turn the direction of the text is shown as an escape.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                out.extend(c.escape_unicode());
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// At most `limit` characters of text from a file, made safe, with a mark where it was cut.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", printable(&text[..at])),
        None => printable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_file_cannot_take_over_the_terminal() {
        assert_eq!(printable("a\x1b[2J\nb\t日本"), "a\\u{1b}[2J\\nb\\t日本");
        assert_eq!(printable("\u{202e}x"), "\\u{202e}x");
    }

    #[test]
    fn excerpts_are_cut_between_characters() {
        assert_eq!(excerpt("日本語", 2), "日本…");
        assert_eq!(excerpt("日本語", 3), "日本語");
        assert_eq!(excerpt("", 3), "");
    }
}
