//! Pair merging by score: the algorithm of `llama` vocabularies.
//!
//! Each character is a symbol; of all neighbours whose joined text is an entry, those with the highest score
//! merge first, leftmost among equals. A character that is no entry becomes the tokens of its bytes.

use super::merge::{MergeRules, Merged, Merger, Symbol};
use super::vocab::{TokenType, Vocab, byte_value};
use super::words::{Borders, WordCache};

/// What the vocabulary's scores say.
#[derive(Debug)]
pub(crate) struct Spm {
    /// Lower merges first; equal scores share a rank.
    ranks: Vec<u32>,
    bytes: [Option<u32>; 256],
    longest: usize,
    borders: Borders,
}

/// Memory of one encoding.
#[derive(Debug, Default)]
pub(crate) struct SpmScratch {
    merger: Merger,
    cache: WordCache,
}

const NO_ENTRY: u32 = u32::MAX;

impl Spm {
    /// Ranks the entries by score.
    pub(crate) fn new(vocab: &Vocab) -> Self {
        let mut order: Vec<u32> = (0..vocab.len() as u32).collect();
        let score = |id: u32| vocab.scores[id as usize];
        order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)));
        let mut ranks = vec![0; vocab.len()];
        let mut rank = 0;
        for (i, &id) in order.iter().enumerate() {
            // Not by `total_cmp`: 0.0 and -0.0 are one score.
            if i > 0 && score(id) != score(order[i - 1]) {
                rank = i as u32;
            }
            ranks[id as usize] = rank;
        }
        Self {
            ranks,
            bytes: byte_tokens(vocab),
            longest: vocab.entries.iter().map(<[u8]>::len).max().unwrap_or(0),
            borders: Borders::new(vocab.entries.iter()),
        }
    }

    /// Appends the ids of `text`, in which spaces are already U+2581.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, scratch: &mut SpmScratch, out: &mut Vec<u32>) {
        let SpmScratch { merger, cache } = scratch;
        cache.begin(text.len());
        for part in self.borders.cut(text) {
            if let Some(ids) = cache.get(part.as_bytes()) {
                out.extend_from_slice(ids);
                continue;
            }
            let start = out.len();
            self.merge(vocab, part, merger, out);
            cache.put(part.as_bytes(), &out[start..]);
        }
    }

    fn merge(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        for (start, c) in text.char_indices() {
            let end = start + c.len_utf8();
            let id = vocab.find_plain(&text.as_bytes()[start..end]).unwrap_or(NO_ENTRY);
            merger.push(Symbol { id, start: start as u32, end: end as u32 });
        }
        let rules = Rules { spm: self, vocab, text: text.as_bytes() };
        for symbol in merger.run(&rules) {
            if symbol.id != NO_ENTRY {
                out.push(symbol.id);
            } else {
                let bytes = &text.as_bytes()[symbol.start as usize..symbol.end as usize];
                fall_back(bytes, &self.bytes, vocab.ids.unknown, out);
            }
        }
    }
}

/// The byte tokens of a vocabulary.
pub(crate) fn byte_tokens(vocab: &Vocab) -> [Option<u32>; 256] {
    let mut bytes = [None; 256];
    for id in 0..vocab.len() as u32 {
        if vocab.types[id as usize] == TokenType::Byte
            && let Some(byte) = byte_value(vocab.entries.get(id as usize))
        {
            bytes[byte as usize] = Some(id);
        }
    }
    bytes
}

/// Writes bytes as byte tokens, or as one unknown token if one is missing.
pub(crate) fn fall_back(bytes: &[u8], tokens: &[Option<u32>; 256], unknown: Option<u32>, out: &mut Vec<u32>) {
    if bytes.iter().all(|&b| tokens[b as usize].is_some()) {
        out.extend(bytes.iter().filter_map(|&b| tokens[b as usize]));
    } else {
        out.extend(unknown);
    }
}

struct Rules<'t> {
    spm: &'t Spm,
    vocab: &'t Vocab,
    text: &'t [u8],
}

impl MergeRules for Rules<'_> {
    fn pair(&self, left: Symbol, right: Symbol) -> Option<Merged> {
        let (start, end) = (left.start as usize, right.end as usize);
        if end - start > self.spm.longest {
            return None;
        }
        let id = self.vocab.find_plain(&self.text[start..end])?;
        Some(Merged { rank: self.spm.ranks[id as usize], id })
    }
}

#[cfg(test)]
mod tests {
    use crate::files::{Array, Value};
    use crate::text::testing::{cpu_seconds, encode, spm_metadata};
    use crate::text::{EncodeOptions, Tokenizer};

    #[test]
    fn the_highest_score_merges_first() {
        let t = Tokenizer::from_metadata(&spm_metadata(&[
            ("a", -9.0),
            ("b", -9.0),
            ("c", -9.0),
            ("ab", -2.0),
            ("bc", -1.0),
            ("▁", -3.0),
            ("▁a", -4.0),
        ]))
        .unwrap();
        assert_eq!(encode(&t, "abc"), ["▁a", "bc"]);
        assert_eq!(encode(&t, "ab"), ["▁", "ab"]);
    }

    #[test]
    fn equal_scores_merge_from_the_left() {
        let t =
            Tokenizer::from_metadata(&spm_metadata(&[("a", -9.0), ("aa", -1.0), ("▁", 0.0), ("▁a", -1.0)]))
                .unwrap();
        assert_eq!(encode(&t, "aaa"), ["▁a", "aa"]);
        assert_eq!(encode(&t, "aa"), ["▁a", "a"]);
    }

    #[test]
    fn characters_without_entry_become_bytes() {
        let t = Tokenizer::from_metadata(&spm_metadata(&[("a", -9.0)])).unwrap();
        assert_eq!(encode(&t, "é"), ["<0xE2>", "<0x96>", "<0x81>", "<0xC3>", "<0xA9>"]);
        assert_eq!(t.decode(&t.encode("é🦙", EncodeOptions::default()).unwrap()), "▁é🦙");
    }

    #[test]
    fn marks_are_never_made_of_letters() {
        let m = spm_metadata(&[("<", -9.0), ("s", -9.0), (">", -9.0), ("s>", -1.0), ("▁", -2.0)]);
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "<s>"), ["▁", "<", "s>"]);
    }

    #[test]
    fn hostile_vocabularies_are_errors() {
        let good = || spm_metadata(&[("a", -1.0)]);
        let fails = |key: &str, value: Value| {
            let mut m = good();
            m.insert(key, value);
            let error = Tokenizer::from_metadata(&m).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        };
        let tokens = good().strings("tokenizer.ggml.tokens").unwrap().to_vec();
        let mut bad_byte = tokens.clone();
        bad_byte[3] = crate::files::Str::from("<0x-1>");
        fails("tokenizer.ggml.tokens", Value::Array(Array::String(bad_byte)));
        fails("tokenizer.ggml.tokens", Value::Array(Array::String(vec![])));
        fails("tokenizer.ggml.tokens", Value::Array(Array::U8(vec![1])));
        fails("tokenizer.ggml.scores", Value::Array(Array::U8(vec![0; tokens.len()])));
        fails("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; tokens.len() - 1])));
        fails("tokenizer.ggml.scores", Value::Array(Array::F32(vec![f32::NAN; tokens.len()])));
        fails("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; tokens.len() - 1])));
        fails("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![9; tokens.len()])));
        fails("tokenizer.ggml.bos_token_id", Value::U32(1 << 31));
        fails("tokenizer.ggml.eos_token_id", Value::String("two".into()));
        fails("tokenizer.ggml.add_bos_token", Value::U32(1));
        fails("tokenizer.ggml.model", Value::String("no-such-model".into()));
        let mut m = good();
        m.insert("tokenizer.ggml.padding_token_id", Value::U32(1 << 31));
        m.insert("tokenizer.ggml.eos_token_id", Value::U32(u32::MAX));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(t.eos(), None);
        assert!(t.warnings()[0].contains("padding"));
    }

    #[test]
    fn a_million_equal_letters_take_less_than_a_second() {
        let t =
            Tokenizer::from_metadata(&spm_metadata(&[("a", -9.0), ("aa", -8.0), ("aaaa", -7.0)])).unwrap();
        let text = "a".repeat(1_000_000);
        let seconds = cpu_seconds(|| {
            t.encode(&text, EncodeOptions::default()).unwrap();
        });
        assert!(seconds < 1.0, "{seconds}");
    }
}
