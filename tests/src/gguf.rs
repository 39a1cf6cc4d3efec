//! Small GGUF files, written byte by byte: right ones, and ones that are wrong in a chosen place.

/// A file in the making. Counts in the header follow what is added, unless they are set.
#[derive(Clone, Debug)]
pub struct Gguf {
    version: u32,
    tensor_count: Option<u64>,
    entry_count: Option<u64>,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

/// The alignment of tensor data.
const ALIGNMENT: usize = 32;

impl Default for Gguf {
    fn default() -> Self {
        Self {
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    /// Sets the version in the header.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets what the header says about the number of tensors.
    #[must_use]
    pub fn tensor_count(mut self, count: u64) -> Self {
        self.tensor_count = Some(count);
        self
    }

    /// Sets what the header says about the number of metadata entries.
    #[must_use]
    pub fn entry_count(mut self, count: u64) -> Self {
        self.entry_count = Some(count);
        self
    }

    /// Adds a metadata entry: the number of its type, and its bytes.
    #[must_use]
    pub fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push([&string(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &string(value))
    }

    /// Adds a u32.
    #[must_use]
    pub fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    /// Adds an f32.
    #[must_use]
    pub fn f32(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    /// Adds a truth value.
    #[must_use]
    pub fn bool(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[u8::from(value)])
    }

    /// Adds an array: the number of the elements' type, how many, and their bytes.
    #[must_use]
    pub fn array(self, key: &str, kind: u32, count: u64, elements: &[u8]) -> Self {
        let value = [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat();
        self.entry(key, 9, &value)
    }

    /// Adds an array of texts.
    #[must_use]
    pub fn texts<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| string(v.as_ref())).collect();
        self.array(key, 8, values.len() as u64, &bytes)
    }

    /// Adds the description of a tensor as it is, and no data.
    #[must_use]
    pub fn description(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let mut bytes = string(name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        bytes.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    /// Adds a tensor of f32.
    #[must_use]
    pub fn tensor(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        let offset = self.data.len() as u64;
        let mut next = self.description(name, dims, 0, offset);
        next.data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        next.data.resize(next.data.len().next_multiple_of(ALIGNMENT), 0);
        next
    }

    /// The bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        bytes.extend(&self.data);
        bytes
    }

    /// The bytes before the data, without padding.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        bytes.extend(self.tensors.concat());
        bytes
    }
}

/// Metadata and tensors of a llama model with two small layers and a vocabulary of letters: it says nothing, and it
/// loads in no time.
#[must_use]
pub fn tiny_llama() -> Gguf {
    let (embed, ff, heads, kv_heads) = (64u64, 96u64, 4u32, 2u32);
    let kv = embed / u64::from(heads) * u64::from(kv_heads);
    let vocabulary = letters();
    let scores: Vec<u8> = (0..vocabulary.len()).flat_map(|i| (-(i as f32)).to_le_bytes()).collect();
    // Three marks, the bytes, then letters.
    let kind = |at: usize| -> i32 {
        match at {
            0 => 2,
            1..3 => 3,
            3..259 => 6,
            _ => 1,
        }
    };
    let kinds: Vec<u8> = (0..vocabulary.len()).flat_map(|at| kind(at).to_le_bytes()).collect();
    let count = vocabulary.len() as u64;
    let mut file = Gguf::default()
        .text("general.architecture", "llama")
        .text("general.name", "tiny")
        .u32("llama.block_count", 2)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", embed as u32)
        .u32("llama.feed_forward_length", ff as u32)
        .u32("llama.attention.head_count", heads)
        .u32("llama.attention.head_count_kv", kv_heads)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &vocabulary)
        .array("tokenizer.ggml.scores", 6, count, &scores)
        .array("tokenizer.ggml.token_type", 5, count, &kinds)
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2);
    let mut noise = Noise(1);
    let mut matrix = |file: Gguf, name: &str, cols: u64, rows: u64| {
        let values: Vec<f32> = (0..cols * rows).map(|_| noise.next()).collect();
        file.tensor(name, &[cols, rows], &values)
    };
    file = matrix(file, "token_embd.weight", embed, count);
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        file = file.tensor(&name("attn_norm"), &[embed], &[1.0; 64]);
        file = matrix(file, &name("attn_q"), embed, embed);
        file = matrix(file, &name("attn_k"), embed, kv);
        file = matrix(file, &name("attn_v"), embed, kv);
        file = matrix(file, &name("attn_output"), embed, embed);
        file = file.tensor(&name("ffn_norm"), &[embed], &[1.0; 64]);
        file = matrix(file, &name("ffn_gate"), embed, ff);
        file = matrix(file, &name("ffn_up"), embed, ff);
        file = matrix(file, &name("ffn_down"), ff, embed);
    }
    file = file.tensor("output_norm.weight", &[embed], &[1.0; 64]);
    matrix(file, "output.weight", embed, count)
}

/// Marks, all bytes, a blank and the small letters.
fn letters() -> Vec<String> {
    let marks = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let letters = ('a'..='z').map(String::from);
    marks.chain(bytes).chain(["\u{2581}".to_owned()]).chain(letters).collect()
}

/// Numbers without pattern between -0.25 and 0.25, the same in every run.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 25) as f32 - 0.25
    }
}
