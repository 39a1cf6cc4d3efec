//! Small vocabularies for tests.

use super::{EncodeOptions, Tokenizer};
use crate::files::{Array, BlockShape, Metadata, Str, TypeTable, Value};

/// The texts of the ids of a plain text.
pub(crate) fn encode(t: &Tokenizer, text: &str) -> Vec<String> {
    let ids = t.encode(text, EncodeOptions::default()).unwrap();
    ids.iter().map(|&id| String::from_utf8_lossy(t.token_text(id)).into_owned()).collect()
}

/// A byte-level vocabulary: the 256 bytes and what the merges make of them.
pub(crate) fn bpe_metadata(pre: &str, merges: &[&str]) -> Metadata {
    let mut tokens: Vec<Str> =
        super::bytes::ALPHABET.iter().map(|c| Str::from(c.to_string().as_str())).collect();
    for merge in merges {
        tokens.push(Str::from(merge.replacen(' ', "", 1).as_str()));
    }
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", Value::String("gpt2".into()));
    m.insert("tokenizer.ggml.pre", Value::String(pre.into()));
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert(
        "tokenizer.ggml.merges",
        Value::Array(Array::String(merges.iter().map(|&s| Str::from(s)).collect())),
    );
    m
}

/// Appends entries of other types than normal.
pub(crate) fn with_types(mut m: Metadata, entries: &[(&str, i32)]) -> Metadata {
    let mut tokens = m.strings("tokenizer.ggml.tokens").unwrap().to_vec();
    let mut types: Vec<i32> = match m.ints("tokenizer.ggml.token_type") {
        Some(types) => types.iter().map(|&t| t as i32).collect(),
        None => vec![1; tokens.len()],
    };
    for &(text, kind) in entries {
        tokens.push(Str::from(text));
        types.push(kind);
    }
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    m
}

/// A scored vocabulary: the usual three marks, the 256 byte tokens, and the entries.
pub(crate) fn spm_metadata(entries: &[(&str, f32)]) -> Metadata {
    let mut tokens: Vec<Str> = ["<unk>", "<s>", "</s>"].into_iter().map(Str::from).collect();
    let mut types = vec![2, 3, 3];
    let mut scores = vec![0.0; 3];
    for byte in 0..256 {
        tokens.push(Str::from(format!("<0x{byte:02X}>").as_str()));
        types.push(6);
        scores.push(0.0);
    }
    for &(text, score) in entries {
        tokens.push(Str::from(text));
        types.push(1);
        scores.push(score);
    }
    let mut m = Metadata::new();
    m.insert("tokenizer.ggml.model", Value::String("llama".into()));
    m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    m.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    m
}

/// The block shapes of the types that the test models use.
pub(crate) struct Shapes;

impl TypeTable for Shapes {
    fn shape(&self, type_id: u32) -> Option<BlockShape> {
        let (name, elements, bytes) = match type_id {
            0 => ("F32", 1, 4),
            1 => ("F16", 1, 2),
            2 => ("Q4_0", 32, 18),
            3 => ("Q4_1", 32, 20),
            6 => ("Q5_0", 32, 22),
            7 => ("Q5_1", 32, 24),
            8 => ("Q8_0", 32, 34),
            12 => ("Q4_K", 256, 144),
            13 => ("Q5_K", 256, 176),
            14 => ("Q6_K", 256, 210),
            _ => return None,
        };
        Some(BlockShape { name, elements, bytes })
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Seconds that this thread computes for `work`. Not the time on the wall: others may use the machine, too.
pub(crate) fn cpu_seconds(work: impl FnOnce()) -> f64 {
    let spent = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let start = (std::time::Instant::now(), spent());
    work();
    match (start.1, spent()) {
        (Some(before), Some(after)) => (after - before) as f64 * 1e-9,
        _ => start.0.elapsed().as_secs_f64(),
    }
}
