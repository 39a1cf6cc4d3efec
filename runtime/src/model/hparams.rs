//! Hyperparameters: the sizes and factors of one model, read from its metadata and checked.
//!
//! What a number must be before anything is computed from it is decided here, once: no size is zero, heads divide
//! evenly, everything that is divided by is not zero. Whether the numbers agree with the tensors is checked when
//! the graph binds them.

use super::arch::{Alibi, Architecture, Factor, NormKind, Parallel, RopeLayers, Window};
use super::reader::Reader;
use crate::error::Error;
use crate::files::ModelFile;
use crate::model::rope::RopeParams;

/// What one layer has of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerParams {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of the feed-forward part.
    pub ff: usize,
    /// Positions that a query sees, itself included; `None`: all before it.
    pub window: Option<usize>,
    /// Which rotation, as an index into [`HParams::rope`]; `None`: no rotation.
    pub rope: Option<usize>,
}

/// The sizes and factors of a model.
#[derive(Clone, Debug)]
pub struct HParams {
    /// The row of the table of architectures.
    pub arch: &'static Architecture,
    /// Tokens that the model was trained to see at once.
    pub context: usize,
    /// Width of the residual stream.
    pub embed: usize,
    /// Width of a head of queries and keys.
    pub head_dim: usize,
    /// Width of a head of values.
    pub value_dim: usize,
    /// Attention and the feed-forward part of each block run side by side.
    pub parallel: bool,
    /// Every layer.
    pub layers: Vec<LayerParams>,
    /// What norms add under the root.
    pub epsilon: f32,
    /// The rotations that layers choose from.
    pub rope: Vec<RopeParams>,
    /// Attention falls off with the distance, with so large a bias at most.
    pub alibi: Option<f32>,
    /// Factor of the products of queries and keys.
    pub attention_scale: f32,
    /// Cap of the attention logits.
    pub attention_cap: Option<f32>,
    /// Cap of the final logits.
    pub final_cap: Option<f32>,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of what each part adds to the residual.
    pub residual_scale: f32,
    /// Factor of the final logits.
    pub logit_scale: f32,
}

impl HParams {
    /// Reads and checks the metadata. `context` is how many tokens the run wants room for, where it matters.
    pub(crate) fn read(file: &ModelFile, context: Option<usize>) -> Result<Self, Error> {
        let path = file.path();
        let name = file.metadata().str("general.architecture").ok_or_else(|| Error::Metadata {
            path: path.into(),
            key: "general.architecture".into(),
            found: "not there".into(),
            accepted: Architecture::names(),
        })?;
        let arch = Architecture::find(name).ok_or_else(|| Error::Architecture {
            path: path.into(),
            found: name.chars().filter(|c| !c.is_control()).take(60).collect(),
            supported: Architecture::names(),
        })?;
        let reader = Reader::new(file, arch.name);
        if reader.count("expert_count")?.unwrap_or(0) > 0 {
            let what = format!("a mixture of experts ({name}.expert_count)");
            return Err(Error::Unsupported { path: path.into(), what });
        }
        let trained = reader.positive("context_length")?;
        let embed = reader.positive("embedding_length")?;
        let layers = read_layers(&reader, file, arch, embed)?;
        let heads = layers[0].heads;
        let even = if embed.is_multiple_of(heads) { Some(embed / heads) } else { None };
        let head_dim = size_or(&reader, "attention.key_length", even)?;
        let value_dim = size_or(&reader, "attention.value_length", even)?;
        let alibi = match arch.alibi {
            Alibi::Never => None,
            Alibi::Always(largest) => Some(largest),
            Alibi::AtBlocks(count, largest) => (count == layers.len()).then_some(largest),
        };
        let rope = if alibi.is_some() || arch.rope_layers == RopeLayers::None {
            Vec::new()
        } else {
            RopeParams::read(&reader, file, arch, head_dim, trained, context.unwrap_or(trained))?
        };
        refuse_clamps(&reader)?;
        let mut params = HParams {
            arch,
            context: trained,
            embed,
            head_dim,
            value_dim,
            parallel: parallel(&reader, file, arch)?,
            epsilon: epsilon(&reader, arch)?,
            attention_scale: attention_scale(&reader, arch, embed, heads, head_dim, layers.len())?,
            attention_cap: cap(&reader, "attn_logit_softcapping", arch.attention_cap)?,
            final_cap: cap(&reader, "final_logit_softcapping", arch.final_cap)?,
            embedding_scale: factor(&reader, "embedding_scale", arch.embedding, embed, layers.len())?,
            residual_scale: factor(&reader, "residual_scale", arch.residual, embed, layers.len())?,
            logit_scale: factor(&reader, "logit_scale", arch.logits, embed, layers.len())?,
            layers,
            rope,
            alibi,
        };
        params.assign_rope();
        Ok(params)
    }

    /// Heads of keys and values of all layers together, times the layers: a measure of the cache.
    pub(crate) fn kv_width(&self) -> usize {
        self.layers.iter().map(|l| l.kv_heads * (self.head_dim + self.value_dim)).sum()
    }

    /// For each layer what attention of a head loses with each position of distance; none where it loses nothing. As long
    /// as there are heads, so to be asked for once the tensors have shown that there are so many.
    pub(crate) fn slopes(&self) -> Vec<Vec<f32>> {
        let of = |layer: &LayerParams| self.alibi.map_or(Vec::new(), |largest| slopes(layer.heads, largest));
        self.layers.iter().map(of).collect()
    }

    fn assign_rope(&mut self) {
        let windowed = self.layers.iter().any(|l| l.window.is_some());
        let kinds = self.rope.len();
        for (i, layer) in self.layers.iter_mut().enumerate() {
            let local = layer.window.is_some();
            let rotates = match self.arch.rope_layers {
                RopeLayers::All => true,
                RopeLayers::Local => local || !windowed,
                RopeLayers::NotLastOf(period) => i % period != period - 1,
                RopeLayers::None => false,
            };
            let kind = if local { kinds.saturating_sub(1) } else { 0 };
            layer.rope = (rotates && kinds > 0).then_some(kind);
        }
    }
}

fn read_layers(
    reader: &Reader,
    file: &ModelFile,
    arch: &Architecture,
    embed: usize,
) -> Result<Vec<LayerParams>, Error> {
    let blocks = reader.positive("block_count")?;
    // Every block has tensors, so a count above theirs is wrong; seen before memory is asked for.
    if blocks > file.tensors().len() {
        let found = format!("found {blocks} in a file of {} tensors", file.tensors().len());
        return Err(reader.refuse("block_count", found, "at most one block per tensor"));
    }
    let heads = reader.per_layer("attention.head_count", blocks, None)?;
    let kv_heads = reader.per_layer("attention.head_count_kv", blocks, Some(&heads))?;
    let ff = reader.per_layer("feed_forward_length", blocks, None)?;
    let windows = read_windows(reader, arch.window, blocks)?;
    let mut layers = Vec::with_capacity(blocks);
    for i in 0..blocks {
        let layer =
            LayerParams { heads: heads[i], kv_heads: kv_heads[i], ff: ff[i], window: windows[i], rope: None };
        let at_least_one = |key, value| match value {
            0 => Err(reader.refuse(key, format_args!("found 0 for layer {i}"), "at least 1")),
            _ => Ok(()),
        };
        at_least_one("attention.head_count", layer.heads)?;
        at_least_one("attention.head_count_kv", layer.kv_heads)?;
        at_least_one("feed_forward_length", layer.ff)?;
        if !layer.heads.is_multiple_of(layer.kv_heads) {
            let found = format!("found {} for layer {i} with {} heads", layer.kv_heads, layer.heads);
            return Err(reader.refuse("attention.head_count_kv", found, "a divisor of the number of heads"));
        }
        layers.push(layer);
    }
    if layers.iter().any(|l| l.heads != layers[0].heads) && !embed.is_multiple_of(layers[0].heads) {
        return Err(reader.refuse(
            "attention.head_count",
            "found heads that differ by layer",
            "an even division",
        ));
    }
    Ok(layers)
}

/// The window of every layer.
fn read_windows(reader: &Reader, rule: Option<Window>, blocks: usize) -> Result<Vec<Option<usize>>, Error> {
    let Some(rule) = rule else { return Ok(vec![None; blocks]) };
    let width = reader.count("attention.sliding_window")?.or(rule.width).filter(|&w| w > 0);
    let key = "attention.sliding_window_pattern";
    let local = match reader.flags(key, blocks)? {
        Some(flags) => flags,
        None => {
            let period = reader.count(key)?.unwrap_or(rule.period);
            (0..blocks).map(|i| period == 0 || i % period < period - 1).collect()
        }
    };
    Ok(local.into_iter().map(|local| if local { width } else { None }).collect())
}

/// The slopes of heads: falling powers of two, of a power of two of heads; what heads there are beyond take those between.
fn slopes(heads: usize, largest: f32) -> Vec<f32> {
    let whole = 1usize << heads.ilog2();
    let power = |step: f64, times: usize| libm::exp2(-f64::from(largest) * step * times as f64) as f32;
    let (step, half) = (1.0 / whole as f64, 0.5 / whole as f64);
    (0..heads)
        .map(|h| if h < whole { power(step, h + 1) } else { power(half, 2 * (h - whole) + 1) })
        .collect()
}

/// Queries, keys and values that are cut off at a limit are another computation.
fn refuse_clamps(reader: &Reader) -> Result<(), Error> {
    let key = "attention.clamp_kqv";
    match reader.number(key)? {
        Some(limit) if limit > 0.0 => Err(reader.refuse(
            key,
            format_args!("found {limit}"),
            "0, as queries, keys and values are not cut off",
        )),
        _ => Ok(()),
    }
}

fn parallel(reader: &Reader, file: &ModelFile, arch: &Architecture) -> Result<bool, Error> {
    Ok(match arch.parallel {
        Parallel::Never => false,
        Parallel::Always => true,
        Parallel::Key(absent) => reader.flag("use_parallel_residual")?.unwrap_or(absent),
        Parallel::WithoutFfnNorm => file.tensor("blk.0.ffn_norm.weight").is_none(),
    })
}

fn size_or(reader: &Reader, key: &str, absent: Option<usize>) -> Result<usize, Error> {
    match (reader.count(key)?, absent) {
        (Some(0), _) => Err(reader.refuse(key, "found 0", "at least 1")),
        (Some(size), _) | (None, Some(size)) => Ok(size),
        (None, None) => {
            Err(reader.refuse(key, "not there", "a size, since the heads do not divide the width"))
        }
    }
}

fn epsilon(reader: &Reader, arch: &Architecture) -> Result<f32, Error> {
    let key = match arch.norm {
        NormKind::Rms => "attention.layer_norm_rms_epsilon",
        NormKind::Layer | NormKind::Bare => "attention.layer_norm_epsilon",
    };
    match reader.number(key)? {
        Some(value) if value >= 0.0 => Ok(value),
        Some(value) => Err(reader.refuse(key, format_args!("found {value}"), "0 or more")),
        None => Err(reader.refuse(key, "not there", "a number from 0")),
    }
}

fn attention_scale(
    reader: &Reader,
    arch: &Architecture,
    embed: usize,
    heads: usize,
    head_dim: usize,
    blocks: usize,
) -> Result<f32, Error> {
    if let Some(scale) = reader.number("attention.scale")?.filter(|&scale| scale != 0.0) {
        return Ok(scale);
    }
    let width = match arch.scale_by_width_at {
        Some(count) if count == blocks => embed as f64 / heads as f64,
        _ => head_dim as f64,
    };
    Ok((1.0 / width.sqrt()) as f32)
}

fn cap(reader: &Reader, key: &str, rule: Option<f32>) -> Result<Option<f32>, Error> {
    let Some(default) = rule else { return Ok(None) };
    let value = reader.number(key)?.unwrap_or(default);
    if value < 0.0 {
        return Err(reader.refuse(key, format_args!("found {value}"), "0 for none, or more"));
    }
    Ok((value > 0.0).then_some(value))
}

fn factor(reader: &Reader, key: &str, rule: Factor, embed: usize, blocks: usize) -> Result<f32, Error> {
    // In files, 0 stands for "not set".
    let stated = || Ok::<_, Error>(reader.number(key)?.filter(|&value| value != 0.0));
    Ok(match rule {
        Factor::One => 1.0,
        Factor::SqrtWidth => (embed as f64).sqrt() as f32,
        Factor::Key(value) => stated()?.unwrap_or(value),
        Factor::KeyOrOverSqrtBlocks(value) => {
            stated()?.unwrap_or((f64::from(value) / (blocks as f64).sqrt()) as f32)
        }
        Factor::OneOverKeyOrOverWidth(value) => {
            stated()?.map_or((f64::from(value) / embed as f64) as f32, |value| 1.0 / value)
        }
        Factor::OneOverKey => stated()?.map_or(1.0, |value| 1.0 / value),
    })
}
