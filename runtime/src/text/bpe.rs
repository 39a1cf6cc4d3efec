//! Byte-level pair merging: the algorithm of `gpt2` vocabularies.
//!
//! Words are taken as bytes, each byte is a symbol, and pairs merge by the rank that the file lists. A merge may
//! name texts that are no entries (some files do): they become symbols of their own, and what is left of them at
//! the end falls back to the symbols of their bytes.

use std::collections::HashMap;

use super::TextError;
use super::bytes::ALPHABET;
use super::hash::Keys;
use super::merge::{MergeRules, Merged, Merger, Symbol};
use super::pre::{Pieces, Scheme, Spelling, Splitter};
use super::spm::{byte_tokens, fall_back};
use super::vocab::{PRE, Vocab, clip, describe, mark_spaces};
use super::words::{Borders, WordCache};
use crate::files::{Metadata, Str};

const MERGES: &str = "tokenizer.ggml.merges";

/// The merges of a vocabulary and the way it cuts text into words.
#[derive(Debug)]
pub(crate) struct Bpe {
    splitter: Splitter,
    ignore_merges: bool,
    pairs: PairTable,
    symbols: WordSymbols,
    words_only: bool,
    /// Symbols from here on are no entries.
    entries: u32,
}

/// What the symbols of a word are before any merge.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a tokenizer has one, for good")]
enum WordSymbols {
    /// Its bytes, each with the symbol of its character in the alphabet.
    Bytes([u32; 256]),
    /// Its characters, spaces perhaps as U+2581; those that are no entries become byte tokens in the end.
    Characters { extra: HashMap<char, u32>, bytes: [Option<u32>; 256], mark: bool, borders: Borders },
}

/// Memory of one encoding.
#[derive(Debug, Default)]
pub(crate) struct BpeScratch {
    pieces: Pieces,
    merger: Merger,
    cache: WordCache,
    text: String,
    entry: String,
}

impl Bpe {
    /// Builds the merge table.
    ///
    /// # Errors
    /// Names the key whose value cannot be used.
    pub(crate) fn new(m: &Metadata, vocab: &mut Vocab, scheme: &Scheme) -> Result<Self, TextError> {
        let splitter = Splitter::new(scheme.passes).map_err(|e| TextError::metadata(PRE, e, "a scheme"))?;
        let byte_tokens = byte_tokens(vocab);
        let mut symbols = Symbols { vocab, extra: HashMap::new() };
        let bytes = std::array::from_fn(|b| symbols.id(ALPHABET[b].encode_utf8(&mut [0; 4]).as_bytes()));
        let merges: &[Str] = match (m.strings(MERGES), m.get(MERGES)) {
            (Some(merges), _) => merges,
            (None, found) => {
                return Err(TextError::metadata(
                    MERGES,
                    describe(found),
                    "an array of \"left right\" strings",
                ));
            }
        };
        let mut pairs = PairTable::with_capacity(merges.len());
        let mut joined = Vec::new();
        for (rank, merge) in merges.iter().enumerate() {
            let (left, right) = halves(merge.as_bytes()).ok_or_else(|| {
                let found = format!("{:?} as merge {rank}", clip(&merge.to_string_lossy(), 40));
                TextError::metadata(MERGES, found, "two symbols with a space between them")
            })?;
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let pair = (symbols.id(left), symbols.id(right));
            let id = symbols.id(&joined);
            pairs.insert(pair, Merged { rank: rank as u32, id });
        }
        let Symbols { vocab, extra } = symbols;
        let entries = vocab.len() as u32;
        let (symbols, missing) = match scheme.spelling {
            Spelling::Alphabet => {
                let missing = (0..=255).filter(|&b| is_ordinary(b) && bytes[b as usize] >= entries).count();
                (WordSymbols::Bytes(bytes), missing)
            }
            Spelling::MarkedSpaces | Spelling::Words => {
                let missing = byte_tokens.iter().filter(|id| id.is_none()).count();
                let borders = Borders::new(vocab.entries.iter().chain(extra.keys().map(|text| &**text)));
                let extra = extra.into_iter().filter_map(|(text, id)| Some((single(&text)?, id))).collect();
                let mark = scheme.spelling == Spelling::MarkedSpaces;
                (WordSymbols::Characters { extra, bytes: byte_tokens, mark, borders }, missing)
            }
        };
        let dropped = matches!(symbols, WordSymbols::Bytes(_)) || vocab.ids.unknown.is_none();
        if missing > 0 && dropped {
            let warning =
                format!("the vocabulary has no token for {missing} of the 256 bytes; they are dropped");
            vocab.warnings.push(warning);
        }
        Ok(Self {
            splitter,
            ignore_merges: scheme.ignore_merges,
            pairs,
            symbols,
            words_only: scheme.spelling == Spelling::Words,
            entries,
        })
    }

    /// Appends the ids of `text`, which contains no special tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, scratch: &mut BpeScratch, out: &mut Vec<u32>) {
        let mark = matches!(self.symbols, WordSymbols::Characters { mark: true, .. });
        let mut marked = std::mem::take(&mut scratch.text);
        let mut pieces = std::mem::take(&mut scratch.pieces);
        let text = if mark {
            marked.clear();
            mark_spaces(text, &mut marked);
            &marked
        } else {
            text
        };
        scratch.cache.begin(text.len());
        for piece in self.splitter.split(text, &mut pieces) {
            let word = &text[piece.start as usize..piece.end as usize];
            if self.words_only && word.starts_with(char::is_whitespace) {
                continue;
            }
            match &self.symbols {
                // A whole word may be an entry that merging would not find, so only merging is cut further.
                WordSymbols::Characters { borders, .. } if !self.ignore_merges => {
                    for part in borders.cut(word) {
                        self.encode_word(vocab, part, scratch, out);
                    }
                }
                _ => self.encode_word(vocab, word, scratch, out),
            }
        }
        scratch.text = marked;
        scratch.pieces = pieces;
    }

    /// Appends the ids of one word.
    fn encode_word(&self, vocab: &Vocab, word: &str, scratch: &mut BpeScratch, out: &mut Vec<u32>) {
        let BpeScratch { merger, cache, entry, .. } = scratch;
        if let Some(ids) = cache.get(word.as_bytes()) {
            out.extend_from_slice(ids);
            return;
        }
        let start = out.len();
        if self.ignore_merges
            && let Some(id) = self.whole_word(vocab, word, entry)
        {
            out.push(id);
        } else {
            self.merge_word(vocab, word, merger, out);
        }
        cache.put(word.as_bytes(), &out[start..]);
    }

    fn merge_word(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        match &self.symbols {
            WordSymbols::Bytes(bytes) => {
                for (i, b) in word.bytes().enumerate() {
                    merger.push(Symbol { id: bytes[b as usize], start: i as u32, end: i as u32 + 1 });
                }
            }
            WordSymbols::Characters { extra, .. } => {
                for (start, c) in word.char_indices() {
                    let end = start + c.len_utf8();
                    let id = vocab.find_plain(&word.as_bytes()[start..end]).or(extra.get(&c).copied());
                    let id = id.unwrap_or(NO_SYMBOL);
                    merger.push(Symbol { id, start: start as u32, end: end as u32 });
                }
            }
        }
        for symbol in merger.run(&self.pairs) {
            if symbol.id < self.entries {
                out.push(symbol.id);
            } else {
                self.fall_back(&word.as_bytes()[symbol.start as usize..symbol.end as usize], vocab, out);
            }
        }
    }

    /// The entry that is the whole word.
    fn whole_word(&self, vocab: &Vocab, word: &str, entry: &mut String) -> Option<u32> {
        match &self.symbols {
            WordSymbols::Bytes(_) => {
                entry.clear();
                entry.extend(word.bytes().map(|b| ALPHABET[b as usize]));
                vocab.find_plain(entry.as_bytes())
            }
            WordSymbols::Characters { .. } => vocab.find_plain(word.as_bytes()),
        }
    }

    /// Writes bytes for which there is no entry. In the byte alphabet, those that the vocabulary lacks are dropped: an
    /// unknown token is there often the one that ends a text, which no text of a user may become.
    fn fall_back(&self, text: &[u8], vocab: &Vocab, out: &mut Vec<u32>) {
        match &self.symbols {
            WordSymbols::Bytes(bytes) => {
                let ids = text.iter().map(|&b| bytes[b as usize]);
                out.extend(ids.filter(|&id| id < self.entries));
            }
            WordSymbols::Characters { bytes, .. } => fall_back(text, bytes, vocab.ids.unknown, out),
        }
    }
}

/// Whether people's texts have this byte: not control characters, nor what no assigned character begins with.
fn is_ordinary(byte: u8) -> bool {
    !matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 0x7F | 0xC0 | 0xC1 | 0xF1..=0xFF)
}

/// A character that is no entry and that no merge names.
const NO_SYMBOL: u32 = u32::MAX;

/// The two halves of a merge: the cut is the first space after the first byte.
fn halves(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = merge.iter().skip(1).position(|&b| b == b' ')? + 1;
    (cut + 1 < merge.len()).then(|| (&merge[..cut], &merge[cut + 1..]))
}

/// The character, if the text is one.
fn single(text: &[u8]) -> Option<char> {
    let mut chars = std::str::from_utf8(text).ok()?.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Gives texts symbol numbers: entries their id, other texts numbers after the last entry.
struct Symbols<'v> {
    vocab: &'v mut Vocab,
    extra: HashMap<Box<[u8]>, u32>,
}

impl Symbols<'_> {
    fn id(&mut self, text: &[u8]) -> u32 {
        if let Some(id) = self.vocab.find_plain(text) {
            return id;
        }
        if let Some(&id) = self.extra.get(text) {
            return id;
        }
        let id = (self.vocab.len() + self.extra.len()) as u32;
        self.extra.insert(text.into(), id);
        id
    }
}

/// Merges by pair of symbols: open addressing.
#[derive(Debug)]
struct PairTable {
    slots: Vec<Option<((u32, u32), Merged)>>,
    keys: Keys,
}

impl PairTable {
    fn with_capacity(pairs: usize) -> Self {
        Self { slots: vec![None; (pairs * 2).next_power_of_two().max(8)], keys: Keys::new() }
    }

    fn slot(&self, pair: (u32, u32)) -> usize {
        let mask = self.slots.len() - 1;
        let hash = self.keys.number(u64::from(pair.0) << 32 | u64::from(pair.1));
        let mut slot = hash as usize & mask;
        while self.slots[slot].is_some_and(|(other, _)| other != pair) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Enters a pair; the first of two equal pairs counts.
    fn insert(&mut self, pair: (u32, u32), merged: Merged) {
        let slot = self.slot(pair);
        self.slots[slot].get_or_insert((pair, merged));
    }
}

impl MergeRules for PairTable {
    fn pair(&self, left: Symbol, right: Symbol) -> Option<Merged> {
        self.slots[self.slot((left.id, right.id))].map(|(_, merged)| merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Array, Value};
    use crate::text::testing::{bpe_metadata, cpu_seconds, encode};
    use crate::text::{EncodeOptions, Tokenizer};

    #[test]
    fn merges_go_by_rank_and_not_by_position() {
        let t = Tokenizer::from_metadata(&bpe_metadata("gpt-2", &["b c", "a b", "bc d"])).unwrap();
        assert_eq!(encode(&t, "abcd"), ["a", "bcd"]);
        assert_eq!(encode(&t, "aab"), ["a", "ab"]);
    }

    #[test]
    fn a_merge_of_unknown_texts_falls_back_to_bytes() {
        let mut m = bpe_metadata("gpt-2", &["a b", "ab c"]);
        // Take "ab" out of the vocabulary: it is then a step without a token.
        let tokens: Vec<Str> = m
            .strings("tokenizer.ggml.tokens")
            .unwrap()
            .iter()
            .filter(|t| t.as_bytes() != b"ab")
            .cloned()
            .collect();
        m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.remove("tokenizer.ggml.token_type");
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "abab"), ["a", "b", "a", "b"]);
        assert_eq!(encode(&t, "abc"), ["abc"]);
    }

    #[test]
    fn bytes_without_an_entry_are_dropped_and_become_no_mark() {
        let without = |bytes: &[u8]| {
            let mut m = bpe_metadata("gpt-2", &[]);
            let names: Vec<String> = bytes.iter().map(|&b| ALPHABET[b as usize].to_string()).collect();
            let tokens = m.strings("tokenizer.ggml.tokens").unwrap().iter();
            let kept = tokens.filter(|t| !names.iter().any(|name| name.as_bytes() == t.as_bytes()));
            let tokens = std::iter::once(Str::from("<|end|>")).chain(kept.cloned()).collect::<Vec<_>>();
            let types = (0..tokens.len()).map(|id| if id == 0 { 3 } else { 1 }).collect();
            m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
            m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
            m.insert("tokenizer.ggml.unknown_token_id", Value::U32(0));
            Tokenizer::from_metadata(&m).unwrap()
        };
        let t = without(&[4, 0xF1]);
        assert_eq!(encode(&t, "a\u{4}b\u{40000}"), ["a", "b", "Ģ", "Ģ", "Ģ"]);
        assert_eq!(t.warnings(), [""; 0], "nobody writes these");
        let t = without(b"aq");
        assert_eq!(encode(&t, "abq"), ["b"]);
        assert!(t.warnings()[0].contains("no token for 2 of the 256 bytes; they are dropped"));
    }

    #[test]
    fn whole_words_are_taken_first_where_the_scheme_says_so() {
        let merges = ["a b", "c d"];
        let with = |pre| {
            let mut m = bpe_metadata(pre, &merges);
            let mut tokens = m.strings("tokenizer.ggml.tokens").unwrap().to_vec();
            tokens.push(Str::from("abcd"));
            m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
            m.remove("tokenizer.ggml.token_type");
            Tokenizer::from_metadata(&m).unwrap()
        };
        assert_eq!(encode(&with("gpt-2"), "abcd"), ["ab", "cd"]);
        assert_eq!(encode(&with("llama-bpe"), "abcd"), ["abcd"]);
    }

    #[test]
    fn vocabularies_that_spell_in_characters() {
        let tokens = ["<s>", "a", "b", "ab", "\u{2581}", "\u{2581}a", "<0xC3>", "<0xA9>"];
        let mut m = crate::files::Metadata::new();
        let strings =
            |texts: &[&str]| Value::Array(Array::String(texts.iter().map(|&t| Str::from(t)).collect()));
        m.insert("tokenizer.ggml.model", Value::String("gemma4".into()));
        m.insert("tokenizer.ggml.tokens", strings(&tokens));
        m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![3, 1, 1, 1, 1, 1, 6, 6])));
        m.insert("tokenizer.ggml.merges", strings(&["a b", "\u{2581} a"]));
        m.insert("tokenizer.ggml.bos_token_id", Value::U32(0));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "ab aé"), ["ab", "▁a", "<0xC3>", "<0xA9>"]);
        assert_eq!(t.decode(&[5, 6, 7]), " aé");
        assert!(t.adds_bos());
        // The same entries without marks for spaces: words only.
        m.insert("tokenizer.ggml.model", Value::String("gpt2".into()));
        m.insert("tokenizer.ggml.pre", Value::String("whitespace".into()));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, " ab\n a "), ["ab", "a"]);
    }

    #[test]
    fn broken_merges_are_errors_that_name_the_merge() {
        for bad in ["ab", "a", "", " ", "a ", " b"] {
            let error = Tokenizer::from_metadata(&bpe_metadata("gpt-2", &["a b", bad])).unwrap_err();
            assert!(error.to_string().contains("merge 1"), "{bad:?}: {error}");
        }
        // A space as left half: the cut is searched from the second byte.
        let mut m = bpe_metadata("gpt-2", &[]);
        m.insert(MERGES, Value::Array(Array::String(vec![Str::from("  b")])));
        assert!(Tokenizer::from_metadata(&m).is_ok());
        m.insert(MERGES, Value::U32(1));
        assert!(Tokenizer::from_metadata(&m).unwrap_err().to_string().contains(MERGES));
    }

    #[test]
    fn an_unknown_scheme_is_a_warning_that_names_the_substitute() {
        let t = Tokenizer::from_metadata(&bpe_metadata("no-such-scheme", &[])).unwrap();
        assert!(t.warnings()[0].contains("no-such-scheme") && t.warnings()[0].contains("default"));
    }

    #[test]
    fn a_million_equal_letters_take_less_than_a_second() {
        let t = Tokenizer::from_metadata(&bpe_metadata("gpt-2", &["a a", "aa aa", "aaaa aaaa"])).unwrap();
        let text = "a".repeat(1_000_000);
        let seconds = cpu_seconds(|| {
            let ids = t.encode(&text, EncodeOptions::default()).unwrap();
            assert_eq!(ids.len(), 125_000);
        });
        assert!(seconds < 1.0, "{seconds}");
    }
}
