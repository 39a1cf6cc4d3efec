//! Any container to GGUF v3.
//!
//! What GGUF can hold is copied. The blocks of the first containers are put in its order of codes, which
//! loses nothing; where their scales are f32 and GGUF has f16, they are rounded, unless all of a tensor fit,
//! and the report says by how much the weights changed. With [`ConvertOptions::exact`] such tensors become
//! F32 instead, or stay as they are, in blocks that GGUF has no number for and this program has.

mod blocks;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::error::FileError;
use super::model::{Container, ModelFile, OpenOptions};
use super::ops::forget_split;
use super::private::is_private;
use super::tensor::TensorInfo;
use super::types::{Layout, TypeTable};
use super::value::Value;
use super::write::{GgufWriter, NewTensor};
use blocks::OldBlock;

/// Bytes of blocks that are converted at a time.
const CHUNK: usize = 1 << 20;

const F32: u32 = 0;
const F16: u32 = 1;

/// What becomes of weights that no block of GGUF holds exactly, when nothing may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exact {
    /// F32, at the price of size.
    F32,
    /// The blocks that they are in, as a private format (see [`super::private`]): other programs refuse the file.
    Blocks,
}

/// How to convert.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertOptions {
    /// Lose nothing, in one of two ways; otherwise scales are rounded to f16.
    pub exact: Option<Exact>,
    /// How to read the input, and what to assume where it does not say.
    pub open: OpenOptions,
}

/// What became of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertReport {
    /// The container that was read.
    pub container: String,
    /// Bytes written.
    pub bytes: u64,
    /// What became of each tensor.
    pub tensors: Vec<ConvertedTensor>,
    /// What the reader remarked.
    pub warnings: Vec<String>,
}

/// What became of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertedTensor {
    /// Its name.
    pub name: String,
    /// The format it had.
    pub from: &'static str,
    /// The format it has.
    pub to: &'static str,
    /// The largest change of a weight; 0 where nothing was lost.
    pub largest_error: f32,
}

impl ConvertReport {
    /// The largest change of any weight; 0 where nothing was lost.
    pub fn largest_error(&self) -> f32 {
        self.tensors.iter().map(|t| t.largest_error).fold(0.0, f32::max)
    }
}

/// How one tensor is written.
enum Recipe {
    /// As it is.
    Copy,
    /// As it is, under the number of a private format.
    Keep(u32),
    /// In blocks of GGUF.
    Blocks(OldBlock),
    /// As numbers: f32, or f16 when rounding is allowed.
    Numbers(OldBlock, u32),
}

/// Writes a model as GGUF v3.
///
/// # Errors
/// - the input cannot be read or the output cannot be written
pub fn convert(
    input: &Path,
    output: &Path,
    options: &ConvertOptions,
    types: &dyn TypeTable,
) -> Result<ConvertReport, FileError> {
    let model = ModelFile::open_with(input, types, &options.open)?;
    let recipes: Vec<Recipe> =
        model.tensors().iter().map(|t| recipe(&model, t, options.exact, types)).collect();
    let plan: Vec<NewTensor> = model.tensors().iter().zip(&recipes).map(|(t, r)| planned(t, r)).collect();
    let mut metadata = model.metadata().clone();
    if !matches!(model.container(), Container::Gguf { .. }) {
        metadata.insert("general.quantization_version", Value::U32(2));
        if recipes.iter().any(|r| matches!(r, Recipe::Keep(_) | Recipe::Numbers(..))) {
            match file_type(&plan) {
                Some(ftype) => metadata.insert("general.file_type", Value::U32(ftype)),
                None => drop(metadata.remove("general.file_type")),
            }
        }
    }
    forget_split(&mut metadata);
    let inputs: Vec<&Path> = model.paths().collect();
    let mut writer = GgufWriter::create(output, &inputs, &metadata, &plan, types)?;
    let mut tensors = Vec::with_capacity(plan.len());
    for ((tensor, recipe), new) in model.tensors().iter().zip(&recipes).zip(&plan) {
        let largest_error = write_tensor(&mut writer, &model, tensor, recipe)?;
        let to = new.layout.shape(new.type_id, types).map_or("", |shape| shape.name);
        tensors.push(ConvertedTensor {
            name: tensor.name.clone(),
            from: tensor.type_name,
            to,
            largest_error,
        });
    }
    Ok(ConvertReport {
        container: model.container().to_string(),
        bytes: writer.finish()?,
        tensors,
        warnings: model.warnings().to_vec(),
    })
}

fn recipe(model: &ModelFile, tensor: &TensorInfo, exact: Option<Exact>, types: &dyn TypeTable) -> Recipe {
    let Some(old) = OldBlock::of(tensor.layout, tensor.type_id) else { return Recipe::Copy };
    let unheld = || match exact {
        Some(Exact::Blocks) => {
            types.number_named(tensor.type_name).map_or(Recipe::Numbers(old, F32), Recipe::Keep)
        }
        _ => Recipe::Numbers(old, F32),
    };
    if !old.fits_gguf() {
        return if exact.is_some() { unheld() } else { Recipe::Numbers(old, F16) };
    }
    // What would be lost must be known before the header is written. Scales beyond f16 cannot be rounded at
    // all.
    let data = model.data(tensor);
    let scales = data.chunks_exact(old.bytes()).flat_map(|block| old.wide_scales(block));
    let (mut same, mut finite) = (true, true);
    for scale in scales {
        let rounded = half::f16::from_f32(scale);
        same &= rounded.to_f32().to_bits() == scale.to_bits();
        finite &= rounded.is_finite() || !scale.is_finite();
    }
    if same || finite && exact.is_none() { Recipe::Blocks(old) } else { unheld() }
}

fn planned(tensor: &TensorInfo, recipe: &Recipe) -> NewTensor {
    let new = NewTensor::from(tensor);
    match recipe {
        Recipe::Copy => new,
        Recipe::Keep(type_id) => NewTensor { layout: Layout::Current, type_id: *type_id, ..new },
        Recipe::Blocks(_) => NewTensor { layout: Layout::Current, ..new },
        Recipe::Numbers(_, type_id) => NewTensor { layout: Layout::Current, type_id: *type_id, ..new },
    }
}

/// The advisory type of the file, where it is not that of the input any more: of the type that most weights
/// have. There is none for a private format.
fn file_type(plan: &[NewTensor]) -> Option<u32> {
    let mut totals = BTreeMap::<u32, u128>::new();
    for t in plan.iter().filter(|t| t.dims.len() > 1) {
        *totals.entry(t.type_id).or_default() += t.dims.iter().map(|&d| u128::from(d)).product::<u128>();
    }
    let (&most, _) = totals.iter().max_by_key(|(_, total)| **total)?;
    match most {
        8 => Some(7),
        6 => Some(8),
        7 => Some(9),
        other => (!is_private(other)).then_some(other),
    }
}

/// Writes the data of a tensor; returns the largest change of a weight.
fn write_tensor(
    writer: &mut GgufWriter,
    model: &ModelFile,
    tensor: &TensorInfo,
    recipe: &Recipe,
) -> Result<f32, FileError> {
    let data = model.data(tensor);
    let (old, type_id) = match recipe {
        Recipe::Copy | Recipe::Keep(_) => {
            writer.write(&data)?;
            return Ok(0.0);
        }
        Recipe::Blocks(old) => (old, None),
        Recipe::Numbers(old, type_id) => (old, Some(*type_id)),
    };
    let mut largest = 0f32;
    let mut out = Vec::new();
    let blocks = CHUNK / old.bytes();
    for chunk in data.chunks(blocks * old.bytes()) {
        out.clear();
        for block in chunk.chunks_exact(old.bytes()) {
            largest = largest.max(match type_id {
                None => old.to_gguf(block, &mut out),
                Some(type_id) => old.to_numbers(block, type_id == F16, &mut out),
            });
        }
        writer.write(&out)?;
    }
    Ok(largest)
}
