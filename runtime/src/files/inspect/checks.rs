//! Whether a file agrees with itself.

use crate::files::metadata::Metadata;
use crate::files::model::{Container, ModelFile};
use crate::files::ops::{Finding, Severity};

/// What the reader already remarked.
pub(crate) fn warnings(model: &ModelFile) -> Vec<Finding> {
    model.warnings().iter().map(|w| Finding::new(Severity::Warning, w.clone())).collect()
}

/// Compares what metadata, vocabulary and tensors say about the same things.
pub(crate) fn consistency(model: &ModelFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let m = model.metadata();
    let mut error = |text: String| findings.push(Finding::new(Severity::Error, text));
    match m.str("general.architecture") {
        Some(architecture) => sizes(model, architecture, &mut error),
        None => error("there is no general.architecture".into()),
    }
    vocabulary(model, &mut error);
    if let Container::Gguf { version: 1, .. } = model.container() {
        let text = "version 1 is refused by llama.cpp".into();
        findings.push(Finding::new(Severity::Note, text));
    }
    findings
}

fn sizes(model: &ModelFile, architecture: &str, error: &mut impl FnMut(String)) {
    let m = model.metadata();
    let number = |key: &str| m.u64(&format!("{architecture}.{key}"));
    let (width, heads) = (number("embedding_length"), number("attention.head_count"));
    if let (Some(width), Some(heads)) = (width, heads) {
        let told = number("attention.key_length").is_some();
        if heads == 0 || !told && width % heads != 0 {
            error(format!("embedding_length {width} cannot be divided among {heads} heads"));
        } else if let (Some(rope), false) = (number("rope.dimension_count"), told)
            && rope > width / heads
        {
            error(format!("rope.dimension_count {rope} is more than a head has, {}", width / heads));
        }
        if let Some(kv) = number("attention.head_count_kv")
            && (kv == 0 || !heads.is_multiple_of(kv))
        {
            error(format!("{heads} heads cannot share {kv} heads of keys and values"));
        }
    }
    if let (Some(width), Some(t)) = (width, model.tensor("token_embd.weight"))
        && t.dims.first() != Some(&width)
    {
        error(format!("embedding_length is {width}, but token_embd.weight is {:?}", t.dims));
    }
    let layers = model.tensors().iter().filter_map(|t| {
        let (layer, _) = t.name.strip_prefix("blk.")?.split_once('.')?;
        layer.parse::<u64>().ok()
    });
    if let (Some(told), Some(last)) = (number("block_count"), layers.max())
        && last.saturating_add(1) != told
    {
        error(format!("block_count is {told}, but the last block is number {last}"));
    }
}

fn vocabulary(model: &ModelFile, error: &mut impl FnMut(String)) {
    let m = model.metadata();
    let Some(tokens) = m.strings("tokenizer.ggml.tokens").map(<[_]>::len) else { return };
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        match length(m, key) {
            Some(n) if n != tokens => error(format!("{key} has {n} entries for {tokens} tokens")),
            _ => {}
        }
    }
    for (key, value) in m.iter() {
        if let (true, Some(id)) = (key.ends_with("_token_id"), value.as_int())
            && !(0..tokens as i128).contains(&id)
            && id != i128::from(u32::MAX)
            && id != -1
        {
            error(format!("{key} is {id}, but there are {tokens} tokens"));
        }
    }
    if let Some(t) = model.tensor("token_embd.weight")
        && t.dims.get(1).is_some_and(|&rows| rows < tokens as u64)
    {
        error(format!("there are {tokens} tokens, but token_embd.weight is {:?}", t.dims));
    }
}

fn length(m: &Metadata, key: &str) -> Option<usize> {
    match m.get(key)? {
        crate::files::Value::Array(array) => Some(array.len()),
        _ => None,
    }
}
