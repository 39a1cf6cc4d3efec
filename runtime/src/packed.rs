//! Files whose matrices are interleaved ahead of time, so that loading maps them and does no work.
//!
//! Such a file is GGUF, but panels are no tensor that another program could use: each is a row of bytes called
//! `NAME.packed`, and metadata says which matrix it is. Panels are the same on every CPU, so one file serves all. What is
//! read row by row (embeddings), float matrices and vectors stay as they are.

use crate::Error;
use crate::files::{Array, GgufWriter, Layout, Metadata, ModelFile, NewTensor, Str, Value};
use crate::graph::build::build;
use crate::model::hparams::HParams;
use crate::weights::{Binder, Matrix};
use quantsmith_kernels::{Format, PANEL, Registry, Supported};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// The version of the layout of panels; it changes when they do.
const VERSION: u32 = 1;
/// Keys of the metadata: the version; names, formats and dimensions (columns, then rows) of the packed matrices.
const KEYS: [&str; 4] = [
    "quantsmith.packed.version",
    "quantsmith.packed.names",
    "quantsmith.packed.formats",
    "quantsmith.packed.dims",
];
/// What the bytes of a packed matrix are called.
pub(crate) const SUFFIX: &str = ".packed";
/// The type of a row of bytes, and the alignment that panels like.
const I8: u32 = 24;
const ALIGNMENT: u32 = 128;
/// Panels are made in pieces of about so many bytes.
const PIECE: usize = 1 << 20;

/// A matrix that a file holds in panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMatrix {
    /// The tensor with the panels.
    pub(crate) tensor: usize,
    pub(crate) format: &'static Format,
    pub(crate) cols: usize,
    pub(crate) rows: usize,
}

/// The packed matrices of a file, by the names that the model knows them by.
///
/// # Errors
/// * if the panels are of another version, or what is said about them does not hold
pub(crate) fn read(file: &ModelFile, registry: &Registry) -> Result<HashMap<String, PackedMatrix>, Error> {
    let metadata = file.metadata();
    let Some(version) = metadata.get(KEYS[0]) else { return Ok(HashMap::new()) };
    let wrong = |found: String, expected: &str| Error::Unsupported {
        path: file.path().into(),
        what: format!("a packed file in which {found} (expected: {expected})"),
    };
    if metadata.u32(KEYS[0]) != Some(VERSION) {
        let expected = format!("{VERSION}; pack the original again");
        return Err(wrong(format!("the version is {version}"), &expected));
    }
    let lists = (metadata.strings(KEYS[1]), metadata.strings(KEYS[2]), metadata.ints(KEYS[3]));
    let (Some(names), Some(formats), Some(dims)) = lists else {
        return Err(wrong("names, formats or dimensions are missing".into(), "three lists"));
    };
    if names.len() != formats.len() || dims.len() != 2 * names.len() {
        let found = format!("{} names, {} formats and {} dimensions", names.len(), formats.len(), dims.len());
        return Err(wrong(found, "a format and two dimensions for each name"));
    }
    let mut all = HashMap::new();
    for ((name, format), dims) in names.iter().zip(formats).zip(dims.chunks_exact(2)) {
        let (name, format_name) = (name.to_string_lossy().into_owned(), format.to_string_lossy());
        let format = registry.by_name(&format_name).filter(|f| !f.is_float());
        let format =
            format.ok_or_else(|| wrong(format!("'{name}' is of {format_name:?}"), "a declared format"))?;
        let tensor = file.tensors().iter().position(|t| t.name == format!("{name}{SUFFIX}"));
        let tensor =
            tensor.ok_or_else(|| wrong(format!("'{name}{SUFFIX}' is missing"), "a tensor of that name"))?;
        let size = |n: i64| usize::try_from(n).ok().filter(|n| (1..1 << 32).contains(n));
        let (cols, rows) = (size(dims[0]), size(dims[1]));
        let len = match (cols, rows) {
            (Some(cols), Some(rows)) if format.row_bytes(cols).is_some() => {
                format.kernels(Supported::SCALAR).checked_packed_len(rows, cols)
            }
            _ => None,
        };
        let (Some(cols), Some(rows), Some(len)) = (cols, rows, len) else {
            return Err(wrong(format!("'{name}' has dimensions {dims:?}"), "whole blocks of its format"));
        };
        let found = &file.tensors()[tensor];
        if found.type_id != I8 || found.bytes != len as u64 {
            let found = format!("'{name}{SUFFIX}' has {} bytes of {}", found.bytes, found.type_name);
            return Err(wrong(found, &format!("{len} bytes of I8")));
        }
        all.insert(name, PackedMatrix { tensor, format, cols, rows });
    }
    Ok(all)
}

/// What was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackReport {
    /// Matrices that are interleaved now.
    pub matrices: usize,
    /// Bytes of the file that was read, and of the one that was written.
    pub bytes: [u64; 2],
}

/// Writes a copy of a model's file whose matrices are interleaved.
///
/// # Errors
/// * if the input is no model that runs here, or is packed already
/// * if the output cannot be written
pub fn pack(
    input: &Path,
    output: &Path,
    registry: &Registry,
    tier: Supported,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<PackReport, Error> {
    let file = ModelFile::open(input, registry)?;
    if file.metadata().get(KEYS[0]).is_some() {
        return Err(Error::Unsupported { path: input.into(), what: "a file that is packed already".into() });
    }
    let params = HParams::read(&file, None)?;
    let mut binder = Binder::new(&file, registry, tier, true)?;
    build(&file, &params, &mut binder)?;
    let matrices = binder.whole_matrices();
    let (metadata, tensors) = plan(&file, &matrices);
    let paths: Vec<&Path> = file.paths().collect();
    let mut writer = GgufWriter::create(output, &paths, &metadata, &tensors, registry)?;
    let total = file.tensors().iter().map(|t| t.bytes).sum();
    let mut done = 0;
    for (index, tensor) in file.tensors().iter().enumerate() {
        let data = file.data(tensor);
        if stays(index, &matrices) {
            writer.write(&data)?;
        }
        if let Some(matrix) = matrices.iter().find(|m| m.tensor == index) {
            write_panels(matrix, &data, &mut writer)?;
        }
        if let Cow::Borrowed(data) = data {
            file.release(data);
        }
        done += tensor.bytes;
        progress(done, total);
    }
    let size = writer.finish()?;
    Ok(PackReport { matrices: matrices.len(), bytes: [file.file_size(), size] })
}

/// Whether a tensor is needed in the layout of the file.
fn stays(tensor: usize, matrices: &[Matrix]) -> bool {
    matrices.iter().find(|m| m.tensor == tensor).is_none_or(|m| m.read_by_row)
}

/// The metadata and the tensors of the packed file.
fn plan(file: &ModelFile, matrices: &[Matrix]) -> (Metadata, Vec<NewTensor>) {
    let mut metadata = file.metadata().clone();
    let mut tensors = Vec::new();
    let (mut names, mut formats, mut dims) = (Vec::<Str>::new(), Vec::<Str>::new(), Vec::new());
    for (index, tensor) in file.tensors().iter().enumerate() {
        let old = || NewTensor {
            name: tensor.name.clone(),
            dims: tensor.dims.clone(),
            type_id: tensor.type_id,
            layout: tensor.layout,
        };
        if stays(index, matrices) {
            tensors.push(old());
        }
        if let Some(matrix) = matrices.iter().find(|m| m.tensor == index) {
            let len = matrix.kernels.packed_len(matrix.rows, matrix.cols) as u64;
            let name = format!("{}{SUFFIX}", tensor.name);
            tensors.push(NewTensor { name, dims: vec![len], type_id: I8, layout: Layout::Current });
            names.push(tensor.name.as_str().into());
            formats.push(matrix.kernels.format().name.into());
            dims.extend([matrix.cols as u64, matrix.rows as u64]);
        }
    }
    metadata.insert("general.alignment", Value::U32(ALIGNMENT));
    metadata.insert(KEYS[0], Value::U32(VERSION));
    metadata.insert(KEYS[1], Value::Array(Array::String(names)));
    metadata.insert(KEYS[2], Value::Array(Array::String(formats)));
    metadata.insert(KEYS[3], Value::Array(Array::U64(dims)));
    (metadata, tensors)
}

/// Interleaves a matrix piece by piece, each on all cores.
fn write_panels(matrix: &Matrix, data: &[u8], writer: &mut GgufWriter) -> Result<(), Error> {
    let Matrix { kernels, rows, cols, .. } = *matrix;
    let panels = rows.div_ceil(PANEL);
    let panel = kernels.packed_len(PANEL, cols);
    let step = (PIECE / panel.max(1)).max(1);
    let many = 16 * step;
    let mut buffer = vec![0; many.min(panels) * panel];
    for first in (0..panels).step_by(many) {
        let count = many.min(panels - first);
        let buffer = &mut buffer[..count * panel];
        buffer.par_chunks_mut(step * panel).enumerate().for_each(|(n, out)| {
            let start = first + n * step;
            kernels.pack_panels(data, cols, rows, start..start + out.len() / panel, out);
        });
        writer.write(buffer)?;
    }
    Ok(())
}
