//! Longest entry first, word by word: the algorithm of `bert` vocabularies.
//!
//! Text is decomposed, stripped of accents and put in lower case, as the makers of these vocabularies did. A word
//! is written as its longest entry from the left, then the longest of the rest, and so on; a word of which any
//! part is no entry becomes one unknown token. Entries at the start of a word begin with U+2581.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{
    GeneralCategory as Category, GeneralCategoryGroup as Group, UnicodeGeneralCategory,
};

use super::trie::{LONGEST, Trie};
use super::vocab::{SPACE_MARK, TokenType, Vocab};

/// The entries by prefix.
#[derive(Debug)]
pub(crate) struct Wpm {
    entries: Trie,
}

impl Wpm {
    /// Collects the entries.
    pub(crate) fn new(vocab: &mut Vocab) -> Self {
        let mut entries = Trie::new();
        let mut left_out = 0;
        for id in 0..vocab.len() as u32 {
            // Marks are entries of the same look, but no text may become one.
            let text = vocab.entries.get(id as usize);
            if vocab.is_plain(id) && vocab.types[id as usize] != TokenType::Byte && !text.is_empty() {
                left_out += usize::from(!entries.insert(text, id));
            }
        }
        if left_out > 0 {
            vocab.warnings.push(format!("{left_out} entries longer than {LONGEST} bytes are never used"));
        }
        Self { entries }
    }

    /// Appends the ids of `text`; `word` is memory to use.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, word: &mut String, out: &mut Vec<u32>) {
        word.clear();
        for c in text.nfd() {
            match kind(c) {
                Kind::Nothing => {}
                Kind::Space => self.flush(vocab, word, out),
                Kind::Alone => {
                    self.flush(vocab, word, out);
                    word.push(c);
                    self.flush(vocab, word, out);
                }
                Kind::Part => word.extend(c.to_lowercase()),
            }
        }
        self.flush(vocab, word, out);
    }

    /// Writes the collected word and empties it.
    fn flush(&self, vocab: &Vocab, word: &mut String, out: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        word.insert_str(0, SPACE_MARK);
        let start = out.len();
        let mut rest = word.as_bytes();
        while !rest.is_empty() {
            let Some((length, id)) = self.entries.prefixes(rest).last() else {
                out.truncate(start);
                out.extend(vocab.ids.unknown);
                break;
            };
            out.push(id);
            rest = &rest[length..];
        }
        word.clear();
    }
}

/// What a decomposed character means for the words.
enum Kind {
    /// Left out.
    Nothing,
    /// Between words.
    Space,
    /// A word of its own.
    Alone,
    /// Part of a word.
    Part,
}

fn kind(c: char) -> Kind {
    if c.is_whitespace() {
        return Kind::Space;
    }
    let group = c.general_category_group();
    if c == char::REPLACEMENT_CHARACTER
        || group == Group::Other
        || c.general_category() == Category::NonspacingMark
    {
        return Kind::Nothing;
    }
    if c.is_ascii_punctuation() || group == Group::Punctuation || is_han(c) {
        Kind::Alone
    } else {
        Kind::Part
    }
}

/// The blocks of Han characters that the makers of BERT set apart.
fn is_han(c: char) -> bool {
    matches!(c as u32,
        0x4E00..=0x9FFF
        | 0x3400..=0x4DBF
        | 0x2_0000..=0x2_A6DF
        | 0x2_A700..=0x2_B73F
        | 0x2_B740..=0x2_B81F
        | 0x2_B820..=0x2_CEAF
        | 0xF900..=0xFAFF
        | 0x2_F800..=0x2_FA1F)
}

#[cfg(test)]
mod tests {
    use crate::files::{Array, Metadata, Str, Value};
    use crate::text::testing::{cpu_seconds, encode};
    use crate::text::{EncodeOptions, Tokenizer};

    fn tokenizer(entries: &[&str]) -> Tokenizer {
        let mut tokens: Vec<Str> = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].into_iter().map(Str::from).collect();
        let mut types = vec![3; 4];
        tokens.extend(entries.iter().map(|&e| Str::from(e)));
        types.resize(tokens.len(), 1);
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", Value::String("bert".into()));
        m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        for (name, id) in [("unknown", 1), ("cls", 2), ("seperator", 3), ("padding", 0)] {
            m.insert(format!("tokenizer.ggml.{name}_token_id"), Value::U32(id));
        }
        Tokenizer::from_metadata(&m).unwrap()
    }

    #[test]
    fn words_are_written_by_their_longest_entries() {
        let t = tokenizer(&["▁un", "▁u", "aff", "able", "a", "▁,", "▁日"]);
        assert_eq!(encode(&t, "Unaffable,un"), ["▁un", "aff", "able", "▁,", "▁un"]);
        assert_eq!(encode(&t, "ÜN日u"), ["▁un", "▁日", "▁u"]);
        assert_eq!(encode(&t, "unx u"), ["[UNK]", "▁u"], "one part unknown, the whole word unknown");
        assert_eq!(encode(&t, " \u{0}\u{200b}u\n"), ["▁u"]);
    }

    #[test]
    fn class_and_separator_frame_a_text() {
        let t = tokenizer(&["▁a"]);
        let ids = t.encode("a", EncodeOptions { add_special: true, parse_special: false }).unwrap();
        assert_eq!(ids, [2, 4, 3]);
        assert_eq!(encode(&t, "[SEP]"), ["[UNK]", "[UNK]", "[UNK]"], "a mark in a plain text is no mark");
    }

    #[test]
    fn a_million_letters_without_a_space_take_less_than_a_second() {
        let t = tokenizer(&["▁a", "a", "aaaa", "aaaaaaab"]);
        let text = "a".repeat(1_000_000);
        let seconds = cpu_seconds(|| {
            t.encode(&text, EncodeOptions::default()).unwrap();
        });
        assert!(seconds < 1.0, "{seconds}");
    }
}
