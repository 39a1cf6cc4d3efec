//! Splitting a model into shards, and merging shards into one file.

use std::path::{Path, PathBuf};

use crate::files::error::FileError;
use crate::files::gguf::split::{COUNT, NUMBER, TENSORS, shard_name};
use crate::files::metadata::Metadata;
use crate::files::model::{ModelFile, OpenOptions};
use crate::files::ops::write_tensors;
use crate::files::tensor::TensorInfo;
use crate::files::types::TypeTable;
use crate::files::value::Value;
use crate::files::write::Sealed;

/// How much goes into one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardSize {
    /// At most so many tensors.
    Tensors(usize),
    /// At most so many bytes of data, unless one tensor alone has more.
    Bytes(u64),
}

/// How to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitOptions {
    /// How much goes into one shard.
    pub size: ShardSize,
    /// The first shard has the metadata only.
    pub first_without_tensors: bool,
}

/// Splits a model into `PREFIX-00001-of-0000N.gguf` and so on; returns their paths. None of them appears
/// before all are complete.
///
/// # Errors
/// - the input cannot be read, or a shard cannot be written
/// - there would be more shards than can be numbered
pub fn split(
    input: &Path,
    prefix: &Path,
    options: SplitOptions,
    types: &dyn TypeTable,
) -> Result<Vec<PathBuf>, FileError> {
    let model = ModelFile::open_with(input, types, &whole())?;
    let mut shards = divide(model.tensors(), options.size);
    if options.first_without_tensors || shards.is_empty() {
        shards.insert(0, &[]);
    }
    let count = u16::try_from(shards.len()).map_err(|_| FileError::Refused {
        path: input.into(),
        what: format!("{} shards, accepted: at most {}", shards.len(), u16::MAX),
    })?;
    let Some(name) = prefix.file_name().and_then(|n| n.to_str()) else {
        return Err(FileError::Refused {
            path: prefix.into(),
            what: "the prefix has no name that is text".into(),
        });
    };
    let total = i32::try_from(model.tensors().len()).map_err(|_| FileError::Refused {
        path: input.into(),
        what: format!("{} tensors, accepted: at most {}", model.tensors().len(), i32::MAX),
    })?;
    let (mut sealed, mut paths): (Vec<Sealed>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for (number, tensors) in (0..count).zip(shards) {
        let path = prefix.with_file_name(shard_name(name, u64::from(number) + 1, count.into()));
        let mut metadata = if number == 0 { model.metadata().clone() } else { later_metadata(&model) };
        metadata.insert(NUMBER, Value::U16(number));
        metadata.insert(COUNT, Value::U16(count));
        metadata.insert(TENSORS, Value::I32(total));
        sealed.push(write_tensors(&model, tensors, &metadata, &path, types)?);
        paths.push(path);
    }
    for shard in sealed {
        shard.commit()?;
    }
    Ok(paths)
}

/// Merges the shards of a model, any of which is `input`, into one file; returns its size.
///
/// # Errors
/// - a shard cannot be read, or the output cannot be written
pub fn merge(input: &Path, output: &Path, types: &dyn TypeTable) -> Result<u64, FileError> {
    let model = ModelFile::open_with(input, types, &whole())?;
    let mut metadata = model.metadata().clone();
    for key in [NUMBER, COUNT, TENSORS] {
        metadata.remove(key);
    }
    write_tensors(&model, model.tensors(), &metadata, output, types)?.commit()
}

fn whole() -> OpenOptions {
    OpenOptions { separate_experts: true, ..OpenOptions::default() }
}

/// What a shard after the first says of the model: how its own data is aligned.
fn later_metadata(model: &ModelFile) -> Metadata {
    let key = "general.alignment";
    model.metadata().get(key).map(|v| (key, v.clone())).into_iter().collect()
}

/// Cuts the list of tensors into shards.
fn divide(tensors: &[TensorInfo], size: ShardSize) -> Vec<&[TensorInfo]> {
    match size {
        ShardSize::Tensors(count) => tensors.chunks(count.max(1)).collect(),
        ShardSize::Bytes(most) => {
            let (mut shards, mut start, mut filled) = (Vec::new(), 0, 0u64);
            for (i, tensor) in tensors.iter().enumerate() {
                if i > start && filled.saturating_add(tensor.bytes) > most {
                    shards.push(&tensors[start..i]);
                    (start, filled) = (i, 0);
                }
                filled = filled.saturating_add(tensor.bytes);
            }
            if start < tensors.len() {
                shards.push(&tensors[start..]);
            }
            shards
        }
    }
}
