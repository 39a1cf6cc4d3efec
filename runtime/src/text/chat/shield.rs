//! Keeps the text of messages apart from the text of the template.
//!
//! A template mixes both into one string, and may trim, split and compare messages on the way, so messages must
//! stay readable to it. Before rendering, each place in a message where a special token could begin gets another
//! first character: a stand-in from a private-use plane that occurs nowhere in the conversation. Then no special
//! token can be found there. After rendering the string is cut at special tokens, and in the text between them
//! the stand-ins are turned back.
//!
//! A token could also straddle the border of a message. So a message's end that begins a special token, and a
//! message's beginning that ends one, are covered as well.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value as Json;

use super::super::vocab::TokenType;
use super::super::{TextError, Tokenizer};

/// The planes that stand-ins come from: private use, without the two non-characters at the end of each.
const FIRST: u32 = 0xF_0000;
const LAST: u32 = 0x10_FFFD;

/// Whether a character may be a stand-in.
pub(super) fn is_stand_in(c: char) -> bool {
    (FIRST..=LAST).contains(&(c as u32))
}

/// Special tokens of one kind, to be found in messages.
#[derive(Debug)]
struct Marks {
    automaton: Option<AhoCorasick>,
    /// What any of them begins with, short of all of it.
    heads: HashSet<Box<str>>,
    /// What any of them ends with, short of all of it.
    tails: HashSet<Box<str>>,
    longest: usize,
}

/// The special tokens that messages are searched for; made once for a template.
#[derive(Debug)]
pub(super) struct MarkSets {
    /// Marks that no message may contain.
    all: Marks,
    /// Marks that an answer may not contain either.
    control: Marks,
}

impl MarkSets {
    /// Collects the marks of a vocabulary under a template.
    pub(super) fn new(tokenizer: &Tokenizer, template: &str) -> Self {
        let vocab = tokenizer.vocab();
        let texts = |wanted: &dyn Fn(TokenType, &str) -> bool| {
            let text_of = |id: usize| {
                let text = std::str::from_utf8(vocab.entries.get(id)).ok()?;
                (!text.is_empty() && wanted(vocab.types[id], text)).then(|| text.to_owned())
            };
            (0..vocab.len()).filter_map(text_of).collect()
        };
        // A user-defined entry in brackets that the template writes, or with a bar inside, is a tag that means
        // something to the model; others, such as runs of spaces, are only how the vocabulary spells text.
        let tag = |text: &str| {
            text.len() > 2
                && (text.starts_with('<') && text.ends_with('>')
                    || text.starts_with('[') && text.ends_with(']'))
                && (template.contains(text) || text.contains(['|', '\u{FF5C}']))
        };
        let mark = |kind: TokenType| matches!(kind, TokenType::Control | TokenType::Unknown);
        Self {
            all: Marks::new(texts(&|kind, text| mark(kind) || kind == TokenType::UserDefined && tag(text))),
            control: Marks::new(texts(&|kind, _| mark(kind))),
        }
    }
}

impl Marks {
    fn new(texts: Vec<String>) -> Self {
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let builder = || AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts).ok();
        let automaton = if texts.is_empty() { None } else { builder() };
        let (mut heads, mut tails) = (HashSet::new(), HashSet::new());
        for text in &texts {
            for (at, _) in text.char_indices().skip(1) {
                heads.insert(text[..at].into());
                tails.insert(text[at..].into());
            }
        }
        Self { automaton, heads, tails, longest }
    }

    /// Where in `text` a special token could begin.
    fn places(&self, text: &str) -> Vec<usize> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut places = Vec::new();
        // Every occurrence counts, also one inside another: with the outer one broken up the inner one would
        // be found. Searching on from the character after a beginning finds them all.
        let mut at = 0;
        while let Some(found) = automaton.find(aho_corasick::Input::new(text).range(at..)) {
            places.push(found.start());
            at = found.start() + text[found.start()..].chars().next().map_or(1, char::len_utf8);
        }
        // Borders: with and without the white space that templates trim.
        let trimmed = text.len() - text.trim_start().len();
        for (base, body) in [(0, text), (trimmed, text.trim())] {
            let near_end = body.char_indices().rev().take_while(|(at, _)| body.len() - at < self.longest);
            places.extend(
                near_end.filter(|(at, _)| self.heads.contains(&body[*at..])).map(|(at, _)| base + at),
            );
            let ends = body.char_indices().map(|(at, c)| at + c.len_utf8());
            if ends.take_while(|&end| end < self.longest).any(|end| self.tails.contains(&body[..end])) {
                places.push(base);
            }
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// The disguise of one conversation.
pub(super) struct Shield<'m> {
    marks: &'m MarkSets,
    /// Disguised characters and their stand-ins.
    pairs: Vec<(char, char)>,
    used: HashSet<char>,
    next: u32,
}

impl<'m> Shield<'m> {
    /// Prepares for a conversation under a template.
    pub(super) fn new(marks: &'m MarkSets, template: &str, messages: &[Json]) -> Self {
        let mut used: HashSet<char> = template.chars().filter(|&c| is_stand_in(c)).collect();
        for message in messages {
            collect(message, &mut used);
        }
        Self { marks, pairs: Vec::new(), used, next: FIRST }
    }

    /// Disguises the texts of a message; `own` if the model wrote it.
    pub(super) fn cover(&mut self, value: &mut Json, own: bool) {
        match value {
            Json::String(text) => {
                if let Some(covered) = self.covered(text, own) {
                    *text = covered;
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.cover(item, own)),
            Json::Object(map) => {
                for (key, mut value) in std::mem::take(map) {
                    self.cover(&mut value, own);
                    map.insert(self.covered(&key, own).unwrap_or(key), value);
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// The disguised text, or `None` if nothing in it needs a disguise.
    fn covered(&mut self, text: &str, own: bool) -> Option<String> {
        let marks = if own { &self.marks.control } else { &self.marks.all };
        let places = marks.places(text);
        if places.is_empty() {
            return None;
        }
        let mut covered = String::with_capacity(text.len() + 3 * places.len());
        let mut at = 0;
        for place in places {
            covered.push_str(&text[at..place]);
            if let Some(c) = text[place..].chars().next() {
                covered.push(self.stand_in(c));
                at = place + c.len_utf8();
            }
        }
        covered.push_str(&text[at..]);
        Some(covered)
    }

    fn stand_in(&mut self, c: char) -> char {
        if let Some(&(_, stand_in)) = self.pairs.iter().find(|(from, _)| *from == c) {
            return stand_in;
        }
        while self.next <= LAST {
            let candidate = char::from_u32(self.next);
            self.next += 1;
            if let Some(stand_in) = candidate.filter(|s| !self.used.contains(s)) {
                self.pairs.push((c, stand_in));
                return stand_in;
            }
        }
        // All 130,000 occur in the conversation: then the character is lost rather than the border.
        char::REPLACEMENT_CHARACTER
    }

    /// Appends the ids of a rendered text.
    pub(super) fn encode(
        &self,
        text: &str,
        tokenizer: &Tokenizer,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        let uncover = |text: &str| {
            let covered = self.pairs.iter().any(|(_, stand_in)| text.contains(*stand_in));
            covered.then(|| text.chars().map(|c| self.original(c)).collect())
        };
        tokenizer.encode_with(text, true, uncover, ids)
    }

    fn original(&self, c: char) -> char {
        self.pairs.iter().find(|(_, stand_in)| *stand_in == c).map_or(c, |(original, _)| *original)
    }
}

/// Collects the stand-in characters that a value already contains.
fn collect(value: &Json, used: &mut HashSet<char>) {
    match value {
        Json::String(text) => used.extend(text.chars().filter(|&c| is_stand_in(c))),
        Json::Array(items) => items.iter().for_each(|item| collect(item, used)),
        Json::Object(map) => map.values().for_each(|value| collect(value, used)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
