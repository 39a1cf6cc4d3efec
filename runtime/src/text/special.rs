//! Cutting special tokens out of a text before anything else looks at it.
//!
//! Two sets: user-defined entries are found in every text, because they are how the vocabulary spells it; control
//! marks only where the caller vouches for the text. Where several fit, the longest at the leftmost place counts.

use aho_corasick::{AhoCorasick, MatchKind};

use super::TextError;
use super::vocab::{Kind, TOKENS, TokenType, Vocab};

/// A stretch of text or a token that was cut out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    /// Text without special tokens.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// White space that a special token takes with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strip {
    pub(crate) left: bool,
    pub(crate) right: bool,
}

/// Which white space each special token takes along. Files do not say; two families of vocabularies are known for
/// it, and are recognised by what they contain.
fn strip_rule(vocab: &Vocab) -> impl Fn(u32) -> Strip {
    // Phi-3: every mark but the three it shares with its ancestor eats the white space after it.
    let phi3 = vocab.kind == Kind::Spm
        && vocab.find(b"<|placeholder1|>").is_some()
        && vocab.find(b"<|assistant|>").is_some();
    let kept = ["<unk>", "<s>", "<|endoftext|>"].map(|text| vocab.find(text.as_bytes()));
    // The masks of BERT's descendants with byte-level vocabularies eat the white space before them.
    let masked = vocab.pre.as_deref().is_some_and(|pre| {
        matches!(
            pre,
            "jina-v1-en"
                | "jina-v2-code"
                | "jina-v2-de"
                | "jina-v2-es"
                | "jina-de"
                | "jina-es"
                | "roberta-bpe"
                | "modern-bert"
        )
    });
    let masks = [vocab.ids.mask, vocab.find(b"<mask>"), vocab.find(b"[MASK]")];
    move |id| Strip { left: masked && masks.contains(&Some(id)), right: phi3 && !kept.contains(&Some(id)) }
}

/// The special tokens of a vocabulary.
#[derive(Debug)]
pub(crate) struct Special {
    trusted: Set,
    any: Set,
}

#[derive(Debug)]
struct Set {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
    strips: Vec<Strip>,
}

impl Special {
    /// Collects the special tokens.
    pub(crate) fn new(vocab: &Vocab) -> Result<Self, TextError> {
        let strip = strip_rule(vocab);
        let set = |wanted: &[TokenType]| {
            let ids: Vec<u32> = (0..vocab.len() as u32)
                .filter(|&id| wanted.contains(&vocab.types[id as usize]))
                // Text is UTF-8: an entry that is not cannot occur in it and must not cut it.
                .filter(|&id| {
                    let text = vocab.entries.get(id as usize);
                    !text.is_empty() && std::str::from_utf8(text).is_ok()
                })
                .collect();
            if ids.is_empty() {
                return Ok(Set { automaton: None, ids, strips: Vec::new() });
            }
            let automaton = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(ids.iter().map(|&id| vocab.entries.get(id as usize)))
                .map_err(|e| TextError::metadata(TOKENS, e, "special tokens that fit one search"))?;
            let strips = ids.iter().map(|&id| strip(id)).collect();
            Ok(Set { automaton: Some(automaton), ids, strips })
        };
        Ok(Self {
            trusted: set(&[TokenType::Control, TokenType::Unknown, TokenType::UserDefined])?,
            any: set(&[TokenType::UserDefined])?,
        })
    }

    /// Hands out the fragments of `text` in order; control marks are found only if `parse_special`.
    pub(crate) fn cut<'t>(&self, text: &'t str, parse_special: bool, mut each: impl FnMut(Fragment<'t>)) {
        let set = if parse_special { &self.trusted } else { &self.any };
        let mut at = 0;
        let matches = set.automaton.iter().flat_map(|automaton| automaton.find_iter(text));
        for found in matches {
            let (id, strip) = (set.ids[found.pattern().as_usize()], set.strips[found.pattern().as_usize()]);
            // White space taken by the token before may reach past this one's start only if this one is white
            // space itself; then it is gone.
            if found.start() < at {
                continue;
            }
            let mut before = &text[at..found.start()];
            if strip.left {
                before = before.trim_end();
            }
            if !before.is_empty() {
                each(Fragment::Text(before));
            }
            each(Fragment::Token(id));
            at = found.end();
            if strip.right {
                at = text.len() - text[at..].trim_start().len();
            }
        }
        if at < text.len() {
            each(Fragment::Text(&text[at..]));
        }
    }
}
