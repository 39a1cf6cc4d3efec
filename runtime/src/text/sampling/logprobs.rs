//! Log-probabilities of a step.

use super::candidates::Candidates;

/// The most likely tokens of a step with their natural log-probabilities.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogProbs {
    /// The tokens, most likely first.
    pub ids: Vec<u32>,
    /// Their log-probabilities.
    pub logp: Vec<f32>,
    /// The probability of all other tokens together.
    pub rest: f64,
}

impl LogProbs {
    /// The `top` most likely tokens. NaN logits count as impossible.
    pub fn top(logits: &[f32], top: usize) -> Self {
        let mut c = Candidates::new(logits.len());
        c.fill(logits);
        let norm = normaliser(logits);
        if top == 0 || logits.is_empty() {
            return Self { rest: 1.0, ..Self::default() };
        }
        c.top_k(top);
        let mut out = Self::default();
        let mut sum = 0.0;
        for c in c.listed() {
            let logp = difference(c.logit, norm);
            out.ids.push(c.id);
            out.logp.push(logp as f32);
            sum += libm::exp(logp);
        }
        out.rest = if top >= logits.len() { 0.0 } else { (1.0 - sum).max(0.0) };
        out
    }
}

/// The natural log-probability of one token.
pub fn log_probability(logits: &[f32], id: u32) -> f64 {
    logits.get(id as usize).map_or(f64::NEG_INFINITY, |&logit| difference(logit, normaliser(logits)))
}

/// The largest logit, and the logarithm of the sum of exponentials above it.
fn normaliser(logits: &[f32]) -> (f32, f64) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for &logit in logits.iter().filter(|l| !l.is_nan()) {
        sum += if logit == largest { 1.0 } else { libm::exp(f64::from(logit) - f64::from(largest)) };
    }
    (largest, libm::log(sum))
}

fn difference(logit: f32, (largest, log_sum): (f32, f64)) -> f64 {
    let above = if logit == largest { 0.0 } else { f64::from(logit) - f64::from(largest) };
    if above.is_nan() { f64::NEG_INFINITY } else { above - log_sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_add_up_to_one() {
        let logits = [1.0f32, 3.0, f32::NAN, 2.0, f32::NEG_INFINITY];
        let all = LogProbs::top(&logits, 5);
        assert_eq!(all.ids, [1, 3, 0, 2, 4]);
        let sum: f64 = all.logp.iter().map(|&l| f64::from(l).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6 && all.rest == 0.0);
        // 1 / (1 + e^-1 + e^-2)
        assert!((f64::from(all.logp[0]).exp() - 0.665_240_95).abs() < 1e-7);
        let two = LogProbs::top(&logits, 2);
        assert_eq!(two.ids, [1, 3]);
        assert!((two.rest - 0.090_030_57).abs() < 1e-7);
        assert!((log_probability(&logits, 3) - f64::from(all.logp[1])).abs() < 1e-6);
        assert_eq!(log_probability(&logits, 2), f64::NEG_INFINITY);
        assert_eq!(log_probability(&logits, 99), f64::NEG_INFINITY);
    }

    #[test]
    fn odd_logits_have_log_probabilities_too() {
        let infinite = LogProbs::top(&[f32::INFINITY, 0.0, f32::INFINITY], 3);
        assert_eq!(infinite.ids, [0, 2, 1]);
        assert!((infinite.logp[0] - 0.5f32.ln()).abs() < 1e-6 && infinite.logp[2] == f32::NEG_INFINITY);
        assert_eq!(LogProbs::top(&[], 3), LogProbs { rest: 1.0, ..LogProbs::default() });
        assert_eq!(LogProbs::top(&[1.0], 0).rest, 1.0);
    }
}
