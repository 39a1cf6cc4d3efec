//! From the terms of the old containers to those of GGUF: names, metadata, vocabulary.

use std::path::Path;

use crate::files::error::{FileError, Quoted};
use crate::files::legacy::LegacyFile;
use crate::files::legacy::header::{Header, Token};
use crate::files::legacy::records::Record;
use crate::files::metadata::Metadata;
use crate::files::model::{Contents, OpenOptions};
use crate::files::tensor::{Stored, TensorInfo};
use crate::files::types::Layout;
use crate::files::value::{Array, Str, Value};

/// Kinds of tokens, numbered as in GGUF.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The first token that stands for a single byte, and the first after them.
const BYTE_TOKENS: std::ops::Range<usize> = 3..259;

/// Most rows of the embedding that may have no token: a few were added or rounded up, not a vocabulary.
const MAX_UNNAMED_ROWS: usize = 1024;

/// The score of tokens that were added to a vocabulary.
const ADDED_SCORE: f32 = -1000.0;

/// A vocabulary of this size is that of CodeLlama, whose RoPE base differs.
const CODE_LLAMA_VOCABULARY: u32 = 32016;

/// Makes of a file what a GGUF reader would find in one. `stored` tells for each record how it is stored.
pub(crate) fn contents(
    path: &Path,
    file: LegacyFile<'_>,
    stored: Vec<Stored>,
    options: &OpenOptions,
) -> Result<Contents, FileError> {
    let LegacyFile { header, vocabulary, records, records_at, mut warnings } = file;
    let model = Model { path, header: &header, records: &records };
    let mut metadata = Metadata::new();
    model.describe(&mut metadata, options, &mut warnings)?;
    let rows = model.vocabulary_rows(vocabulary.len())?;
    describe_vocabulary(&mut metadata, &header, &vocabulary, rows, &mut warnings);
    let mut tensors = Vec::with_capacity(records.len());
    let mut skipped = Vec::new();
    for (record, stored) in records.into_iter().zip(stored) {
        match gguf_name(&record.name) {
            Some(name) => tensors.push(tensor(name, record, stored)),
            None => skipped.push(Quoted(record.name.as_bytes()).to_string()),
        }
    }
    if let Some(first) = skipped.first() {
        warnings.push(format!("{} tensors are not used, the first is {first}", skipped.len()));
    }
    Ok(Contents {
        container: header.container,
        metadata,
        tensors,
        alignment: header.alignment(),
        data_start: records_at,
        hyperparameters: header.hyperparameters(),
        warnings,
    })
}

fn tensor(name: String, record: Record, stored: Stored) -> TensorInfo {
    TensorInfo {
        name,
        dims: record.dims,
        type_id: record.type_id,
        layout: record.layout,
        type_name: record.shape.name,
        offset: record.offset,
        bytes: record.bytes,
        part: 0,
        stored: Stored { order: record.order, ..stored },
    }
}

/// The name of a tensor in GGUF; `None` for those that a model does not need: the frequencies of RoPE are the
/// plain ones here, while a tensor of that kind in GGUF would change them.
pub(crate) fn gguf_name(name: &str) -> Option<String> {
    Some(match name {
        "tok_embeddings.weight" => "token_embd.weight".into(),
        "norm.weight" => "output_norm.weight".into(),
        "output.weight" => "output.weight".into(),
        _ => {
            let (layer, rest) = name.strip_prefix("layers.")?.split_once('.')?;
            let layer: u32 = layer.parse().ok()?;
            let rest = match rest {
                "attention_norm.weight" => "attn_norm",
                "attention.wq.weight" => "attn_q",
                "attention.wk.weight" => "attn_k",
                "attention.wv.weight" => "attn_v",
                "attention.wo.weight" => "attn_output",
                "ffn_norm.weight" => "ffn_norm",
                "feed_forward.w1.weight" => "ffn_gate",
                "feed_forward.w2.weight" => "ffn_down",
                "feed_forward.w3.weight" => "ffn_up",
                _ => return None,
            };
            format!("blk.{layer}.{rest}.weight")
        }
    })
}

/// A model whose parts are joined but whose names are the old ones.
struct Model<'a> {
    path: &'a Path,
    header: &'a Header,
    records: &'a [Record],
}

impl Model<'_> {
    fn record(&self, name: &str) -> Option<&Record> {
        self.records.iter().find(|r| r.name == name)
    }

    /// A record that a model with any tensors must have.
    fn required(&self, name: &str) -> Result<&Record, FileError> {
        self.record(name).ok_or_else(|| FileError::Inconsistent {
            path: self.path.into(),
            what: "tensors".into(),
            found: format!("none called '{name}'"),
            accepted: "a whole LLaMA model".into(),
        })
    }

    fn bad_dims(&self, record: &Record, accepted: String) -> FileError {
        let what = format_args!("dimensions of tensor {}", Quoted(record.name.as_bytes()));
        FileError::malformed(
            self.path,
            record.dims_at as u64,
            what,
            format_args!("{:?}", record.dims),
            accepted,
        )
    }

    /// The number of heads for keys and values, which only the shape of a tensor tells.
    fn kv_heads(&self) -> Result<u32, FileError> {
        let head = u64::from(self.header.head_size());
        let wk = self.required("layers.0.attention.wk.weight")?;
        let rows = wk.dims.get(1).copied().unwrap_or(1);
        let heads = rows / head;
        match u32::try_from(heads) {
            Ok(n) if n > 0 && rows % head == 0 && self.header.n_head.is_multiple_of(n) => Ok(n),
            _ => Err(self
                .bad_dims(wk, format!("rows for a divisor of the {} heads of {head}", self.header.n_head))),
        }
    }

    /// The rows of the embedding, which is how many tokens the model knows.
    fn vocabulary_rows(&self, entries: usize) -> Result<usize, FileError> {
        if self.records.is_empty() {
            return Ok(entries);
        }
        let embedding = self.required("tok_embeddings.weight")?;
        let rows = embedding.dims.get(1).copied().unwrap_or(1);
        match usize::try_from(rows) {
            Ok(rows) if (entries..=entries.saturating_add(MAX_UNNAMED_ROWS)).contains(&rows) => Ok(rows),
            _ => {
                let accepted =
                    format!("{entries} rows, one for each token, or up to {MAX_UNNAMED_ROWS} more");
                Err(self.bad_dims(embedding, accepted))
            }
        }
    }

    fn describe(
        &self,
        metadata: &mut Metadata,
        options: &OpenOptions,
        warnings: &mut Vec<String>,
    ) -> Result<(), FileError> {
        let header = self.header;
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = |s: &str| Value::String(s.into());
        metadata.insert("general.architecture", text("llama"));
        metadata.insert("general.name", Value::String(name.into()));
        metadata.insert("general.file_type", Value::U32(header.ftype));
        let version = match header.layout {
            Layout::V1 => 0,
            Layout::V2 => 1,
            Layout::Current | Layout::K64 => 2,
        };
        metadata.insert("general.quantization_version", Value::U32(version));
        let (mut kv_heads, mut feed_forward) = (header.n_head, None);
        if !self.records.is_empty() {
            if header.n_layer as usize > self.records.len() {
                return Err(FileError::Inconsistent {
                    path: self.path.into(),
                    what: "n_layer".into(),
                    found: header.n_layer.to_string(),
                    accepted: format!("at most {}, the number of tensors", self.records.len()),
                });
            }
            kv_heads = self.kv_heads()?;
            let w1 = self.required("layers.0.feed_forward.w1.weight")?;
            let rows = w1.dims.get(1).copied().unwrap_or(1);
            feed_forward =
                Some(u32::try_from(rows).map_err(|_| self.bad_dims(w1, "fewer than 2^32 rows".into()))?);
        }
        let assumed = Assumed::of(header, kv_heads, options);
        metadata.insert("llama.context_length", Value::U32(assumed.context));
        metadata.insert("llama.embedding_length", Value::U32(header.n_embd));
        metadata.insert("llama.block_count", Value::U32(header.n_layer));
        if let Some(rows) = feed_forward {
            metadata.insert("llama.feed_forward_length", Value::U32(rows));
        }
        metadata.insert("llama.rope.dimension_count", Value::U32(header.head_size()));
        metadata.insert("llama.attention.head_count", Value::U32(header.n_head));
        metadata.insert("llama.attention.head_count_kv", Value::U32(kv_heads));
        metadata.insert("llama.attention.layer_norm_rms_epsilon", Value::F32(assumed.epsilon));
        if let Some(base) = assumed.rope_base {
            metadata.insert("llama.rope.freq_base", Value::F32(base));
        }
        if header.n_rot != header.head_size() {
            let head = header.head_size();
            warnings.push(format!("n_rot is {}, but n_embd / n_head is {head}, which is used", header.n_rot));
        }
        assumed.tell(options, warnings);
        Ok(())
    }
}

/// What no field of these files says.
struct Assumed {
    context: u32,
    epsilon: f32,
    rope_base: Option<f32>,
}

impl Assumed {
    fn of(header: &Header, kv_heads: u32, options: &OpenOptions) -> Self {
        let code = header.n_vocab == CODE_LLAMA_VOCABULARY;
        // Only LLaMA 2 has fewer heads for keys than for queries.
        let second = code || kv_heads != header.n_head;
        let context = if code { 16384 } else { if second { 4096 } else { 2048 } };
        Self {
            context: options.context_length.unwrap_or(context),
            epsilon: options.epsilon.unwrap_or(if second { 1e-5 } else { 5e-6 }),
            rope_base: options.rope_base.or(code.then_some(1e6)),
        }
    }

    fn tell(&self, options: &OpenOptions, warnings: &mut Vec<String>) {
        let mut assumed = Vec::new();
        if options.context_length.is_none() {
            assumed.push(format!("context length {}", self.context));
        }
        if options.epsilon.is_none() {
            assumed.push(format!("epsilon {:e}", self.epsilon));
        }
        if options.rope_base.is_none() {
            assumed.push(format!("RoPE base {}", self.rope_base.unwrap_or(1e4)));
        }
        if !assumed.is_empty() {
            warnings.push(format!("assumed, since the file does not say: {}", assumed.join(", ")));
        }
    }
}

/// Translates the vocabulary and fills it up to the rows of the embedding.
fn describe_vocabulary(
    metadata: &mut Metadata,
    header: &Header,
    vocabulary: &[Token<'_>],
    rows: usize,
    warnings: &mut Vec<String>,
) {
    let (mut texts, mut scores, mut kinds) =
        (Vec::with_capacity(rows), Vec::with_capacity(rows), Vec::with_capacity(rows));
    for (id, token) in vocabulary.iter().enumerate() {
        let (text, kind) = translate_token(id, token.text);
        texts.push(text);
        kinds.push(kind);
        scores.push(token.score.unwrap_or_else(|| ranked_score(id)));
    }
    if rows > vocabulary.len() {
        warnings.push(format!("{} rows of the embedding have no token", rows - vocabulary.len()));
    }
    for id in vocabulary.len()..rows {
        texts.push(Str::from(format!("[PAD{id}]")));
        kinds.push(UNUSED);
        scores.push(ADDED_SCORE);
    }
    if !header.has_scores() && !vocabulary.is_empty() {
        warnings.push("the vocabulary has no scores: they are taken from its order".into());
    }
    metadata.insert("tokenizer.ggml.model", Value::String("llama".into()));
    metadata.insert("tokenizer.ggml.pre", Value::String("default".into()));
    metadata.insert("tokenizer.ggml.tokens", Value::Array(Array::String(texts)));
    metadata.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    for (key, id) in [("bos", 1), ("eos", 2), ("unknown", 0)] {
        metadata.insert(format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
    }
}

/// The score that a token has in the vocabularies of LLaMA, whose order is that of the merges.
fn ranked_score(id: usize) -> f32 {
    if id < BYTE_TOKENS.end { 0.0 } else { -((id - BYTE_TOKENS.end) as f32) }
}

/// The text and the kind of a token. The old files have spaces where the vocabulary had U+2581, and the bytes
/// themselves where it had their names.
fn translate_token(id: usize, text: &[u8]) -> (Str, i32) {
    match (id, text) {
        (0, _) => ("<unk>".into(), UNKNOWN),
        (1, _) => ("<s>".into(), CONTROL),
        (2, _) => ("</s>".into(), CONTROL),
        (_, []) => ("".into(), CONTROL),
        (_, &[byte]) if BYTE_TOKENS.contains(&id) && usize::from(byte) == id - BYTE_TOKENS.start => {
            (format!("<0x{byte:02X}>").into(), BYTE)
        }
        _ => {
            let mut translated = Vec::with_capacity(text.len());
            for &byte in text {
                match byte {
                    b' ' => translated.extend_from_slice("\u{2581}".as_bytes()),
                    other => translated.push(other),
                }
            }
            (translated.into(), NORMAL)
        }
    }
}
