//! The less common ways of narrowing the candidates.

use super::candidates::{Candidates, likely_first};

impl Candidates {
    /// Keeps logits within `n` standard deviations of the largest.
    pub(super) fn top_n_sigma(&mut self, n: f32) {
        let list = self.listed();
        let finite = |l: f32| l > f32::NEG_INFINITY;
        let mut count = 0u32;
        let mut sum = 0.0;
        for c in list.iter().filter(|c| finite(c.logit)) {
            count += 1;
            sum += f64::from(c.logit);
        }
        if count == 0 {
            return;
        }
        let mean = sum / f64::from(count);
        let mut squares = 0.0;
        for c in list.iter().filter(|c| finite(c.logit)) {
            let off = f64::from(c.logit) - mean;
            squares += off * off;
        }
        let largest = self.largest();
        let floor = f64::from(largest) - f64::from(n) * libm::sqrt(squares / f64::from(count));
        self.retain(|c| f64::from(c.logit) >= floor || c.logit == largest);
    }

    /// Keeps the candidates whose surprise is nearest to the mean surprise and that together exceed `p`.
    pub(super) fn typical(&mut self, p: f32) {
        let (sum, entropy) = self.entropy();
        for c in self.listed() {
            let share = f64::from(c.p) / sum;
            // What cannot happen is infinitely surprising, and least typical.
            c.key = if share > 0.0 { libm::fabs(-libm::log(share) - entropy) as f32 } else { f32::INFINITY };
        }
        let list = self.listed();
        list.sort_unstable_by(|a, b| a.key.total_cmp(&b.key).then(likely_first(a, b)));
        let target = f64::from(p) * sum;
        let mut reached = 0.0;
        let kept = list.iter().position(|c| {
            reached += f64::from(c.p);
            reached > target
        });
        if let Some(last) = kept {
            list.truncate(last + 1);
        }
        self.resort();
    }

    /// Drops all candidates of at least the probability `threshold` but the least likely of them.
    pub(super) fn exclude_top(&mut self, threshold: f32) {
        let floor = f64::from(threshold) * self.weigh();
        self.sort();
        let above = self.listed().iter().take_while(|c| f64::from(c.p) >= floor).count();
        if above > 1 {
            self.listed().drain(..above - 1);
        }
    }

    /// Divides the logits by a temperature that follows the entropy between two bounds.
    pub(super) fn scale_by_entropy(&mut self, low: f32, high: f32, exponent: f32) {
        let (_, entropy) = self.entropy();
        let count = self.listed().len();
        if count < 2 {
            return;
        }
        let share = (entropy / libm::log(count as f64)).clamp(0.0, 1.0);
        let temperature = low + (high - low) * libm::pow(share, f64::from(exponent)) as f32;
        if temperature > 0.0 {
            self.scale(temperature);
        } else {
            self.top_k(1);
        }
    }

    /// The sum of the weights, and the mean surprise in nats.
    fn entropy(&mut self) -> (f64, f64) {
        let sum = self.weigh();
        let mut entropy = 0.0;
        for c in self.listed().iter().filter(|c| c.p > 0.0) {
            let share = f64::from(c.p) / sum;
            entropy -= share * libm::log(share);
        }
        (sum, entropy)
    }
}
