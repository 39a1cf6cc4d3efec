//! Small random models of every architecture, written to files.

#![allow(dead_code, unreachable_pub, reason = "a module of each test, which uses a part of it")]

use quantsmith::files::{Array, GgufWriter, Metadata, NewTensor, Value};
use quantsmith::kernels::{Format, Registry};
use quantsmith::model::arch::{Alibi, Architecture, NormKind, Parallel, Placement, QkNorm, RopeLayers};
use quantsmith::{LoadOptions, Model};
use std::path::PathBuf;
use std::sync::Arc;

/// Tokens of the vocabulary.
pub const VOCAB: usize = 96;

/// Random numbers that are the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Between -1 and 1.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Sizes of a model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub layers: usize,
    pub embed: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ff: usize,
    pub context: u32,
    pub window: Option<u32>,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            layers: 4,
            embed: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            ff: 160,
            context: 256,
            window: Some(24),
        }
    }
}

/// A model in the making: its metadata and tensors, to be changed before it is written.
#[derive(Clone)]
pub struct Draft {
    pub metadata: Metadata,
    pub tensors: Vec<Tensor>,
}

/// A tensor and its values, which the format rounds.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub format: &'static str,
    pub values: Vec<f32>,
}

/// A model file that goes away with this.
pub struct Written {
    pub path: PathBuf,
    _directory: tempfile::TempDir,
}

/// Formats of matrices, in turn.
pub const MIXED: &[&str] = &["Q4_0", "Q8_0", "Q4_1", "F16", "Q8_0", "F32", "Q5_0", "Q4_0", "Q4_0"];
/// Nothing is rounded.
pub const EXACT: &[&str] = &["F32"];

impl Draft {
    /// A random model of an architecture.
    pub fn new(arch: &Architecture, shape: Shape, formats: &[&'static str]) -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ arch.name.len() as u64);
        let mut draft = Draft { metadata: metadata(arch, shape), tensors: Vec::new() };
        let Shape { embed, heads, kv_heads, head_dim, ff, .. } = shape;
        let mut turn = 0;
        let mut matrix = |draft: &mut Draft, name: &str, cols: usize, rows: usize, size: f32| {
            let format = formats[turn % formats.len()];
            turn += 1;
            let scale = size * (3.0 / cols as f32).sqrt();
            let values = (0..cols * rows).map(|_| random.float() * scale).collect();
            let dims = vec![cols as u64, rows as u64];
            draft.tensors.push(Tensor { name: format!("{name}.weight"), dims, format, values });
        };
        matrix(&mut draft, "token_embd", embed, VOCAB, (embed as f32).sqrt());
        if arch.rope_layers == RopeLayers::None && arch.alibi == Alibi::Never {
            matrix(&mut draft, "position_embd", embed, shape.context as usize, (embed as f32).sqrt());
        }
        for i in 0..shape.layers {
            let block = |part: &str| format!("blk.{i}.{part}");
            matrix(&mut draft, &block("attn_q"), embed, heads * head_dim, 1.5);
            matrix(&mut draft, &block("attn_k"), embed, kv_heads * head_dim, 1.5);
            matrix(&mut draft, &block("attn_v"), embed, kv_heads * head_dim, 1.0);
            matrix(&mut draft, &block("attn_output"), heads * head_dim, embed, 1.0);
            if arch.gated {
                matrix(&mut draft, &block("ffn_gate"), embed, ff, 1.0);
            }
            matrix(&mut draft, &block("ffn_up"), embed, ff, 1.0);
            matrix(&mut draft, &block("ffn_down"), ff, embed, 1.0);
        }
        draft.vectors(arch, shape);
        draft
    }

    fn vectors(&mut self, arch: &Architecture, shape: Shape) {
        let mut random = Random(0xdead_beef_1234_5678);
        let mut vector = |name: String, len: usize, base: f32| {
            let values = (0..len).map(|_| base + 0.2 * random.float()).collect();
            self.tensors.push(Tensor { name, dims: vec![len as u64], format: "F32", values });
        };
        let Shape { embed, heads, kv_heads, head_dim, .. } = shape;
        let mut norm = |name: String| {
            if arch.norm == NormKind::Bare {
                return;
            }
            vector(format!("{name}.weight"), embed, 1.0);
            if arch.norm == NormKind::Layer {
                vector(format!("{name}.bias"), embed, 0.0);
            }
        };
        for i in 0..shape.layers {
            if arch.placement != Placement::Post {
                norm(format!("blk.{i}.attn_norm"));
                if !matches!(arch.parallel, Parallel::Always | Parallel::WithoutFfnNorm) {
                    norm(format!("blk.{i}.ffn_norm"));
                }
            }
            if arch.placement != Placement::Pre {
                norm(format!("blk.{i}.post_attention_norm"));
                norm(format!("blk.{i}.post_ffw_norm"));
            }
        }
        norm("output_norm".into());
        let widths = match arch.qk_norm {
            QkNorm::None => None,
            QkNorm::Head | QkNorm::HeadRotated => Some((head_dim, head_dim)),
            QkNorm::Row => Some((heads * head_dim, kv_heads * head_dim)),
        };
        for i in 0..shape.layers {
            if let Some((q, k)) = widths {
                vector(format!("blk.{i}.attn_q_norm.weight"), q, 1.0);
                vector(format!("blk.{i}.attn_k_norm.weight"), k, 1.0);
            }
            // Biases are used wherever a file has them.
            vector(format!("blk.{i}.attn_q.bias"), heads * head_dim, 0.0);
            vector(format!("blk.{i}.attn_v.bias"), kv_heads * head_dim, 0.0);
            vector(format!("blk.{i}.ffn_up.bias"), shape.ff, 0.0);
            vector(format!("blk.{i}.ffn_down.bias"), embed, 0.0);
        }
    }

    /// Sets a key of the architecture.
    pub fn set(mut self, key: &str, value: Value) -> Self {
        let arch = self.metadata.str("general.architecture").unwrap_or_default().to_string();
        self.metadata.insert(key.replace("{a}", &arch), value);
        self
    }

    /// Takes a key of the architecture away.
    pub fn unset(mut self, key: &str) -> Self {
        let arch = self.metadata.str("general.architecture").unwrap_or_default().to_string();
        self.metadata.remove(&key.replace("{a}", &arch));
        self
    }

    /// Takes a tensor away.
    pub fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// Adds a tensor of zeros.
    pub fn with(mut self, name: &str, dims: &[u64]) -> Self {
        let values = vec![0.0; dims.iter().product::<u64>() as usize];
        self.tensors.push(Tensor { name: name.into(), dims: dims.into(), format: "F32", values });
        self
    }

    /// The values of a tensor, before its format rounds them, and its dimensions.
    pub fn values(&self, name: &str) -> Option<(Vec<f32>, Vec<u64>)> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some((tensor.values.clone(), tensor.dims.clone()))
    }

    /// Writes the file.
    pub fn write(&self) -> Written {
        let registry = Registry::builtin();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("model.gguf");
        let format = |tensor: &Tensor| registry.by_name(tensor.format).expect("a built-in format");
        let tensors: Vec<_> = self
            .tensors
            .iter()
            .map(|tensor| NewTensor {
                name: tensor.name.clone(),
                dims: tensor.dims.clone(),
                type_id: format(tensor).id.expect("a format with a number"),
                layout: quantsmith::files::Layout::Current,
            })
            .collect();
        let mut writer =
            GgufWriter::create(&path, &[], &self.metadata, &tensors, &registry).expect("a header");
        for tensor in &self.tensors {
            writer.write(&encode(format(tensor), &tensor.values)).expect("room on the disk");
        }
        writer.finish().expect("a whole file");
        Written { path, _directory: directory }
    }
}

impl Written {
    /// Loads it.
    pub fn load(&self, options: LoadOptions) -> Arc<Model> {
        match Model::load(&self.path, options) {
            Ok(model) => model,
            Err(error) => panic!("{error}"),
        }
    }
}

fn metadata(arch: &Architecture, shape: Shape) -> Metadata {
    let mut m = Metadata::new();
    m.insert("general.architecture", Value::String(arch.name.into()));
    let mut set = |key: &str, value: Value| m.insert(format!("{}.{key}", arch.name), value);
    set("context_length", Value::U32(shape.context));
    set("embedding_length", Value::U32(shape.embed as u32));
    set("block_count", Value::U32(shape.layers as u32));
    set("feed_forward_length", Value::U32(shape.ff as u32));
    set("attention.head_count", Value::U32(shape.heads as u32));
    set("attention.head_count_kv", Value::U32(shape.kv_heads as u32));
    set("attention.key_length", Value::U32(shape.head_dim as u32));
    set("attention.value_length", Value::U32(shape.head_dim as u32));
    set("attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    set("attention.layer_norm_epsilon", Value::F32(1e-5));
    if let (Some(_), Some(window)) = (arch.window, shape.window) {
        set("attention.sliding_window", Value::U32(window));
        set("attention.sliding_window_pattern", Value::U32(2));
    }
    vocabulary(&mut m);
    m
}

/// Adds a vocabulary of [`VOCAB`] tokens.
pub fn vocabulary(m: &mut Metadata) {
    let tokens = (0..VOCAB).map(|i| format!("<{i}>").as_str().into()).collect();
    m.insert("tokenizer.ggml.model", Value::String("gpt2".into()));
    m.insert("tokenizer.ggml.pre", Value::String("gpt-2".into()));
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert("tokenizer.ggml.merges", Value::Array(Array::String(Vec::new())));
}

/// Rounds values to a format, plainly: the scale is the largest magnitude over the largest code.
fn encode(format: &Format, values: &[f32]) -> Vec<u8> {
    let half = |x: f32| half(x).to_le_bytes();
    let mut out = Vec::new();
    for block in values.chunks(format.elements) {
        let largest = block.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let codes = |steps: f32, offset: i32, top: i32| -> Vec<u8> {
            let inverse = if largest == 0.0 { 0.0 } else { steps / largest };
            block.iter().map(|x| ((x * inverse).round() as i32 + offset).clamp(0, top) as u8).collect()
        };
        let nibbles = |codes: &[u8]| -> Vec<u8> {
            (0..16).map(|i| codes[i] & 15 | (codes[i + 16] & 15) << 4).collect()
        };
        match format.name {
            "F32" => out.extend(block[0].to_le_bytes()),
            "F16" => out.extend(half(block[0])),
            "BF16" => out.extend(((block[0].to_bits() >> 16) as u16).to_le_bytes()),
            "Q8_0" => {
                out.extend(half(largest / 127.0));
                out.extend(codes(127.0, 128, 255).iter().map(|c| c.wrapping_sub(128)));
            }
            "Q4_0" => {
                out.extend(half(largest / 7.0));
                out.extend(nibbles(&codes(7.0, 8, 15)));
            }
            "Q4_1" => {
                out.extend(half(largest / 7.5));
                out.extend(half(-largest));
                out.extend(nibbles(&codes(7.5, 8, 15)));
            }
            "Q5_0" => {
                let codes = codes(15.0, 16, 31);
                out.extend(half(largest / 15.0));
                let high = codes.iter().enumerate().fold(0u32, |h, (i, c)| h | u32::from(c >> 4) << i);
                out.extend(high.to_le_bytes());
                out.extend(nibbles(&codes));
            }
            other => panic!("no encoder for {other}"),
        }
    }
    out
}

/// f16 bits of a number in the normal range of f16, cut; zero for what is smaller.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, exponent) = ((bits >> 16 & 0x8000) as u16, (bits >> 23 & 255) as i32 - 127 + 15);
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16 }
}

/// Tokens that are the same everywhere.
pub fn tokens(count: usize) -> Vec<u32> {
    let mut random = Random(77);
    (0..count).map(|_| (random.next() % VOCAB as u64) as u32).collect()
}

/// The logits of all positions, as bits.
pub fn logits(model: &Arc<Model>, tokens: &[u32]) -> Vec<u32> {
    let mut session = quantsmith::Session::new(model).expect("a session");
    let mut all = Vec::new();
    let mut sink = |_: usize, logits: &[f32]| all.extend(logits.iter().map(|x| x.to_bits()));
    session.eval(tokens, quantsmith::Want::All, &mut sink).expect("an evaluation");
    all
}
