//! What holds for every text and every vocabulary.

use proptest::prelude::*;

use super::pre::{Pieces, Splitter, by_name};
use super::testing::{bpe_metadata, spm_metadata, with_types};
use super::{ChatTemplate, EncodeOptions, Message, StopStrings, StreamDecoder, Tokenizer};
use crate::files::{Array, Metadata, Str, Value};

/// Texts with much of what tokenizers trip over.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[a-zA-Z]{1,6}",
        2 => "[ \\n\\r\\t]{1,4}",
        1 => "[0-9]{1,7}",
        1 => "[!-/:-@]{1,3}",
        1 => any::<char>().prop_map(String::from),
        1 => prop::sample::select(vec!["<|a|>", "<s>", "▁", "é", "日本", "🦙", "e\u{301}", "'ll", "\u{3000}", "\u{0}"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn bpe() -> Tokenizer {
    let merges = ["a a", "aa aa", "t h", "th e", "Ġ the", "Ġ a", "1 2", "Ã ©", "Ċ Ċ", "l l"];
    let m = with_types(bpe_metadata("llama-bpe", &merges), &[("<|a|>", 3), ("  ", 4), ("日", 4)]);
    Tokenizer::from_metadata(&m).unwrap()
}

fn spm() -> Tokenizer {
    let entries =
        [("▁", -2.0), ("a", -5.0), ("aa", -4.0), ("▁a", -3.0), ("日本", -6.0), ("▁▁", -1.5), ("x▁y", -1.0)];
    Tokenizer::from_metadata(&spm_metadata(&entries)).unwrap()
}

fn streamed(t: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = StreamDecoder::new(t);
    let mut out: String = ids.iter().map(|&id| stream.push(id)).collect();
    out += &stream.finish();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_text_comes_back_and_streams_whole(text in text()) {
        for (t, text) in [(bpe(), text.clone()), (spm(), text.replace('▁', " "))] {
            let ids = t.encode(&text, EncodeOptions::default()).unwrap();
            prop_assert_eq!(t.detokenize(&ids), text);
            prop_assert_eq!(streamed(&t, &ids), t.decode(&ids));
        }
    }

    #[test]
    fn any_ids_print_something_valid(ids in prop::collection::vec(0u32..400, 0..40)) {
        for t in [bpe(), spm()] {
            prop_assert_eq!(streamed(&t, &ids), t.decode(&ids));
        }
    }

    #[test]
    fn every_scheme_covers_every_text(text in text()) {
        let mut pieces = Pieces::default();
        for name in ["default", "llama-bpe", "tekken", "gpt-4o", "kimi-k2", "afmoe", "jais-2", "youtu", "exaone-moe"] {
            let splitter = splitter(name);
            let mut at = 0;
            for piece in splitter.split(&text, &mut pieces) {
                prop_assert!(piece.start == at && piece.end > at, "{}", name);
                at = piece.end;
                prop_assert!(text.is_char_boundary(at as usize));
            }
            prop_assert_eq!(at as usize, text.len());
        }
    }

    #[test]
    fn a_user_never_makes_a_special_token(text in text()) {
        let t = Tokenizer::from_metadata(&with_types(bpe_metadata("gpt-2", &["a a", "l l"]), &[("<|a|>", 3)])).unwrap();
        let mark = t.find("<|a|>").unwrap();
        for change in ["", "| trim", "| upper | lower", ".lstrip()"] {
            let source = format!("<|a|>{{{{ messages[0].content {change} }}}}<|a|>");
            let template = ChatTemplate::new(&source, &t).unwrap();
            let message = [Message::new("user", text.as_str())];
            let ids = template.render_tokens(&message, false, &t).unwrap();
            prop_assert_eq!(ids.iter().filter(|&&id| id == mark).count(), 2);
            let rendered = template.render(&message, false).unwrap();
            prop_assert_eq!(t.decode(&ids), &rendered[5..rendered.len() - 5]);
        }
    }

    #[test]
    fn stop_strings_cut_where_they_stand(text in "[ab]{0,30}", stops in prop::collection::vec("[ab]{1,4}", 0..3), step in 1usize..5) {
        let mut watch = StopStrings::new(stops.clone());
        let mut out = String::new();
        for chunk in text.as_bytes().chunks(step) {
            out += &watch.push(std::str::from_utf8(chunk).unwrap()).text;
        }
        out += &watch.finish();
        let cut = stops.iter().filter_map(|stop| text.find(stop.as_str())).min().unwrap_or(text.len());
        prop_assert_eq!(out, &text[..cut]);
    }

    #[test]
    fn any_vocabulary_is_accepted_or_refused_without_a_panic(
        kind in prop::sample::select(vec!["llama", "gpt2", "bert", "t5", "rwkv", "gemma4"]),
        tokens in prop::collection::vec(token(), 0..40),
        types in prop::collection::vec(-1i32..8, 0..40),
        scores in prop::collection::vec(prop_oneof![any::<f32>(), -9.0f32..0.0], 0..40),
        merges in prop::collection::vec("[a-c▁ ]{0,5}", 0..10),
        ids in prop::collection::vec(any::<u32>(), 3),
        small in any::<bool>(),
        text in text(),
    ) {
        let mut m = Metadata::new();
        let n = tokens.len();
        let mut types = types;
        let mut scores = scores;
        if small {
            types.resize(n, 1);
            scores.resize(n, 0.0);
        }
        m.insert("tokenizer.ggml.model", Value::String(kind.into()));
        m.insert("tokenizer.ggml.pre", Value::String("gpt-2".into()));
        m.insert("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        m.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        m.insert("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
        let merges = merges.iter().map(|s| Str::from(s.as_str())).collect();
        m.insert("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
        for (name, id) in ["bos", "unknown", "padding"].into_iter().zip(ids) {
            let id = if small { id % (n as u32).max(1) } else { id };
            m.insert(format!("tokenizer.ggml.{name}_token_id"), Value::U32(id));
        }
        if let Ok(t) = Tokenizer::from_metadata(&m) {
            for parse_special in [false, true] {
                let ids = t.encode(&text, EncodeOptions { add_special: true, parse_special }).unwrap();
                prop_assert!(ids.iter().all(|&id| (id as usize) < t.vocab_size()));
                t.decode(&ids);
            }
        }
    }
}

/// Entries of all kinds: words, byte names good and bad, bytes that are no text.
fn token() -> impl Strategy<Value = Str> {
    prop_oneof![
        4 => "[a-c▁<>|]{0,4}".prop_map(Str::from),
        1 => "<0x[0-9A-F-]{1,3}>".prop_map(Str::from),
        1 => prop::collection::vec(any::<u8>(), 0..5).prop_map(Str::from),
    ]
}

/// Compiled once for all cases.
fn splitter(name: &str) -> std::sync::Arc<Splitter> {
    use std::collections::HashMap;
    use std::sync::{Arc, LazyLock, Mutex};
    static MADE: LazyLock<Mutex<HashMap<String, Arc<Splitter>>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap();
    made.entry(name.to_owned())
        .or_insert_with(|| Arc::new(Splitter::new(by_name(name).unwrap().passes).unwrap()))
        .clone()
}
