//! A loaded model: its file, its weights bound to kernels, its graph planned for one token and for a batch.
//!
//! Loading decides everything that can be decided: the tier, the kernels of each tensor, places in memory, how steps
//! are split. A [`Model`] never changes afterwards, so any number of sessions and threads may share it.

pub mod arch;
pub mod hparams;
pub(crate) mod reader;
pub mod rope;

use crate::error::Error;
use crate::exec::{Engine, Operations};
use crate::files::{Metadata, ModelFile};
use crate::graph::build::{POSITIONS, build};
use crate::graph::op::{Graph, Value};
use crate::graph::plan::{Plan, Sizes, Step, plan};
use crate::graph::report::{self, PlanReport, TensorReport};
use crate::kv::{Cache, CachePlan, CacheTypes};
use crate::packed::SUFFIX;
use crate::text::{ChatTemplate, Tokenizer};
use crate::threads::Topology;
use crate::weights::{Binder, Use, VectorId, Weight};
use arch::Architecture;
use hparams::HParams;
use quantsmith_kernels::ops::attention::CellType;
use quantsmith_kernels::{Registry, Supported, Tier, cpu};
use rope::RopeTable;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Rows whose logits are computed at once: enough to use each weight often, few enough for large vocabularies.
const OUTPUTS: usize = 32;
/// The longest context that a file alone can ask for.
const DEFAULT_CONTEXT: usize = 1 << 20;
/// The longest context that anybody can ask for: no memory holds the cache of a real model beyond it.
const MAX_CONTEXT: usize = 1 << 24;
/// The most threads; more chunks than that cannot be counted.
const MAX_THREADS: usize = 1024;

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights that are done.
    pub done: u64,
    /// Bytes of weights in all.
    pub total: u64,
}

/// How to load a model.
pub struct LoadOptions {
    /// The formats that there are.
    pub registry: Registry,
    /// A tier by name, lower than the best; `None`: the best.
    pub isa: Option<String>,
    /// Threads; `None`: as many as the process may use.
    pub threads: Option<usize>,
    /// Positions to make room for; `None` or 0: as many as the model was trained with.
    pub context: Option<u32>,
    /// The most tokens of one pass.
    pub ubatch: usize,
    /// The types of the cache.
    pub cache: CacheTypes,
    /// Interleave the weights, which is faster; otherwise use them as they are in the file.
    pub pack: bool,
    /// Called while weights are interleaved.
    pub progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            registry: Registry::builtin(),
            isa: None,
            threads: None,
            context: None,
            ubatch: 512,
            cache: CacheTypes::default(),
            pack: true,
            progress: None,
        }
    }
}

impl std::fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("isa", &self.isa)
            .field("threads", &self.threads)
            .field("context", &self.context)
            .field("ubatch", &self.ubatch)
            .field("cache", &self.cache)
            .field("pack", &self.pack)
            .finish_non_exhaustive()
    }
}

/// A model, ready to run.
pub struct Model {
    pub(crate) engine: Engine,
    pub(crate) single: Plan,
    pub(crate) batch: Plan,
    values: Vec<Value>,
    tokenizer: Tokenizer,
    chat_template: Option<ChatTemplate>,
    tier: Tier,
    /// The tier was asked for.
    asked: bool,
    threads: usize,
    context: usize,
    vocab: usize,
    unused: Vec<String>,
    warnings: Vec<String>,
    load_ms: f64,
}

impl Model {
    /// Loads a model.
    ///
    /// # Errors
    /// * if an option cannot be had, such as a tier that this CPU does not have
    /// * if the file is no model, or a model that does not run here
    pub fn load(path: &Path, mut options: LoadOptions) -> Result<Arc<Model>, Error> {
        let start = Instant::now();
        let (tier, threads) = check(&options)?;
        let file = ModelFile::open(path, &options.registry)?;
        let asked_context = options.context.map(|c| c as usize).filter(|&c| c > 0);
        let params = HParams::read(&file, asked_context)?;
        let mut warnings = file.warnings().to_vec();

        if let Some(asked) = asked_context.filter(|&asked| asked > params.context)
            && file.tensor(POSITIONS).is_some()
        {
            let accepted = format!("at most {}, as positions are learned", params.context);
            return Err(Error::Option { option: "context", found: asked.to_string(), accepted });
        }

        let mut binder = Binder::new(&file, &options.registry, tier, options.pack)?;
        let graph = build(&file, &params, &mut binder)?;
        let divisors = bind_divisors(&params, &mut binder)?;
        let unused = unused(&file, &binder, params.arch)?;

        let text = |source| Error::Text { path: path.into(), source };
        let tokenizer = Tokenizer::from_metadata(file.metadata()).map_err(text)?;
        let vocab = graph.logits.map_or(0, |v| graph.values[v.0].cols);
        check_vocab(&file, &tokenizer, vocab)?;
        warnings.extend_from_slice(tokenizer.warnings());
        let chat_template =
            ChatTemplate::from_metadata(file.metadata(), &tokenizer).unwrap_or_else(|error| {
                warnings.push(format!("the model's chat template cannot be used: {error}"));
                None
            });

        check_cache(options.cache, &params)?;
        let plan_cache =
            |context: usize| CachePlan::new(&params, options.cache, context, options.ubatch.min(context));
        let (context, cache) = room(&params, asked_context, &plan_cache, &mut warnings)?;
        let packer = binder.finish();
        let total = packer.bytes() as u64;
        let mut tell = |done| {
            if let Some(progress) = &mut options.progress {
                progress(Progress { done, total });
            }
        };
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let weights = packer.pack(file, all, &mut tell)?;

        let ubatch = options.ubatch.min(context);
        let sizes = Sizes { tokens: ubatch, outputs: OUTPUTS.min(ubatch) };
        let single = plan(&graph, &weights, cache.attention(), Sizes { tokens: 1, outputs: 1 });
        let batch = plan(&graph, &weights, cache.attention(), sizes);
        let tables = params
            .rope
            .iter()
            .zip(divisors)
            .map(|(rope, divisors)| RopeTable::new(rope, divisors.map(|id| weights.vector(id)), context));
        let tables = tables.collect();
        let slopes = params.slopes();
        let Graph { values, .. } = graph;
        Ok(Arc::new(Model {
            engine: Engine { weights, params, tables, slopes, cache, operations: Operations::new(tier) },
            single,
            batch,
            values,
            tokenizer,
            chat_template,
            tier: tier.tier(),
            asked: options.isa.is_some(),
            threads,
            context,
            vocab,
            unused,
            warnings,
            load_ms: start.elapsed().as_secs_f64() * 1e3,
        }))
    }

    /// The file.
    pub fn file(&self) -> &ModelFile {
        &self.engine.weights.file
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &Metadata {
        self.file().metadata()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, if the model has one that can be used.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    /// The name of the architecture.
    pub fn architecture(&self) -> &str {
        self.engine.params.arch.name
    }

    /// Sizes and factors.
    pub fn hparams(&self) -> &HParams {
        &self.engine.params
    }

    /// The instruction-set tier.
    pub fn isa(&self) -> Tier {
        self.tier
    }

    /// Threads of a session, the caller's among them.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The number of parameters: elements of all tensors.
    pub fn parameters(&self) -> u64 {
        let weights = &self.engine.weights;
        let packed =
            |tensor: usize| weights.matrices.iter().find(|w| w.tensor() == tensor && w.packed_in_file());
        let tensors = self.file().tensors().iter().enumerate();
        let elements = tensors.map(|(n, tensor)| match packed(n) {
            // An embedding table that is also multiplied lies in the file twice.
            Some(_) if self.file().tensor(tensor.name.trim_end_matches(SUFFIX)).is_some() => 0,
            Some(weight) => (weight.rows * weight.cols) as u64,
            None => tensor.elements(),
        });
        elements.sum()
    }

    /// Positions that a session has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The most tokens of one pass.
    pub fn ubatch(&self) -> usize {
        self.batch.tokens
    }

    /// Tokens of the vocabulary, and logits per position.
    pub fn vocab_size(&self) -> usize {
        self.vocab
    }

    /// How long loading took, in milliseconds.
    pub fn load_ms(&self) -> f64 {
        self.load_ms
    }

    /// What is unusual about the model and does not stand in the way of running it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Everything that was decided at load.
    pub fn plan(&self) -> PlanReport {
        let weights = &self.engine.weights;
        let read = |step: &Step| {
            let names = step.body.parts().iter().map(|part| self.matrix_name(weights.matrix(part.weight)));
            (names.collect(), self.multiplied(step).1)
        };
        let weight_bytes: usize = weights.matrices.iter().map(Weight::mapped_bytes).sum();
        let tables: usize = self.engine.tables.iter().map(RopeTable::bytes).sum();
        let other_bytes = (weights.vector_bytes() + tables) as u64;
        let arena_bytes = self.arena_bytes() as u64;
        let (kv_bytes, packed_bytes) = (self.engine.cache.bytes as u64, weights.packed_bytes() as u64);
        PlanReport {
            architecture: self.architecture().into(),
            isa: self.tier.name().into(),
            threads: self.threads,
            context: self.context,
            decode: report::pass(&self.single, &self.values, read),
            batch: report::pass(&self.batch, &self.values, read),
            tensors: weights.matrices.iter().map(|weight| self.tensor_report(weight)).collect(),
            unused: self.unused.clone(),
            arena_bytes,
            kv_bytes,
            weight_bytes: weight_bytes as u64,
            packed_bytes,
            other_bytes,
            total_bytes: arena_bytes + kv_bytes + weight_bytes as u64 + packed_bytes + other_bytes,
        }
    }

    /// The formats of the matrices that a step multiplies, with blanks between, and the bytes that it reads of them.
    pub(crate) fn multiplied(&self, step: &Step) -> (String, u64) {
        let mut formats: Vec<&str> = Vec::new();
        let mut bytes = 0;
        for part in step.body.parts() {
            let weight = self.engine.weights.matrix(part.weight);
            bytes += weight.read_bytes() as u64;
            if !formats.contains(&weight.format().name) {
                formats.push(weight.format().name);
            }
        }
        (formats.join(" "), bytes)
    }

    /// Bytes of the arena of a session: as many as the larger plan needs.
    pub(crate) fn arena_bytes(&self) -> usize {
        let bytes = |plan: &Plan| plan.common + self.threads * plan.own;
        bytes(&self.single).max(bytes(&self.batch))
    }

    /// The name of a matrix: that of its tensor, with the rows where it is a part of it.
    fn matrix_name(&self, weight: &Weight) -> String {
        let tensor = &self.engine.weights.file.tensors()[weight.tensor()];
        let (name, rows) = (&tensor.name, weight.rows_of_tensor());
        let whole = tensor.dims.get(1).copied().unwrap_or(1) == rows.len() as u64;
        if whole || weight.packed_in_file() {
            name.clone()
        } else {
            format!("{name}[{}..{}]", rows.start, rows.end)
        }
    }

    fn tensor_report(&self, weight: &Weight) -> TensorReport {
        let tensor = &self.engine.weights.file.tensors()[weight.tensor()];
        let tier = weight.kernels.tier();
        let tier_reason = if tier != self.tier {
            format!("{} has no {} kernels", weight.format().name, self.tier.name())
        } else if self.asked {
            "the tier that was asked for".into()
        } else {
            "the best tier of this CPU".into()
        };
        let operation = match (weight.used, weight.takes_codes(), weight.packed_bytes() > 0) {
            (Use::Table, _, _) => "rows are read one by one",
            (Use::Matrix, false, _) => "float weights are used as they are",
            (Use::Matrix, true, true) if weight.packed_in_file() => "interleaved in the file",
            (Use::Matrix, true, true) => "interleaved at load",
            (Use::Matrix, true, false) => "packing is off",
        };
        TensorReport {
            name: self.matrix_name(weight),
            format: weight.format().name.into(),
            dims: tensor.dims.clone(),
            bytes: weight.file_bytes() as u64,
            packed_bytes: weight.packed_bytes() as u64,
            kernel: weight.kernel_name(),
            tier: tier.name().into(),
            reason: format!("{tier_reason}; {operation}"),
        }
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.file().path())
            .field("architecture", &self.architecture())
            .field("tier", &self.tier)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Checks what can be checked before the file is opened: the tier and the number of threads.
fn check(options: &LoadOptions) -> Result<(Supported, usize), Error> {
    let tier = cpu::choose(options.isa.as_deref())?;
    let threads = options.threads.unwrap_or_else(|| Topology::detect().choose().threads.min(MAX_THREADS));
    if threads == 0 || threads > MAX_THREADS {
        let accepted = format!("1 to {MAX_THREADS}");
        return Err(Error::Option { option: "threads", found: threads.to_string(), accepted });
    }
    if options.ubatch == 0 {
        return Err(Error::Option { option: "ubatch", found: "0".into(), accepted: "at least 1".into() });
    }
    Ok((tier, threads))
}

/// The divisors of each kind of rotation, bound once per tensor.
fn bind_divisors(params: &HParams, binder: &mut Binder<'_>) -> Result<Vec<Option<VectorId>>, Error> {
    let mut bound: Option<VectorId> = None;
    let mut all = Vec::with_capacity(params.rope.len());
    for rope in &params.rope {
        if let (Some(name), None) = (rope.divisors, bound) {
            bound = Some(binder.vector(name, rope.dims / 2)?);
        }
        all.push(rope.divisors.and(bound));
    }
    if let Some(id) = bound
        && binder.values(id).iter().any(|d| !d.is_finite() || *d <= 0.0)
    {
        let name = params.rope.iter().find_map(|rope| rope.divisors).unwrap_or_default();
        return Err(binder.error(name, "a divisor that is not above 0", "finite numbers above 0"));
    }
    Ok(all)
}

/// The tensors that nothing uses. One that could change what the model says is an error: to leave it out would give
/// another model.
fn unused(file: &ModelFile, binder: &Binder<'_>, arch: &Architecture) -> Result<Vec<String>, Error> {
    let harmless = |name: &str| name.starts_with("rope_f") || name.contains(".attn_rot_embd");
    let unused = binder.unused();
    match unused.iter().find(|name| !harmless(name)) {
        Some(name) => {
            let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let what = format!("tensor '{name}', which the graph of '{}' has no place for,", arch.name);
            Err(Error::Unsupported { path: file.path().into(), what })
        }
        None => Ok(unused.into_iter().map(String::from).collect()),
    }
}

fn check_vocab(file: &ModelFile, tokenizer: &Tokenizer, rows: usize) -> Result<(), Error> {
    let tokens = tokenizer.vocab_size();
    if tokens == rows {
        return Ok(());
    }
    Err(Error::Tensor {
        path: file.path().into(),
        name: "token_embd.weight".into(),
        found: format!("{rows} rows"),
        expected: format!("one for each of the {tokens} tokens of the vocabulary"),
    })
}

/// Refuses types of the cache that the heads are no whole blocks of.
fn check_cache(types: CacheTypes, params: &HParams) -> Result<(), Error> {
    for (option, ty, dim) in [
        ("cache type of keys", types.keys, params.head_dim),
        ("cache type of values", types.values, params.value_dim),
    ] {
        if !dim.is_multiple_of(ty.block()) {
            let fits = CellType::ALL.iter().filter(|ty| dim.is_multiple_of(ty.block()));
            let fits: Vec<&str> = fits.map(|ty| ty.name()).collect();
            let accepted = format!("{} for heads of {dim}", fits.join(", "));
            return Err(Error::Option { option, found: ty.name().into(), accepted });
        }
    }
    Ok(())
}

/// The length of the context, and the places of the cache. What the user asked for is taken as it is, or refused before
/// the weights are looked at; what only the file says is halved until the system has memory for it.
fn room(
    params: &HParams,
    asked: Option<usize>,
    plan_cache: &dyn Fn(usize) -> Option<CachePlan>,
    warnings: &mut Vec<String>,
) -> Result<(usize, CachePlan), Error> {
    let mut context = asked.unwrap_or(params.context.min(DEFAULT_CONTEXT));
    let error = |context: usize| Error::Memory {
        what: "keys and values",
        bytes: (context as u64).saturating_mul(2 * params.kv_width() as u64),
        hint: "ask for a smaller context with -c",
    };
    if context > MAX_CONTEXT {
        return Err(error(context));
    }
    loop {
        // Memory that is not touched costs nothing: the system is only asked whether there would be any.
        let plan = plan_cache(context).ok_or_else(|| error(context));
        match plan.and_then(|plan| Cache::new(&plan).map(|_| plan)) {
            Ok(plan) => {
                if context < params.context && asked.is_none() {
                    warnings
                        .push(format!("the context is {context} tokens, of {} in training", params.context));
                }
                return Ok((context, plan));
            }
            Err(_) if asked.is_none() && context > 1 => context /= 2,
            Err(error) => return Err(error),
        }
    }
}
