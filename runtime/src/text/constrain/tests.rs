use super::*;
use crate::text::testing::{bpe_metadata, with_types};
use crate::text::{EncodeOptions, SamplingParams};
use serde_json::json;

fn tokenizer() -> Arc<Tokenizer> {
    let mut m = with_types(
        bpe_metadata("gpt-2", &["t r", "u e", "tr ue", "f a", "a b", "ab c", "1 2", "\" a", "\" :", "} }"]),
        &[("<|im_end|>", 3)],
    );
    m.insert("tokenizer.ggml.eos_token_id", crate::files::Value::U32(266));
    Arc::new(Tokenizer::from_metadata(&m).unwrap())
}

/// Whether the constraint takes the text token by token and is then complete.
fn takes(constraint: &Constraint, t: &Tokenizer, text: &str) -> bool {
    let mut c = constraint.clone();
    for id in t.encode(text, EncodeOptions::default()).unwrap() {
        if !c.allowed().unwrap().contains(id) {
            return false;
        }
        c.accept(id).unwrap();
    }
    c.is_complete() && c.allowed().unwrap().contains(266)
}

#[test]
fn grammars_decide_what_may_come() {
    let t = tokenizer();
    let all = Constraints::new(t.clone()).unwrap();
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("root ::= \"yes\" | \"no\"", &["yes", "no"], &["", "ye", "yesno", "maybe"]),
        ("root ::= [a-z]+ \"x\"", &["abx", "xx", "abcx", "xxxx"], &["ab", "x", "abX"]),
        ("root ::= \"x\" \"yz\" | \"xy\" \"w\"", &["xyz", "xyw"], &["xy", "xyx"]),
        ("root ::= \"(\" root \")\" | \"\"", &["", "()", "((()))"], &["(", "())", ")("]),
        ("root ::= item (\",\" item)*\nitem ::= [0-9]{1,3}", &["1", "12,123"], &["1234", "1,", ",1"]),
        ("root ::= [^\"]{2}", &["ab", "日本", "\n\n"], &["a", "\"a", "abc"]),
        ("root ::= .", &["a", "日", "\n"], &["", "ab"]),
        ("root ::= \"日本\" [ぁ-ん]*", &["日本", "日本の"], &["日", "日本x"]),
        ("root ::= root \"a\" | \"b\"", &["b", "baaa"], &["a", "ab"]),
    ];
    for (grammar, good, bad) in cases {
        let c = all.gbnf(grammar).unwrap();
        for text in *good {
            assert!(takes(&c, &t, text), "{grammar} must take {text:?}");
        }
        for text in *bad {
            assert!(!takes(&c, &t, text), "{grammar} must not take {text:?}");
        }
    }
}

#[test]
fn schemas_and_expressions_too() {
    let t = tokenizer();
    let all = Constraints::new(t.clone()).unwrap();
    let schema = json!({
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0}},
        "required": ["ok"],
        "additionalProperties": false
    });
    let c = all.json_schema(&schema).unwrap();
    assert!(takes(&c, &t, "{\"ok\": true}") || takes(&c, &t, "{\"ok\":true}"));
    assert!(!takes(&c, &t, "{\"ok\": 1}") && !takes(&c, &t, "{}"));
    let c = all.regex("[ab]+c?").unwrap();
    assert!(takes(&c, &t, "abab") && takes(&c, &t, "abc") && !takes(&c, &t, "c"));
    assert!(all.regex("[a").unwrap_err().to_string().starts_with("constraint"));
    assert!(all.json_schema(&json!({"type": "no-such-type"})).is_err());
    assert!(all.gbnf("root ::= x").unwrap_err().to_string().contains("line 1"));
}

#[test]
fn sampling_follows_the_constraint_to_its_end() {
    let t = tokenizer();
    let all = Constraints::new(t.clone()).unwrap();
    let schema = json!({"type": "object", "properties": {"a": {"enum": [true, false, "abc"]}}, "required": ["a"], "additionalProperties": false});
    for seed in 0..20 {
        let mut c = all.json_schema(&schema).unwrap();
        let params = SamplingParams {
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            temperature: 1.0,
            ..SamplingParams::default()
        };
        let mut sampler = Sampler::new(&params, t.vocab_size(), seed).unwrap();
        let logits = vec![0.0; t.vocab_size()];
        let mut ids = Vec::new();
        while ids.len() < 400 {
            let id = c.sample(&mut sampler, &logits).unwrap();
            if t.is_end_of_generation(id) {
                break;
            }
            ids.push(id);
        }
        let text = t.decode(&ids);
        let value: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert!([json!(true), json!(false), json!("abc")].contains(&value["a"]), "{text}");
    }
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let t = tokenizer();
    let mut c = Constraints::new(t.clone()).unwrap().gbnf("root ::= \"ab\"").unwrap();
    assert!(c.clone().accept(t.find("c").unwrap()).is_err());
    assert!(c.clone().accept(u32::MAX).is_err());
    c.accept(t.find("ab").unwrap()).unwrap();
    assert!(c.is_complete());
    assert_eq!(c.allowed().unwrap().count(), 1);
    let none = Arc::new(
        Tokenizer::from_metadata(&{
            let mut m = bpe_metadata("gpt-2", &[]);
            m.insert("tokenizer.ggml.eos_token_id", crate::files::Value::I32(-1));
            m
        })
        .unwrap(),
    );
    assert!(Constraints::new(none).unwrap_err().to_string().contains("ends an answer"));
}

#[test]
fn a_large_vocabulary_is_masked_in_reasonable_time() {
    // Every two-byte text: 65,792 tokens.
    let names: Vec<String> = (0..=255u8)
        .flat_map(|a| (0..=255u8).map(move |b| (a, b)))
        .map(|(a, b)| {
            format!(
                "{} {}",
                super::super::bytes::ALPHABET[a as usize],
                super::super::bytes::ALPHABET[b as usize]
            )
        })
        .collect();
    let merges: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut m = with_types(bpe_metadata("gpt-2", &merges), &[("<|im_end|>", 3)]);
    m.insert("tokenizer.ggml.eos_token_id", crate::files::Value::U32(65_792));
    let t = Arc::new(Tokenizer::from_metadata(&m).unwrap());
    let all = Constraints::new(t.clone()).unwrap();
    let mut c = all.gbnf("root ::= (word \" \")+ \".\"\nword ::= [a-z]+ | [0-9]+").unwrap();
    let seconds = crate::text::testing::cpu_seconds(|| {
        for id in t.encode("some words and 123 numbers ", EncodeOptions::default()).unwrap() {
            assert!(c.allowed().unwrap().contains(id));
            c.accept(id).unwrap();
        }
    });
    eprintln!("{seconds} s");
    assert!(seconds < 2.0, "{seconds}");
}

#[test]
fn a_vocabulary_that_puts_a_blank_before_a_text_puts_none_into_it() {
    let letters: Vec<(String, f32)> = ('a'..='z').map(|c| (c.to_string(), -1.0)).collect();
    let entries: Vec<(&str, f32)> =
        letters.iter().map(|(text, score)| (text.as_str(), *score)).chain([("\u{2581}", -1.0)]).collect();
    let mut m = crate::text::testing::spm_metadata(&entries);
    m.insert("tokenizer.ggml.eos_token_id", crate::files::Value::U32(2));
    let t = Arc::new(Tokenizer::from_metadata(&m).unwrap());
    let mut c = Constraints::new(t.clone()).unwrap().json_schema(&json!({"type": "boolean"})).unwrap();
    for letter in ["t", "r", "u", "e"] {
        let id = t.find(letter).unwrap();
        assert!(c.allowed().unwrap().contains(id), "{letter}");
        c.accept(id).unwrap();
    }
    assert!(c.is_complete());
}
