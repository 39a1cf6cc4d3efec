//! The vocabulary of a model file, read and checked once.
//!
//! Every id, length and type in the metadata is compared with the number of tokens before anything is indexed
//! with it. What contradicts itself is an error that names the key; what is merely odd, such as a padding id
//! outside the vocabulary, is ignored with a warning.

use std::ops::Range;

use super::TextError;
use super::bytes;
use super::hash::Keys;
use super::pre::{self, Scheme, Spelling};
use crate::files::{Metadata, Value};

/// The tokenizer algorithms, as `tokenizer.ggml.model` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `llama`: pairs merge by the score of the result.
    Spm,
    /// `gpt2` and `gemma4`: pairs merge by rank, within the words of a scheme.
    Bpe,
    /// `bert`: the longest entry from the left, word by word.
    Wpm,
    /// `t5`: the entries with the best sum of scores.
    Ugm,
    /// `rwkv`: the longest entry from the left, byte by byte.
    Rwkv,
}

/// The accepted names with their kinds.
const KINDS: [(&str, Kind); 6] = [
    ("llama", Kind::Spm),
    ("gpt2", Kind::Bpe),
    (MARKED_BPE, Kind::Bpe),
    ("bert", Kind::Wpm),
    ("t5", Kind::Ugm),
    ("rwkv", Kind::Rwkv),
];

/// The name of pair merging by rank over characters; it is the name of its scheme, too.
const MARKED_BPE: &str = "gemma4";

/// What an entry of the vocabulary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenType {
    /// Part of ordinary text.
    Normal,
    /// Stands for what the vocabulary cannot express.
    Unknown,
    /// A mark such as begin, end or turn: prints nothing, never made from ordinary text.
    Control,
    /// Added by the makers of the model: found in text before any other rule.
    UserDefined,
    /// A reserved entry.
    Unused,
    /// One byte, written `<0xHH>`.
    Byte,
}

/// Byte strings, one after another in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, i: usize) -> &[u8] {
        self.bytes.get(self.range(i)).unwrap_or_default()
    }

    fn range(&self, i: usize) -> Range<usize> {
        let end = self.ends.get(i).map_or(0, |&e| e as usize);
        let start = if i == 0 || end == 0 { 0 } else { self.ends[i - 1] as usize };
        start..end
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// Finds an entry by its text.
#[derive(Debug)]
pub(crate) struct TextIndex {
    /// Half of the hash beside each entry: most lookups are for texts that are not there, and end here.
    slots: Vec<(u32, u32)>,
    keys: Keys,
}

const EMPTY: u32 = u32::MAX;

impl TextIndex {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { slots: vec![(0, EMPTY); (entries * 2).next_power_of_two().max(8)], keys: Keys::new() }
    }

    /// Enters `texts[id]`; of two equal texts the later one is found.
    pub(crate) fn insert(&mut self, texts: &Texts, id: u32) {
        let (slot, tag) = self.slot(texts, texts.get(id as usize));
        self.slots[slot] = (tag, id);
    }

    pub(crate) fn get(&self, texts: &Texts, text: &[u8]) -> Option<u32> {
        let (slot, _) = self.slot(texts, text);
        let id = self.slots[slot].1;
        (id != EMPTY).then_some(id)
    }

    /// The slot of a text, or the empty one where it would go, and its tag.
    fn slot(&self, texts: &Texts, text: &[u8]) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let hash = self.keys.bytes(text);
        let tag = (hash >> 32) as u32;
        let mut slot = hash as usize & mask;
        loop {
            let (other, id) = self.slots[slot];
            if id == EMPTY || (other == tag && texts.get(id as usize) == text) {
                return (slot, tag);
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// The ids with a meaning of their own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpecialIds {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) eot: Option<u32>,
    pub(crate) eom: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) separator: Option<u32>,
    pub(crate) padding: Option<u32>,
    pub(crate) mask: Option<u32>,
}

/// A checked vocabulary.
#[derive(Debug)]
pub(crate) struct Vocab {
    pub(crate) kind: Kind,
    /// How text is cut into words; only pair merging by rank does.
    pub(crate) scheme: &'static Scheme,
    /// The name of the scheme in the file.
    pub(crate) pre: Option<String>,
    pub(crate) entries: Texts,
    pub(crate) pieces: Texts,
    pub(crate) types: Vec<TokenType>,
    pub(crate) scores: Vec<f32>,
    pub(crate) ids: SpecialIds,
    pub(crate) end_of_generation: Vec<u32>,
    pub(crate) add_bos: Option<bool>,
    pub(crate) add_eos: Option<bool>,
    pub(crate) add_sep: Option<bool>,
    pub(crate) add_space_prefix: bool,
    pub(crate) warnings: Vec<String>,
    index: TextIndex,
}

pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(crate) const PRE: &str = "tokenizer.ggml.pre";
const MODEL: &str = "tokenizer.ggml.model";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// Texts that end an answer wherever they are tokens, whatever the metadata says.
const END_TEXTS: [&str; 21] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<|eos|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "</s>",
];

impl Vocab {
    /// Reads and checks the vocabulary.
    ///
    /// # Errors
    /// Names the metadata key that is missing, mistyped or contradicts the number of tokens.
    pub(crate) fn from_metadata(m: &Metadata) -> Result<Self, TextError> {
        let name = m
            .str(MODEL)
            .ok_or_else(|| TextError::metadata(MODEL, describe(m.get(MODEL)), "the name of a tokenizer"))?;
        let kind =
            KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind).ok_or_else(|| {
                let accepted = KINDS.map(|(known, _)| known).join(", ");
                TextError::metadata(MODEL, format_args!("{:?}", clip(name, 40)), accepted)
            })?;
        let mut warnings = Vec::new();
        let pre = if name == MARKED_BPE { Some(MARKED_BPE) } else { m.str(PRE) };
        let scheme = scheme(pre, kind, &mut warnings)?;
        let tokens = m
            .strings(TOKENS)
            .filter(|t| !t.is_empty())
            .ok_or_else(|| TextError::metadata(TOKENS, describe(m.get(TOKENS)), "an array of strings"))?;
        let total: usize = tokens.iter().map(|t| t.as_bytes().len()).sum();
        if tokens.len() >= EMPTY as usize || total > u32::MAX as usize {
            return Err(TextError::metadata(TOKENS, "more than 4 GiB of text", "at most 4 GiB"));
        }
        let mut entries = Texts::default();
        let mut index = TextIndex::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            entries.push(token.as_bytes());
            if !token.as_bytes().is_empty() {
                index.insert(&entries, id as u32);
            }
        }
        let mut vocab = Self {
            kind,
            scheme,
            pre: pre.map(str::to_owned),
            types: read_types(m, tokens.len())?,
            scores: read_scores(m, tokens.len(), kind)?,
            entries,
            index,
            pieces: Texts::default(),
            ids: SpecialIds::default(),
            end_of_generation: Vec::new(),
            add_bos: flag(m, "tokenizer.ggml.add_bos_token")?,
            add_eos: flag(m, "tokenizer.ggml.add_eos_token")?,
            add_sep: flag(m, "tokenizer.ggml.add_sep_token")?,
            add_space_prefix: flag(m, "tokenizer.ggml.add_space_prefix")?
                .unwrap_or(matches!(kind, Kind::Spm | Kind::Ugm)),
            warnings,
        };
        vocab.read_ids(m)?;
        vocab.find_ends();
        vocab.mark_controls(m);
        vocab.make_pieces()?;
        Ok(vocab)
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The id whose entry is `text`.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        self.index.get(&self.entries, text)
    }

    /// The id whose entry is `text`, unless it is a mark that ordinary text must not become.
    pub(crate) fn find_plain(&self, text: &[u8]) -> Option<u32> {
        self.find(text).filter(|&id| self.is_plain(id))
    }

    /// Whether ordinary text may become this token.
    pub(crate) fn is_plain(&self, id: u32) -> bool {
        !matches!(self.types[id as usize], TokenType::Control | TokenType::Unknown)
    }

    fn read_ids(&mut self, m: &Metadata) -> Result<(), TextError> {
        let default = |id: u32| (id < self.len() as u32).then_some(id);
        let none = SpecialIds::default();
        let defaults = match self.kind {
            Kind::Spm => SpecialIds { bos: default(1), eos: default(2), unknown: default(0), ..none },
            Kind::Bpe => SpecialIds { bos: default(11), eos: default(11), ..none },
            Kind::Wpm => SpecialIds {
                bos: default(101),
                unknown: default(100),
                separator: default(102),
                padding: default(0),
                mask: default(103),
                ..none
            },
            Kind::Ugm => SpecialIds { eos: default(1), unknown: default(2), padding: default(0), ..none },
            Kind::Rwkv => none,
        };
        let mut warnings = Vec::new();
        let mut read = |name: &str, default: Option<u32>, needed: bool| -> Result<Option<u32>, TextError> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let Some(value) = m.get(&key) else { return Ok(default) };
            let accepted = || format!("an id below {}", self.len());
            // -1 is how converters say "none".
            match (m.u32(&key), value) {
                (Some(u32::MAX), _) | (None, Value::I32(-1) | Value::I64(-1)) => Ok(None),
                (Some(id), _) if (id as usize) < self.len() => Ok(Some(id)),
                (Some(id), _) if !needed => {
                    warnings
                        .push(format!("{key} is {id}, outside the vocabulary of {}; ignored", self.len()));
                    Ok(None)
                }
                (Some(id), _) => Err(TextError::metadata(&key, id, accepted())),
                (None, other) => Err(TextError::metadata(&key, describe(Some(other)), accepted())),
            }
        };
        // What BERT calls the class mark is its begin mark.
        let bos = if self.kind == Kind::Wpm { read("cls", defaults.bos, true)? } else { defaults.bos };
        self.ids = SpecialIds {
            bos: read("bos", bos, true)?,
            eos: read("eos", defaults.eos, true)?,
            eot: read("eot", None, false)?,
            eom: read("eom", None, false)?,
            unknown: read("unknown", defaults.unknown, false)?,
            separator: read("seperator", defaults.separator, false)?,
            padding: read("padding", defaults.padding, false)?,
            mask: read("mask", defaults.mask, false)?,
        };
        self.warnings.extend(warnings);
        Ok(())
    }

    /// Collects the ids that end an answer.
    fn find_ends(&mut self) {
        let mut ends: Vec<u32> = [self.ids.eos, self.ids.eot, self.ids.eom].into_iter().flatten().collect();
        for text in END_TEXTS {
            // A normal entry with such a text is a word, not a mark.
            ends.extend(self.find(text.as_bytes()).filter(|&id| {
                !matches!(self.types[id as usize], TokenType::Normal | TokenType::Byte | TokenType::Unused)
            }));
        }
        // Where "return" and "call" end an answer, "end" only closes one message of several.
        let has = |text: &str| self.find(text.as_bytes()).is_some_and(|id| ends.contains(&id));
        if has("<|return|>") && has("<|call|>") {
            let end = self.find(b"<|end|>");
            ends.retain(|&id| Some(id) != end);
        }
        ends.sort_unstable();
        ends.dedup();
        self.end_of_generation = ends;
    }

    /// Turns user-defined entries that are marks into control tokens.
    ///
    /// Many converters enter turn marks as user-defined, which ordinary text is searched for. Then a user could
    /// write a turn of somebody else. Marks are: what ends an answer; what is written `<|…|>`; and what stands in
    /// brackets and is used by the file's own chat template. The tags of reasoning and tools stay user-defined:
    /// they may stand in answers and must print.
    fn mark_controls(&mut self, m: &Metadata) {
        let templates: Vec<&str> = m
            .iter()
            .filter(|(key, _)| key.starts_with("tokenizer.chat_template"))
            .filter_map(|(key, _)| m.str(key))
            .collect();
        for id in 0..self.len() as u32 {
            if self.types[id as usize] != TokenType::UserDefined {
                continue;
            }
            let Ok(text) = std::str::from_utf8(self.entries.get(id as usize)) else { continue };
            let within = |open: &str, close: &str| {
                text.len() > open.len() + close.len() && text.starts_with(open) && text.ends_with(close)
            };
            let tag = ["think", "tool", "channel", "\""].iter().any(|word| text.contains(word));
            let barred = within("<|", "|>") || within("<\u{FF5C}", "\u{FF5C}>");
            let used = (within("<", ">") || within("[", "]")) && templates.iter().any(|t| t.contains(text));
            let ends = self.end_of_generation.binary_search(&id).is_ok();
            let begins = [self.ids.bos, self.ids.eos].contains(&Some(id));
            if ends || begins || (!tag && (barred || used)) {
                self.types[id as usize] = TokenType::Control;
            }
        }
    }

    /// Works out what each token prints.
    fn make_pieces(&mut self) -> Result<(), TextError> {
        let mut piece = Vec::new();
        for (id, kind) in self.types.iter().enumerate() {
            let entry = self.entries.get(id);
            piece.clear();
            match kind {
                TokenType::Control | TokenType::Unknown => {}
                TokenType::Byte => piece.push(byte_value(entry).ok_or_else(|| {
                    let found = format!("byte token {id} with the text {:?}", String::from_utf8_lossy(entry));
                    TextError::metadata(TOKENS, found, "byte tokens named <0x00> to <0xFF>")
                })?),
                TokenType::UserDefined => piece.extend_from_slice(entry),
                TokenType::Normal | TokenType::Unused => match self.kind {
                    Kind::Bpe => match (self.scheme.spelling, std::str::from_utf8(entry)) {
                        (Spelling::Alphabet, Ok(text)) => bytes::decode_into(text, &mut piece),
                        (Spelling::MarkedSpaces, _) => unescape_spaces(entry, &mut piece),
                        (Spelling::Words, _) | (_, Err(_)) => piece.extend_from_slice(entry),
                    },
                    Kind::Spm | Kind::Wpm | Kind::Ugm => unescape_spaces(entry, &mut piece),
                    Kind::Rwkv => unescape_bytes(entry, &mut piece),
                },
            }
            self.pieces.push(&piece);
        }
        Ok(())
    }
}

/// The mark that stands for a space in vocabularies of the SPM family.
pub(crate) const SPACE_MARK: &str = "\u{2581}";

/// Appends `text` with its spaces as U+2581.
pub(crate) fn mark_spaces(text: &str, out: &mut String) {
    for part in text.split_inclusive(' ') {
        match part.strip_suffix(' ') {
            Some(word) => {
                out.push_str(word);
                out.push_str(SPACE_MARK);
            }
            None => out.push_str(part),
        }
    }
}

/// Appends the bytes of an entry that is written with `\n`, `\xHH` and the like.
pub(crate) fn unescape_bytes(entry: &[u8], out: &mut Vec<u8>) {
    let mut rest = entry;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let Some((&escape, tail)) = rest.split_first() else {
            out.push(first);
            break;
        };
        rest = tail;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'x' => {
                let digits = rest.get(..2).and_then(|d| std::str::from_utf8(d).ok());
                match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
                    Some(byte) => {
                        out.push(byte);
                        rest = &rest[2..];
                    }
                    None => out.extend_from_slice(b"\\x"),
                }
            }
            other => out.push(other),
        }
    }
}

/// Appends `entry` with U+2581 as spaces.
fn unescape_spaces(entry: &[u8], out: &mut Vec<u8>) {
    let mark = SPACE_MARK.as_bytes();
    let mut rest = entry;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(mark) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
}

/// The byte of an entry such as `<0x0A>`.
pub(crate) fn byte_value(entry: &[u8]) -> Option<u8> {
    let digits = entry.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn read_types(m: &Metadata, tokens: usize) -> Result<Vec<TokenType>, TextError> {
    let Some(value) = m.get(TYPES) else { return Ok(vec![TokenType::Normal; tokens]) };
    let accepted = || format!("an array of {tokens} integers from 0 to 6");
    let raw = m.ints(TYPES).ok_or_else(|| TextError::metadata(TYPES, describe(Some(value)), accepted()))?;
    if raw.len() != tokens {
        return Err(TextError::metadata(TYPES, format_args!("{} entries", raw.len()), accepted()));
    }
    raw.into_iter()
        .enumerate()
        .map(|(id, kind)| {
            Ok(match kind {
                0 | 1 => TokenType::Normal,
                2 => TokenType::Unknown,
                3 => TokenType::Control,
                4 => TokenType::UserDefined,
                5 => TokenType::Unused,
                6 => TokenType::Byte,
                other => {
                    return Err(TextError::metadata(
                        TYPES,
                        format_args!("{other} for token {id}"),
                        accepted(),
                    ));
                }
            })
        })
        .collect()
}

fn read_scores(m: &Metadata, tokens: usize, kind: Kind) -> Result<Vec<f32>, TextError> {
    if !matches!(kind, Kind::Spm | Kind::Ugm) {
        return Ok(Vec::new());
    }
    let accepted = || format!("an array of {tokens} f32 without NaN");
    let scores =
        m.f32s(SCORES).ok_or_else(|| TextError::metadata(SCORES, describe(m.get(SCORES)), accepted()))?;
    if scores.len() != tokens {
        return Err(TextError::metadata(SCORES, format_args!("{} entries", scores.len()), accepted()));
    }
    if let Some(id) = scores.iter().position(|s| s.is_nan()) {
        return Err(TextError::metadata(SCORES, format_args!("NaN for token {id}"), accepted()));
    }
    Ok(scores.to_vec())
}

/// Finds the scheme of a vocabulary, with a warning where it has to be guessed.
fn scheme(name: Option<&str>, kind: Kind, warnings: &mut Vec<String>) -> Result<&'static Scheme, TextError> {
    let found = name.and_then(pre::by_name);
    if found.is_none() && kind == Kind::Bpe {
        warnings.push(match name {
            None => format!(
                "{PRE} is missing; words are cut by the scheme {:?}, so ids may differ from the model's own",
                pre::DEFAULT
            ),
            Some(name) => format!(
                "{PRE} is {:?}, which is not known; words are cut by the scheme {:?} instead, so ids may differ \
                 from the model's own",
                clip(name, 40),
                pre::DEFAULT
            ),
        });
    }
    found
        .or_else(|| pre::by_name(pre::DEFAULT))
        .ok_or_else(|| TextError::metadata(PRE, "no scheme", "a scheme"))
}

/// Reads a flag; absent is `None`, another type is an error.
pub(crate) fn flag(m: &Metadata, key: &str) -> Result<Option<bool>, TextError> {
    match m.get(key) {
        None => Ok(None),
        Some(value) => match m.bool(key) {
            Some(b) => Ok(Some(b)),
            None => Err(TextError::metadata(key, describe(Some(value)), "a bool")),
        },
    }
}

/// Says in a few words what a metadata value is.
pub(crate) fn describe(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::Array(_)) => "an array of another kind or length".to_owned(),
        Some(Value::String(s)) => format!("the string {:?}", clip(&s.to_string_lossy(), 40)),
        Some(other) => format!("{other:?}"),
    }
}

/// The first `chars` characters of `text`.
pub(crate) fn clip(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}
