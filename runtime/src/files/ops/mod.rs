//! What can be done to model files as files: change metadata, split, merge, hash, compare, verify.
//!
//! Each takes an opened model or a path and says what it found as data; printing is for others.

mod diff;
mod edit;
mod hash;
mod shards;
mod verify;

use std::path::Path;

use super::error::FileError;
use super::metadata::Metadata;
use super::model::{ModelFile, OpenOptions};
use super::tensor::TensorInfo;
use super::types::TypeTable;
use super::write::{GgufWriter, NewTensor};

pub use diff::{Change, Diff, TensorChange, diff};
pub use edit::{Edit, edit};
pub use hash::{Hashes, hash};
pub use shards::{ShardSize, SplitOptions, merge, split};
pub(crate) use shards::{forget_split, later_metadata, number_shard, shard_paths};
pub use verify::{Finding, Severity, verify};

impl From<&TensorInfo> for NewTensor {
    fn from(tensor: &TensorInfo) -> Self {
        let TensorInfo { name, dims, type_id, layout, .. } = tensor;
        Self { name: name.clone(), dims: dims.clone(), type_id: *type_id, layout: *layout }
    }
}

/// Opens a file as it is: one shard alone, experts apart.
fn open_as_is(path: &Path, types: &dyn TypeTable) -> Result<ModelFile, FileError> {
    let options = OpenOptions { single_file: true, separate_experts: true, ..OpenOptions::default() };
    ModelFile::open_with(path, types, &options)
}

/// Writes tensors of a model, with metadata of one's own, up to the point where the file could have its name.
fn write_tensors(
    model: &ModelFile,
    tensors: &[TensorInfo],
    metadata: &Metadata,
    output: &Path,
    types: &dyn TypeTable,
) -> Result<super::write::Sealed, FileError> {
    let inputs: Vec<&Path> = model.paths().collect();
    let plan: Vec<NewTensor> = tensors.iter().map(NewTensor::from).collect();
    let mut writer = GgufWriter::create(output, &inputs, metadata, &plan, types)?;
    for tensor in tensors {
        writer.write(&model.data(tensor))?;
    }
    writer.seal()
}
