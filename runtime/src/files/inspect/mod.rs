//! What is in a file, as data for a table or for JSON, and down to the byte.

pub(crate) mod checks;
mod hex;
mod npy;

use serde::Serialize;

use super::model::ModelFile;
use super::ops::Finding;
use super::value::Value;

pub use hex::{HexOptions, hex, trace};
pub use npy::NpyWriter;

/// Everything that is known about a model file without looking into its blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The files, the first one first.
    pub paths: Vec<String>,
    /// The container, as in `GGUF v3`.
    pub container: String,
    /// Bytes of all files.
    pub file_size: u64,
    /// Where the header of the first file ends.
    pub data_start: u64,
    /// The alignment of data.
    pub alignment: u64,
    /// The numbers of the header, for containers before GGUF.
    pub hyperparameters: Vec<(&'static str, u32)>,
    /// Keys, kinds and values, in order.
    pub metadata: Vec<MetadataRow>,
    /// The vocabulary, where there is one.
    pub vocabulary: Option<Vocabulary>,
    /// The tensors, in order.
    pub tensors: Vec<TensorRow>,
    /// Totals per type, the largest first.
    pub types: Vec<TypeRow>,
    /// Elements of all tensors.
    pub elements: u64,
    /// Bytes of all tensors.
    pub data_bytes: u64,
    /// Bits per element over all tensors.
    pub bits_per_weight: f64,
    /// What is unusual or contradicts itself.
    pub findings: Vec<Finding>,
}

/// One entry of the metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetadataRow {
    /// The key.
    pub key: String,
    /// The kind, as in `u32` or `arr[str; 32000]`.
    pub kind: String,
    /// The value, whole.
    pub value: Value,
}

/// What the vocabulary is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Vocabulary {
    /// The kind of tokenizer.
    pub model: Option<String>,
    /// How it splits text.
    pub pre: Option<String>,
    /// All tokens.
    pub tokens: usize,
    /// All merges.
    pub merges: usize,
    /// Tokens by kind, for kinds that occur.
    pub kinds: Vec<(&'static str, usize)>,
    /// The ids of special tokens, with the text of each.
    pub special: Vec<(String, u32, String)>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// Its dimensions, `ne[0]` first.
    pub dims: Vec<u64>,
    /// The name of its format.
    #[serde(rename = "type")]
    pub type_name: &'static str,
    /// Its elements.
    pub elements: u64,
    /// The file it starts in, from 0.
    pub part: usize,
    /// Where it starts in that file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its part of the bytes of all tensors, from 0 to 1.
    pub share: f64,
    /// How the file stores it, where that is not how it is used.
    pub stored_as: Option<String>,
}

/// All tensors of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeRow {
    /// The name of the format.
    #[serde(rename = "type")]
    pub type_name: &'static str,
    /// How many tensors.
    pub tensors: usize,
    /// Their elements.
    pub elements: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their part of the bytes of all tensors, from 0 to 1.
    pub share: f64,
    /// Bits per element.
    pub bits_per_weight: f64,
}

/// Kinds of tokens, by their number.
const TOKEN_KINDS: [&str; 7] =
    ["undefined", "normal", "unknown", "control", "user_defined", "unused", "byte"];

/// Sums up a model.
pub fn summarise(model: &ModelFile) -> Summary {
    let elements = model.tensors().iter().map(|t| t.elements()).fold(0, u64::saturating_add);
    let data_bytes = model.tensors().iter().map(|t| t.bytes).fold(0, u64::saturating_add);
    let share = |bytes: u64| if data_bytes == 0 { 0.0 } else { bytes as f64 / data_bytes as f64 };
    let tensors = model.tensors().iter().map(|t| TensorRow {
        name: t.name.clone(),
        dims: t.dims.clone(),
        type_name: t.type_name,
        elements: t.elements(),
        part: t.part,
        offset: t.offset,
        bytes: t.bytes,
        share: share(t.bytes),
        stored_as: t.stored_as(),
    });
    let mut types: Vec<TypeRow> = Vec::new();
    for t in model.tensors() {
        let at = types.iter().position(|row| row.type_name == t.type_name).unwrap_or(types.len());
        if at == types.len() {
            let (tensors, elements, bytes) = (0, 0, 0);
            types.push(TypeRow {
                type_name: t.type_name,
                tensors,
                elements,
                bytes,
                share: 0.0,
                bits_per_weight: 0.0,
            });
        }
        types[at].tensors += 1;
        types[at].elements = types[at].elements.saturating_add(t.elements());
        types[at].bytes = types[at].bytes.saturating_add(t.bytes);
    }
    for row in &mut types {
        row.share = share(row.bytes);
        row.bits_per_weight = bits(row.bytes, row.elements);
    }
    types.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let mut findings = checks::warnings(model);
    findings.extend(checks::consistency(model));
    Summary {
        paths: model.paths().map(|p| p.display().to_string()).collect(),
        container: model.container().to_string(),
        file_size: model.file_size(),
        data_start: model.data_start(),
        alignment: model.alignment(),
        hyperparameters: model.hyperparameters().to_vec(),
        metadata: metadata_rows(model),
        vocabulary: vocabulary(model),
        tensors: tensors.collect(),
        types,
        elements,
        data_bytes,
        bits_per_weight: bits(data_bytes, elements),
        findings,
    }
}

fn bits(bytes: u64, elements: u64) -> f64 {
    if elements == 0 { 0.0 } else { bytes as f64 * 8.0 / elements as f64 }
}

fn metadata_rows(model: &ModelFile) -> Vec<MetadataRow> {
    let rows = model.metadata().iter().map(|(key, value)| MetadataRow {
        key: key.to_owned(),
        kind: match value {
            Value::Array(array) => format!("arr[{}; {}]", array.element_type(), array.len()),
            other => other.value_type().name().to_owned(),
        },
        value: value.clone(),
    });
    rows.collect()
}

fn vocabulary(model: &ModelFile) -> Option<Vocabulary> {
    let m = model.metadata();
    let tokens = m.strings("tokenizer.ggml.tokens")?;
    let owned = |key: &str| m.str(key).map(str::to_owned);
    let numbers = m.ints("tokenizer.ggml.token_type").unwrap_or_default();
    let count = |kind: usize| numbers.iter().filter(|&&n| n == kind as i64).count();
    let kinds = TOKEN_KINDS.iter().enumerate().map(|(i, name)| (*name, count(i))).filter(|(_, n)| *n > 0);
    let special = m.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix("tokenizer.ggml.")?.strip_suffix("_token_id")?;
        let id: u32 = value.as_int()?.try_into().ok()?;
        let text = tokens.get(id as usize).map(|t| t.to_string_lossy().into_owned());
        Some((name.to_owned(), id, text.unwrap_or_default()))
    });
    Some(Vocabulary {
        model: owned("tokenizer.ggml.model"),
        pre: owned("tokenizer.ggml.pre"),
        tokens: tokens.len(),
        merges: m.strings("tokenizer.ggml.merges").map_or(0, <[_]>::len),
        kinds: kinds.collect(),
        special: special.collect(),
    })
}
