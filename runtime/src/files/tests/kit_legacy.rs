//! Writes files of the containers before GGUF.

use std::path::Path;

use super::Table;
use crate::files::{FileError, ModelFile, OpenOptions};

/// What to write, field by field.
#[derive(Clone)]
pub(crate) struct Legacy {
    pub(crate) magic: &'static [u8; 4],
    pub(crate) version: Option<u32>,
    /// n_vocab, n_embd, n_mult, n_head, n_layer, n_rot, ftype.
    pub(crate) words: [u32; 7],
    pub(crate) tokens: Vec<(Vec<u8>, f32)>,
    pub(crate) tensors: Vec<(String, Vec<u32>, u32, Vec<u8>)>,
}

/// Tokens of the models here: unknown, begin, end, all bytes, and two words.
pub(crate) const VOCABULARY: u32 = 3 + 256 + 2;
const EMBEDDING: u32 = 64;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const FEED_FORWARD: u32 = 128;

impl Legacy {
    /// An empty file of a container: `("tjgg", Some(3))`.
    pub(crate) fn new(magic: &'static [u8; 4], version: Option<u32>) -> Self {
        let mut tokens: Vec<(Vec<u8>, f32)> = vec![(" \u{2047} ".into(), 0.0), (vec![], 0.0), (vec![], 0.0)];
        tokens.extend((0..=255u8).map(|b| (vec![b], 0.0)));
        tokens.push((b" the".to_vec(), -0.5));
        tokens.push((b"x".to_vec(), -1.5));
        Self {
            magic,
            version,
            words: [VOCABULARY, EMBEDDING, 32, HEADS, 1, EMBEDDING / HEADS, 0],
            tokens,
            tensors: Vec::new(),
        }
    }

    /// All containers, oldest first.
    pub(crate) fn containers() -> [Self; 5] {
        [
            Self::new(b"lmgg", None),
            Self::new(b"fmgg", Some(1)),
            Self::new(b"tjgg", Some(1)),
            Self::new(b"tjgg", Some(2)),
            Self::new(b"tjgg", Some(3)),
        ]
    }

    /// Adds the tensors of a model of one layer; matrices have a type with blocks of so many elements and
    /// bytes.
    pub(crate) fn model(mut self, type_id: u32, elements: u32, bytes: u32) -> Self {
        let kv = EMBEDDING / HEADS * KV_HEADS;
        for (name, dims) in [
            ("tok_embeddings.weight", vec![EMBEDDING, VOCABULARY]),
            ("norm.weight", vec![EMBEDDING]),
            ("output.weight", vec![EMBEDDING, VOCABULARY]),
            ("layers.0.attention.wq.weight", vec![EMBEDDING, EMBEDDING]),
            ("layers.0.attention.wk.weight", vec![EMBEDDING, kv]),
            ("layers.0.attention.wv.weight", vec![EMBEDDING, kv]),
            ("layers.0.attention.wo.weight", vec![EMBEDDING, EMBEDDING]),
            ("layers.0.attention_norm.weight", vec![EMBEDDING]),
            ("layers.0.feed_forward.w1.weight", vec![EMBEDDING, FEED_FORWARD]),
            ("layers.0.feed_forward.w2.weight", vec![FEED_FORWARD, EMBEDDING]),
            ("layers.0.feed_forward.w3.weight", vec![EMBEDDING, FEED_FORWARD]),
            ("layers.0.ffn_norm.weight", vec![EMBEDDING]),
        ] {
            let count: u32 = dims.iter().product();
            let (id, size) =
                if dims.len() == 1 { (0, 4 * count) } else { (type_id, count / elements * bytes) };
            let seed = self.tensors.len();
            let data = (0..size as usize).map(|i| ((i + 31 * seed) % 253) as u8).collect();
            self.tensors.push((name.into(), dims, id, data));
        }
        self
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[u32], type_id: u32, data: Vec<u8>) -> Self {
        self.tensors.push((name.into(), dims.into(), type_id, data));
        self
    }

    /// The bytes of a tensor by its old name.
    pub(crate) fn data(&self, name: &str) -> &[u8] {
        &self.tensors.iter().find(|t| t.0 == name).expect("a tensor of the model").3
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        let word = |out: &mut Vec<u8>, v: u32| out.extend(v.to_le_bytes());
        if let Some(version) = self.version {
            word(&mut out, version);
        }
        for v in self.words {
            word(&mut out, v);
        }
        for (text, score) in &self.tokens {
            word(&mut out, text.len() as u32);
            out.extend(text);
            if self.magic != b"lmgg" {
                out.extend(score.to_le_bytes());
            }
        }
        for (name, dims, type_id, data) in &self.tensors {
            for v in [dims.len() as u32, name.len() as u32, *type_id].into_iter().chain(dims.iter().copied())
            {
                word(&mut out, v);
            }
            out.extend(name.as_bytes());
            if self.magic == b"tjgg" {
                out.resize(out.len().next_multiple_of(32), 0xee);
            }
            out.extend(data);
        }
        out
    }

    /// Splits the matrices into parts, as the converters of models in several files did.
    pub(crate) fn split(&self, parts: u32, blocks: impl Fn(u32) -> (u32, u32)) -> Vec<Self> {
        let mut files = vec![Self { tensors: Vec::new(), ..self.clone() }; parts as usize];
        for (name, dims, type_id, data) in &self.tensors {
            let columns = name == "tok_embeddings.weight" || name.contains(".wo.") || name.contains(".w2.");
            let (elements, bytes) = blocks(*type_id);
            for (i, file) in files.iter_mut().enumerate() {
                let (dims, data) = if dims.len() == 1 {
                    (dims.clone(), data.clone())
                } else if columns {
                    let row = (dims[0] / elements * bytes) as usize;
                    let piece = row / parts as usize;
                    let data = data.chunks(row).flat_map(|r| r[i * piece..][..piece].to_vec()).collect();
                    (vec![dims[0] / parts, dims[1]], data)
                } else {
                    let piece = data.len() / parts as usize;
                    (vec![dims[0], dims[1] / parts], data[i * piece..][..piece].to_vec())
                };
                file.tensors.push((name.clone(), dims, *type_id, data));
            }
        }
        files
    }
}

/// Reads bytes as a model called `m.bin`, in one file.
pub(crate) fn open_legacy(bytes: &[u8]) -> Result<ModelFile, FileError> {
    ModelFile::from_bytes(Path::new("m.bin"), bytes.to_vec(), &Table)
}

/// Reads bytes with options, through a real file.
pub(crate) fn open_legacy_with(bytes: &[u8], options: &OpenOptions) -> Result<ModelFile, FileError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.bin");
    std::fs::write(&path, bytes).expect("written");
    ModelFile::open_with(&path, &Table, options)
}
