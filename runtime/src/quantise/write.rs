//! Writing the quantised file: piece by piece, checked, and named at last.

use std::path::{Path, PathBuf};

use quantsmith_kernels::{Format, KernelSet, QuantiseError};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::plan::{Plan, PlannedTensor};
use super::{QuantiseOptions, QuantiseReport, Workers};
use crate::error::Error;
use crate::files::ops::{self, Edit};
use crate::files::{
    FileError, GgufWriter, Metadata, ModelFile, NewTensor, OpenOptions, Sealed, TensorInfo, Value,
};
use crate::model::Progress;

/// Weights converted at a time.
const PIECE: usize = 1 << 22;
/// Weights that one thread converts at a time.
const SHARE: usize = 1 << 15;

pub(super) fn write(
    model: &ModelFile,
    output: &Path,
    options: &QuantiseOptions,
    plan: Plan,
    workers: Workers<'_>,
) -> Result<QuantiseReport, Error> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers.threads.unwrap_or(0)).build();
    let pool = pool.map_err(|e| Error::Thread {
        index: 0,
        count: workers.threads.unwrap_or(0),
        source: std::io::Error::other(e),
    })?;
    let shards = shards(model, &plan, output, options.keep_split)?;
    let metadata = metadata(model, options, &plan);
    let inputs: Vec<&Path> = model.paths().collect();
    let total = plan.bytes_before();
    let mut errors = vec![0.0; plan.tensors.len()];
    let mut sealed: Vec<Sealed> = Vec::new();
    let Workers { registry, tier, progress, .. } = workers;
    let mut done = 0;
    for (number, shard) in shards.iter().enumerate() {
        let metadata = if number == 0 { metadata.clone() } else { ops::later_metadata(model) };
        let metadata = numbered(metadata, number, &shards, plan.tensors.len());
        let new: Vec<NewTensor> =
            shard.tensors.iter().map(|&at| new_tensor(model, &plan.tensors[at])).collect();
        let mut writer = GgufWriter::create(&shard.path, &inputs, &metadata, &new, registry)?;
        let mut hash = Sha256::new();
        for &at in &shard.tensors {
            let planned = &plan.tensors[at];
            let tensor = &model.tensors()[planned.source];
            let mut sink = |bytes: &[u8], read: usize| {
                hash.update(bytes);
                done += read as u64;
                progress(Progress { done, total });
                writer.write(bytes)
            };
            if planned.from == planned.to {
                for data in model.pieces(tensor) {
                    for some in data.chunks(PIECE) {
                        sink(some, some.len())?;
                    }
                }
                continue;
            }
            let from = registry.by_name(planned.from).unwrap_or(planned.format);
            let conversion = Conversion {
                model,
                tensor,
                from: from.kernels(tier),
                to: planned.format.kernels(tier),
                importance: options
                    .importance
                    .as_ref()
                    .filter(|_| planned.importance)
                    .and_then(|i| i.of(&tensor.name)),
            };
            errors[at] = pool.install(|| conversion.run(&mut sink))?;
        }
        let file = writer.seal()?;
        let expected: [u8; 32] = hash.finalize().into();
        check(&file, shard, &plan, expected, registry)?;
        sealed.push(file);
    }
    let mut bytes = 0;
    for file in sealed {
        bytes += file.commit()?;
    }
    let files = shards.into_iter().map(|shard| shard.path).collect();
    Ok(QuantiseReport { plan, errors, files, bytes })
}

/// A file to be written.
struct Shard {
    path: PathBuf,
    /// Indices into the plan.
    tensors: Vec<usize>,
}

/// Divides the tensors over files: one, or those of the input.
fn shards(model: &ModelFile, plan: &Plan, output: &Path, keep_split: bool) -> Result<Vec<Shard>, FileError> {
    let count = model.paths().count();
    let all = || (0..plan.tensors.len()).collect();
    if !keep_split || count == 1 {
        return Ok(vec![Shard { path: output.into(), tensors: all() }]);
    }
    let paths = ops::shard_paths(output, count)?;
    let part = |at: usize| model.tensors()[plan.tensors[at].source].part;
    let shard = |(number, path)| Shard {
        path,
        tensors: (0..plan.tensors.len()).filter(|&at| part(at) == number).collect(),
    };
    Ok(paths.into_iter().enumerate().map(shard).collect())
}

/// The metadata of the whole: that of the input, with what quantising changes and what options change.
fn metadata(model: &ModelFile, options: &QuantiseOptions, plan: &Plan) -> Metadata {
    let mut metadata = model.metadata().clone();
    ops::forget_split(&mut metadata);
    metadata.insert("general.quantization_version", Value::U32(2));
    match plan.file_type {
        Some(number) => metadata.insert("general.file_type", Value::U32(number)),
        None => {
            metadata.remove("general.file_type");
        }
    }
    for (key, value) in options.importance.iter().flat_map(|i| i.metadata()) {
        metadata.insert(key, value);
    }
    let key = format!("{}.block_count", metadata.str("general.architecture").unwrap_or_default());
    if let (Some(layers), false) = (metadata.u32(&key), options.prune_layers.is_empty()) {
        let mut pruned = options.prune_layers.clone();
        pruned.sort_unstable();
        pruned.dedup();
        metadata.insert(key, Value::U32(layers.saturating_sub(pruned.len() as u32)));
    }
    for edit in &options.overrides {
        match edit {
            Edit::Set(key, value) => metadata.insert(key, value.clone()),
            Edit::Remove(key) => {
                metadata.remove(key);
            }
        }
    }
    metadata
}

/// Adds what a shard says of itself.
fn numbered(mut metadata: Metadata, number: usize, shards: &[Shard], tensors: usize) -> Metadata {
    if shards.len() > 1 {
        ops::number_shard(&mut metadata, number as u16, shards.len() as u16, tensors as i32);
    }
    metadata
}

/// How a tensor is described in the file. A private format has a number, too; the writer says which format it means.
fn new_tensor(model: &ModelFile, planned: &PlannedTensor) -> NewTensor {
    let source = &model.tensors()[planned.source];
    if planned.from == planned.to {
        return NewTensor { name: planned.name.clone(), ..NewTensor::from(source) };
    }
    NewTensor {
        name: planned.name.clone(),
        dims: planned.dims.clone(),
        type_id: planned.format.number(),
        layout: Default::default(),
    }
}

/// Takes bytes to write, and learns how many were read for them.
type Sink<'a> = dyn FnMut(&[u8], usize) -> Result<(), FileError> + Send + 'a;

/// The conversion of one tensor.
struct Conversion<'a> {
    model: &'a ModelFile,
    tensor: &'a TensorInfo,
    from: KernelSet,
    to: KernelSet,
    importance: Option<&'a [f32]>,
}

impl Conversion<'_> {
    /// Converts the tensor; returns the relative error.
    fn run(&self, sink: &mut Sink<'_>) -> Result<f64, Error> {
        let cols = self.tensor.dims.first().map_or(1, |&c| c as usize);
        let (row_in, row_out) = (bytes_of(self.from.format(), cols), bytes_of(self.to.format(), cols));
        let rows_at_once = (PIECE / cols).max(1);
        let rows_of_matrix = self.tensor.dims.get(1).map_or(1, |&r| r as usize);
        let (mut first_row, mut changed, mut whole) = (0, 0.0, 0.0);
        let mut out = Vec::new();
        for data in self.model.pieces(self.tensor) {
            // A piece never holds rows of two experts, whose importance differs.
            for matrix in data.chunks(rows_of_matrix * row_in) {
                for some in matrix.chunks(rows_at_once * row_in) {
                    out.resize(some.len() / row_in * row_out, 0);
                    let importance = self.importance_of(first_row / rows_of_matrix, cols);
                    let (more, all) = self.piece(some, cols, importance, first_row, &mut out)?;
                    changed += more;
                    whole += all;
                    first_row += some.len() / row_in;
                    sink(&out, some.len())?;
                }
            }
        }
        Ok(if whole > 0.0 { (changed / whole).sqrt() } else { 0.0 })
    }

    fn importance_of(&self, matrix: usize, cols: usize) -> Option<&[f32]> {
        let all = self.importance?;
        if all.len() == cols { Some(all) } else { all.get(matrix * cols..(matrix + 1) * cols) }
    }

    /// Converts some rows on all threads; returns the sums of squares of the changes and of the weights.
    fn piece(
        &self,
        data: &[u8],
        cols: usize,
        importance: Option<&[f32]>,
        first_row: usize,
        out: &mut [u8],
    ) -> Result<(f64, f64), Error> {
        let (row_in, row_out) = (bytes_of(self.from.format(), cols), bytes_of(self.to.format(), cols));
        let rows = (SHARE / cols).max(1);
        let shares = data.par_chunks(rows * row_in).zip(out.par_chunks_mut(rows * row_out)).enumerate();
        let sums: Vec<(f64, f64)> = shares
            .map_init(
                || (Vec::new(), Vec::new(), Vec::new()),
                |(weights, back, worth), (share, (data, out))| {
                    weights.resize(data.len() / row_in * cols, 0.0);
                    back.resize(weights.len(), 0.0);
                    self.from.dequantise(data, weights);
                    let row = first_row + share * rows;
                    let rows = weights.chunks(cols).zip(out.chunks_mut(row_out)).zip(row..);
                    for ((weights, out), row) in rows {
                        weigh(weights, importance, worth);
                        let done = self.to.quantise(weights, cols, Some(worth), out);
                        done.map_err(|e| self.fault(row, e))?;
                    }
                    self.to.dequantise(out, back);
                    let changes = weights.iter().zip(back.iter()).map(|(a, b)| f64::from(a - b).powi(2));
                    let sums = (changes.sum(), weights.iter().map(|w| f64::from(*w).powi(2)).sum());
                    Ok(sums)
                },
            )
            .collect::<Result<_, Error>>()?;
        // In order, so that the sum does not depend on who was first.
        Ok(sums.into_iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y)))
    }

    fn fault(&self, first_row: usize, fault: QuantiseError) -> Error {
        let found = match fault {
            QuantiseError::NotFinite { row, col, value } => {
                format!("{value} in row {}, column {col}", first_row + row)
            }
            other => other.to_string(),
        };
        Error::Tensor {
            path: self.model.path().into(),
            name: self.tensor.name.clone(),
            found,
            expected: format!("what can be quantised to {}", self.to.format().name),
        }
    }
}

/// How much each weight of a row is worth when it is rounded: what is measured of its column, if anything is, and more
/// for large weights, on which more depends. With the plain square error the low-bit mixes come out worse: against the F32
/// model of SmolLM2-135M the mean KL divergence of Q2_K is 0.67 without and 0.48 with this.
fn weigh(weights: &[f32], importance: Option<&[f32]>, worth: &mut Vec<f32>) {
    let mean_square = weights.iter().map(|w| w * w).sum::<f32>() / weights.len() as f32;
    worth.clear();
    worth.extend(weights.iter().map(|w| (mean_square + w * w).sqrt()));
    // Weights at the ends of the range of f32: all the same then.
    if !mean_square.is_normal() {
        worth.fill(1.0);
    }
    worth.iter_mut().zip(importance.unwrap_or_default()).for_each(|(worth, column)| *worth *= column);
}

/// Bytes of a row, which is known to be whole blocks.
fn bytes_of(format: &Format, cols: usize) -> usize {
    cols / format.elements * format.bytes
}

/// Reads a written file back, before it gets its name.
fn check(
    file: &Sealed,
    shard: &Shard,
    plan: &Plan,
    expected: [u8; 32],
    registry: &quantsmith_kernels::Registry,
) -> Result<(), FileError> {
    let options = OpenOptions { single_file: true, separate_experts: true, ..OpenOptions::default() };
    let back = ModelFile::open_with(file.path(), registry, &options)?;
    let planned = shard.tensors.iter().map(|&at| &plan.tensors[at]);
    let same = back.tensors().len() == shard.tensors.len()
        && back
            .tensors()
            .iter()
            .zip(planned)
            .all(|(t, p)| t.name == p.name && t.dims == p.dims && t.type_name == p.to);
    let mut hash = Sha256::new();
    for tensor in back.tensors() {
        hash.update(back.data(tensor));
    }
    let found: [u8; 32] = hash.finalize().into();
    if same && found == expected {
        return Ok(());
    }
    let what = "what was written does not read back as it was written: the disk or the memory is at fault";
    Err(FileError::Refused { path: shard.path.clone(), what: what.into() })
}
