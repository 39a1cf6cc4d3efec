//! The oracle: what the exact computation says about prompts to the real models (see `data/oracle/README.md`).

use std::fs;

use serde::Deserialize;

use crate::{RealModel, data};

/// What is known about one model.
#[derive(Debug, Deserialize)]
pub struct Oracle {
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// The mean distance of llama.cpp's own computation from the exact one, over all positions.
    pub peer_mean_kl: f64,
}

/// What is known about one prompt.
#[derive(Debug, Deserialize)]
pub struct Prompt {
    /// The text.
    pub prompt: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The tokens that follow when the most likely one is always taken.
    pub truth_greedy: Vec<u32>,
    /// How much more likely, as a difference of logits, each of them was than the second.
    pub truth_margin: Vec<f64>,
    /// The most likely next tokens at each position.
    pub truth_top64: Vec<Position>,
}

/// The next tokens at one position: the shape that `logits --json` gives.
#[derive(Debug, Deserialize)]
pub struct Position {
    /// The ids, the most likely first.
    pub ids: Vec<u32>,
    /// The natural logarithms of their probabilities.
    pub logp: Vec<f64>,
    /// The probability of all others together.
    pub rest: f64,
}

impl Oracle {
    /// Reads what is known about a model.
    ///
    /// # Panics
    /// When the data of the repository is damaged.
    pub fn of(model: RealModel) -> Self {
        let path = data(&format!("oracle/{}.json", model.name()));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}

impl Prompt {
    /// The greedy tokens that are beyond doubt: up to the first whose margin is under a half.
    pub fn certain(&self) -> &[u32] {
        let doubt = self.truth_margin.iter().position(|margin| *margin < 0.5);
        &self.truth_greedy[..doubt.unwrap_or(self.truth_greedy.len())]
    }
}

impl Position {
    /// The Kullback-Leibler divergence of another distribution from this one, over these tokens and all others
    /// as one.
    pub fn divergence(&self, logits: &[f32]) -> f64 {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let above = |id: usize| f64::from(logits[id]) - f64::from(most);
        let log_sum = (0..logits.len()).map(|id| above(id).exp()).sum::<f64>().ln();
        let (mut divergence, mut others) = (0.0, 1.0);
        for (&id, &logp) in self.ids.iter().zip(&self.logp) {
            let logq = above(id as usize) - log_sum;
            divergence += logp.exp() * (logp - logq);
            others -= logq.exp();
        }
        if self.rest > 0.0 {
            divergence += self.rest * (self.rest / others.max(f64::MIN_POSITIVE)).ln();
        }
        divergence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_does_not_diverge_from_itself() {
        let logits = [1.0f32, 3.0, 2.0, -1.0];
        let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        let logp = |id: usize| f64::from(logits[id]) - sum.ln();
        let rest = logp(0).exp() + logp(3).exp();
        let position = Position { ids: vec![1, 2], logp: vec![logp(1), logp(2)], rest };
        assert!(position.divergence(&logits).abs() < 1e-12);
        assert!(position.divergence(&[1.0, 2.0, 3.0, -1.0]) > 0.1);
    }

    #[test]
    fn the_data_is_whole() {
        for model in RealModel::ALL {
            let oracle = Oracle::of(model);
            assert_eq!(oracle.prompts.len(), 7);
            for prompt in &oracle.prompts {
                assert_eq!(prompt.tokens.len(), prompt.truth_top64.len(), "{}", prompt.prompt);
                assert_eq!(prompt.truth_greedy.len(), prompt.truth_margin.len(), "{}", prompt.prompt);
            }
        }
    }
}
