//! Penalties for continuing a repetition ("don't repeat yourself").
//!
//! If the last n tokens occurred before, the token that followed them then would make the repetition longer. Its
//! logit is lowered by multiplier · base^(n - allowed length), for the longest such n. Sequence breakers cut the
//! context: no repetition reaches across one, and a breaker itself is never penalised.
//!
//! All lengths come from one pass over the reversed context (the Z algorithm), so a step is linear in the window.

use super::SamplingParams;
use super::candidates::Candidates;
use crate::text::{EncodeOptions, Tokenizer};

/// The longest repetition that is told apart; the penalty is beyond any logit long before.
const LONGEST: u32 = 1 << 16;

/// The tokens so far and what breaks their repetitions.
#[derive(Debug, Clone)]
pub(super) struct Dry {
    multiplier: f32,
    base: f32,
    allowed: u32,
    window: usize,
    /// The context; it is cut back to the window when it is twice as long.
    tokens: Vec<u32>,
    /// Whether a breaker ends or lies in the token at this place.
    breaks: Vec<bool>,
    /// Tokens that contain a breaker.
    breakers: Vec<bool>,
    /// Breakers that are spread over several tokens.
    sequences: Vec<Vec<u32>>,
    lengths: Vec<u32>,
    /// The longest repetition that each token would continue; zero outside `continued`.
    longest: Vec<u32>,
    continued: Vec<u32>,
}

impl Dry {
    /// Prepares if the parameters ask for it.
    pub(super) fn new(params: &SamplingParams, vocab: usize) -> Option<Self> {
        let window = params.window(params.dry_penalty_last_n);
        if params.dry_multiplier == 0.0 || params.dry_base < 1.0 || window == 0 {
            return None;
        }
        let reserved = window.min(1 << 16);
        Some(Self {
            multiplier: params.dry_multiplier,
            base: params.dry_base,
            allowed: params.dry_allowed_length.max(0) as u32,
            window,
            tokens: Vec::with_capacity(2 * reserved),
            breaks: Vec::with_capacity(2 * reserved),
            breakers: Vec::new(),
            sequences: Vec::new(),
            lengths: Vec::with_capacity(reserved),
            longest: vec![0; vocab],
            continued: Vec::with_capacity(reserved.min(vocab)),
        })
    }

    /// Finds out which tokens break repetitions.
    pub(super) fn set_breakers(&mut self, texts: &[String], tokenizer: &Tokenizer) {
        let contains = |piece: &[u8], text: &[u8]| {
            !text.is_empty() && piece.windows(text.len()).any(|window| window == text)
        };
        self.breakers = (0..tokenizer.vocab_size() as u32)
            .map(|id| texts.iter().any(|text| contains(tokenizer.piece(id), text.as_bytes())))
            .collect();
        self.sequences = texts
            .iter()
            .filter_map(|text| tokenizer.encode(text, EncodeOptions::default()).ok())
            .filter(|ids| ids.len() > 1)
            .collect();
    }

    pub(super) fn push(&mut self, id: u32) {
        if self.tokens.len() >= 2 * self.window {
            let old = self.tokens.len() - self.window;
            self.tokens.drain(..old);
            self.breaks.drain(..old);
        }
        self.tokens.push(id);
        self.breaks.push(self.breakers.get(id as usize).copied().unwrap_or(false));
        for sequence in &self.sequences {
            if self.tokens.ends_with(sequence) {
                let start = self.breaks.len() - sequence.len();
                self.breaks[start..].fill(true);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.breaks.clear();
    }

    /// Lowers the logits of tokens that would continue a repetition.
    pub(super) fn penalise(&mut self, c: &mut Candidates) {
        let first = self.tokens.len().saturating_sub(self.window);
        let (tokens, breaks) = (&self.tokens[first..], &self.breaks[first..]);
        let n = tokens.len();
        // How far back a repetition may reach.
        let reach = breaks.iter().rev().take_while(|broken| !**broken).count().min(LONGEST as usize) as u32;
        if reach == 0 || n < 2 {
            return;
        }
        repeat_lengths(tokens, &mut self.lengths);
        for back in 1..n {
            let length = self.lengths[back].min(reach);
            let (next, at) = (tokens[n - back], n - back);
            if length < self.allowed.max(1) || breaks[at] {
                continue;
            }
            let Some(longest) = self.longest.get_mut(next as usize) else { continue };
            if *longest == 0 {
                self.continued.push(next);
            }
            *longest = length.max(*longest);
        }
        c.adjust(&self.continued, |id, logit| match self.longest[id as usize] {
            0 => logit,
            // Powers come from the project's own arithmetic: the same everywhere.
            length => logit - self.multiplier * libm::powf(self.base, (length - self.allowed) as f32),
        });
        for id in self.continued.drain(..) {
            self.longest[id as usize] = 0;
        }
    }
}

/// For each distance back from the end: how many tokens before it equal those before the end.
fn repeat_lengths(tokens: &[u32], lengths: &mut Vec<u32>) {
    let n = tokens.len();
    let back = |i: usize| tokens[n - 1 - i];
    lengths.clear();
    lengths.resize(n, 0);
    let (mut left, mut right) = (0, 0);
    for i in 1..n {
        let mut length = if i < right { (right - i).min(lengths[i - left] as usize) } else { 0 };
        while i + length < n && back(length) == back(i + length) {
            length += 1;
        }
        lengths[i] = length as u32;
        if i + length > right {
            (left, right) = (i, i + length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::bpe_metadata;

    fn dry(last_n: i32) -> Dry {
        let params = SamplingParams {
            dry_multiplier: 1.0,
            dry_base: 2.0,
            dry_allowed_length: 2,
            dry_penalty_last_n: last_n,
            ..SamplingParams::default()
        };
        Dry::new(&params, 8).unwrap()
    }

    fn penalties(dry: &mut Dry, tokens: &[u32]) -> Vec<f32> {
        dry.clear();
        tokens.iter().for_each(|&id| dry.push(id));
        let mut c = Candidates::new(8);
        c.fill(&[0.0; 8]);
        dry.penalise(&mut c);
        c.dense.iter().map(|l| -l).collect()
    }

    #[test]
    fn the_longest_repetition_that_a_token_continues_counts() {
        // "1 2 3" stood before and 4 followed; "2 3" stood before and 5 followed.
        let mut d = dry(-1);
        assert_eq!(
            penalties(&mut d, &[1, 2, 3, 4, 0, 2, 3, 5, 1, 2, 3]),
            [0.0, 0.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0]
        );
        assert_eq!(penalties(&mut d, &[3, 4, 3]), [0.0; 8], "one token is allowed");
        // A loop: the token that goes on is penalised by the length of the whole overlap.
        assert_eq!(penalties(&mut d, &[1, 1, 1, 1])[1], 2.0);
        assert_eq!(penalties(&mut d, &[]), [0.0; 8]);
    }

    #[test]
    fn the_window_limits_what_is_searched() {
        let tokens = [1, 2, 4, 0, 0, 1, 2];
        assert_eq!(penalties(&mut dry(-1), &tokens)[4], 1.0);
        assert_eq!(penalties(&mut dry(7), &tokens)[4], 1.0);
        assert_eq!(penalties(&mut dry(6), &tokens)[4], 0.0);
        let mut long: Vec<u32> = (0..100).map(|i| i % 7).collect();
        long.extend(tokens);
        assert_eq!(penalties(&mut dry(7), &long)[4], 1.0);
    }

    #[test]
    fn nothing_is_repeated_across_a_breaker() {
        let mut d = dry(-1);
        d.breakers = vec![true, false, false, false, false, false, false, false];
        assert_eq!(penalties(&mut d, &[0, 1, 2, 3, 0, 1, 2])[3], 1.0, "the match ends at the breaker");
        assert_eq!(penalties(&mut d, &[1, 2, 3, 1, 2, 0]), [0.0; 8], "the context ends in a breaker");
        assert_eq!(penalties(&mut d, &[1, 2, 0, 1, 2])[0], 0.0, "a breaker is not penalised");
        d.breakers.clear();
        d.sequences = vec![vec![6, 7]];
        assert_eq!(penalties(&mut d, &[1, 6, 7, 2, 3, 1, 6, 7, 2])[3], 0.0, "one token since the breaker");
        assert_eq!(penalties(&mut d, &[6, 7, 1, 2, 3, 6, 7, 1, 2])[3], 1.0);
    }

    #[test]
    fn breakers_are_found_in_pieces() {
        let t = Tokenizer::from_metadata(&bpe_metadata("gpt-2", &["a :"])).unwrap();
        let mut d = dry(-1);
        d.set_breakers(&[":".to_owned(), "xy".to_owned()], &t);
        let breaking: Vec<u32> = (0..t.vocab_size() as u32).filter(|&id| d.breakers[id as usize]).collect();
        assert_eq!(breaking, [t.find(":").unwrap(), t.find("a:").unwrap()]);
        assert_eq!(d.sequences, [vec![t.find("x").unwrap(), t.find("y").unwrap()]]);
    }

    #[test]
    fn lengths_equal_those_of_the_definition() {
        let mut state = 11u64;
        let mut lengths = Vec::new();
        for n in 0..80usize {
            let tokens: Vec<u32> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) as u32 % 2
                })
                .collect();
            repeat_lengths(&tokens, &mut lengths);
            for back in 1..n {
                let plain =
                    (0..n - back).take_while(|&k| tokens[n - 1 - k] == tokens[n - 1 - back - k]).count();
                assert_eq!(lengths[back] as usize, plain);
            }
        }
    }
}
