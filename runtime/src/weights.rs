//! Weights: every tensor bound once to the kernels that suit this CPU.
//!
//! Binding decides for each tensor: which format, which kernels, and where the bytes come from. Matrices of
//! quantised formats are interleaved into panels (in one anonymous map, made on all cores at load); float matrices,
//! embedding tables and everything when packing is off are read from the file's own map. Norm weights and biases are
//! small and become plain f32. After binding nothing asks for a name, a format or the CPU.

use crate::error::Error;
use crate::files::{ModelFile, TensorInfo};
use crate::packed::{self, PackedMatrix};
use memmap2::MmapMut;
use quantsmith_kernels::{Format, KernelSet, PANEL, Registry, Supported};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

/// A matrix of the model, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WeightId(pub(crate) usize);

/// A norm weight, a bias or a table of divisors, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VectorId(pub(crate) usize);

/// What a matrix is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Rows are read one by one.
    Table,
    /// It is multiplied with activations.
    Matrix,
}

/// Packed matrices start at multiples of this, the size of a cache line pair.
const ALIGN: usize = 128;
/// A matrix is packed in pieces of about so many bytes.
const PIECE: usize = 1 << 18;

/// A matrix bound to its kernels.
#[derive(Debug)]
pub(crate) struct Weight {
    /// Index of the tensor in the file.
    tensor: usize,
    /// The rows of the tensor that belong to the matrix.
    first_row: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) kernels: KernelSet,
    pub(crate) used: Use,
    /// Bytes of a row in the layout of the file.
    pub(crate) row_bytes: usize,
    /// The bytes of the rows within the data of the tensor.
    bytes: Range<usize>,
    /// The data, where the file does not hold it in this form.
    owned: Option<Box<[u8]>>,
    /// Where the panels are, if there are any.
    packed: Option<Panels>,
}

/// Where the panels of a matrix are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Panels {
    /// So many bytes of the file itself: the whole of the tensor.
    File(usize),
    /// In the buffer that is filled at load.
    Buffer(Range<usize>),
}

impl Panels {
    fn bytes(&self) -> usize {
        match self {
            Panels::File(bytes) => *bytes,
            Panels::Buffer(range) => range.len(),
        }
    }
}

/// A matrix that is a whole tensor of codes, with what packing needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) tensor: usize,
    pub(crate) kernels: KernelSet,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Whether rows are read one by one, too.
    pub(crate) read_by_row: bool,
}

impl Weight {
    /// The format.
    pub(crate) fn format(&self) -> &'static Format {
        self.kernels.format()
    }

    /// Whether the other side of a product must be quantised.
    pub(crate) fn takes_codes(&self) -> bool {
        !self.format().is_float()
    }

    /// Panels of [`PANEL`] rows; the last may be partly filled.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    pub(crate) fn tensor(&self) -> usize {
        self.tensor
    }

    pub(crate) fn rows_of_tensor(&self) -> Range<usize> {
        self.first_row..self.first_row + self.rows
    }

    /// Bytes of the panels, 0 when there are none.
    pub(crate) fn packed_bytes(&self) -> usize {
        self.packed.as_ref().map_or(0, Panels::bytes)
    }

    /// Whether the file itself holds the panels.
    pub(crate) fn packed_in_file(&self) -> bool {
        matches!(self.packed, Some(Panels::File(_)))
    }

    /// Bytes of the rows in the layout of the file.
    pub(crate) fn file_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that a product reads.
    pub(crate) fn read_bytes(&self) -> usize {
        self.packed.as_ref().map_or(self.bytes.len(), Panels::bytes)
    }

    /// Bytes that are read from the file's map while the model runs.
    pub(crate) fn mapped_bytes(&self) -> usize {
        if matches!(self.packed, Some(Panels::Buffer(_))) { 0 } else { self.bytes.len() }
    }

    /// The kernel that multiplies or reads it, as a path.
    pub(crate) fn kernel_name(&self) -> String {
        let operation = match (self.used, self.format().is_float(), self.packed.is_some()) {
            (Use::Table, _, _) => "dequantise",
            (Use::Matrix, true, _) => "matmul_float",
            (Use::Matrix, false, true) => "matmul_packed",
            (Use::Matrix, false, false) => "matmul_rows",
        };
        format!("{}::{}::{operation}", self.format().name.to_lowercase(), self.kernels.tier().name())
    }
}

/// The bytes that a product reads.
pub(crate) enum Bytes<'a> {
    /// Panels.
    Packed(&'a [u8]),
    /// Rows as the file has them.
    Plain(&'a [u8]),
}

/// All weights of a model.
pub(crate) struct Weights {
    pub(crate) file: ModelFile,
    pub(crate) matrices: Vec<Weight>,
    vectors: Vec<Box<[f32]>>,
    packed: Option<MmapMut>,
}

impl Weights {
    /// A matrix.
    pub(crate) fn matrix(&self, id: WeightId) -> &Weight {
        &self.matrices[id.0]
    }

    /// A vector.
    pub(crate) fn vector(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }

    /// The rows of a matrix in the layout of the file.
    pub(crate) fn plain<'a>(&'a self, weight: &'a Weight) -> &'a [u8] {
        if let Some(owned) = &weight.owned {
            return owned;
        }
        match self.file.data(&self.file.tensors()[weight.tensor]) {
            Cow::Borrowed(data) => &data[weight.bytes.clone()],
            Cow::Owned(_) => unreachable!("data that the file does not hold as it is was kept at binding"),
        }
    }

    /// The bytes of a matrix, packed where it is.
    pub(crate) fn bytes<'a>(&'a self, weight: &'a Weight) -> Bytes<'a> {
        match (&weight.packed, &self.packed) {
            (Some(Panels::File(_)), _) => Bytes::Packed(self.plain(weight)),
            (Some(Panels::Buffer(range)), Some(buffer)) => Bytes::Packed(&buffer[range.clone()]),
            _ => Bytes::Plain(self.plain(weight)),
        }
    }

    /// Bytes of all packed matrices.
    pub(crate) fn packed_bytes(&self) -> usize {
        self.packed.as_ref().map_or(0, |buffer| buffer.len())
    }

    /// Bytes of norm weights and biases.
    pub(crate) fn vector_bytes(&self) -> usize {
        self.vectors.iter().map(|v| size_of_val(&**v)).sum()
    }
}

/// Binds tensors while the graph is built, then packs them.
pub(crate) struct Binder<'a> {
    file: &'a ModelFile,
    registry: &'a Registry,
    isa: Supported,
    pack: bool,
    by_name: HashMap<&'a str, usize>,
    /// Matrices that the file holds in panels.
    packed: HashMap<String, PackedMatrix>,
    used: Vec<bool>,
    matrices: Vec<Weight>,
    vectors: Vec<Box<[f32]>>,
}

impl<'a> Binder<'a> {
    /// # Errors
    /// * if what the file says about packed matrices does not hold
    pub(crate) fn new(
        file: &'a ModelFile,
        registry: &'a Registry,
        isa: Supported,
        pack: bool,
    ) -> Result<Self, Error> {
        let packed = packed::read(file, registry)?;
        let by_name = file.tensors().iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
        let used = vec![false; file.tensors().len()];
        Ok(Binder {
            file,
            registry,
            isa,
            pack,
            by_name,
            packed,
            used,
            matrices: Vec::new(),
            vectors: Vec::new(),
        })
    }

    /// Whether the file has a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.packed.contains_key(name)
    }

    /// A matrix that is bound already.
    pub(crate) fn matrix(&self, id: WeightId) -> &Weight {
        &self.matrices[id.0]
    }

    /// The rows of a matrix by its tensor's dimensions, unchecked.
    pub(crate) fn rows(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).map(|&i| self.file.tensors()[i].dims.get(1).copied().unwrap_or(1))
    }

    /// Binds a matrix of `rows` rows of `cols` columns.
    pub(crate) fn bind(
        &mut self,
        name: &str,
        cols: usize,
        rows: usize,
        used: Use,
    ) -> Result<WeightId, Error> {
        self.bind_rows(name, cols, rows, 0..rows, used)
    }

    /// Binds some rows of a matrix of `all` rows: of a tensor that holds several matrices one below the other.
    pub(crate) fn bind_rows(
        &mut self,
        name: &str,
        cols: usize,
        all: usize,
        rows: Range<usize>,
        used: Use,
    ) -> Result<WeightId, Error> {
        if used == Use::Matrix && rows == (0..all) && self.packed.contains_key(name) {
            return self.bind_packed(name, cols, all);
        }
        let (tensor, format) = self.take(name, &[cols, all])?;
        let kernels = format.kernels(self.isa);
        let row_bytes = format.row_bytes(cols).ok_or_else(|| {
            let found = format!("rows of {cols} columns");
            self.error(name, found, format!("a multiple of {} columns for {}", format.elements, format.name))
        })?;
        let bytes = rows.start * row_bytes..rows.end * row_bytes;
        let owned = match self.file.data(&self.file.tensors()[tensor]) {
            Cow::Borrowed(_) => None,
            Cow::Owned(data) => Some(data[bytes.clone()].into()),
        };
        self.matrices.push(Weight {
            tensor,
            first_row: rows.start,
            rows: rows.len(),
            cols,
            kernels,
            used,
            row_bytes,
            bytes,
            owned,
            packed: None,
        });
        Ok(WeightId(self.matrices.len() - 1))
    }

    /// Binds a matrix that the file holds in panels.
    fn bind_packed(&mut self, name: &str, cols: usize, rows: usize) -> Result<WeightId, Error> {
        let matrix = self.packed[name];
        if (matrix.cols, matrix.rows) != (cols, rows) {
            let found = format!("dimensions {:?}", [matrix.cols, matrix.rows]);
            return Err(self.error(name, found, format!("{:?}", [cols, rows])));
        }
        let tensor = &self.file.tensors()[matrix.tensor];
        let owned = match self.file.data(tensor) {
            Cow::Borrowed(_) => None,
            Cow::Owned(data) => Some(data.into()),
        };
        self.used[matrix.tensor] = true;
        let bytes = tensor.bytes as usize;
        self.matrices.push(Weight {
            tensor: matrix.tensor,
            first_row: 0,
            rows,
            cols,
            kernels: matrix.format.kernels(self.isa),
            used: Use::Matrix,
            row_bytes: matrix.format.row_bytes(cols).unwrap_or(0),
            bytes: 0..bytes,
            owned,
            packed: Some(Panels::File(bytes)),
        });
        Ok(WeightId(self.matrices.len() - 1))
    }

    /// The matrices of codes that are whole tensors: those that can be packed ahead of time.
    pub(crate) fn whole_matrices(&self) -> Vec<Matrix> {
        let mut all = Vec::<Matrix>::new();
        for weight in self.matrices.iter().filter(|w| w.used == Use::Matrix && w.takes_codes()) {
            let tensor = &self.file.tensors()[weight.tensor];
            let whole =
                tensor.dims.get(1).copied().unwrap_or(1) == weight.rows as u64 && tensor.dims.len() <= 2;
            if whole && !all.iter().any(|m| m.tensor == weight.tensor) {
                let by_row = |w: &Weight| w.tensor == weight.tensor && w.used == Use::Table;
                all.push(Matrix {
                    tensor: weight.tensor,
                    kernels: weight.kernels,
                    rows: weight.rows,
                    cols: weight.cols,
                    read_by_row: self.matrices.iter().any(by_row),
                });
            }
        }
        all
    }

    /// Binds a vector, as f32.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<VectorId, Error> {
        let (tensor, format) = self.take(name, &[len])?;
        let bytes = self.file.data(&self.file.tensors()[tensor]);
        if !len.is_multiple_of(format.elements) {
            let expected = format!("a multiple of {} for {}", format.elements, format.name);
            return Err(self.error(name, format!("{len} elements"), expected));
        }
        let mut values = vec![0.0; len].into_boxed_slice();
        format.kernels(self.isa).dequantise(&bytes, &mut values);
        self.vectors.push(values);
        Ok(VectorId(self.vectors.len() - 1))
    }

    /// Some of the values of a vector of `all` values, bound as a vector of their own.
    pub(crate) fn vector_part(
        &mut self,
        name: &str,
        all: usize,
        part: Range<usize>,
    ) -> Result<VectorId, Error> {
        let whole = self.vector(name, all)?;
        self.vectors[whole.0] = self.vectors[whole.0][part].into();
        Ok(whole)
    }

    /// A vector if the file has it.
    pub(crate) fn vector_if(&mut self, name: &str, len: usize) -> Result<Option<VectorId>, Error> {
        if self.has(name) { self.vector(name, len).map(Some) } else { Ok(None) }
    }

    /// Leaves a tensor, if the file has it, out of those that nothing uses.
    pub(crate) fn pass_over(&mut self, name: &str) {
        if let Some(&index) = self.by_name.get(name) {
            self.used[index] = true;
        }
    }

    /// The values of a vector that is bound already.
    pub(crate) fn values(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }

    /// Names of the tensors that nothing has bound.
    pub(crate) fn unused(&self) -> Vec<&'a str> {
        let tensors = self.file.tensors().iter().zip(&self.used);
        tensors.filter(|(_, used)| !**used).map(|(t, _)| t.name.as_str()).collect()
    }

    /// An error about a tensor.
    pub(crate) fn error(&self, name: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        let path = self.file.path().into();
        Error::Tensor { path, name: name.into(), found: found.into(), expected: expected.into() }
    }

    /// Finds a tensor, checks its dimensions and finds its format.
    fn take(&mut self, name: &str, dims: &[usize]) -> Result<(usize, &'static Format), Error> {
        let expected = || format!("{dims:?}");
        let &index = self.by_name.get(name).ok_or_else(|| self.error(name, "not in the file", expected()))?;
        let tensor = &self.file.tensors()[index];
        if !same_dims(&tensor.dims, dims) {
            return Err(self.error(name, format!("dimensions {:?}", tensor.dims), expected()));
        }
        let format = find_format(self.registry, tensor)
            .ok_or_else(|| self.error(name, format!("type {}", tensor.type_id), "a declared format"))?;
        self.used[index] = true;
        Ok((index, format))
    }

    /// Gives every matrix that is multiplied a place for its panels.
    pub(crate) fn finish(self) -> Packer {
        let mut matrices = self.matrices;
        let mut bytes = 0;
        for weight in &mut matrices {
            if self.pack && weight.packed.is_none() && weight.used == Use::Matrix && weight.takes_codes() {
                let len = weight.kernels.packed_len(weight.rows, weight.cols);
                weight.packed = Some(Panels::Buffer(bytes..bytes + len));
                bytes += len.next_multiple_of(ALIGN);
            }
        }
        Packer { matrices, vectors: self.vectors, bytes }
    }
}

fn same_dims(found: &[u64], expected: &[usize]) -> bool {
    let count = found.len().max(expected.len());
    (0..count).all(|i| {
        let (found, expected) = (found.get(i).copied().unwrap_or(1), expected.get(i).copied().unwrap_or(1));
        found == expected as u64
    })
}

fn find_format(registry: &Registry, tensor: &TensorInfo) -> Option<&'static Format> {
    match tensor.layout.format_name(tensor.type_id) {
        Some(name) => registry.by_name(name),
        None => registry.by_id(tensor.type_id),
    }
}

/// Bound weights that wait for being packed.
pub(crate) struct Packer {
    matrices: Vec<Weight>,
    vectors: Vec<Box<[f32]>>,
    bytes: usize,
}

/// Some panels of a matrix and the place for them.
struct Piece<'a> {
    weight: &'a Weight,
    panels: Range<usize>,
    out: &'a mut [u8],
}

impl Packer {
    /// Bytes of packed weights.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packs on `threads` threads and tells how far it is, in bytes of packed weights.
    pub(crate) fn pack(
        self,
        file: ModelFile,
        threads: usize,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Weights, Error> {
        let Packer { matrices, vectors, bytes } = self;
        let mut weights = Weights { file, matrices, vectors, packed: None };
        if bytes == 0 {
            return Ok(weights);
        }
        let mut buffer = map(bytes)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let progress = Mutex::new((0, progress));
        let pack = |piece: Piece<'_>| {
            let Piece { weight, panels, out } = piece;
            let len = out.len() as u64;
            let (plain, rows) =
                (weights.plain(weight), panels.start * PANEL..weight.rows.min(panels.end * PANEL));
            weight.kernels.pack_panels(plain, weight.cols, weight.rows, panels, out);
            // Both copies at once would be twice the memory.
            let row_bytes = plain.len() / weight.rows.max(1);
            weights.file.release(&plain[rows.start * row_bytes..rows.end * row_bytes]);
            if let Ok(mut guard) = progress.lock() {
                guard.0 += len;
                let done = guard.0;
                (guard.1)(done);
            }
        };
        let pieces = pieces(&weights.matrices, &mut buffer);
        match pool {
            Ok(pool) => pool.install(|| pieces.into_par_iter().for_each(pack)),
            // No more threads to be had: slower, and the same bytes.
            Err(_) => pieces.into_iter().for_each(pack),
        }
        weights.packed = Some(buffer);
        Ok(weights)
    }
}

/// Anonymous memory, in large pages where the system has them.
fn map(bytes: usize) -> Result<MmapMut, Error> {
    let hint = "run with less packing, as --no-repack does, or with a smaller model";
    let buffer = MmapMut::map_anon(bytes).map_err(|_| Error::Memory {
        what: "interleaved weights",
        bytes: bytes as u64,
        hint,
    })?;
    #[cfg(target_os = "linux")]
    {
        // A hint; without large pages everything works as well, a little slower.
        let _ = buffer.advise(memmap2::Advice::HugePage);
    }
    Ok(buffer)
}

/// Cuts the buffer into the places of panels.
fn pieces<'a>(matrices: &'a [Weight], buffer: &'a mut [u8]) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    let (mut rest, mut at) = (buffer, 0);
    for weight in matrices {
        let Some(Panels::Buffer(range)) = &weight.packed else { continue };
        let (_, after) = std::mem::take(&mut rest).split_at_mut(range.start - at);
        let (mut place, after) = after.split_at_mut(range.len());
        (rest, at) = (after, range.end);
        let panels = weight.panels();
        let panel_bytes = range.len() / panels.max(1);
        let step = (PIECE / panel_bytes.max(1)).max(1);
        for first in (0..panels).step_by(step) {
            let count = step.min(panels - first);
            let (out, after) = place.split_at_mut(count * panel_bytes);
            place = after;
            pieces.push(Piece { weight, panels: first..first + count, out });
        }
    }
    pieces
}
