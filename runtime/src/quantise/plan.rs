//! What becomes of each tensor, decided from the header alone.

use std::collections::HashMap;

use quantsmith_kernels::{Format, Registry};
use regex_automata::meta::Regex;
use serde::Serialize;

use super::mix::{self, Facts, Mix, Part, Place};
use super::{QuantiseOptions, Target};
use crate::error::Error;
use crate::files::{FileError, ModelFile, Quoted, TensorInfo};

/// Why a tensor gets the format that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is no matrix, or one that is left as it is: norms, routers and the like.
    Kept,
    /// It has the format already.
    Same,
    /// The rules of the mix, or the type asked for.
    Mix,
    /// An option names the format.
    Option,
    /// The rows are not whole blocks of the format that it should have got.
    Fallback {
        /// That format.
        wanted: &'static str,
    },
}

/// What becomes of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedTensor {
    /// Its name in the new file.
    pub name: String,
    /// Its dimensions, the one along a row first.
    pub dims: Vec<u64>,
    /// The format it has.
    pub from: &'static str,
    /// The format it gets.
    pub to: &'static str,
    /// Why that.
    pub reason: Reason,
    /// Bytes it has.
    pub bytes_before: u64,
    /// Bytes it gets.
    pub bytes_after: u64,
    /// Whether measured importance is used.
    pub importance: bool,
    /// Its index in the file that is read.
    #[serde(skip)]
    pub(super) source: usize,
    #[serde(skip)]
    pub(super) format: &'static Format,
}

/// What becomes of all tensors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// In the order of the file.
    pub tensors: Vec<PlannedTensor>,
    /// The number for `general.file_type`, where there is one.
    pub file_type: Option<u32>,
    /// What somebody should know before using the result.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Bits of data per weight after.
    pub fn bits_per_weight(&self) -> f64 {
        let weights: u64 = self.tensors.iter().map(|t| t.dims.iter().product::<u64>()).sum();
        8.0 * self.bytes_after() as f64 / weights.max(1) as f64
    }

    /// Bytes of data before.
    pub fn bytes_before(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_before).sum()
    }

    /// Bytes of data after.
    pub fn bytes_after(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_after).sum()
    }
}

/// Parts of names of matrices that stay as they are: small, and much depends on them.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "time_mix_first",
    "time_mix_w0",
    "time_mix_w1",
    "time_mix_w2",
    "time_mix_v0",
    "time_mix_v1",
    "time_mix_v2",
    "time_mix_a0",
    "time_mix_a1",
    "time_mix_a2",
    "time_mix_g1",
    "time_mix_g2",
    "time_mix_decay_w1",
    "time_mix_decay_w2",
    "time_mix_lerp_fused",
    "attn_rel_b.weight",
    "patch_embd",
    "rel_pos",
];

/// True for what a mix speaks of: matrices, of which those of experts lie one behind the other.
fn is_quantised(tensor: &TensorInfo) -> bool {
    let dimensions = tensor.dims.iter().rposition(|&d| d != 1).map_or(0, |at| at + 1);
    let kept = KEPT.iter().any(|part| tensor.name.contains(part));
    dimensions >= 2 && tensor.name.ends_with("weight") && !kept && tensor.elements() > 0
}

/// A pattern of names and the format that it asks for.
struct Pattern {
    names: Regex,
    format: &'static Format,
}

/// All that decides.
struct Chooser<'a> {
    registry: &'a Registry,
    options: &'a QuantiseOptions,
    mix: Option<&'static Mix>,
    base: &'static Format,
    patterns: Vec<Pattern>,
    facts: Facts,
    tied: bool,
}

/// Decides what becomes of each tensor of a model.
pub(super) fn plan(model: &ModelFile, options: &QuantiseOptions, registry: &Registry) -> Result<Plan, Error> {
    let (mix, base) = match &options.target {
        Target::Copy => (None, None),
        Target::Named(name) => {
            let (mix, base) = target(name, registry)?;
            (mix, Some(base))
        }
    };
    let chooser = match base {
        Some(base) => Some(Chooser::new(model, options, registry, mix, base)?),
        None => None,
    };
    let places = places(model, |name| chooser.as_ref().is_some_and(|c| c.pattern(name).is_some()));
    let renamed = Renamed::new(model, &options.prune_layers)?;
    let mut plan = Plan { tensors: Vec::new(), file_type: mix.map(|m| m.file_type), warnings: Vec::new() };
    if base.is_none() {
        plan.file_type = model.metadata().u32("general.file_type");
    }
    for (source, tensor) in model.tensors().iter().enumerate() {
        let Some(name) = renamed.name(&tensor.name) else { continue };
        let from = by_name(registry, tensor.type_name)?;
        let (format, mut reason) = match &chooser {
            Some(chooser) if is_quantised(tensor) => chooser.choose(tensor, places[source])?,
            _ => (from, Reason::Kept),
        };
        if format.name == from.name && reason != Reason::Kept {
            reason = Reason::Same;
        }
        if format.name != from.name && !from.is_float() && !options.allow_requantise && !options.dry_run {
            let what = format!(
                "tensor {} is {} already: quantising it to {} loses more; --allow-requantize does it all the same",
                Quoted(tensor.name.as_bytes()),
                from.name,
                format.name
            );
            return Err(FileError::Refused { path: model.path().into(), what }.into());
        }
        if let (Err(why), true) = (format.can_quantise(), format.name != from.name) {
            let what = format!("tensor {}: {why}", Quoted(tensor.name.as_bytes()));
            return Err(FileError::Refused { path: model.path().into(), what }.into());
        }
        let importance = options.importance.as_ref().and_then(|all| all.of(&tensor.name));
        let used = importance.is_some() && format.name != from.name && !format.is_float();
        if let (Some(values), true) = (importance, used) {
            check_importance(tensor, values.len(), options)?;
        }
        let blocks = tensor.elements() / format.elements as u64;
        plan.tensors.push(PlannedTensor {
            name,
            dims: tensor.dims.clone(),
            from: from.name,
            to: format.name,
            reason,
            bytes_before: tensor.bytes,
            bytes_after: if format.name == from.name { tensor.bytes } else { blocks * format.bytes as u64 },
            importance: used,
            source,
            format,
        });
    }
    plan.warnings = warnings(&plan, options, registry);
    Ok(plan)
}

/// The mix and its base format that a name stands for, or a format that has no mix.
fn target(name: &str, registry: &Registry) -> Result<(Option<&'static Mix>, &'static Format), Error> {
    if let Some(mix) = mix::find(name) {
        return Ok((Some(mix), by_name(registry, mix.base)?));
    }
    let format = registry.by_name(name).ok_or_else(|| Error::Option {
        option: "type",
        found: name.into(),
        accepted: accepted(registry),
    })?;
    Ok((None, format))
}

/// True when a name stands for a mix or a format, or for copying.
pub fn is_target(name: &str, registry: &Registry) -> bool {
    name.eq_ignore_ascii_case("COPY") || target(name, registry).is_ok()
}

/// All names that may be asked for.
fn accepted(registry: &Registry) -> String {
    let mut names: Vec<&str> = mix::names().collect();
    names.extend(registry.iter().map(|f| f.name).filter(|name| mix::find(name).is_none()));
    names.push("COPY");
    names.join(", ")
}

fn by_name(registry: &Registry, name: &str) -> Result<&'static Format, Error> {
    registry.by_name(name).ok_or_else(|| Error::Option {
        option: "type",
        found: name.into(),
        accepted: registry.iter().map(|f| f.name).collect::<Vec<_>>().join(", "),
    })
}

/// Importance has one number for each column, or one for each column of each expert.
fn check_importance(tensor: &TensorInfo, found: usize, options: &QuantiseOptions) -> Result<(), Error> {
    let columns = tensor.dims.first().copied().unwrap_or(1);
    let experts: u64 = tensor.dims.iter().skip(2).product();
    if found as u64 == columns || found as u64 == columns * experts {
        return Ok(());
    }
    let path = options.importance.as_ref().map(|i| i.path.clone()).unwrap_or_default();
    let what = format!(
        "importance of {}: found {found} numbers, accepted: {columns} or {}",
        Quoted(tensor.name.as_bytes()),
        columns * experts
    );
    Err(FileError::Refused { path, what }.into())
}

fn warnings(plan: &Plan, options: &QuantiseOptions, registry: &Registry) -> Vec<String> {
    let mut warnings = Vec::new();
    let poor = plan.tensors.iter().filter(|t| {
        let few = t.to.starts_with("IQ1") || t.to.starts_with("IQ2") || t.to == "IQ3_XXS";
        few && !t.importance && t.to != t.from
    });
    let poor = poor.count();
    if poor > 0 {
        warnings.push(format!(
            "{poor} tensors get three bits or fewer without measured importance (--imatrix): expect poor results"
        ));
    }
    let is_float = |name| registry.by_name(name).is_some_and(Format::is_float);
    let requantised = plan.tensors.iter().filter(|t| t.to != t.from && !is_float(t.from)).count();
    if requantised > 0 {
        let but = if options.dry_run && !options.allow_requantise {
            "; --allow-requantize will be needed"
        } else {
            ""
        };
        warnings.push(format!("{requantised} tensors are quantised already and lose twice{but}"));
    }
    if let Some(all) = &options.importance {
        let used = plan.tensors.iter().filter(|t| t.importance).count();
        warnings.extend(
            (used == 0)
                .then(|| format!("{}: none of its {} matrices is used", all.path.display(), all.len())),
        );
    }
    warnings
}

impl<'a> Chooser<'a> {
    fn new(
        model: &ModelFile,
        options: &'a QuantiseOptions,
        registry: &'a Registry,
        mix: Option<&'static Mix>,
        base: &'static Format,
    ) -> Result<Self, Error> {
        let patterns = options.tensor_types.iter().map(|(pattern, name)| {
            let names = Regex::new(pattern).map_err(|e| Error::Option {
                option: "tensor_types",
                found: pattern.clone(),
                accepted: format!("a regular expression: {}", e.to_string().replace('\n', " ")),
            })?;
            Ok(Pattern { names, format: by_name(registry, name)? })
        });
        Ok(Self {
            registry,
            options,
            mix,
            base,
            patterns: patterns.collect::<Result<_, Error>>()?,
            facts: facts(model, options.importance.is_some()),
            tied: model.tensor("output.weight").is_none(),
        })
    }

    fn choose(&self, tensor: &TensorInfo, place: Place) -> Result<(&'static Format, Reason), Error> {
        let part = Part::of(&tensor.name, self.tied);
        let place = Place { part, ..place };
        if self.options.leave_output && tensor.name == "output.weight" {
            return Ok((by_name(self.registry, tensor.type_name)?, Reason::Kept));
        }
        let (wanted, reason) = self.wanted(&tensor.name, &place)?;
        let format = self.fitting(wanted, place.columns)?;
        let reason =
            if format.name == wanted.name { reason } else { Reason::Fallback { wanted: wanted.name } };
        Ok((format, reason))
    }

    /// The pattern that decides over a tensor, if one does.
    fn pattern(&self, name: &str) -> Option<&Pattern> {
        self.patterns.iter().find(|p| p.names.is_match(name))
    }

    /// The format that options or rules ask for.
    fn wanted(&self, name: &str, place: &Place) -> Result<(&'static Format, Reason), Error> {
        if let Some(pattern) = self.pattern(name) {
            return Ok((pattern.format, Reason::Option));
        }
        let option = match (place.part, name) {
            (_, "token_embd.weight") if self.options.embedding_type.is_some() => &self.options.embedding_type,
            (Part::Output, _) => &self.options.output_type,
            _ => &None,
        };
        if let Some(name) = option {
            return Ok((by_name(self.registry, name)?, Reason::Option));
        }
        if self.options.pure {
            let base = match self.mix {
                // The base of this one is what everything but experts gets.
                Some(mix) if mix.name == "MXFP4_MOE" => by_name(self.registry, "MXFP4")?,
                _ => self.base,
            };
            return Ok((base, Reason::Mix));
        }
        match mix::choose(self.mix, place, &self.facts) {
            Some(name) => Ok((by_name(self.registry, name)?, Reason::Mix)),
            None => Ok((self.base, Reason::Mix)),
        }
    }

    /// The format, or what takes its place in rows of so many columns.
    fn fitting(&self, wanted: &'static Format, columns: u64) -> Result<&'static Format, Error> {
        let fits = |format: &Format| usize::try_from(columns).is_ok_and(|c| format.row_bytes(c).is_some());
        if fits(wanted) {
            return Ok(wanted);
        }
        let next = by_name(self.registry, mix::instead_of(wanted.name))?;
        if fits(next) { Ok(next) } else { by_name(self.registry, "F16") }
    }
}

fn facts(model: &ModelFile, importance: bool) -> Facts {
    let metadata = model.metadata();
    let arch = metadata.str("general.architecture").unwrap_or_default();
    // Some models have a number for each layer; the first speaks for all.
    let number = |key: &str| -> Option<u32> {
        let key = format!("{arch}.{key}");
        let first = || u32::try_from(*metadata.ints(&key)?.first()?).ok();
        metadata.u32(&key).or_else(first)
    };
    let heads = number("attention.head_count").unwrap_or(1);
    let keys = number("attention.head_count_kv").unwrap_or(heads);
    Facts {
        layers: number("block_count").unwrap_or(0) as usize,
        sharing: heads.checked_div(keys).unwrap_or(1),
        experts: number("expert_count").unwrap_or(0),
        falcon: arch == "falcon",
        importance,
    }
}

/// The layer that a name tells.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Where each tensor stands among those of its part, of which those that a pattern decides over are not counted.
fn places(model: &ModelFile, by_pattern: impl Fn(&str) -> bool) -> Vec<Place> {
    let tensors = model.tensors();
    let facts = facts(model, false);
    let of = |at: usize| Part::of(&tensors[at].name, false);
    let mut order: Vec<usize> = (0..tensors.len()).filter(|&at| is_quantised(&tensors[at])).collect();
    order.sort_by_key(|&at| (layer(&tensors[at].name), &tensors[at].name));
    let mut counts: HashMap<Part, usize> = HashMap::new();
    let mut places: Vec<Place> = tensors
        .iter()
        .map(|t| {
            let columns = t.dims.first().copied().unwrap_or(1);
            let of_experts = t.dims.get(2).is_some_and(|&n| n > 1);
            Place { part: Part::Other, index: 0, counted: 0, count: facts.layers, columns, of_experts }
        })
        .collect();
    for &at in &order {
        let (name, part) = (&tensors[at].name, of(at));
        let next = counts.entry(part).or_default();
        let by_layer = (facts.experts > 1 && part != Part::Value).then(|| layer(name)).flatten();
        places[at].counted = *next;
        places[at].index = by_layer.unwrap_or(*next);
        *next += usize::from(!by_pattern(name));
    }
    let values: Vec<usize> = order.into_iter().filter(|&at| of(at) == Part::Value).collect();
    for &at in &values {
        places[at].count = values.len();
    }
    places
}

/// New names of tensors, where layers are left out.
struct Renamed {
    numbers: Option<HashMap<usize, usize>>,
}

impl Renamed {
    fn new(model: &ModelFile, pruned: &[usize]) -> Result<Self, Error> {
        if pruned.is_empty() {
            return Ok(Self { numbers: None });
        }
        let layers = facts(model, false).layers;
        if let Some(wrong) = pruned.iter().find(|&&l| l >= layers) {
            let accepted = format!("0 to {}", layers.saturating_sub(1));
            return Err(Error::Option { option: "prune_layers", found: wrong.to_string(), accepted });
        }
        let left = (0..layers).filter(|l| !pruned.contains(l));
        Ok(Self { numbers: Some(left.zip(0..).collect()) })
    }

    /// The name of a tensor in the new file, unless it is left out.
    fn name(&self, name: &str) -> Option<String> {
        let (Some(numbers), Some(old)) = (&self.numbers, layer(name)) else { return Some(name.into()) };
        let rest = name.strip_prefix("blk.")?.split_once('.')?.1;
        Some(format!("blk.{}.{rest}", numbers.get(&old)?))
    }
}
