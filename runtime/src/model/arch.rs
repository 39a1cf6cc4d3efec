//! Architectures as data: what one family of models does differently from another.
//!
//! A row says which variation of the one graph a family needs; `graph` reads rows and never asks for a
//! name. Whatever a file itself can tell (sizes, scales, biases that are there or not, a fused `attn_qkv`) is not
//! in a row. A family that needs nothing new is one more row; one that needs something new is a field here, a line
//! in the builder, and a row.

/// How rows are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Division by the root of the mean square.
    Rms,
    /// Mean taken out, then division by the standard deviation.
    Layer,
    /// The same, and neither weights nor biases after it.
    Bare,
}

/// Where the norms of a block stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In front of attention and of the feed-forward part.
    Pre,
    /// In front, and again behind, before the residual is added.
    PrePost,
    /// Only behind.
    Post,
}

/// Whether attention and the feed-forward part of a block run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// One after the other, each with its residual.
    Never,
    /// Both read the block's input, and both are added to it. The second has its own norm where the file has one.
    Always,
    /// As the key of the file says, or like this.
    Key(bool),
    /// Side by side in files without norms in front of the feed-forward part.
    WithoutFfnNorm,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// One norm over each head, before the rotation.
    Head,
    /// One norm over each head, after the rotation.
    HeadRotated,
    /// One norm over all heads of a token, before the rotation.
    Row,
}

/// Which two dimensions a rotation turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours: 2j and 2j+1.
    Norm,
    /// Halves: j and j+n/2.
    Neox,
}

/// Which layers rotate queries and keys at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayers {
    /// Every layer.
    All,
    /// The layers with a window, when some layers have one.
    Local,
    /// All but the last of each so many.
    NotLastOf(usize),
    /// None: positions are learned vectors, which the file has, or show in attention alone.
    None,
}

/// Whether attention falls off with the distance, by slopes that differ from head to head (ALiBi). Where it does,
/// nothing rotates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alibi {
    /// It does not.
    Never,
    /// With so large a bias at most.
    Always(f32),
    /// In models of so many blocks.
    AtBlocks(usize, f32),
}

/// The function in the middle of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x·σ(x).
    Silu,
    /// The tanh form of GELU.
    Gelu,
    /// The square of the positive part.
    ReluSquared,
}

/// Sliding windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The period of the pattern when the file does not say: the last layer of each so many sees everything.
    pub period: usize,
    /// The width when the file does not say; `None`: the key must be there for there to be windows.
    pub width: Option<usize>,
}

/// A factor that the file may state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// Always 1, whatever the file says.
    One,
    /// The square root of the width of the model.
    SqrtWidth,
    /// The key of the file, or this value.
    Key(f32),
    /// The key of the file, or this value over the square root of the number of blocks.
    KeyOrOverSqrtBlocks(f32),
    /// One over the key of the file.
    OneOverKey,
    /// One over the key of the file, or this value over the width of the model.
    OneOverKeyOrOverWidth(f32),
}

/// One family of models.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// The value of `general.architecture`.
    pub name: &'static str,
    /// The kind of all norms.
    pub norm: NormKind,
    /// Where they stand.
    pub placement: Placement,
    /// Whether attention and the feed-forward part run side by side.
    pub parallel: Parallel,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Which dimensions are rotated together.
    pub rope: RopeStyle,
    /// Which layers rotate.
    pub rope_layers: RopeLayers,
    /// Whether attention falls off with the distance.
    pub alibi: Alibi,
    /// The frequency base of layers with a window when the file does not say; `None`: that of the others.
    pub local_base: Option<f32>,
    /// Frequency scaling applies to layers with a window too.
    pub local_scaling: bool,
    /// Sliding windows.
    pub window: Option<Window>,
    /// A gate multiplies the other branch; otherwise there is one branch.
    pub gated: bool,
    /// The function of the feed-forward part.
    pub activation: Activation,
    /// Attention logits are capped at this, or at what the file says; 0 is no cap, `None` never one.
    pub attention_cap: Option<f32>,
    /// Final logits are capped at this, or at what the file says; 0 is no cap, `None` never one.
    pub final_cap: Option<f32>,
    /// Factor of the embeddings.
    pub embedding: Factor,
    /// Factor of what each part adds to the residual.
    pub residual: Factor,
    /// Factor of the final logits.
    pub logits: Factor,
    /// With exactly so many blocks the attention scale is taken from width over heads, not from the head size.
    pub scale_by_width_at: Option<usize>,
}

/// The row that the others are told apart from: LLaMA, Mistral, TinyLlama, Yi, SmolLM2.
const LLAMA: Architecture = Architecture {
    name: "llama",
    norm: NormKind::Rms,
    placement: Placement::Pre,
    parallel: Parallel::Never,
    qk_norm: QkNorm::None,
    rope: RopeStyle::Norm,
    rope_layers: RopeLayers::All,
    alibi: Alibi::Never,
    local_base: None,
    local_scaling: true,
    window: None,
    gated: true,
    activation: Activation::Silu,
    attention_cap: None,
    final_cap: None,
    embedding: Factor::One,
    residual: Factor::One,
    logits: Factor::One,
    scale_by_width_at: None,
};

const GEMMA: Architecture = Architecture {
    name: "gemma",
    rope: RopeStyle::Neox,
    activation: Activation::Gelu,
    embedding: Factor::SqrtWidth,
    ..LLAMA
};

const QWEN2: Architecture = Architecture { name: "qwen2", rope: RopeStyle::Neox, ..LLAMA };

/// Layer norms and one branch in the feed-forward part: the families closer to GPT-2.
const PLAIN: Architecture = Architecture {
    name: "starcoder2",
    norm: NormKind::Layer,
    gated: false,
    activation: Activation::Gelu,
    ..QWEN2
};

/// Learned positions.
const GPT2: Architecture = Architecture { name: "gpt2", rope_layers: RopeLayers::None, ..PLAIN };

/// Every architecture that runs.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    QWEN2,
    Architecture { name: "qwen2vl", ..QWEN2 },
    Architecture { name: "qwen3", qk_norm: QkNorm::Head, ..QWEN2 },
    Architecture { name: "qwen3vl", qk_norm: QkNorm::Head, ..QWEN2 },
    Architecture { name: "hunyuan-dense", qk_norm: QkNorm::HeadRotated, ..QWEN2 },
    Architecture { name: "seed_oss", ..QWEN2 },
    Architecture { name: "bitnet", ..QWEN2 },
    Architecture { name: "exaone", ..QWEN2 },
    GEMMA,
    Architecture {
        name: "gemma2",
        placement: Placement::PrePost,
        window: Some(Window { period: 2, width: Some(4096) }),
        attention_cap: Some(50.0),
        final_cap: Some(30.0),
        scale_by_width_at: Some(46),
        ..GEMMA
    },
    Architecture {
        name: "gemma3",
        placement: Placement::PrePost,
        qk_norm: QkNorm::Head,
        window: Some(Window { period: 6, width: None }),
        local_base: Some(10_000.0),
        local_scaling: false,
        final_cap: Some(0.0),
        scale_by_width_at: Some(62),
        ..GEMMA
    },
    Architecture { name: "internlm2", ..LLAMA },
    Architecture { name: "xverse", ..LLAMA },
    Architecture { name: "baichuan", alibi: Alibi::AtBlocks(40, 8.0), ..LLAMA },
    Architecture { name: "refact", alibi: Alibi::Always(8.0), ..LLAMA },
    Architecture { name: "olmo", norm: NormKind::Bare, ..LLAMA },
    Architecture { name: "smollm3", rope_layers: RopeLayers::NotLastOf(4), ..LLAMA },
    Architecture { name: "arcee", gated: false, activation: Activation::ReluSquared, ..LLAMA },
    Architecture {
        name: "minicpm",
        embedding: Factor::Key(12.0),
        residual: Factor::KeyOrOverSqrtBlocks(1.4),
        logits: Factor::OneOverKeyOrOverWidth(256.0),
        ..LLAMA
    },
    Architecture {
        name: "granite",
        embedding: Factor::Key(1.0),
        residual: Factor::Key(1.0),
        logits: Factor::OneOverKey,
        ..LLAMA
    },
    Architecture {
        name: "olmo2",
        placement: Placement::Post,
        qk_norm: QkNorm::Row,
        window: Some(Window { period: 4, width: None }),
        local_scaling: false,
        ..QWEN2
    },
    Architecture {
        name: "exaone4",
        placement: Placement::Post,
        qk_norm: QkNorm::Head,
        rope_layers: RopeLayers::Local,
        window: Some(Window { period: 4, width: None }),
        ..QWEN2
    },
    Architecture { name: "ernie4_5", ..LLAMA },
    Architecture { name: "glm4", placement: Placement::PrePost, ..LLAMA },
    Architecture { name: "chatglm", ..LLAMA },
    Architecture { name: "phi3", ..QWEN2 },
    Architecture { name: "orion", norm: NormKind::Layer, ..QWEN2 },
    Architecture { name: "stablelm", norm: NormKind::Layer, parallel: Parallel::WithoutFfnNorm, ..QWEN2 },
    PLAIN,
    GPT2,
    Architecture { name: "starcoder", ..GPT2 },
    Architecture { name: "bloom", alibi: Alibi::Always(8.0), ..PLAIN },
    Architecture { name: "falcon", parallel: Parallel::Always, ..PLAIN },
    Architecture { name: "codeshell", ..PLAIN },
    Architecture { name: "phi2", parallel: Parallel::Always, ..PLAIN },
    Architecture { name: "gptneox", parallel: Parallel::Key(true), ..PLAIN },
    Architecture { name: "nemotron", activation: Activation::ReluSquared, ..PLAIN },
    Architecture {
        name: "command-r",
        norm: NormKind::Layer,
        parallel: Parallel::Always,
        logits: Factor::Key(1.0),
        ..LLAMA
    },
    Architecture {
        name: "cohere2",
        norm: NormKind::Layer,
        parallel: Parallel::Always,
        rope_layers: RopeLayers::Local,
        window: Some(Window { period: 4, width: Some(4096) }),
        logits: Factor::Key(1.0),
        ..LLAMA
    },
];

impl Architecture {
    /// The row of a name.
    pub fn find(name: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|row| row.name == name)
    }

    /// All names, as an error message lists them.
    pub(crate) fn names() -> String {
        let names: Vec<_> = ARCHITECTURES.iter().map(|row| row.name).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_is_found_by_its_name_and_no_name_comes_twice() {
        for (i, row) in ARCHITECTURES.iter().enumerate() {
            let found = Architecture::find(row.name).expect("the name is in the table");
            assert_eq!(ARCHITECTURES.iter().position(|r| r.name == found.name), Some(i), "{}", row.name);
        }
        assert!(Architecture::find("gpt-from-nowhere").is_none());
    }
}
