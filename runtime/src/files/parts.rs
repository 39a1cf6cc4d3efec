//! The files that make up a model.

use std::path::{Path, PathBuf};

use super::error::FileError;
use super::map::FileBytes;
use super::model::Contents;

/// One of the files of a model.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) bytes: FileBytes,
}

impl Part {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { path: path.into(), bytes: FileBytes::open(path)? })
    }

    /// Opens a file whose existence follows from another one. `which` says what it is.
    pub(crate) fn open_sibling(path: &Path, which: &str, accepted: &str) -> Result<Self, FileError> {
        match path.try_exists() {
            Ok(false) => Err(FileError::Inconsistent {
                path: path.into(),
                what: which.into(),
                found: "no such file".into(),
                accepted: accepted.into(),
            }),
            _ => Self::open(path),
        }
    }

    /// An error about how this file fits the others.
    pub(crate) fn inconsistent(
        &self,
        what: &str,
        found: impl ToString,
        accepted: impl ToString,
    ) -> FileError {
        FileError::Inconsistent {
            path: self.path.clone(),
            what: what.into(),
            found: found.to_string(),
            accepted: accepted.to_string(),
        }
    }
}

/// All files of a model, and what is in them.
pub(crate) struct Opened {
    pub(crate) parts: Vec<Part>,
    pub(crate) contents: Contents,
}
