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
    let total = i32::try_from(model.tensors().len()).map_err(|_| FileError::Refused {
        path: input.into(),
        what: format!("{} tensors, accepted: at most {}", model.tensors().len(), i32::MAX),
    })?;
    let paths = shard_paths(prefix, count.into())?;
    let mut sealed: Vec<Sealed> = Vec::new();
    for ((number, tensors), path) in (0..count).zip(shards).zip(&paths) {
        let mut metadata = if number == 0 { model.metadata().clone() } else { later_metadata(&model) };
        number_shard(&mut metadata, number, count, total);
        sealed.push(write_tensors(&model, tensors, &metadata, path, types)?);
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
    forget_split(&mut metadata);
    write_tensors(&model, model.tensors(), &metadata, output, types)?.commit()
}

fn whole() -> OpenOptions {
    OpenOptions { separate_experts: true, ..OpenOptions::default() }
}

/// The paths of shards with a prefix, from which the ending of a model file is dropped.
pub(crate) fn shard_paths(prefix: &Path, count: usize) -> Result<Vec<PathBuf>, FileError> {
    let Some(name) = prefix.file_name().and_then(|n| n.to_str()) else {
        let what = "the prefix has no name that is text".into();
        return Err(FileError::Refused { path: prefix.into(), what });
    };
    let name = name.strip_suffix(".gguf").unwrap_or(name);
    let path = |number| prefix.with_file_name(shard_name(name, number, count as u64));
    Ok((1..=count as u64).map(path).collect())
}

/// Says in metadata which shard it belongs to: `number` counts from 0, `tensors` are those of all shards.
pub(crate) fn number_shard(metadata: &mut Metadata, number: u16, count: u16, tensors: i32) {
    metadata.insert(NUMBER, Value::U16(number));
    metadata.insert(COUNT, Value::U16(count));
    metadata.insert(TENSORS, Value::I32(tensors));
}

/// Takes out of metadata that it belonged to a shard.
pub(crate) fn forget_split(metadata: &mut Metadata) {
    for key in [NUMBER, COUNT, TENSORS] {
        metadata.remove(key);
    }
}

/// What a shard after the first says of the model: how its own data is aligned.
pub(crate) fn later_metadata(model: &ModelFile) -> Metadata {
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
