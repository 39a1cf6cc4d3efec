//! An opened model: the map of its file, its metadata and its tensors, all checked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use super::cursor::ByteOrder;
use super::error::FileError;
use super::map::FileBytes;
use super::metadata::Metadata;
use super::parts::{Opened, Part};
use super::sniff::{Magic, sniff};
use super::tensor::{Order, TensorInfo};
use super::types::TypeTable;
use super::{experts, gguf, legacy};

/// Which container a model came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// GGUF: version 1, 2 or 3.
    Gguf {
        /// The version in the header.
        version: u32,
        /// The order of bytes in the file.
        order: ByteOrder,
    },
    /// The first container: no version, no scores in the vocabulary, no alignment.
    Ggml,
    /// With version and scores.
    Ggmf,
    /// With tensors aligned to 32 bytes: version 1, 2 or 3.
    Ggjt {
        /// The version in the header.
        version: u32,
    },
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gguf { version, order: ByteOrder::Little } => write!(f, "GGUF v{version}"),
            Self::Gguf { version, order: ByteOrder::Big } => write!(f, "GGUF v{version}, big-endian"),
            Self::Ggml => f.write_str("GGML (unversioned)"),
            Self::Ggmf => f.write_str("GGMF v1"),
            Self::Ggjt { version } => write!(f, "GGJT v{version}"),
        }
    }
}

/// What a reader finds in a file.
pub(crate) struct Contents {
    pub(crate) container: Container,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) alignment: u64,
    pub(crate) data_start: u64,
    pub(crate) hyperparameters: Vec<(&'static str, u32)>,
    pub(crate) warnings: Vec<String>,
}

/// How to open a model, where the file leaves a choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenOptions {
    /// Read the one file alone: a shard without the others, a part without the rest of its rows.
    pub single_file: bool,
    /// Leave experts that are stored one by one as tensors of their own.
    pub separate_experts: bool,
    /// Q4 tensors have all scales of a row before all codes: GGML files before 11 (Q4_0) and 17 (Q4_1) March
    /// 2023.
    pub struct_of_arrays: bool,
    /// The context length, for containers that do not tell.
    pub context_length: Option<u32>,
    /// The epsilon of RMS norm, for containers that do not tell.
    pub epsilon: Option<f32>,
    /// The base of RoPE, for containers that do not tell.
    pub rope_base: Option<f32>,
}

/// A model file, opened, mapped, and checked throughout.
pub struct ModelFile {
    parts: Vec<Part>,
    container: Container,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    alignment: u64,
    data_start: u64,
    hyperparameters: Vec<(&'static str, u32)>,
    warnings: Vec<String>,
}

impl ModelFile {
    /// Opens and checks a model of any container, with its other files when it is in several.
    ///
    /// # Errors
    /// - the path cannot be read or is no regular file
    /// - the file is no model, breaks a rule of its container, or holds a type that `types` has not got
    /// - another file of the model is missing or does not fit
    pub fn open(path: &Path, types: &dyn TypeTable) -> Result<Self, FileError> {
        Self::open_with(path, types, &OpenOptions::default())
    }

    /// Opens a model with choices of one's own.
    ///
    /// # Errors
    /// As [`ModelFile::open`]; besides, an option that this container cannot have.
    pub fn open_with(path: &Path, types: &dyn TypeTable, options: &OpenOptions) -> Result<Self, FileError> {
        Self::from_part(Part::open(path)?, types, options)
    }

    /// Reads a model that is already in memory, in one file. `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`ModelFile::open`], without those of the file system.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, types: &dyn TypeTable) -> Result<Self, FileError> {
        let part = Part { path: name.into(), bytes: FileBytes::Owned(bytes) };
        Self::from_part(part, types, &OpenOptions::default())
    }

    fn from_part(part: Part, types: &dyn TypeTable, options: &OpenOptions) -> Result<Self, FileError> {
        let Opened { parts, contents } = match sniff(&part.path, &part.bytes)? {
            Magic::Gguf => gguf::open(part, types, options)?,
            magic @ (Magic::Ggml | Magic::Ggmf | Magic::Ggjt) => legacy::open(part, magic, types, options)?,
        };
        let Contents {
            container,
            metadata,
            mut tensors,
            alignment,
            data_start,
            hyperparameters,
            mut warnings,
        } = contents;
        if !options.separate_experts {
            tensors = experts::join(tensors, &mut warnings);
        }
        let by_name = tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        Ok(Self {
            parts,
            container,
            metadata,
            tensors,
            by_name,
            alignment,
            data_start,
            hyperparameters,
            warnings,
        })
    }

    /// The path of the model: of the first file, when it is in several.
    pub fn path(&self) -> &Path {
        &self.parts[0].path
    }

    /// The container of the file.
    pub fn container(&self) -> Container {
        self.container
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// The data of a tensor of this model: blocks in the layout that the tensor names, row after row.
    ///
    /// Borrowed from the map where the file has it in that form; the address is then aligned as the file is,
    /// and not more.
    ///
    /// # Panics
    /// When the tensor comes from another model and does not fit this one.
    pub fn data(&self, tensor: &TensorInfo) -> Cow<'_, [u8]> {
        if tensor.bytes == 0 {
            return Cow::Borrowed(&[]);
        }
        let stored = &tensor.stored;
        let size = tensor.bytes / tensor.pieces() as u64;
        // Pieces that follow one another in the file are one.
        let adjacent = |(i, &(part, offset)): (u64, &(usize, u64))| {
            part == tensor.part && offset == tensor.offset + (i + 1) * size
        };
        let whole = stored.order == Order::Blocks && stored.row_bytes.is_none();
        if whole && (0..).zip(&stored.more).all(adjacent) {
            return Cow::Borrowed(self.extent(tensor.part, tensor.offset, tensor.bytes));
        }
        let first = (tensor.part, tensor.offset);
        let pieces = [&first].into_iter().chain(&stored.more);
        let pieces: Vec<&[u8]> = pieces.map(|&(part, offset)| self.extent(part, offset, size)).collect();
        stored.collect(&pieces)
    }

    /// The data of one of the experts of a tensor, which are its last dimension: what [`ModelFile::data`]
    /// gives, in `dims.last()` equal pieces. Borrowed even where the experts lie apart.
    ///
    /// # Panics
    /// When there is no such expert, or the tensor comes from another model.
    pub fn expert_data(&self, tensor: &TensorInfo, expert: usize) -> Cow<'_, [u8]> {
        let count = tensor.dims.last().copied().unwrap_or(1);
        assert!((expert as u64) < count, "expert {expert} of {count}");
        let size = tensor.bytes / count;
        if tensor.pieces() as u64 == count && tensor.stored.row_bytes.is_none() {
            let (part, offset) = match expert.checked_sub(1) {
                None => (tensor.part, tensor.offset),
                Some(later) => tensor.stored.more[later],
            };
            return tensor.stored.order.put_right(self.extent(part, offset, size));
        }
        let at = (expert as u64 * size) as usize;
        match self.data(tensor) {
            Cow::Borrowed(data) => Cow::Borrowed(&data[at..][..size as usize]),
            Cow::Owned(data) => Cow::Owned(data[at..][..size as usize].to_vec()),
        }
    }

    /// Gives back the memory of data that was handed out and is not needed for now.
    pub(crate) fn release(&self, data: &[u8]) {
        self.parts.iter().for_each(|part| part.bytes.release(data));
    }

    /// The data of a tensor, in pieces that can be had without a copy of the whole: experts that lie apart come one by
    /// one. Together they are what [`ModelFile::data`] gives.
    ///
    /// # Panics
    /// When the tensor comes from another model and does not fit this one.
    pub fn pieces<'a>(&'a self, tensor: &'a TensorInfo) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let experts = tensor.dims.last().and_then(|&n| usize::try_from(n).ok());
        let apart = experts.filter(|&n| n > 1 && tensor.pieces() == n);
        let each = (0..apart.unwrap_or(0)).map(move |expert| self.expert_data(tensor, expert));
        each.chain(apart.is_none().then(|| self.data(tensor)))
    }

    /// All bytes of each file.
    pub(crate) fn raw_files(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &*part.bytes)
    }

    /// Where the pieces of tensors lie in one of the files, as they are listed; those without bytes are left
    /// out.
    pub(crate) fn extents(&self, part: usize) -> Vec<(u64, u64)> {
        let pieces = self.tensors.iter().filter(|t| t.bytes > 0).flat_map(|t| {
            let size = t.bytes / t.pieces() as u64;
            let first = (t.part, t.offset);
            [first].into_iter().chain(t.stored.more.iter().copied()).map(move |piece| (piece, size))
        });
        pieces.filter(|((p, _), _)| *p == part).map(|((_, at), size)| (at, at + size)).collect()
    }

    /// Bytes of a file that a reader has found to be there, so that both numbers fit usize.
    fn extent(&self, part: usize, offset: u64, count: u64) -> &[u8] {
        &self.parts[part].bytes[offset as usize..][..count as usize]
    }

    /// The files of the model, the one with the header first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// The number of bytes of the file, or of all files of a model in several.
    pub fn file_size(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// The alignment of tensor data in the file, in bytes; 1 where the container has none.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where the header ends and data may start.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The numbers of the header with their names, for the containers before GGUF; none for GGUF.
    pub fn hyperparameters(&self) -> &[(&'static str, u32)] {
        &self.hyperparameters
    }

    /// What is unusual about the file but does not stand in the way of using it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The name, the container and the counts: what there is of it is shown elsewhere.
impl fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, tensors) = (self.metadata.len(), self.tensors.len());
        write!(f, "{} ({}, {keys} keys, {tensors} tensors)", self.path().display(), self.container)
    }
}
