//! Quantising a model file: which tensor gets which format, and the writing of it.
//!
//! Two steps. [`plan`] reads the header and decides; nothing else is touched, so it is also the answer to "what would
//! happen". [`quantise`] does it: it reads, converts and writes a piece of a tensor at a time, so that memory does not
//! grow with the file, checks what it has written and only then gives the file its name. Rows are converted
//! independently, so that the result has the same bits for any number of threads.

mod importance;
mod mix;
mod plan;
mod write;

use std::path::{Path, PathBuf};

use quantsmith_kernels::{Registry, Supported};
use serde::Serialize;

use crate::error::Error;
use crate::files::ModelFile;
use crate::files::ops::Edit;
use crate::model::Progress;

pub use importance::Importance;
pub use plan::{Plan, PlannedTensor, Reason, is_target};

/// What a file is quantised to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A mix such as `Q4_K_M`, or any format of the registry: case and llama.cpp's numbers do not matter.
    Named(String),
    /// Nothing: tensors are copied as they are.
    Copy,
}

/// How to quantise.
#[derive(Clone, Debug)]
pub struct QuantiseOptions {
    /// To what.
    pub target: Target,
    /// All matrices get the base format of the mix.
    pub pure: bool,
    /// Patterns of names and the formats that such tensors get; the first that matches decides.
    pub tensor_types: Vec<(String, String)>,
    /// The format of the output matrix.
    pub output_type: Option<String>,
    /// The format of the token embedding.
    pub embedding_type: Option<String>,
    /// The output matrix stays as it is.
    pub leave_output: bool,
    /// What is quantised already may be quantised again.
    pub allow_requantise: bool,
    /// Measured importance of columns.
    pub importance: Option<Importance>,
    /// Changes of the metadata.
    pub overrides: Vec<Edit>,
    /// Layers to leave out.
    pub prune_layers: Vec<usize>,
    /// Write as many files as were read, with the same tensors in each.
    pub keep_split: bool,
    /// Only a plan is wanted: what would stand in the way is a warning.
    pub dry_run: bool,
}

impl QuantiseOptions {
    /// Quantising to a mix or a format, with nothing special.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            pure: false,
            tensor_types: Vec::new(),
            output_type: None,
            embedding_type: None,
            leave_output: false,
            allow_requantise: false,
            importance: None,
            overrides: Vec::new(),
            prune_layers: Vec::new(),
            keep_split: false,
            dry_run: false,
        }
    }
}

/// What the work is done with.
pub struct Workers<'a> {
    /// The formats that there are.
    pub registry: &'a Registry,
    /// The instruction set.
    pub tier: Supported,
    /// Threads; `None`: one for each core.
    pub threads: Option<usize>,
    /// Called after each piece; bytes are those that are read.
    pub progress: &'a mut (dyn FnMut(Progress) + Send),
}

/// What became of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuantiseReport {
    /// What became of each tensor.
    pub plan: Plan,
    /// For each tensor, the root of the mean square of what its weights changed by, over that of the weights; 0 where
    /// nothing changed.
    pub errors: Vec<f64>,
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Decides what becomes of each tensor.
///
/// # Errors
/// - a name of a type, a pattern or a layer that does not exist
/// - a tensor is quantised already, and that may not be done again
/// - importance does not fit the model
pub fn plan(model: &ModelFile, options: &QuantiseOptions, registry: &Registry) -> Result<Plan, Error> {
    plan::plan(model, options, registry)
}

/// Writes a quantised copy of a model as GGUF.
///
/// # Errors
/// - those of [`plan`]
/// - a weight is not finite, or beyond what its format can hold
/// - the output cannot be written, is the input, or does not read back as it was written
pub fn quantise(
    model: &ModelFile,
    output: &Path,
    options: &QuantiseOptions,
    workers: Workers<'_>,
) -> Result<QuantiseReport, Error> {
    let plan = plan(model, options, workers.registry)?;
    write::write(model, output, options, plan, workers)
}
