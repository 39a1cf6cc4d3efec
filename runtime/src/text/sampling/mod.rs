//! Drawing the next token from the logits.
//!
//! A chain of samplers narrows and reshapes the candidates, in llama.cpp's order and with its defaults; then one
//! number is drawn. Neutral settings are left out of the chain, so they are exactly neutral.
//!
//! **The same everywhere.** The generator is written out in [`Rng`]; exponentials and logarithms come from the
//! `libm` crate; candidates are always in a defined order (by id, or by logit and then id) when they are summed.
//! So the same logits and seed give the same tokens on every machine.
//!
//! NaN counts as minus infinity, several infinities share the probability, and at least one candidate survives
//! whatever the settings.

mod candidates;
mod dry;
mod filters;
mod history;
mod logprobs;
mod mirostat;
mod params;
mod rng;

use candidates::Candidates;
use dry::Dry;
use history::History;
pub use logprobs::{LogProbs, log_probability};
use mirostat::Controller;
pub use params::{Mirostat, SamplerKind, SamplingParams};
pub use rng::Rng;

use super::{TextError, Tokenizer};

/// Draws tokens by a fixed chain of samplers, with the history that penalties need.
#[derive(Debug, Clone)]
pub struct Sampler {
    chain: Vec<Stage>,
    bias: Vec<(u32, f32)>,
    history: History,
    dry: Option<Dry>,
    mirostat: Option<Controller>,
    candidates: Candidates,
    rng: Rng,
    seed: u64,
    greedy: bool,
}

/// One active sampler of the chain.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Penalties { repeat: f32, frequency: f32, presence: f32 },
    Dry,
    TopNSigma(f32),
    TopK(usize),
    Typical(f32),
    TopP(f32),
    MinP(f32),
    Xtc { probability: f32, threshold: f32 },
    Temperature(f32),
    Dynatemp { low: f32, high: f32, exponent: f32 },
}

impl Stage {
    /// The stage of a sampler, if its settings are not neutral.
    fn of(kind: SamplerKind, params: &SamplingParams) -> Option<Self> {
        let p = params;
        match kind {
            SamplerKind::Penalties => {
                let neutral =
                    p.repeat_penalty == 1.0 && p.frequency_penalty == 0.0 && p.presence_penalty == 0.0;
                (!neutral && p.window(p.repeat_last_n) > 0).then_some(Self::Penalties {
                    repeat: p.repeat_penalty,
                    frequency: p.frequency_penalty,
                    presence: p.presence_penalty,
                })
            }
            SamplerKind::Dry => Dry::new(p, 0).map(|_| Self::Dry),
            SamplerKind::TopNSigma => (p.top_n_sigma > 0.0).then_some(Self::TopNSigma(p.top_n_sigma)),
            SamplerKind::TopK => (p.top_k > 0).then_some(Self::TopK(p.top_k as usize)),
            SamplerKind::Typical => (p.typical_p < 1.0).then_some(Self::Typical(p.typical_p)),
            SamplerKind::TopP => (p.top_p < 1.0).then_some(Self::TopP(p.top_p)),
            SamplerKind::MinP => (p.min_p > 0.0).then_some(Self::MinP(p.min_p)),
            SamplerKind::Xtc => (p.xtc_probability > 0.0 && p.xtc_threshold <= 0.5)
                .then_some(Self::Xtc { probability: p.xtc_probability, threshold: p.xtc_threshold }),
            SamplerKind::Temperature if p.dynatemp_range > 0.0 => Some(Self::Dynatemp {
                low: (p.temperature - p.dynatemp_range).max(0.0),
                high: p.temperature + p.dynatemp_range,
                exponent: p.dynatemp_exponent,
            }),
            SamplerKind::Temperature => (p.temperature != 1.0).then_some(Self::Temperature(p.temperature)),
        }
    }
}

impl Sampler {
    /// Sets up the chain for a vocabulary of `vocab` tokens.
    ///
    /// DRY needs to know which tokens are sequence breakers: see [`for_tokenizer`](Self::for_tokenizer).
    ///
    /// # Errors
    /// Names the parameter that is out of its range.
    pub fn new(params: &SamplingParams, vocab: usize, seed: u64) -> Result<Self, TextError> {
        params.check()?;
        let greedy = params.temperature <= 0.0 && params.mirostat == Mirostat::Off;
        let mirostat = Controller::new(params.mirostat, params.mirostat_tau, params.mirostat_eta, vocab);
        let stages =
            |kinds: &[SamplerKind]| kinds.iter().filter_map(|&kind| Stage::of(kind, params)).collect();
        let mut chain: Vec<Stage> =
            if mirostat.is_some() { stages(&[SamplerKind::Temperature]) } else { stages(&params.samplers) };
        if params.temperature <= 0.0 {
            // Only what changes the order matters to a greedy choice, and no temperature divides.
            chain.retain(|stage| matches!(stage, Stage::Penalties { .. } | Stage::Dry));
        }
        let penalised = chain.iter().any(|stage| matches!(stage, Stage::Penalties { .. }));
        let window = if penalised { params.window(params.repeat_last_n) } else { 0 };
        let dry = if chain.contains(&Stage::Dry) { Dry::new(params, vocab) } else { None };
        Ok(Self {
            bias: params.logit_bias.clone(),
            history: History::new(window, vocab),
            dry,
            mirostat,
            candidates: Candidates::new(vocab),
            rng: Rng::new(seed),
            seed,
            greedy,
            chain,
        })
    }

    /// As [`new`](Self::new), with the sequence breakers of DRY found in the vocabulary.
    ///
    /// # Errors
    /// Names the parameter that is out of its range.
    pub fn for_tokenizer(
        params: &SamplingParams,
        tokenizer: &Tokenizer,
        seed: u64,
    ) -> Result<Self, TextError> {
        let mut sampler = Self::new(params, tokenizer.vocab_size(), seed)?;
        if let Some(dry) = &mut sampler.dry {
            dry.set_breakers(&params.dry_sequence_breakers, tokenizer);
        }
        Ok(sampler)
    }

    /// Chooses the next token. It is not entered into the history: see [`accept`](Self::accept).
    ///
    /// Allocates nothing once it has seen a full set of logits.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        self.candidates.fill(logits);
        self.choose()
    }

    /// As [`sample`](Self::sample), among the tokens for which `allowed` holds.
    ///
    /// `None` if no token is allowed.
    pub fn sample_allowed(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> Option<u32> {
        let any = self.candidates.fill_allowed(logits, allowed);
        any.then(|| self.choose())
    }

    fn choose(&mut self) -> u32 {
        let c = &mut self.candidates;
        for &(id, bias) in &self.bias {
            c.adjust(&[id], |_, logit| logit + bias);
        }
        for stage in &self.chain {
            match *stage {
                Stage::Penalties { repeat, frequency, presence } => {
                    self.history.penalise(c, repeat, frequency, presence);
                }
                Stage::Dry => {
                    if let Some(dry) = &mut self.dry {
                        dry.penalise(c);
                    }
                }
                Stage::TopNSigma(n) => c.top_n_sigma(n),
                Stage::TopK(k) => c.top_k(k),
                Stage::Typical(p) => c.typical(p),
                Stage::TopP(p) => c.top_p(p),
                Stage::MinP(p) => c.min_p(p),
                Stage::Xtc { probability, threshold } => {
                    if self.rng.unit() < f64::from(probability) {
                        c.exclude_top(threshold);
                    }
                }
                Stage::Temperature(t) => c.scale(t),
                Stage::Dynatemp { low, high, exponent } => c.scale_by_entropy(low, high, exponent),
            }
        }
        if self.greedy {
            return c.best();
        }
        let unit = self.rng.unit();
        match &mut self.mirostat {
            Some(controller) => controller.draw(c, unit),
            None => c.draw(unit),
        }
    }

    /// Whether the most likely token is always chosen.
    pub fn is_greedy(&self) -> bool {
        self.greedy
    }

    /// Enters a token into the history: those of the prompt, and each one chosen.
    pub fn accept(&mut self, id: u32) {
        self.history.push(id);
        if let Some(dry) = &mut self.dry {
            dry.push(id);
        }
    }

    /// Forgets the history, as before another prompt; the generator goes on from where it is.
    pub fn forget(&mut self) {
        self.history.clear();
        if let Some(dry) = &mut self.dry {
            dry.clear();
        }
    }

    /// Forgets the history and starts the generator again from the seed.
    pub fn reset(&mut self) {
        self.forget();
        if let Some(controller) = &mut self.mirostat {
            controller.reset();
        }
        self.rng = Rng::new(self.seed);
    }
}

#[cfg(test)]
mod definition_tests;
#[cfg(test)]
mod tests;
