//! The one error type of the file layer.
//!
//! Every message is one line and names the file, the byte where the fault lies, what was found and what is
//! accepted. Text that comes from a file is quoted, escaped and cut, so that a hostile name can neither break
//! the line nor flood a terminal.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// Why a model file was refused, or why one could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", .path.display())]
    Io {
        /// The file in question.
        path: PathBuf,
        /// What was tried, as in "open the file".
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path leads to something that is not a model file.
    #[error("{}: {found}, accepted: {accepted}", .path.display())]
    NotAModel {
        /// The file in question.
        path: PathBuf,
        /// What it is instead.
        found: String,
        /// What would be read.
        accepted: String,
    },
    /// A field of the file breaks a rule of its container.
    #[error("{}: byte {offset}: {what}: found {found}, accepted: {accepted}", .path.display())]
    Malformed {
        /// The file in question.
        path: PathBuf,
        /// Where the field starts, counted from the start of the file.
        offset: u64,
        /// Which field.
        what: String,
        /// Its value.
        found: String,
        /// The values that are accepted.
        accepted: String,
    },
    /// The files of one model do not belong together.
    #[error("{}: {what}: found {found}, accepted: {accepted}", .path.display())]
    Inconsistent {
        /// The file in question.
        path: PathBuf,
        /// Which property.
        what: String,
        /// Its value.
        found: String,
        /// The values that are accepted.
        accepted: String,
    },
    /// A request that this file or this operation cannot meet.
    #[error("{}: {what}", .path.display())]
    Refused {
        /// The file in question.
        path: PathBuf,
        /// What was refused, and why.
        what: String,
    },
}

impl FileError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.into(), action, source }
    }

    pub(crate) fn malformed(
        path: &Path,
        offset: u64,
        what: impl Display,
        found: impl Display,
        accepted: impl Display,
    ) -> Self {
        Self::Malformed {
            path: path.into(),
            offset,
            what: what.to_string(),
            found: found.to_string(),
            accepted: accepted.to_string(),
        }
    }

    /// The byte at which the fault lies, where there is one.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Malformed { offset, .. } => Some(*offset),
            Self::Io { .. } | Self::NotAModel { .. } | Self::Inconsistent { .. } | Self::Refused { .. } => {
                None
            }
        }
    }
}

/// Shows bytes from a file as one short quoted piece of text.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl Quoted<'_> {
    /// Longest text shown, in characters.
    const LIMIT: usize = 60;
}

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A character takes at most four bytes, so this cut never hides one of the first LIMIT.
        let head = &self.0[..self.0.len().min(4 * Self::LIMIT + 4)];
        let text = String::from_utf8_lossy(head);
        f.write_str("'")?;
        for (shown, c) in text.chars().enumerate() {
            if shown == Self::LIMIT {
                return f.write_str("'…");
            }
            match c {
                '\'' | '\\' => write!(f, "\\{c}")?,
                c if is_unprintable(c) => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("'")
    }
}

/// True for characters that would disturb a line of terminal output: controls, line and paragraph separators,
/// and the marks that reverse the direction of the text.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_short_line() {
        assert_eq!(Quoted(b"blk.0").to_string(), "'blk.0'");
        assert_eq!(Quoted(b"a\nb\x1b[2J\xff'").to_string(), "'a\\nb\\u{1b}[2J\u{fffd}\\''");
        assert_eq!(Quoted(&[b'x'; 61]).to_string(), format!("'{}'…", "x".repeat(60)));
        assert_eq!(Quoted("\u{202e}txt".as_bytes()).to_string(), "'\\u{202e}txt'");
    }

    #[test]
    fn errors_stay_small_enough_to_return_by_value() {
        assert!(size_of::<FileError>() <= 128, "{}", size_of::<FileError>());
    }
}
