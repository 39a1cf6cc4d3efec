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
mod history;
mod params;
mod rng;

use candidates::Candidates;
use history::History;
pub use params::SamplingParams;
pub use rng::Rng;

use super::TextError;

/// Draws tokens by a fixed chain of samplers, with the history that penalties need.
#[derive(Debug, Clone)]
pub struct Sampler {
    chain: Vec<Stage>,
    history: History,
    candidates: Candidates,
    rng: Rng,
    seed: u64,
    greedy: bool,
}

/// One active sampler of the chain.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Penalties { repeat: f32, frequency: f32, presence: f32 },
    TopK(usize),
    TopP(f32),
    MinP(f32),
    Temperature(f32),
}

impl Sampler {
    /// Sets up the chain for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// Names the parameter that is out of its range.
    pub fn new(params: &SamplingParams, vocab: usize, seed: u64) -> Result<Self, TextError> {
        params.check()?;
        let mut chain = Vec::new();
        let penalised =
            params.repeat_penalty != 1.0 || params.frequency_penalty != 0.0 || params.presence_penalty != 0.0;
        let window = match params.repeat_last_n {
            -1 => params.context,
            n => n.max(0) as usize,
        };
        if penalised && window > 0 {
            chain.push(Stage::Penalties {
                repeat: params.repeat_penalty,
                frequency: params.frequency_penalty,
                presence: params.presence_penalty,
            });
        }
        if params.top_k > 0 {
            chain.push(Stage::TopK(params.top_k as usize));
        }
        if params.top_p < 1.0 {
            chain.push(Stage::TopP(params.top_p));
        }
        if params.min_p > 0.0 {
            chain.push(Stage::MinP(params.min_p));
        }
        let greedy = params.temperature <= 0.0;
        if greedy {
            // Only what changes the order matters to a greedy choice.
            chain.retain(|stage| matches!(stage, Stage::Penalties { .. }));
        } else if params.temperature != 1.0 {
            chain.push(Stage::Temperature(params.temperature));
        }
        Ok(Self {
            chain,
            history: History::new(if penalised { window } else { 0 }, vocab),
            candidates: Candidates::new(vocab),
            rng: Rng::new(seed),
            seed,
            greedy,
        })
    }

    /// Chooses the next token. It is not entered into the history: see [`accept`](Self::accept).
    ///
    /// Allocates nothing once it has seen a full set of logits.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let c = &mut self.candidates;
        c.fill(logits);
        for stage in &self.chain {
            match *stage {
                Stage::Penalties { repeat, frequency, presence } => {
                    self.history.penalise(c, repeat, frequency, presence);
                }
                Stage::TopK(k) => c.top_k(k),
                Stage::TopP(p) => c.top_p(p),
                Stage::MinP(p) => c.min_p(p),
                Stage::Temperature(t) => c.scale(t),
            }
        }
        if self.greedy { c.best() } else { c.draw(self.rng.unit()) }
    }

    /// Enters a token into the history: those of the prompt, and each one chosen.
    pub fn accept(&mut self, id: u32) {
        self.history.push(id);
    }

    /// Forgets the history and starts the generator again from the seed.
    pub fn reset(&mut self) {
        self.history.clear();
        self.rng = Rng::new(self.seed);
    }
}

#[cfg(test)]
mod tests;
