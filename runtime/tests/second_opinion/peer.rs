//! The same vocabulary in the other implementation, built from the metadata of a model file.

use quantsmith::files::{Array, Metadata, Str, Value};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{BertNormalizer, Precompiled, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

/// A vocabulary in the other implementation, and what it does in another way.
pub(crate) struct Peer {
    tokenizer: Tokenizer,
    /// Where it is known to differ.
    pub(crate) differences: &'static [Difference],
}

/// Characters that the other implementation treats in another way, and why.
pub(crate) struct Difference {
    pub(crate) why: &'static str,
    pub(crate) concerns: fn(char) -> bool,
    /// A text that shows it, if this vocabulary does.
    pub(crate) example: &'static str,
}

const NORMAL: i64 = 1;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;
const BYTE: i64 = 6;

/// The space of vocabularies that spell text as it is.
const MARK: &str = "\u{2581}";

impl Peer {
    /// Builds it, or says why this vocabulary cannot be had.
    pub(crate) fn new(m: &Metadata) -> Result<Self, String> {
        match m.str("tokenizer.ggml.model") {
            Some("gpt2") => byte_level(m),
            Some("gemma4") => marked_merges(m),
            Some("llama") => scored_merges(m),
            Some("bert") => word_pieces(m),
            Some("t5") => unigram(m),
            other => Err(format!("the other implementation has nothing like {other:?}")),
        }
    }

    /// The ids of a plain text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_fast(text, false).expect("ids").get_ids().to_vec()
    }
}

/// The entries with their types, as far as they are text.
fn entries(m: &Metadata) -> impl Iterator<Item = (&str, u32, i64)> {
    let tokens = m.strings("tokenizer.ggml.tokens").expect("entries");
    let types = m.ints("tokenizer.ggml.token_type").unwrap_or_else(|| vec![NORMAL; tokens.len()]);
    let types = types.into_iter().zip(0..);
    tokens.iter().zip(types).filter_map(|(token, (kind, id))| Some((token.as_str()?, id, kind)))
}

/// The entries that a text may become.
fn plain(m: &Metadata) -> Vocab {
    let kinds = [NORMAL, USER_DEFINED, UNUSED, BYTE];
    let plain = entries(m).filter(|(.., kind)| kinds.contains(kind));
    plain.map(|(text, id, _)| (text.to_owned(), id)).collect()
}

/// Teaches user-defined entries, which are found in a text before anything else.
fn with_user_defined(mut tokenizer: Tokenizer, m: &Metadata) -> Tokenizer {
    let ours = entries(m).filter(|(.., kind)| *kind == USER_DEFINED);
    let added = ours.map(|(text, ..)| AddedToken::from(text, false).normalized(false));
    tokenizer.add_tokens(added.collect::<Vec<_>>()).expect("user-defined entries");
    tokenizer
}

/// The merges, less those of texts that are no entries, for which the other implementation has no words.
fn merges(m: &Metadata, vocab: &Vocab) -> Vec<(String, String)> {
    let halves = |merge: &Str| {
        let merge = merge.as_str()?;
        let cut = merge.char_indices().skip(1).find(|&(_, c)| c == ' ')?.0;
        let (left, right) = (&merge[..cut], &merge[cut + 1..]);
        let known = [left, right, &format!("{left}{right}")].iter().all(|text| vocab.contains_key(*text));
        known.then(|| (left.to_owned(), right.to_owned()))
    };
    m.strings("tokenizer.ggml.merges").expect("merges").iter().filter_map(halves).collect()
}

fn split(expression: &str) -> PreTokenizerWrapper {
    let pattern = SplitPattern::Regex(expression.to_owned());
    Split::new(pattern, SplitDelimiterBehavior::Isolated, false).expect("an expression").into()
}

/// Words without the spaces between them.
fn spaces_removed() -> PreTokenizerWrapper {
    let space = SplitPattern::String(" ".to_owned());
    Split::new(space, SplitDelimiterBehavior::Removed, false).expect("an expression").into()
}

const LATE_CHARACTERS: Difference = Difference {
    why: "the tables of the other implementation are of an older Unicode",
    concerns: |c| !matches!(c as u32, 0..0x530 | 0x621..0x64B | 0x660..0x66A | 0x904..0x93A | 0xE01..0xE3B | 0x1E00..0x2060 | 0x2100..0x2400 | 0x3000..0x3130 | 0x3400..0x4DB6 | 0x4E00..0x9FD0 | 0xAC00..0xD7A4 | 0xFE30..0xFFF0 | 0x1F300..0x1F640),
    example: "a\u{1734}",
};
const WORD_MARK: Difference = Difference {
    why: "the file marks beginnings of words with this character, so that an entry in the middle of a word may have it",
    concerns: |c| c == '\u{2581}',
    example: "a\u{2581}0",
};
const SPACE_BETWEEN_LINES: Difference = Difference {
    why: "the other implementation drops these as control characters; here they are the white space that they are, too",
    concerns: |c| matches!(c, '\u{B}' | '\u{C}' | '\u{85}'),
    example: "a\u{85}b",
};

/// Byte-level merges: the passes that cut a text into words, as the models' makers publish them.
fn byte_level(m: &Metadata) -> Result<Peer, String> {
    let bytes = || ByteLevel::new(false, false, false).into();
    let gpt2 = || ByteLevel::new(false, false, true).into();
    let gpt2_words = || split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+");
    let each_digit = || Digits::new(true).into();
    let mut whole_words = false;
    let words = match m.str("tokenizer.ggml.pre") {
        Some("gpt-2" | "mpt") => vec![gpt2()],
        Some("starcoder" | "refact" | "command-r" | "smollm") => vec![each_digit(), gpt2()],
        Some("llama-bpe") => {
            whole_words = true;
            vec![
                split(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
                bytes(),
            ]
        }
        Some("qwen2") => {
            vec![
                split(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
                bytes(),
            ]
        }
        Some("qwen35") => {
            vec![
                split(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                ),
                bytes(),
            ]
        }
        Some("falcon") => {
            vec![split(r"[\p{P}$+<=>^~|`]+"), gpt2_words(), split("[0-9][0-9][0-9]"), bytes()]
        }
        Some("deepseek-coder") => {
            let passes = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"];
            passes.into_iter().map(split).chain([bytes()]).collect()
        }
        Some("deepseek-llm") => {
            // The published class lists its letters one by one; those that it lacks make no difference to any id.
            let passes = [
                r"[\r\n]",
                r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                r"\s+$",
                r"[一-龥ࠀ-一가-퟿]+",
                r"\p{N}+",
            ];
            passes.into_iter().map(split).chain([bytes()]).collect()
        }
        None => vec![
            split(r"[\p{P}$+<=>^~|]+"),
            gpt2_words(),
            split(r"\p{N}+"),
            split("[0-9][0-9][0-9]"),
            bytes(),
        ],
        Some(other) => return Err(format!("no published expression of {other} is written down here")),
    };
    let vocab = plain(m);
    let merges = merges(m, &vocab);
    let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_words).build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| e.to_string())?);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(words)));
    Ok(Peer { tokenizer: with_user_defined(tokenizer, m), differences: &[] })
}

/// Spaces as their mark, and one before the text if `prefix`.
fn marked(prefix: bool) -> Normalizers {
    let spaces = Replace::new(" ", MARK).expect("an expression").into();
    let prefix = prefix.then(|| NormalizerWrapper::from(Prepend::new(MARK.to_owned())));
    Normalizers::new(prefix.into_iter().chain([spaces]).collect())
}

/// Merges of characters, by their rank in the file.
fn marked_merges(m: &Metadata) -> Result<Peer, String> {
    let vocab = plain(m);
    let merges = merges(m, &vocab);
    let model = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| e.to_string())?);
    tokenizer.with_normalizer(Some(marked(false))).expect("a normaliser");
    tokenizer.with_pre_tokenizer(Some(split(r"[^\n]+|\n+")));
    Ok(Peer { tokenizer: with_user_defined(tokenizer, m), differences: &[] })
}

/// Merges of characters, ranked by the score of what they make: each entry may come from any two that it is made of.
fn scored_merges(m: &Metadata) -> Result<Peer, String> {
    let vocab = plain(m);
    let scores = m.f32s("tokenizer.ggml.scores").ok_or("no scores")?;
    let mut merges = Vec::new();
    for (text, id, _) in entries(m).filter(|(text, ..)| vocab.contains_key(*text)) {
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if vocab.contains_key(left) && vocab.contains_key(right) {
                merges.push((scores[id as usize], id, (left.to_owned(), right.to_owned())));
            }
        }
    }
    merges.sort_by(|(a, i, _), (b, j, _)| b.total_cmp(a).then(i.cmp(j)));
    let merges = merges.into_iter().map(|(.., halves)| halves).collect();
    let model = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| e.to_string())?);
    let prefix = m.bool("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    tokenizer.with_normalizer(Some(marked(prefix))).expect("a normaliser");
    Ok(Peer { tokenizer: with_user_defined(tokenizer, m), differences: &[] })
}

/// Words of the longest entries, of which the file marks those that begin a word.
fn word_pieces(m: &Metadata) -> Result<Peer, String> {
    let mut vocab: Vocab = Vocab::default();
    for (text, id, kind) in entries(m) {
        let text = match (kind, text.strip_prefix(MARK)) {
            (NORMAL, Some(start)) => start.to_owned(),
            (NORMAL, None) => format!("##{text}"),
            _ => text.to_owned(),
        };
        vocab.insert(text, id);
    }
    let unknown = m.u32("tokenizer.ggml.unknown_token_id").ok_or("no unknown token")?;
    let (unknown, ..) = entries(m).find(|&(_, id, _)| id == unknown).ok_or("no unknown token")?;
    let model = WordPiece::builder()
        .vocab(vocab)
        .unk_token(unknown.to_owned())
        .max_input_chars_per_word(usize::MAX)
        .build();
    let mut tokenizer = Tokenizer::new(model.map_err(|e| e.to_string())?);
    tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, Some(true), true))).expect("a normaliser");
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    Ok(Peer { tokenizer, differences: &[LATE_CHARACTERS, SPACE_BETWEEN_LINES, WORD_MARK] })
}

/// Entries with the best sum of scores, after the file's map of characters.
fn unigram(m: &Metadata) -> Result<Peer, String> {
    let scores = m.f32s("tokenizer.ggml.scores").ok_or("no scores")?;
    let unknown = m.u32("tokenizer.ggml.unknown_token_id").ok_or("no unknown token")?;
    // Marks are entries by their place, but no text may become one.
    let spelled = |text: &str, id, kind| match kind {
        NORMAL | USER_DEFINED | UNUSED | BYTE => text.to_owned(),
        _ => format!("\u{0}mark {id}\u{0}"),
    };
    let vocab = entries(m).map(|(text, id, kind)| (spelled(text, id, kind), f64::from(scores[id as usize])));
    let model = Unigram::from(vocab.collect(), Some(unknown as usize), false);
    let mut tokenizer = Tokenizer::new(model.map_err(|e| e.to_string())?);
    let map: Vec<u8> = match m.get("tokenizer.ggml.precompiled_charsmap") {
        Some(Value::Array(Array::U8(bytes))) => bytes.clone(),
        Some(Value::Array(Array::I8(bytes))) => bytes.iter().map(|&b| b as u8).collect(),
        _ => return Err("no map of characters".to_owned()),
    };
    tokenizer
        .with_normalizer(Some(Precompiled::from(&map).map_err(|e| e.to_string())?))
        .expect("a normaliser");
    let spaces = Metaspace::new('\u{2581}', PrependScheme::Always, true);
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![spaces_removed(), spaces.into()])));
    Ok(Peer { tokenizer, differences: &[] })
}
