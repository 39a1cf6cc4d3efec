//! Setting and removing metadata.

use std::path::Path;

use crate::files::error::{FileError, Quoted};
use crate::files::ops::{open_as_is, write_tensors};
use crate::files::types::TypeTable;
use crate::files::value::Value;

/// One change of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Gives a key a value: in its place when it exists, behind the others when not.
    Set(String, Value),
    /// Takes a key out, which must exist.
    Remove(String),
}

/// Writes a copy of a file with other metadata; returns its size. The file may be one shard of a model. What
/// is read in another version or byte order is written as version 3, little-endian.
///
/// # Errors
/// - the input cannot be read or the output cannot be written
/// - a key to be removed does not exist
pub fn edit(input: &Path, output: &Path, edits: &[Edit], types: &dyn TypeTable) -> Result<u64, FileError> {
    let model = open_as_is(input, types)?;
    let mut metadata = model.metadata().clone();
    for edit in edits {
        match edit {
            Edit::Set(key, value) => metadata.insert(key, value.clone()),
            Edit::Remove(key) => {
                if metadata.remove(key).is_none() {
                    let what = format!("there is no key {} to remove", Quoted(key.as_bytes()));
                    return Err(FileError::Refused { path: input.into(), what });
                }
            }
        }
    }
    write_tensors(&model, model.tensors(), &metadata, output, types)?.commit()
}
