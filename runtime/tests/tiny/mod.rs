//! One small llama model, written byte by byte in every container there has been, with blocks of every format.

#![allow(unreachable_pub, reason = "a module of a test")]

use quantsmith::files::TypeTable;
use quantsmith::kernels::{FieldType, Format, Registry};

pub const EMBED: u64 = 256;
pub const FEED_FORWARD: u64 = 512;
pub const HEADS: u64 = 4;
pub const KV_HEADS: u64 = 2;
pub const LAYERS: u64 = 2;
pub const VOCABULARY: u64 = 3 + 256 + 5;
/// What readers assume where old containers do not tell and heads share keys.
const CONTEXT: u32 = 4096;
const EPSILON: f32 = 1e-5;

/// Numbers without pattern, the same everywhere.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }
}

/// Which layout of blocks a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// f32 scales, codes of neighbours in one byte.
    First,
    /// f32 scales, codes in split halves.
    Second,
    /// f16 scales, as now.
    Third,
    /// As now, and super-blocks of 64.
    Third64,
}

/// What the matrices are made of.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    F32,
    F16,
    /// Types of the first hour, whose blocks have been laid out anew: by number.
    Old(u32),
    /// The same with scales that no f16 holds, where they are f32.
    Fine(u32),
    /// Any other, whose bytes are random.
    Random(&'static Format),
}

impl Type {
    /// A type by the name of its present format.
    pub fn named(name: &str) -> Self {
        match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "Q4_0" => Self::Old(2),
            "Q4_1" => Self::Old(3),
            "Q4_2" => Self::Old(4),
            "Q4_3" => Self::Old(5),
            "Q5_0" => Self::Old(6),
            "Q5_1" => Self::Old(7),
            "Q8_0" => Self::Old(8),
            name => Self::Random(Registry::builtin().by_name(name).expect("a format")),
        }
    }

    fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Old(id) | Self::Fine(id) => id,
            Self::Random(format) => match format.name.strip_suffix("_64") {
                Some(name) => Registry::builtin().by_name(name).and_then(|f| f.id).expect("a number"),
                None => format.id.expect("a number"),
            },
        }
    }

    /// Blocks for so many weights: the same weights for the same seed in every era that can hold them.
    fn data(self, seed: u64, count: u64, era: Era) -> Vec<u8> {
        let mut noise = Noise::new(seed);
        match self {
            Self::F32 => (0..count).flat_map(|_| small(&mut noise).to_le_bytes()).collect(),
            Self::F16 => (0..count).flat_map(|_| half(small(&mut noise)).to_le_bytes()).collect(),
            Self::Old(id) | Self::Fine(id) => {
                let size = if id == 4 || id == 5 { 16 } else { 32 };
                let times = if let Self::Fine(_) = self { 1.000_01 } else { 1.0 };
                (0..count / size).flat_map(|_| old_block(id, era, size as usize, times, &mut noise)).collect()
            }
            Self::Random(format) => {
                (0..count / format.elements as u64).flat_map(|_| random_block(format, &mut noise)).collect()
            }
        }
    }
}

/// A number that f16 can hold, of the size of a weight.
fn small(noise: &mut Noise) -> f32 {
    (noise.below(2048) as f32 - 1024.0) / 8192.0
}

/// The f16 of a number that f16 can hold.
fn half(x: f32) -> u16 {
    if x == 0.0 {
        return 0;
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23 & 255) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent) && bits & 0x1fff == 0, "{x} is no f16");
    ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}

/// A block with a scale, perhaps a minimum, perhaps fifth bits, and codes. Numbers of f32 are taken `times` as large.
fn old_block(id: u32, era: Era, size: usize, times: f32, noise: &mut Noise) -> Vec<u8> {
    let scale = (16 + noise.below(16)) as f32 / if id == 8 { 65536.0 } else { 4096.0 };
    let minimum = -(noise.below(64) as f32) / 1024.0;
    let codes: Vec<u32> = (0..size).map(|_| noise.below(if id == 8 { 255 } else { 32 })).collect();
    let wide = era != Era::Third && matches!(id, 2 | 3 | 8);
    let number =
        |x: f32| if wide { (x * times).to_le_bytes().to_vec() } else { half(x).to_le_bytes().to_vec() };
    let mut block = number(scale);
    if matches!(id, 3 | 5 | 7) {
        block.extend(number(minimum));
    }
    if matches!(id, 6 | 7) {
        let high = (0..size).fold(0u32, |bits, i| bits | (codes[i] >> 4) << i);
        block.extend(high.to_le_bytes());
    }
    let nibble = |i: usize| (codes[i] & 15) as u8;
    match (id, era) {
        (8, _) => block.extend(codes.iter().map(|c| *c as u8)),
        (_, Era::First) => block.extend((0..size / 2).map(|i| nibble(2 * i) | nibble(2 * i + 1) << 4)),
        _ => block.extend((0..size / 2).map(|i| nibble(i) | nibble(i + size / 2) << 4)),
    }
    block
}

/// Random bytes with scales of a sensible size.
fn random_block(format: &Format, noise: &mut Noise) -> Vec<u8> {
    let mut block: Vec<u8> = (0..format.bytes).map(|_| noise.next() as u8).collect();
    for field in format.fields {
        let width = field.ty.bytes();
        for at in (field.offset..).step_by(width).take(field.count) {
            let scale = (16 + noise.below(16)) as f32 / 65536.0;
            let bytes = match field.ty {
                FieldType::F16 => half(scale).to_le_bytes().to_vec(),
                FieldType::Bf16 => ((scale.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
                FieldType::F32 => scale.to_le_bytes().to_vec(),
                FieldType::E8m0 => vec![118 + noise.below(4) as u8],
                FieldType::E4m3 => vec![8 + noise.below(16) as u8],
                // The scale of this format lies in the upper quarters of four numbers.
                FieldType::U16 if format.name == "IQ1_M" => {
                    let index = (at - field.offset) / width;
                    let quarter = half(scale) >> (4 * index) & 15;
                    (quarter << 12 | (noise.next() & 0xfff) as u16).to_le_bytes().to_vec()
                }
                _ => continue,
            };
            block[at..at + width].copy_from_slice(&bytes);
        }
    }
    block
}

/// A tensor by both of its names.
struct Tensor {
    old: String,
    new: String,
    dims: Vec<u64>,
}

fn tensors() -> Vec<Tensor> {
    let kv = EMBED / HEADS * KV_HEADS;
    let tensor =
        |old: &str, new: &str, dims: &[u64]| Tensor { old: old.into(), new: new.into(), dims: dims.into() };
    let mut all = vec![
        tensor("tok_embeddings.weight", "token_embd.weight", &[EMBED, VOCABULARY]),
        tensor("norm.weight", "output_norm.weight", &[EMBED]),
        tensor("output.weight", "output.weight", &[EMBED, VOCABULARY]),
    ];
    for layer in 0..LAYERS {
        for (old, new, dims) in [
            ("attention_norm", "attn_norm", vec![EMBED]),
            ("attention.wq", "attn_q", vec![EMBED, EMBED]),
            ("attention.wk", "attn_k", vec![EMBED, kv]),
            ("attention.wv", "attn_v", vec![EMBED, kv]),
            ("attention.wo", "attn_output", vec![EMBED, EMBED]),
            ("ffn_norm", "ffn_norm", vec![EMBED]),
            ("feed_forward.w1", "ffn_gate", vec![EMBED, FEED_FORWARD]),
            ("feed_forward.w2", "ffn_down", vec![FEED_FORWARD, EMBED]),
            ("feed_forward.w3", "ffn_up", vec![EMBED, FEED_FORWARD]),
        ] {
            all.push(tensor(
                &format!("layers.{layer}.{old}.weight"),
                &format!("blk.{layer}.{new}.weight"),
                &dims,
            ));
        }
    }
    all
}

impl Tensor {
    fn data(&self, at: usize, ty: Type, era: Era) -> (u32, Vec<u8>) {
        let count = self.dims.iter().product();
        match self.dims.len() {
            1 => (0, (0..count).flat_map(|i| (1.0 + (i % 7) as f32 / 64.0).to_le_bytes()).collect()),
            _ => (ty.id(), ty.data(at as u64 + 1, count, era)),
        }
    }
}

/// Text and score of each token, as old files have them.
fn vocabulary() -> Vec<(Vec<u8>, f32)> {
    let marks = [" \u{2047} ".as_bytes(), b"", b""].map(|t| (t.to_vec(), 0.0));
    let bytes = (0..=255).map(|b| (vec![b], 0.0));
    let words =
        [" a", " b", "ab", "\u{e9}", " the"].into_iter().zip(1..).map(|(w, n)| (w.into(), -(n as f32)));
    marks.into_iter().chain(bytes).chain(words).collect()
}

/// A container before GGUF: the bytes of its magic, its version if it has one.
pub fn legacy(magic: &[u8; 4], version: Option<u32>, ty: Type, era: Era) -> Vec<u8> {
    parts(magic, version, ty, era, 1).remove(0)
}

/// The same in several files, as the converters for large models made them.
pub fn parts(magic: &[u8; 4], version: Option<u32>, ty: Type, era: Era, count: u64) -> Vec<Vec<u8>> {
    let mut head = magic.to_vec();
    let words = [VOCABULARY, EMBED, 32, HEADS, LAYERS, EMBED / HEADS, 2].map(|w| w as u32);
    head.extend(version.iter().chain(&words).flat_map(|w| w.to_le_bytes()));
    for (text, score) in vocabulary() {
        head.extend((text.len() as u32).to_le_bytes());
        head.extend(text);
        if magic != b"lmgg" {
            head.extend(score.to_le_bytes());
        }
    }
    let mut files = vec![head; count as usize];
    for (at, tensor) in tensors().iter().enumerate() {
        let (id, data) = tensor.data(at, ty, era);
        let by_columns = ["tok_embeddings", ".wo.", ".w2."].iter().any(|part| tensor.old.contains(part));
        for (number, file) in files.iter_mut().enumerate() {
            let mut dims = tensor.dims.clone();
            let rows = dims.get(1).copied().unwrap_or(1) as usize;
            let row = data.len() / rows;
            let piece: Vec<u8> = if dims.len() == 1 {
                data.clone()
            } else if by_columns {
                dims[0] /= count;
                let some = row / count as usize;
                data.chunks(row).flat_map(|r| r[number * some..][..some].to_vec()).collect()
            } else {
                dims[1] /= count;
                let some = data.len() / count as usize;
                data[number * some..][..some].to_vec()
            };
            let words = [dims.len() as u32, tensor.old.len() as u32, id]
                .into_iter()
                .chain(dims.iter().map(|d| *d as u32));
            file.extend(words.flat_map(u32::to_le_bytes));
            file.extend(tensor.old.as_bytes());
            if magic == b"tjgg" {
                file.resize(file.len().next_multiple_of(32), 0x55);
            }
            file.extend(piece);
        }
    }
    files
}

/// Bytes of a GGUF file in the making.
struct Out {
    bytes: Vec<u8>,
    version: u32,
    big: bool,
}

impl Out {
    fn number(&mut self, value: u64, width: usize) {
        let mut bytes = value.to_le_bytes()[..width].to_vec();
        if self.big {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
    }

    /// A length or a count, which were narrower at first.
    fn count(&mut self, value: u64) {
        self.number(value, if self.version == 1 { 4 } else { 8 });
    }

    fn text(&mut self, text: &[u8]) {
        self.count(text.len() as u64);
        self.bytes.extend(text);
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.text(key.as_bytes());
        self.number(4, 4);
        self.number(value.into(), 4);
    }

    fn array(&mut self, key: &str, kind: u64, count: usize) {
        self.text(key.as_bytes());
        self.number(9, 4);
        self.number(kind, 4);
        self.count(count as u64);
    }
}

/// The model as GGUF of a version, in a byte order.
pub fn gguf(version: u32, big: bool, ty: Type, era: Era) -> Vec<u8> {
    let mut out = Out { bytes: b"GGUF".to_vec(), version, big };
    let (tensors, vocabulary) = (tensors(), vocabulary());
    out.number(version.into(), 4);
    out.count(tensors.len() as u64);
    out.count(14);
    for (key, text) in [("general.architecture", "llama"), ("tokenizer.ggml.model", "llama")] {
        out.text(key.as_bytes());
        out.number(8, 4);
        out.text(text.as_bytes());
    }
    out.u32("llama.block_count", LAYERS as u32);
    out.u32("llama.context_length", CONTEXT);
    out.u32("llama.embedding_length", EMBED as u32);
    out.u32("llama.feed_forward_length", FEED_FORWARD as u32);
    out.u32("llama.attention.head_count", HEADS as u32);
    out.u32("llama.attention.head_count_kv", KV_HEADS as u32);
    out.text(b"llama.attention.layer_norm_rms_epsilon");
    out.number(6, 4);
    out.number(EPSILON.to_bits().into(), 4);
    out.array("tokenizer.ggml.tokens", 8, vocabulary.len());
    for (id, (text, _)) in vocabulary.iter().enumerate() {
        match id {
            0 => out.text(b"<unk>"),
            1 => out.text(b"<s>"),
            2 => out.text(b"</s>"),
            3..259 => out.text(format!("<0x{:02X}>", text[0]).as_bytes()),
            _ => out.text(String::from_utf8_lossy(text).replace(' ', "\u{2581}").as_bytes()),
        }
    }
    out.array("tokenizer.ggml.scores", 6, vocabulary.len());
    for (_, score) in &vocabulary {
        out.number(score.to_bits().into(), 4);
    }
    out.array("tokenizer.ggml.token_type", 5, vocabulary.len());
    for id in 0..vocabulary.len() {
        out.number([2, 3, 3].get(id).copied().unwrap_or(if id < 259 { 6 } else { 1 }), 4);
    }
    out.u32("tokenizer.ggml.bos_token_id", 1);
    out.u32("tokenizer.ggml.eos_token_id", 2);
    let mut data = Vec::new();
    for (at, tensor) in tensors.iter().enumerate() {
        let (id, mut blocks) = tensor.data(at, ty, era);
        if big {
            swap(id, &mut blocks);
        }
        out.text(tensor.new.as_bytes());
        out.number(tensor.dims.len() as u64, 4);
        tensor.dims.iter().for_each(|&d| out.count(d));
        out.number(id.into(), 4);
        out.number(data.len() as u64, 8);
        data.extend(blocks);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    out.bytes.resize(out.bytes.len().next_multiple_of(32), 0);
    out.bytes.extend(data);
    out.bytes
}

/// Turns round each number of more than a byte.
fn swap(id: u32, blocks: &mut [u8]) {
    let registry = Registry::builtin();
    let (shape, fields) = (registry.shape(id).expect("a type"), registry.swap_fields(id).expect("fields"));
    for block in blocks.chunks_mut(shape.bytes as usize) {
        fields.iter().for_each(|&(at, width)| block[at..at + width].reverse());
    }
}
