//! How far the probabilities of a model are from those of a base: llama.cpp's statistics.

use serde::Serialize;

use super::base::Row;
use super::{Mean, Probabilities};

/// Probabilities below the exponential of this are left out of the divergence.
const DEPTH: f32 = -16.0;

/// Adds up the comparison, position by position.
#[derive(Clone, Debug, Default)]
pub struct Divergence {
    cost: Mean,
    base_cost: Mean,
    /// The sum of the products of both costs.
    products: f64,
    divergence: Mean,
    divergences: Vec<f32>,
    change: Mean,
    changes: Vec<f32>,
    squared_change: Mean,
    same_best: usize,
}

/// A figure and its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// Values of a distribution by their rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The largest.
    pub maximum: f64,
    /// Above 99.9 % of them.
    pub p99_9: f64,
    /// Above 99 %.
    pub p99: f64,
    /// Above 95 %.
    pub p95: f64,
    /// Above 90 %.
    pub p90: f64,
    /// Above 75 %.
    pub p75: f64,
    /// Above half of them.
    pub median: f64,
    /// Above 25 %.
    pub p25: f64,
    /// Above 10 %.
    pub p10: f64,
    /// Above 5 %.
    pub p5: f64,
    /// Above 1 %.
    pub p1: f64,
    /// Above 0.1 %.
    pub p0_1: f64,
    /// The smallest.
    pub minimum: f64,
}

/// The comparison of all positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DivergenceReport {
    /// How many positions were compared.
    pub tokens: usize,
    /// The perplexity of the model.
    pub ppl: Figure,
    /// The perplexity of the base.
    pub base_ppl: Figure,
    /// The correlation of what tokens cost, from -1 to 1.
    pub correlation: f64,
    /// The logarithm of the ratio of the perplexities.
    pub log_ratio: Figure,
    /// The ratio of the perplexities.
    pub ratio: Figure,
    /// The difference of the perplexities.
    pub difference: Figure,
    /// The mean divergence of a position, in nats.
    pub kld: Figure,
    /// The divergences by rank.
    pub kld_quantiles: Quantiles,
    /// The mean change of the probability of the token that follows.
    pub change: Figure,
    /// The changes by rank.
    pub change_quantiles: Quantiles,
    /// The root of the mean square of the changes.
    pub change_rms: Figure,
    /// How often the most likely token is the same.
    pub same_top: Figure,
}

impl Divergence {
    /// Compares a position, which the given token follows.
    pub fn push(&mut self, model: &Probabilities<'_>, base: &Row<'_>, next: u32) {
        let (cost, base_cost) = (model.cost(next), -f64::from(base.log(next)));
        self.cost.push(cost);
        self.base_cost.push(base_cost);
        self.products += cost * base_cost;

        let shift = f64::from(model.largest) + model.log_sum;
        let (mut sum, mut best, mut highest) = (0.0, 0, f32::NEG_INFINITY);
        for ((id, log), &logit) in (0u32..).zip(base.logs()).zip(model.logits) {
            if log > highest {
                (best, highest) = (id, log);
            }
            if log > DEPTH {
                sum += f64::from(libm::expf(log)) * (f64::from(log) - f64::from(logit) + shift);
            }
        }
        self.divergence.push(sum);
        self.divergences.push(sum as f32);
        self.same_best += usize::from(best == model.best);

        let change = libm::exp(-cost) - libm::exp(-base_cost);
        self.change.push(change);
        self.changes.push(change as f32);
        self.squared_change.push(change * change);
    }

    /// The figures of all that was compared; `None` for nothing.
    pub fn report(&self) -> Option<DivergenceReport> {
        let tokens = self.cost.count();
        if tokens == 0 {
            return None;
        }
        let n = tokens as f64;
        let figure = |mean: &Mean| Figure { value: mean.mean(), error: mean.error() };
        let perplexity = |mean: &Mean| {
            let (value, error) = mean.perplexity();
            Figure { value, error }
        };
        let (ppl, base_ppl) = (perplexity(&self.cost), perplexity(&self.base_cost));
        let (error, base_error) = (self.cost.error(), self.base_cost.error());
        let covariance = if tokens < 2 {
            0.0
        } else {
            (self.products / n - self.cost.mean() * self.base_cost.mean()) / (n - 1.0)
        };
        let together = (error * error + base_error * base_error - 2.0 * covariance).max(0.0);
        let log_ratio = Figure { value: self.cost.mean() - self.base_cost.mean(), error: together.sqrt() };
        let ratio = libm::exp(log_ratio.value);
        let spread = ppl.error * ppl.error + base_ppl.error * base_ppl.error
            - 2.0 * ppl.value * base_ppl.value * covariance;
        let rms = self.squared_change.mean().sqrt();
        let same = self.same_best as f64 / n;
        Some(DivergenceReport {
            tokens,
            ppl,
            base_ppl,
            correlation: if error * base_error > 0.0 { covariance / (error * base_error) } else { 1.0 },
            log_ratio,
            ratio: Figure { value: ratio, error: ratio * log_ratio.error },
            difference: Figure { value: ppl.value - base_ppl.value, error: spread.max(0.0).sqrt() },
            kld: figure(&self.divergence),
            kld_quantiles: Quantiles::of(&self.divergences),
            change: figure(&self.change),
            change_quantiles: Quantiles::of(&self.changes),
            change_rms: Figure {
                value: rms,
                error: if rms > 0.0 { 0.5 / rms * self.squared_change.error() } else { 0.0 },
            },
            same_top: Figure {
                value: same,
                error: if tokens < 2 { 0.0 } else { (same * (1.0 - same) / (n - 1.0)).sqrt() },
            },
        })
    }
}

impl Quantiles {
    /// The quantiles of values; between two of them by their distance.
    pub fn of(values: &[f32]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f32::total_cmp);
        let at = |fraction: f64| {
            let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
            let place = fraction * last as f64;
            // Not negative and not above `last`.
            let (below, part) = (place as usize, place.fract());
            let above = (below + 1).min(last);
            (1.0 - part) * f64::from(sorted[below]) + part * f64::from(sorted[above])
        };
        Quantiles {
            maximum: at(1.0),
            p99_9: at(0.999),
            p99: at(0.99),
            p95: at(0.95),
            p90: at(0.90),
            p75: at(0.75),
            median: at(0.5),
            p25: at(0.25),
            p10: at(0.10),
            p5: at(0.05),
            p1: at(0.01),
            p0_1: at(0.001),
            minimum: at(0.0),
        }
    }
}
