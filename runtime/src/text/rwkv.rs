//! Longest entry first, byte by byte: the algorithm of `rwkv` vocabularies.
//!
//! Entries are bytes written with escapes. A text is its longest entry from the left, then the longest of the
//! rest; a byte that begins no entry becomes the unknown token.

use super::trie::{LONGEST, Trie};
use super::vocab::Vocab;

/// The entries by prefix.
#[derive(Debug)]
pub(crate) struct Rwkv {
    entries: Trie,
}

impl Rwkv {
    /// Collects the entries.
    pub(crate) fn new(vocab: &mut Vocab) -> Self {
        let mut entries = Trie::new();
        let mut left_out = 0;
        for id in 0..vocab.len() as u32 {
            let piece = vocab.pieces.get(id as usize);
            if vocab.is_plain(id) && !piece.is_empty() {
                left_out += usize::from(!entries.insert(piece, id));
            }
        }
        if left_out > 0 {
            vocab.warnings.push(format!("{left_out} entries longer than {LONGEST} bytes are never used"));
        }
        Self { entries }
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (length, id) = match self.entries.prefixes(rest).last() {
                Some((length, id)) => (length, Some(id)),
                None => (1, vocab.ids.unknown),
            };
            out.extend(id);
            rest = &rest[length..];
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::files::{Array, Metadata, Str, Value};
    use crate::text::{EncodeOptions, Tokenizer};

    #[test]
    fn texts_are_written_by_their_longest_entries_and_come_back() {
        let entries = ["<s>", r"\x", "a", "ab", r"\n", r"\n\n", r"\x00", r"\xf0\x9f", r"\\", r"\'", " "];
        let mut tokens: Vec<Str> = entries.into_iter().map(Str::from).collect();
        tokens.extend((0x80..=0xFFu32).map(|b| Str::from(format!(r"\x{b:02x}"))));
        let mut types = vec![1; tokens.len()];
        types[0] = 3;
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", Value::String("rwkv".into()));
        m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        let t = Tokenizer::from_metadata(&m).unwrap();
        let plain = |text: &str| t.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(plain("aab\n\n\n"), [2, 3, 5, 4]);
        assert_eq!(plain("🦙")[0], 7);
        for text in ["ab a\n", r"\", "'", "é日🦙", "\u{0}"] {
            assert_eq!(t.decode(&plain(text)), text);
        }
        let special = EncodeOptions { add_special: true, parse_special: true };
        assert_eq!(t.encode("<s>a", special).unwrap(), [0, 2], "no marks are added by default");
    }
}
