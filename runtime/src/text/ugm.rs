//! The entries with the best sum of scores: the algorithm of `t5` vocabularies.
//!
//! Text is first rewritten by the map of characters that the file carries, its white space is put in order, and
//! then the best way of writing it is found from left to right: for each place the best way to reach it is kept,
//! so the cost is linear in the text. A character that no entry writes costs more than any entry; it becomes byte
//! tokens if the vocabulary has all 256, and else the unknown token.

use super::TextError;
use super::spm::byte_tokens;
use super::trie::{LONGEST, Trie};
use super::vocab::{SPACE_MARK, TokenType, Vocab, describe, flag};
use crate::files::{Array, Metadata, Value};

const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
/// What an unknown character costs beyond the worst entry.
const UNKNOWN_COST: f64 = 10.0;

/// The scored entries and the rewriting that comes before.
#[derive(Debug)]
pub(crate) struct Ugm {
    entries: Trie,
    user_defined: Trie,
    charsmap: Option<CharsMap>,
    space_prefix: bool,
    merge_spaces: bool,
    space_suffix: bool,
    unknown_score: f64,
    bytes: Option<Box<[Option<u32>; 256]>>,
}

/// Memory of one encoding.
#[derive(Debug, Default)]
pub(crate) struct UgmScratch {
    text: String,
    best: Vec<Step>,
    row: Vec<(u32, u32, u32)>,
}

/// The best way to reach a place of the text.
#[derive(Debug, Clone, Copy)]
struct Step {
    score: f64,
    from: u32,
    id: u32,
}

const UNKNOWN: u32 = u32::MAX;

impl Ugm {
    /// Reads the character map and collects the entries.
    ///
    /// # Errors
    /// Names the key whose value cannot be used.
    pub(crate) fn new(m: &Metadata, vocab: &mut Vocab) -> Result<Self, TextError> {
        let (mut entries, mut user_defined) = (Trie::new(), Trie::new());
        let mut least = f32::INFINITY;
        let mut left_out = 0;
        for id in 0..vocab.len() as u32 {
            let text = vocab.entries.get(id as usize);
            match vocab.types[id as usize] {
                TokenType::Normal | TokenType::Unused => {
                    least = least.min(vocab.scores[id as usize]);
                    left_out += usize::from(!text.is_empty() && !entries.insert(text, id));
                }
                TokenType::UserDefined => {
                    left_out += usize::from(!text.is_empty() && !entries.insert(text, id));
                    user_defined.insert(text, id);
                }
                TokenType::Byte | TokenType::Control | TokenType::Unknown => {}
            }
        }
        if left_out > 0 {
            vocab.warnings.push(format!("{left_out} entries longer than {LONGEST} bytes are never used"));
        }
        let bytes = byte_tokens(vocab);
        Ok(Self {
            entries,
            user_defined,
            charsmap: CharsMap::from_metadata(m)?,
            space_prefix: vocab.add_space_prefix,
            merge_spaces: flag(m, "tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false),
            space_suffix: flag(m, "tokenizer.ggml.treat_whitespace_as_suffix")?.unwrap_or(false),
            unknown_score: f64::from(if least.is_finite() { least } else { 0.0 }) - UNKNOWN_COST,
            bytes: bytes.iter().all(Option::is_some).then(|| Box::new(bytes)),
        })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, scratch: &mut UgmScratch, out: &mut Vec<u32>) {
        let UgmScratch { text: normal, best, row } = scratch;
        normal.clear();
        self.normalise(text, normal);
        let bytes = normal.as_bytes();
        best.clear();
        best.resize(bytes.len() + 1, Step { score: f64::NEG_INFINITY, from: 0, id: UNKNOWN });
        best[0].score = 0.0;
        for (at, c) in normal.char_indices() {
            let here = best[at].score;
            let mut reach = |end: usize, score: f64, id: u32| {
                if score > best[end].score {
                    best[end] = Step { score, from: at as u32, id };
                }
            };
            let mut written = false;
            for (length, id) in self.entries.prefixes(&bytes[at..]) {
                let free = vocab.types[id as usize] == TokenType::UserDefined;
                let score = if free { 0.0 } else { f64::from(vocab.scores[id as usize]) };
                written |= length == c.len_utf8();
                reach(at + length, here + score, id);
            }
            if !written {
                reach(at + c.len_utf8(), here + self.unknown_score, UNKNOWN);
            }
        }
        row.clear();
        let mut end = bytes.len();
        while end > 0 {
            let Step { from, id, .. } = best[end];
            row.push((from, end as u32, id));
            end = from as usize;
        }
        let mut after_unknown = false;
        for &(from, end, id) in row.iter().rev() {
            match (&self.bytes, id) {
                (Some(tokens), UNKNOWN) => {
                    let unknown = &bytes[from as usize..end as usize];
                    out.extend(unknown.iter().filter_map(|&b| tokens[b as usize]));
                }
                // Several unknown characters in a row are one unknown token.
                (None, UNKNOWN) if after_unknown => {}
                (None, UNKNOWN) => out.extend(vocab.ids.unknown),
                (_, id) => out.push(id),
            }
            after_unknown = id == UNKNOWN;
        }
    }

    /// Rewrites characters and puts white space in order.
    fn normalise(&self, text: &str, out: &mut String) {
        let mut rest = text;
        // A space is held back until something follows it.
        let mut held = usize::from(self.space_prefix && !self.space_suffix);
        let mut begun = false;
        while let Some(c) = rest.chars().next() {
            let (length, rewritten) = self.rewrite(rest, c);
            for part in rewritten.split_inclusive(' ') {
                let (word, space) = part.strip_suffix(' ').map_or((part, false), |word| (word, true));
                if !word.is_empty() {
                    (0..held).for_each(|_| out.push_str(SPACE_MARK));
                    (held, begun) = (0, true);
                    out.push_str(word);
                }
                if space {
                    match self.merge_spaces {
                        true if begun => held = 1,
                        true => {}
                        false => held += 1,
                    }
                }
            }
            rest = &rest[length..];
        }
        if !self.merge_spaces {
            (0..held).for_each(|_| out.push_str(SPACE_MARK));
        }
        if self.space_prefix && self.space_suffix {
            out.push_str(SPACE_MARK);
        }
    }

    /// What the beginning of `rest` becomes, and how much of it that is.
    fn rewrite<'t>(&'t self, rest: &'t str, first: char) -> (usize, &'t str) {
        if let Some((length, _)) = self.user_defined.prefixes(rest.as_bytes()).last() {
            return (length, &rest[..length]);
        }
        if let Some((length, replacement)) = self.charsmap.as_ref().and_then(|map| map.longest(rest)) {
            return (length, replacement);
        }
        (first.len_utf8(), &rest[..first.len_utf8()])
    }
}

/// A map from character sequences to replacements: a double-array trie and the texts that its values point to.
///
/// The file gives the size of the trie in bytes, its 32-bit units, and the replacements, each ended by a zero
/// byte. In a unit, bit 8 says that a value hangs below, bits 0 to 7 and 31 are the label that must equal the byte
/// taken, and bits 10 to 30 are the distance to the children, times 256 if bit 9 is set. A value is 31 bits.
#[derive(Debug)]
struct CharsMap {
    units: Vec<u32>,
    texts: String,
}

impl CharsMap {
    fn from_metadata(m: &Metadata) -> Result<Option<Self>, TextError> {
        let wrong =
            |found: String| TextError::metadata(CHARSMAP, found, "a size, a trie of that size, and texts");
        let bytes: Vec<u8> = match m.get(CHARSMAP) {
            None => return Ok(None),
            Some(Value::Array(Array::U8(bytes))) => bytes.clone(),
            Some(Value::Array(Array::I8(bytes))) => bytes.iter().map(|&b| b as u8).collect(),
            Some(other) => return Err(wrong(describe(Some(other)))),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(wrong(format!("{} bytes", bytes.len())));
        };
        let size = u32::from_le_bytes(*size) as usize;
        if !size.is_multiple_of(4) || size == 0 || size > rest.len() {
            return Err(wrong(format!("a trie of {size} bytes in {}", rest.len())));
        }
        let (trie, texts) = rest.split_at(size);
        let units = trie.as_chunks::<4>().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let texts =
            std::str::from_utf8(texts).map_err(|e| wrong(format!("replacements that are no UTF-8: {e}")))?;
        Ok(Some(Self { units, texts: texts.to_owned() }))
    }

    /// The longest sequence at the beginning of `text` that has a replacement.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        // Every index is looked up with `get`: a broken trie finds nothing, and a loop ends with the text.
        let distance = |unit: u32| (unit >> 10) << ((unit & 0x200) >> 6);
        let mut node = distance(*self.units.first()?);
        let mut found = None;
        for (i, byte) in text.bytes().enumerate().take(LONGEST) {
            node ^= u32::from(byte);
            let Some(&unit) = self.units.get(node as usize) else { break };
            if unit & 0x8000_00FF != u32::from(byte) {
                break;
            }
            node ^= distance(unit);
            if unit & 0x100 != 0
                && let Some(value) = self.units.get(node as usize)
            {
                found = Some((i + 1, (value & 0x7FFF_FFFF) as usize));
            }
        }
        let (length, start) = found?;
        if !text.is_char_boundary(length) {
            return None;
        }
        let rest = self.texts.get(start..)?;
        Some((length, rest.split('\0').next().unwrap_or(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Str;
    use crate::text::testing::{cpu_seconds, encode};
    use crate::text::{EncodeOptions, Tokenizer};

    fn metadata(entries: &[(&str, f32, i32)]) -> Metadata {
        let all = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)].iter().chain(entries);
        let (mut tokens, mut scores, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for &(text, score, kind) in all {
            tokens.push(Str::from(text));
            scores.push(score);
            types.push(kind);
        }
        let mut m = Metadata::new();
        m.insert("tokenizer.ggml.model", Value::String("t5".into()));
        m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
        m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        m.insert("tokenizer.ggml.add_eos_token", Value::Bool(false));
        m
    }

    /// A character map with the one rule A -> `replacement`, built by hand.
    fn charsmap(replacement: &str) -> Vec<u8> {
        let mut units = vec![0u32; 512];
        units[0] = 0x100 << 10;
        let child = 0x100 ^ u32::from(b'A');
        units[child as usize] = (child ^ 0x1C0) << 10 | 0x100 | u32::from(b'A');
        units[0x1C0] = 0x8000_0000;
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|u| u.to_le_bytes()));
        bytes.extend(replacement.bytes().chain([0]));
        bytes
    }

    const ABC: [(&str, f32, i32); 5] =
        [("▁", -3.0, 1), ("a", -2.0, 1), ("b", -2.0, 1), ("ab", -3.0, 1), ("▁a", -2.5, 1)];

    #[test]
    fn the_best_sum_of_scores_wins() {
        let t = Tokenizer::from_metadata(&metadata(&ABC)).unwrap();
        // "▁a" + "b" costs 4.5, "▁" + "ab" costs 6.
        assert_eq!(encode(&t, "ab"), ["▁a", "b"]);
        assert_eq!(encode(&t, "ab ab"), ["▁a", "b", "▁a", "b"]);
        assert_eq!(encode(&t, "bab"), ["▁", "b", "ab"]);
    }

    #[test]
    fn unknown_characters_are_one_token_or_their_bytes() {
        let t = Tokenizer::from_metadata(&metadata(&ABC)).unwrap();
        assert_eq!(encode(&t, "a🦙🦙b"), ["▁a", "<unk>", "b"]);
        let names: Vec<String> = (0..256).map(|b| format!("<0x{b:02X}>")).collect();
        let mut entries = ABC.to_vec();
        entries.extend(names.iter().map(|n| (n.as_str(), 0.0, 6)));
        let t = Tokenizer::from_metadata(&metadata(&entries)).unwrap();
        assert_eq!(encode(&t, "a🦙b"), ["▁a", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>", "b"]);
        assert_eq!(t.decode(&t.encode("a🦙", EncodeOptions::default()).unwrap()), " a🦙");
    }

    #[test]
    fn characters_are_rewritten_and_white_space_is_put_in_order() {
        let mut m = metadata(&ABC);
        m.insert(CHARSMAP, Value::Array(Array::U8(charsmap("ab"))));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "A"), ["▁a", "b"]);
        assert_eq!(encode(&t, "a  b "), ["▁a", "▁", "▁", "b", "▁"]);
        m.insert("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(true));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "  a  b "), ["▁a", "▁", "b"]);
        assert_eq!(encode(&t, "  "), Vec::<String>::new());
        m.insert("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "  a  a "), ["a", "▁a"]);
    }

    #[test]
    fn user_defined_entries_are_free_and_not_rewritten() {
        let mut entries = ABC.to_vec();
        entries.push(("bA", -100.0, 4));
        let mut m = metadata(&entries);
        m.insert(CHARSMAP, Value::Array(Array::I8(charsmap("ab").iter().map(|&b| b as i8).collect())));
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(encode(&t, "abA"), ["▁a", "bA"]);
    }

    #[test]
    fn broken_character_maps_are_errors_or_do_nothing() {
        let with = |bytes: Vec<u8>| {
            let mut m = metadata(&ABC);
            m.insert(CHARSMAP, Value::Array(Array::U8(bytes)));
            Tokenizer::from_metadata(&m)
        };
        for bad in [vec![1], vec![8, 0, 0, 0, 1], vec![3, 0, 0, 0, 1, 2, 3], vec![255; 8], vec![0; 8]] {
            assert!(with(bad.clone()).unwrap_err().to_string().contains(CHARSMAP), "{bad:?}");
        }
        let good = charsmap("ab");
        assert!(with([&good[..good.len() - 1], &[0xFF]].concat()).is_err());
        // Any trie is safe to walk, whatever its units say.
        let mut state = 1u64;
        for _ in 0..200 {
            let mut bytes = good.clone();
            for byte in &mut bytes[4..2052] {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if state >> 62 == 0 {
                    *byte = (state >> 40) as u8;
                }
            }
            if let Ok(t) = with(bytes) {
                t.encode("AAAaA bA é", EncodeOptions::default()).unwrap();
            }
        }
    }

    #[test]
    fn a_million_equal_letters_take_less_than_a_second() {
        let t = Tokenizer::from_metadata(&metadata(&ABC)).unwrap();
        let text = "a".repeat(1_000_000);
        let seconds = cpu_seconds(|| {
            t.encode(&text, EncodeOptions::default()).unwrap();
        });
        assert!(seconds < 1.0, "{seconds}");
    }
}
