//! Tests of the file layer: a kit that writes files byte by byte, right ones and wrong ones.

mod convert;
mod gguf;
mod hard_inputs;
mod inspect;
mod kit_legacy;
mod layouts;
mod legacy;
mod mutations;
mod ops;
mod private;
mod split;
mod write;

use std::path::Path;

use super::{BlockShape, FileError, ModelFile, TypeTable, ValueType};

/// A table with formats enough for the tests; names and sizes as in GGUF.
pub(crate) struct Table;

const SHAPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (24, "I8", 1, 1),
    (30, "BF16", 1, 2),
];

const OLD_SHAPES: &[(&str, u64, u64)] = &[
    ("Q4_0_V1", 32, 20),
    ("Q4_1_V1", 32, 24),
    ("Q4_2_V1", 16, 10),
    ("Q4_3_V1", 16, 12),
    ("Q5_0_V1", 32, 22),
    ("Q5_1_V1", 32, 24),
    ("Q8_0_V1", 32, 36),
    ("Q4_0_V2", 32, 20),
    ("Q4_1_V2", 32, 24),
    ("Q2_K_64", 64, 24),
    ("Q3_K_64", 64, 28),
    ("Q4_K_64", 64, 38),
    ("Q5_K_64", 64, 46),
    ("Q6_K_64", 64, 54),
];

impl TypeTable for Table {
    fn shape(&self, type_id: u32) -> Option<BlockShape> {
        let &(_, name, elements, bytes) = SHAPES.iter().find(|(id, ..)| *id == type_id)?;
        Some(BlockShape { name, elements, bytes })
    }

    fn names(&self) -> Vec<String> {
        SHAPES.iter().map(|(_, name, ..)| (*name).to_owned()).collect()
    }

    fn shape_named(&self, name: &str) -> Option<BlockShape> {
        let &(name, elements, bytes) = OLD_SHAPES.iter().find(|(n, ..)| *n == name)?;
        Some(BlockShape { name, elements, bytes })
    }

    fn swap_fields(&self, type_id: u32) -> Option<Vec<(usize, usize)>> {
        Some(match type_id {
            0 => vec![(0, 4)],
            1 | 30 | 2 | 8 => vec![(0, 2)],
            12 => vec![(0, 2), (2, 2)],
            24 => vec![],
            _ => return None,
        })
    }
}

/// Reads bytes as a model called `m.gguf`.
pub(crate) fn open(bytes: &[u8]) -> Result<ModelFile, FileError> {
    ModelFile::from_bytes(Path::new("m.gguf"), bytes.to_vec(), &Table)
}

/// The message of a refusal, which must be one line that names the file.
pub(crate) fn refusal(bytes: &[u8]) -> String {
    let message = open(bytes).expect_err("the file must be refused").to_string();
    assert!(message.starts_with("m.gguf: ") && !message.contains('\n'), "{message}");
    assert!(message.len() < 1000, "{} bytes of message", message.len());
    message
}

/// Asserts that a file is refused with a message that holds all of these.
pub(crate) fn assert_refused(bytes: &[u8], parts: &[&str]) {
    let message = refusal(bytes);
    for part in parts {
        assert!(message.contains(part), "no '{part}' in: {message}");
    }
}

/// Writes GGUF files without any check.
#[derive(Clone)]
pub(crate) struct Raw {
    version: u32,
    big: bool,
    entries: Vec<Vec<u8>>,
    records: Vec<Vec<u8>>,
    data: Vec<u8>,
    alignment: usize,
    /// Overrides for the counts.
    pub(crate) entry_count: Option<u64>,
    pub(crate) tensor_count: Option<u64>,
}

impl Raw {
    pub(crate) fn new(version: u32) -> Self {
        Self {
            version,
            big: false,
            entries: Vec::new(),
            records: Vec::new(),
            data: Vec::new(),
            alignment: 32,
            entry_count: None,
            tensor_count: None,
        }
    }

    pub(crate) fn big_endian() -> Self {
        Self { big: true, ..Self::new(3) }
    }

    pub(crate) fn u16(&self, v: u16) -> Vec<u8> {
        if self.big { v.to_be_bytes().into() } else { v.to_le_bytes().into() }
    }

    pub(crate) fn u32(&self, v: u32) -> Vec<u8> {
        if self.big { v.to_be_bytes().into() } else { v.to_le_bytes().into() }
    }

    pub(crate) fn u64(&self, v: u64) -> Vec<u8> {
        if self.big { v.to_be_bytes().into() } else { v.to_le_bytes().into() }
    }

    /// A count or length in the width of the version.
    pub(crate) fn length(&self, v: u64) -> Vec<u8> {
        if self.version == 1 { self.u32(u32::try_from(v).expect("fits version 1")) } else { self.u64(v) }
    }

    pub(crate) fn string(&self, text: &str) -> Vec<u8> {
        [self.length(text.len() as u64), text.into()].concat()
    }

    /// An entry whose value is given as bytes.
    pub(crate) fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push([self.string(key), self.u32(kind), value.into()].concat());
        self
    }

    pub(crate) fn entry_u32(self, key: &str, value: u32) -> Self {
        let raw = self.u32(value);
        self.entry(key, ValueType::U32.id(), &raw)
    }

    pub(crate) fn entry_str(self, key: &str, value: &str) -> Self {
        let raw = self.string(value);
        self.entry(key, ValueType::String.id(), &raw)
    }

    pub(crate) fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment as usize;
        self.entry_u32("general.alignment", alignment)
    }

    /// A tensor with its data behind the data so far.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, data: &[u8]) -> Self {
        let offset = self.data.len().next_multiple_of(self.alignment);
        self.data.resize(offset, 0);
        self.data.extend_from_slice(data);
        self.record(name, dims, type_id, offset as u64)
    }

    /// A tensor record without data.
    pub(crate) fn record(mut self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let mut raw = self.string(name);
        raw.extend(self.u32(dims.len() as u32));
        for &d in dims {
            raw.extend(self.length(d));
        }
        raw.extend(self.u32(type_id));
        raw.extend(self.u64(offset));
        self.records.push(raw);
        self
    }

    /// Everything before the padding.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.u32(self.version));
        out.extend(self.length(self.tensor_count.unwrap_or(self.records.len() as u64)));
        out.extend(self.length(self.entry_count.unwrap_or(self.entries.len() as u64)));
        out.extend(self.entries.concat());
        out.extend(self.records.concat());
        out
    }

    /// The whole file, without padding behind the last tensor.
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        if !self.data.is_empty() {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
        }
        out.extend_from_slice(&self.data);
        out
    }
}

/// Bytes that repeat only after 251, so that a shift shows.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i % 251) as u8 + 1).collect()
}
