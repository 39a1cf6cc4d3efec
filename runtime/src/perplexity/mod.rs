//! How well a model predicts a text, and how far it is from another one: llama.cpp's figures, computed its way.
//!
//! A text is cut into pieces of as many tokens as the context has. Of each piece the first half is only read; then
//! each token is predicted from those before it. What a token costs is the negative logarithm of the probability that
//! it got, in nats; the perplexity is the exponential of the mean. [`Divergence`] compares with the probabilities that
//! another model gave, which [`base`] writes to a file and reads back.

pub mod base;
mod divergence;

pub use divergence::{Divergence, DivergenceReport, Figure, Quantiles};

use crate::{Error, Session, Want};

/// The mean of numbers, and how sure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Mean {
    /// Adds a number.
    pub fn push(&mut self, x: f64) {
        self.count += 1;
        self.sum += x;
        self.squares += x * x;
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The mean, 0 of no numbers.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The standard error of the mean, 0 for less than two numbers.
    pub fn error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let variance = self.squares / self.count as f64 - self.mean() * self.mean();
        (variance.max(0.0) / (self.count - 1) as f64).sqrt()
    }

    /// The perplexity and its standard error, if the numbers are what tokens cost.
    pub fn perplexity(&self) -> (f64, f64) {
        let perplexity = libm::exp(self.mean());
        (perplexity, perplexity * self.error())
    }
}

/// The probabilities that logits stand for.
#[derive(Clone, Copy, Debug)]
pub struct Probabilities<'a> {
    logits: &'a [f32],
    /// The largest logit.
    largest: f32,
    /// The token that has it, the first of several.
    best: u32,
    /// The logarithm of the sum of the exponentials of the logits less the largest.
    log_sum: f64,
}

impl<'a> Probabilities<'a> {
    /// Those of these logits; `None` if they are no finite numbers.
    pub fn new(logits: &'a [f32]) -> Option<Self> {
        let (mut best, mut largest) = (0, f32::NEG_INFINITY);
        for (id, &logit) in (0u32..).zip(logits) {
            if logit > largest {
                (best, largest) = (id, logit);
            }
        }
        let sum: f64 = logits.iter().map(|&logit| f64::from(libm::expf(logit - largest))).sum();
        let log_sum = libm::log(sum);
        (largest.is_finite() && log_sum.is_finite()).then_some(Self { logits, largest, best, log_sum })
    }

    /// The most likely token.
    pub fn best(&self) -> u32 {
        self.best
    }

    /// What a token costs: the negative logarithm of its probability.
    pub fn cost(&self, token: u32) -> f64 {
        f64::from(self.largest) + self.log_sum - f64::from(self.logits[token as usize])
    }
}

/// A piece of a text, to be predicted in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The tokens, with the mark that a text begins with where the model has one.
    pub tokens: Vec<u32>,
    /// The position whose logits predict first.
    pub first: usize,
}

/// How a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Tokens of a piece.
    pub size: usize,
    /// Tokens from one piece to the next: each piece then predicts as many, and else its second half. 0 is none.
    pub stride: usize,
    /// The mark that replaces the first token of each piece, if the model has one.
    pub bos: Option<u32>,
}

impl Cut {
    /// How many pieces a text of so many tokens has.
    pub fn count(&self, tokens: usize) -> usize {
        match self.stride {
            0 => tokens / self.size.max(1),
            stride => tokens.saturating_sub(self.size).div_ceil(stride),
        }
    }

    /// A piece of the tokens of a text.
    ///
    /// # Panics
    /// * if there is no such piece
    pub fn piece(&self, tokens: &[u32], index: usize) -> Piece {
        let start = index * if self.stride == 0 { self.size } else { self.stride };
        let mut tokens = tokens[start..start + self.size].to_vec();
        if let (Some(bos), Some(first)) = (self.bos, tokens.first_mut()) {
            *first = bos;
        }
        Piece { tokens, first: self.first() }
    }

    /// The position whose logits predict first.
    pub fn first(&self) -> usize {
        match self.stride {
            0 => self.size / 2,
            stride => self.size.saturating_sub(stride + 1),
        }
    }

    /// How many tokens of a piece are predicted.
    pub fn predicted(&self) -> usize {
        (self.size - 1).saturating_sub(self.first())
    }
}

/// Evaluates a piece, and calls `sink` with the logits of each position that predicts, and the token that follows.
///
/// # Errors
/// * as [`Session::eval`]
pub fn predict(session: &mut Session, piece: &Piece, sink: &mut dyn FnMut(&[f32], u32)) -> Result<(), Error> {
    session.reset();
    let last = piece.tokens.len().saturating_sub(1);
    let first = piece.first.min(last);
    session.eval(&piece.tokens[..first], Want::None, &mut |_, _| {})?;
    session.eval(&piece.tokens[first..last], Want::All, &mut |at, logits| {
        sink(logits, piece.tokens[at + 1]);
    })
}

#[cfg(test)]
mod tests;
