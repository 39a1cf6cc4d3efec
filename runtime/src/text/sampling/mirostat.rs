//! Mirostat: keeps the surprise of what is drawn near a target.
//!
//! After each draw the difference between the surprise of the token, in bits, and the target moves the bound `mu`
//! that cuts the next distribution. Version 1 turns the bound into a top-k through an estimate of how steep the
//! distribution is (as if it followed Zipf's law); version 2 drops every token more surprising than the bound.

use super::candidates::Candidates;
use super::params::Mirostat;

/// The state of the controller.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    version: Mirostat,
    tau: f64,
    eta: f64,
    mu: f64,
    vocab: usize,
}

/// How many of the most likely tokens version 1 looks at.
const LOOKED_AT: usize = 100;

impl Controller {
    pub(super) fn new(version: Mirostat, tau: f32, eta: f32, vocab: usize) -> Option<Self> {
        let tau = f64::from(tau);
        (version != Mirostat::Off).then_some(Self { version, tau, eta: eta.into(), mu: 2.0 * tau, vocab })
    }

    pub(super) fn reset(&mut self) {
        self.mu = 2.0 * self.tau;
    }

    /// Narrows the candidates, draws, and learns from the draw.
    pub(super) fn draw(&mut self, c: &mut Candidates, unit: f64) -> u32 {
        c.sort();
        let sum = c.weigh();
        match self.version {
            Mirostat::V1 => {
                let kept = self.keep(c.listed().iter().map(|c| f64::from(c.p)));
                c.top_k(kept);
            }
            Mirostat::V2 | Mirostat::Off => {
                let bound = self.mu;
                let kept =
                    c.listed().iter().take_while(|c| -libm::log2(f64::from(c.p) / sum) <= bound).count();
                c.top_k(kept.max(1));
            }
        }
        let sum = c.weigh();
        let id = c.draw(unit);
        let weight = c.listed().iter().find(|c| c.id == id).map_or(1.0, |c| f64::from(c.p));
        // A token of no probability would be infinitely surprising and stop the controller for ever.
        if weight > 0.0 {
            self.mu -= self.eta * (-libm::log2(weight / sum) - self.tau);
        }
        id
    }

    /// How many tokens version 1 keeps of a sorted distribution.
    fn keep(&self, weights: impl Iterator<Item = f64>) -> usize {
        let (mut products, mut squares) = (0.0, 0.0);
        let mut last = None;
        for (i, weight) in weights.take(LOOKED_AT).enumerate() {
            if let Some(before) = last
                && weight > 0.0
            {
                let step = libm::log((i as f64 + 1.0) / i as f64);
                products += step * libm::log(before / weight);
                squares += step * step;
            }
            last = Some(weight);
        }
        let steepness = products / squares;
        let excess = steepness - 1.0;
        let k = libm::pow(
            excess * libm::exp2(self.mu) / (1.0 - libm::pow(self.vocab as f64, -excess)),
            1.0 / steepness,
        );
        // NaN and everything below one keep one.
        if k.is_finite() {
            (k as usize).max(1)
        } else if k == f64::INFINITY {
            usize::MAX
        } else {
            1
        }
    }

    #[cfg(test)]
    pub(super) fn mu(&self) -> f64 {
        self.mu
    }
}
