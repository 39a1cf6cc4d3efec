//! Answers that follow a grammar, a JSON schema or a regular expression.
//!
//! The parser is the `llguidance` crate. It is told the vocabulary once per tokenizer ([`Constraints`]) and then
//! gives, for each step of an answer ([`Constraint`]), the set of tokens that may come next. GBNF is translated
//! into the crate's own notation by [`gbnf`].

mod gbnf;

use std::fmt;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value as Json;

use super::{Sampler, TextError, Tokenizer};

/// Makes constraints for one tokenizer.
pub struct Constraints {
    factory: ParserFactory,
    vocab: usize,
}

/// The vocabulary as the parser wants it.
struct Vocabulary {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        // These bytes may stand in the middle of a text.
        let inside = |text: &str| self.tokenizer.encode_inside(text);
        let ids = self.trie.tokenize_with_greedy_fallback(bytes, inside);
        // Some vocabularies change what they are given.
        if self.trie.decode_raw(&ids) == bytes { ids } else { self.trie.greedy_tokenize(bytes) }
    }
}

impl Constraints {
    /// Prepares the vocabulary.
    ///
    /// # Errors
    /// Says so if the vocabulary has no token that ends an answer.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, TextError> {
        let ends = tokenizer.end_of_generation();
        let &eos = ends.first().ok_or_else(|| {
            TextError::Constraint("the vocabulary has no token that ends an answer".to_owned())
        })?;
        let vocab = tokenizer.vocab_size();
        let words: Vec<Vec<u8>> = (0..vocab as u32)
            .map(|id| {
                // What prints nothing is special to the parser and never part of a text.
                if tokenizer.piece(id).is_empty() {
                    [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.token_text(id)].concat()
                } else {
                    tokenizer.piece(id).to_vec()
                }
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, eos), &words).with_eos_tokens(ends);
        let env: TokEnv = Arc::new(Vocabulary { trie, tokenizer });
        let mut factory = ParserFactory::new_simple(&env).map_err(|e| failed(&e))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Self { factory, vocab })
    }

    /// Answers that are JSON of this schema.
    ///
    /// # Errors
    /// Says what in the schema cannot be done.
    pub fn json_schema(&self, schema: &Json) -> Result<Constraint, TextError> {
        self.constraint(TopLevelGrammar::from_json_schema(schema.clone()))
    }

    /// Answers that the regular expression matches as a whole.
    ///
    /// # Errors
    /// Says what in the expression cannot be done.
    pub fn regex(&self, pattern: &str) -> Result<Constraint, TextError> {
        self.constraint(TopLevelGrammar::from_regex(pattern))
    }

    /// Answers of a grammar in GBNF, llama.cpp's notation.
    ///
    /// # Errors
    /// Names the line and what is wrong with it.
    pub fn gbnf(&self, grammar: &str) -> Result<Constraint, TextError> {
        self.constraint(TopLevelGrammar::from_lark(gbnf::to_lark(grammar)?))
    }

    /// Whether a text is a grammar in GBNF, which needs no vocabulary to tell.
    ///
    /// # Errors
    /// As [`gbnf`](Self::gbnf).
    pub fn check_gbnf(grammar: &str) -> Result<(), TextError> {
        gbnf::to_lark(grammar).map(drop)
    }

    /// Answers of a grammar in Lark's notation, as far as the parser has it.
    ///
    /// # Errors
    /// Says what in the grammar cannot be done.
    pub fn lark(&self, grammar: &str) -> Result<Constraint, TextError> {
        self.constraint(TopLevelGrammar::from_lark(grammar.to_owned()))
    }

    fn constraint(&self, grammar: TopLevelGrammar) -> Result<Constraint, TextError> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(TextError::Constraint(one_line(&error))),
            None => Ok(Constraint { matcher, vocab: self.vocab }),
        }
    }
}

impl fmt::Debug for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraints").field("vocab", &self.vocab).finish_non_exhaustive()
    }
}

/// What one answer may still become.
pub struct Constraint {
    matcher: Matcher,
    vocab: usize,
}

/// The tokens that may come next.
#[derive(Clone)]
pub struct Allowed(SimpleVob);

impl Allowed {
    /// Whether the token may come next.
    pub fn contains(&self, id: u32) -> bool {
        (id as usize) < self.0.len() && self.0.is_allowed(id)
    }

    /// How many tokens may come next.
    pub fn count(&self) -> usize {
        self.0.num_set()
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allowed({} of {})", self.count(), self.0.len())
    }
}

impl Constraint {
    /// The tokens that may come next; those that end the answer only where it is complete.
    ///
    /// # Errors
    /// Returns the parser's limit that was exceeded.
    pub fn allowed(&mut self) -> Result<Allowed, TextError> {
        self.matcher.compute_mask_or_eos().map(Allowed).map_err(|e| failed(&e))
    }

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// Refuses a token that is not allowed.
    pub fn accept(&mut self, id: u32) -> Result<(), TextError> {
        if id as usize >= self.vocab {
            return Err(TextError::Constraint(format!(
                "token {id} is outside the vocabulary of {}",
                self.vocab
            )));
        }
        // Where nothing more can come the parser has stopped by itself and only the end is left to take.
        if self.matcher.is_stopped() && self.allowed()?.contains(id) {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|e| failed(&e))
    }

    /// Whether the answer is complete as it is.
    pub fn is_complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing more can come.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Draws the next token among those that are allowed, and takes it.
    ///
    /// # Errors
    /// Says so when no token fits, or returns the parser's limit that was exceeded.
    pub fn sample(&mut self, sampler: &mut Sampler, logits: &[f32]) -> Result<u32, TextError> {
        // If the most likely token of all is allowed, it is the most likely of those allowed: one token is
        // checked faster than a whole vocabulary.
        if sampler.is_greedy() && !self.matcher.is_stopped() {
            let id = sampler.sample(logits);
            if self.matcher.validate_tokens(&[id]).is_ok_and(|taken| taken == 1) {
                self.accept(id)?;
                return Ok(id);
            }
        }
        let allowed = self.allowed()?;
        let id = sampler.sample_allowed(logits, |id| allowed.contains(id)).ok_or_else(|| {
            TextError::Constraint("no token of the vocabulary fits the grammar here".to_owned())
        })?;
        self.accept(id)?;
        Ok(id)
    }
}

impl Clone for Constraint {
    fn clone(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), vocab: self.vocab }
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").field("vocab", &self.vocab).finish_non_exhaustive()
    }
}

fn failed(error: &impl fmt::Display) -> TextError {
    TextError::Constraint(one_line(&error.to_string()))
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
