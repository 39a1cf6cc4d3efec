//! The front door: text to ids and ids to bytes.

use super::TextError;
use super::bpe::{Bpe, BpeScratch};
use super::rwkv::Rwkv;
use super::special::{Fragment, Special};
use super::spm::{Spm, SpmScratch};
use super::stream::Utf8Buffer;
use super::ugm::{Ugm, UgmScratch};
use super::vocab::{Kind, SPACE_MARK, TokenType, Vocab, mark_spaces};
use super::wpm::Wpm;
use crate::files::Metadata;

/// How a text is turned into ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the begin and end marks that the metadata asks for.
    pub add_special: bool,
    /// Find control tokens in the text. Only for text that the caller vouches for.
    pub parse_special: bool,
}

/// A model's vocabulary and the algorithm that goes with it.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    special: Special,
    algorithm: Algorithm,
    before: Option<u32>,
    after: Option<u32>,
}

#[derive(Debug)]
enum Algorithm {
    Spm(Box<Spm>),
    Bpe(Box<Bpe>),
    Wpm(Wpm),
    Ugm(Box<Ugm>),
    Rwkv(Rwkv),
}

/// Memory of one call.
#[derive(Default)]
struct Scratch {
    bpe: BpeScratch,
    ugm: UgmScratch,
    spm: SpmScratch,
    text: String,
}

/// The longest text of one call: positions are 32 bits and spaces may grow threefold.
const LONGEST_TEXT: usize = (u32::MAX / 4) as usize;

impl Tokenizer {
    /// Builds the tokenizer that a model file describes.
    ///
    /// # Errors
    /// Names the metadata key that is missing, mistyped or contradicts another.
    pub fn from_metadata(m: &Metadata) -> Result<Self, TextError> {
        let mut vocab = Vocab::from_metadata(m)?;
        let scheme = vocab.scheme;
        let algorithm = match vocab.kind {
            Kind::Spm => Algorithm::Spm(Box::new(Spm::new(&vocab))),
            Kind::Bpe => Algorithm::Bpe(Box::new(Bpe::new(m, &mut vocab, scheme)?)),
            Kind::Wpm => Algorithm::Wpm(Wpm::new(&mut vocab)),
            Kind::Ugm => Algorithm::Ugm(Box::new(Ugm::new(m, &mut vocab)?)),
            Kind::Rwkv => Algorithm::Rwkv(Rwkv::new(&mut vocab)),
        };
        // Which marks a kind adds when the metadata does not say.
        let (bos, eos, separator) = match vocab.kind {
            Kind::Spm => (true, false, false),
            Kind::Bpe => (scheme.add_bos, false, false),
            Kind::Wpm => (true, false, true),
            Kind::Ugm => (false, true, false),
            Kind::Rwkv => (false, false, false),
        };
        let ids = vocab.ids;
        let eos = ids.eos.filter(|_| vocab.add_eos.unwrap_or(eos));
        let separator = ids.separator.filter(|_| vocab.add_sep.unwrap_or(separator));
        Ok(Self {
            before: ids.bos.filter(|_| vocab.add_bos.unwrap_or(bos)),
            after: if vocab.kind == Kind::Wpm { separator } else { eos },
            special: Special::new(&vocab)?,
            vocab,
            algorithm,
        })
    }

    /// Turns `text` into ids.
    ///
    /// User-defined tokens are found in every text; control tokens only with `parse_special`. A begin mark that
    /// the text itself starts with is not added a second time.
    ///
    /// # Errors
    /// Refuses texts of a gigabyte and more.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        let before = self.before.filter(|_| options.add_special);
        ids.extend(before);
        self.encode_with(text, options.parse_special, |_| None, &mut ids)?;
        if before.is_some() && before == ids.get(1).copied() {
            ids.remove(0);
        }
        ids.extend(self.after.filter(|_| options.add_special));
        Ok(ids)
    }

    /// Appends the ids of a text; `rewrite` may replace the text between special tokens.
    pub(crate) fn encode_with(
        &self,
        text: &str,
        parse_special: bool,
        rewrite: impl Fn(&str) -> Option<String>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        if text.len() > LONGEST_TEXT {
            let found = format!("{} bytes of text at once; at most {LONGEST_TEXT} are accepted", text.len());
            return Err(TextError::Encode(found));
        }
        let mut scratch = Scratch::default();
        // The prefix space belongs to the first text and to a text after a special token.
        let mut after_special = true;
        self.special.cut(text, parse_special, |fragment| match fragment {
            Fragment::Token(id) => {
                ids.push(id);
                after_special = true;
            }
            Fragment::Text(text) => {
                let rewritten = rewrite(text);
                self.encode_plain(rewritten.as_deref().unwrap_or(text), after_special, &mut scratch, ids);
                after_special = false;
            }
        });
        Ok(())
    }

    /// The ids of a text that stands in the middle of another one: no blank is put before it.
    pub(crate) fn encode_inside(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encode_plain(text, false, &mut Scratch::default(), &mut ids);
        ids
    }

    fn encode_plain(&self, text: &str, after_special: bool, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        match &self.algorithm {
            Algorithm::Spm(spm) => {
                let escaped = &mut scratch.text;
                escaped.clear();
                if self.vocab.add_space_prefix && after_special {
                    escaped.push_str(SPACE_MARK);
                }
                mark_spaces(text, escaped);
                spm.encode(&self.vocab, escaped, &mut scratch.spm, ids);
            }
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, &mut scratch.bpe, ids),
            Algorithm::Wpm(wpm) => wpm.encode(&self.vocab, text, &mut scratch.text, ids),
            Algorithm::Ugm(ugm) => ugm.encode(&self.vocab, text, &mut scratch.ugm, ids),
            Algorithm::Rwkv(rwkv) => rwkv.encode(&self.vocab, text, ids),
        }
    }

    /// The bytes that a token prints: nothing for control tokens and ids outside the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.vocab.pieces.get(id as usize)
    }

    /// The entry of the vocabulary, as the file spells it; empty for ids outside the vocabulary.
    pub fn token_text(&self, id: u32) -> &[u8] {
        self.vocab.entries.get(id as usize)
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The id whose entry is exactly `text`.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.vocab.find(text.as_bytes())
    }

    /// The begin mark.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.ids.bos
    }

    /// The end mark.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.ids.eos
    }

    /// Whether a begin mark is put before a text.
    pub fn adds_bos(&self) -> bool {
        self.before.is_some()
    }

    /// Whether an answer ends with this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.vocab.end_of_generation.binary_search(&id).is_ok()
    }

    /// All tokens that end an answer, ascending.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.vocab.end_of_generation
    }

    /// Whether the token is a mark that prints nothing.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.types.get(id as usize), Some(TokenType::Control | TokenType::Unknown))
    }

    /// The text that the ids print; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut bytes = Utf8Buffer::default();
        for &id in ids {
            bytes.push(self.piece(id), &mut text);
        }
        bytes.finish(&mut text);
        text
    }

    /// The text whose ids these are: as [`decode`](Self::decode), less the space that encoding put in front.
    pub fn detokenize(&self, ids: &[u32]) -> String {
        let mut text = self.decode(ids);
        let adds = self.vocab.add_space_prefix || self.vocab.kind == Kind::Wpm;
        if matches!(self.vocab.kind, Kind::Spm | Kind::Ugm | Kind::Wpm) && adds && text.starts_with(' ') {
            text.remove(0);
        }
        text
    }

    /// What was odd about the vocabulary, each in one line.
    pub fn warnings(&self) -> &[String] {
        &self.vocab.warnings
    }

    pub(crate) fn vocab(&self) -> &Vocab {
        &self.vocab
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Value;
    use crate::text::testing::{bpe_metadata, encode, spm_metadata, with_types};

    const RAW: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

    fn marked() -> Tokenizer {
        Tokenizer::from_metadata(&with_types(
            bpe_metadata("gpt-2", &["h i"]),
            &[("<|a|>", 3), ("<|a|><|b|>", 3), ("  ", 4), ("é", 4)],
        ))
        .unwrap()
    }

    #[test]
    fn control_marks_are_found_only_where_the_text_is_vouched_for() {
        let t = marked();
        let ids = t.encode("hi<|a|>hi", RAW).unwrap();
        assert_eq!(ids.len(), 3);
        assert_eq!(t.token_text(ids[1]), b"<|a|>");
        assert!(t.is_control(ids[1]) && t.piece(ids[1]).is_empty());
        let plain = encode(&t, "hi<|a|>hi");
        assert_eq!(plain, ["hi", "<", "|", "a", "|", ">", "hi"]);
    }

    #[test]
    fn the_longest_mark_at_the_leftmost_place_counts() {
        let t = marked();
        let ids = t.encode("<|a|><|b|><|a|>", RAW).unwrap();
        assert_eq!(
            ids.iter().map(|&id| t.token_text(id)).collect::<Vec<_>>(),
            [&b"<|a|><|b|>"[..], b"<|a|>"]
        );
    }

    #[test]
    fn user_defined_entries_are_found_in_any_text() {
        let t = marked();
        assert_eq!(encode(&t, "hi   é"), ["hi", "  ", "Ġ", "é"]);
        let ids = t.encode("hi   é", EncodeOptions::default()).unwrap();
        assert_eq!(t.decode(&ids), "hi   é");
    }

    #[test]
    fn marks_are_added_as_the_metadata_says() {
        let special = EncodeOptions { add_special: true, parse_special: false };
        let mut m = spm_metadata(&[("▁", -1.0)]);
        let ids = |m: &Metadata| Tokenizer::from_metadata(m).unwrap().encode(" ", special).unwrap();
        assert_eq!(ids(&m)[0], 1, "a begin mark is the default of this kind");
        m.insert("tokenizer.ggml.add_bos_token", Value::Bool(false));
        m.insert("tokenizer.ggml.add_eos_token", Value::Bool(true));
        let got = ids(&m);
        assert_ne!(got[0], 1);
        assert_eq!(got.last(), Some(&2));
        let bpe = Tokenizer::from_metadata(&bpe_metadata("gpt-2", &[])).unwrap();
        assert_eq!(bpe.encode("a", special).unwrap().len(), 1, "none is the default of this kind");
    }

    #[test]
    fn the_prefix_space_follows_special_tokens_and_obeys_its_flag() {
        let mut m = spm_metadata(&[("a", -9.0), ("▁", -3.0), ("▁a", -1.0)]);
        let texts = |m: &Metadata| {
            let t = Tokenizer::from_metadata(m).unwrap();
            let ids = t.encode("a<s>a a", RAW).unwrap();
            ids.iter().map(|&id| String::from_utf8_lossy(t.token_text(id)).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(&m), ["▁a", "<s>", "▁a", "▁a"]);
        m.insert("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        assert_eq!(texts(&m), ["a", "<s>", "a", "▁a"]);
    }

    #[test]
    fn turn_marks_entered_as_user_defined_are_marks() {
        let mut m = with_types(
            bpe_metadata("gpt-2", &[]),
            &[("<start_of_turn>", 4), ("<end_of_turn>", 4), ("<b>", 4)],
        );
        m.insert("tokenizer.chat_template", Value::String("<start_of_turn>{{ x }}".into()));
        let t = Tokenizer::from_metadata(&m).unwrap();
        let id = |text| t.find(text).unwrap();
        assert!(
            t.is_control(id("<start_of_turn>"))
                && t.is_control(id("<end_of_turn>"))
                && !t.is_control(id("<b>"))
        );
        assert!(
            t.is_end_of_generation(id("<end_of_turn>")) && !t.is_end_of_generation(id("<start_of_turn>"))
        );
    }

    #[test]
    fn marks_of_known_families_eat_white_space() {
        let entries = [("<|placeholder1|>", 3), ("<|assistant|>", 3), ("<|endoftext|>", 3)];
        let t = Tokenizer::from_metadata(&with_types(spm_metadata(&[("a", -1.0), ("▁", -2.0)]), &entries));
        // The scores of the added marks are missing.
        assert!(t.is_err());
        let mut m = with_types(spm_metadata(&[("a", -1.0), ("▁", -2.0)]), &entries);
        m.insert("tokenizer.ggml.scores", Value::Array(crate::files::Array::F32(vec![-1.0; 264])));
        m.insert("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        let t = Tokenizer::from_metadata(&m).unwrap();
        let texts = |text| {
            let ids = t.encode(text, RAW).unwrap();
            ids.iter().map(|&id| String::from_utf8_lossy(t.token_text(id)).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts("a <|assistant|>\n a"), ["a", "▁", "<|assistant|>", "a"]);
        assert_eq!(texts("<|endoftext|> a"), ["<|endoftext|>", "▁", "a"]);
        let m = with_types(bpe_metadata("roberta-bpe", &[]), &[("<mask>", 3)]);
        let t = Tokenizer::from_metadata(&m).unwrap();
        assert_eq!(t.encode("a <mask> b", RAW).unwrap().len(), 4);
    }

    #[test]
    fn what_ends_an_answer() {
        let ends = |entries: &[(&str, i32)]| {
            let m = with_types(bpe_metadata("gpt-2", &[]), entries);
            let t = Tokenizer::from_metadata(&m).unwrap();
            let text = |&id: &u32| String::from_utf8_lossy(t.token_text(id)).into_owned();
            t.end_of_generation().iter().map(text).filter(|text| text.len() > 2).collect::<Vec<_>>()
        };
        assert_eq!(ends(&[("<|eot_id|>", 3), ("<|im_end|>", 4), ("<|x|>", 3)]), ["<|eot_id|>", "<|im_end|>"]);
        assert!(ends(&[("</s>", 1)]).is_empty(), "a normal entry is a word");
        // With marks for the end of an answer and of a call, another one ends only a message.
        assert_eq!(ends(&[("<|return|>", 3), ("<|call|>", 3), ("<|end|>", 3)]), ["<|return|>", "<|call|>"]);
        assert_eq!(ends(&[("<|end|>", 3)]), ["<|end|>"]);
    }

    #[test]
    fn ids_outside_the_vocabulary_print_nothing() {
        let t = marked();
        assert_eq!(t.piece(u32::MAX), b"");
        assert_eq!(t.token_text(t.vocab_size() as u32), b"");
        assert!(!t.is_control(u32::MAX) && !t.is_end_of_generation(u32::MAX));
        assert_eq!(t.decode(&[u32::MAX]), "");
    }

    #[test]
    fn a_begin_mark_is_not_doubled() {
        let t = Tokenizer::from_metadata(&spm_metadata(&[("▁", -1.0), ("a", -1.0)])).unwrap();
        let both = EncodeOptions { add_special: true, parse_special: true };
        assert_eq!(t.encode("<s>a", both).unwrap(), t.encode("a", both).unwrap());
        assert_eq!(t.encode("<s><s>a", both).unwrap().iter().filter(|&&id| id == 1).count(), 2);
        assert_eq!(t.encode("", both).unwrap(), [1]);
    }

    #[test]
    fn texts_come_back_without_the_prefix_space() {
        let t = Tokenizer::from_metadata(&spm_metadata(&[("▁", -1.0), ("a", -1.0)])).unwrap();
        for text in ["a a", " a", "é"] {
            assert_eq!(t.detokenize(&t.encode(text, EncodeOptions::default()).unwrap()), text);
        }
    }

    #[test]
    fn an_empty_text_has_no_ids() {
        assert!(marked().encode("", RAW).unwrap().is_empty());
    }
}
