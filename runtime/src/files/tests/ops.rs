//! Operations on files.

use std::fs;
use std::path::Path;

use super::*;
use crate::files::ops::{Change, Severity, ShardSize, SplitOptions, diff, hash, merge, split, verify};
use crate::files::{Array, Value};

fn sample() -> Raw {
    Raw::new(3)
        .entry_str("general.architecture", "llama")
        .alignment(64)
        .tensor("a", &[8], 0, &pattern(32))
        .tensor("b", &[32], 2, &pattern(18))
        .tensor("c", &[3], 0, &pattern(12))
}

/// A file as the writer would make it.
fn padded(raw: &Raw) -> Vec<u8> {
    let mut bytes = raw.build();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes
}

fn file_names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("listed").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_model_split_and_merged_is_the_model() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("in.gguf");
    let bytes = padded(&sample());
    fs::write(&input, &bytes).expect("written");
    let original = hash(&ModelFile::open(&input, &Table).expect("a right file"));
    for (size, first_without_tensors, count) in [
        (ShardSize::Tensors(1), false, 3),
        (ShardSize::Tensors(2), false, 2),
        (ShardSize::Tensors(2), true, 3),
        (ShardSize::Tensors(9), false, 1),
        (ShardSize::Bytes(31), false, 2),
        (ShardSize::Bytes(50), true, 3),
        (ShardSize::Bytes(0), false, 3),
    ] {
        let part = tempfile::tempdir_in(dir.path()).expect("a directory");
        let options = SplitOptions { size, first_without_tensors };
        let paths = split(&input, &part.path().join("m"), options, &Table).expect("split");
        let expected: Vec<String> = (1..=count).map(|i| format!("m-{i:05}-of-{count:05}.gguf")).collect();
        assert_eq!(file_names(part.path()), expected, "{size:?}");
        let model = ModelFile::open(&paths[count / 2], &Table).expect("a right model");
        assert_eq!(model.metadata().u32("split.tensors.count"), Some(3));
        assert_eq!(hash(&model).tensor_data, original.tensor_data);
        let merged = part.path().join("merged.gguf");
        merge(&paths[0], &merged, &Table).expect("merged");
        assert!(fs::read(&merged).expect("read") == bytes, "{size:?}");
    }
}

#[test]
fn a_split_that_fails_leaves_no_shard() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("in.gguf");
    fs::write(&input, padded(&sample())).expect("written");
    fs::create_dir(dir.path().join("m-00003-of-00003.gguf")).expect("made");
    let options = SplitOptions { size: ShardSize::Tensors(1), first_without_tensors: false };
    let error = split(&input, &dir.path().join("m"), options, &Table).expect_err("a directory is in the way");
    assert!(error.to_string().contains("m-00003-of-00003.gguf: the output is a directory"), "{error}");
    assert_eq!(file_names(dir.path()), ["in.gguf", "m-00003-of-00003.gguf"]);
}

#[test]
fn hashes_name_data_and_not_its_place() {
    let a = hash(&open(&sample().build()).expect("a right file"));
    // Known answer: SHA-256 of the bytes 1 to 12.
    assert_eq!(a.tensors[2].0, "c");
    assert_eq!(a.tensors[2].1, "206402cab345415716d9a33469feba57a90dc200c064bc0190b4191af058b0eb".to_owned());
    let moved = Raw::new(3).tensor("a", &[8], 0, &pattern(32)).tensor("b", &[32], 2, &pattern(18)).tensor(
        "c",
        &[3],
        0,
        &pattern(12),
    );
    let b = hash(&open(&moved.build()).expect("a right file"));
    assert_eq!((&a.tensors, &a.tensor_data), (&b.tensors, &b.tensor_data));
    assert_ne!(a.file, b.file);
}

#[test]
fn differences_are_found_and_nothing_else() {
    let a = open(&sample().build()).expect("a right file");
    assert!(diff(&a, &open(&padded(&sample())).expect("a right file")).is_empty());
    let mut data = pattern(12);
    data[5] ^= 1;
    data[7] ^= 1;
    let other = Raw::new(3)
        .entry_u32("general.alignment", 64)
        .entry_u32("new", 1)
        .tensor("c", &[3], 0, &data)
        .tensor("b", &[9, 2], 1, &pattern(36))
        .tensor("d", &[1], 0, b"abcd");
    let found = diff(&a, &open(&other.build()).expect("a right file"));
    assert!(!found.is_empty() && found.order);
    assert_eq!(
        found.metadata,
        [
            ("general.architecture".to_owned(), Change::Removed(Value::String("llama".into()))),
            ("new".to_owned(), Change::Added(Value::U32(1)))
        ]
    );
    let tensors: Vec<(&str, bool)> =
        found.tensors.iter().map(|(n, c)| (n.as_str(), matches!(c, Change::Changed(..)))).collect();
    assert_eq!(tensors, [("a", false), ("b", true), ("d", false)]);
    assert_eq!(found.data.len(), 1);
    assert_eq!((found.data[0].0.as_str(), found.data[0].1.bytes, found.data[0].1.first), ("c", 2, 5));
    let json = serde_json::to_value(&found).expect("data");
    assert_eq!(json["metadata"][1][1]["added"], 1);
}

#[test]
fn a_nan_in_metadata_is_like_itself() {
    let nan = Raw::new(3).entry("k", 6, &f32::NAN.to_le_bytes()).build();
    let (a, b) = (open(&nan).expect("a file"), open(&nan).expect("a file"));
    assert!(diff(&a, &b).is_empty());
}

fn findings(bytes: &[u8]) -> Vec<(Severity, String)> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.gguf");
    fs::write(&path, bytes).expect("written");
    verify(&path, &Table).expect("readable").into_iter().map(|f| (f.severity, f.text)).collect()
}

#[test]
fn a_file_as_the_writer_makes_it_has_no_findings() {
    assert_eq!(findings(&padded(&sample())), []);
}

#[test]
fn what_others_may_refuse_is_found() {
    let has = |bytes: &[u8], severity: Severity, text: &str| {
        let found = findings(bytes);
        assert!(found.iter().any(|(s, t)| *s == severity && t.contains(text)), "no '{text}' in {found:?}");
    };
    has(&sample().build(), Severity::Note, "the last tensor is not padded");
    let mut bytes = padded(&sample());
    bytes.extend([1; 7]);
    has(&bytes, Severity::Note, "7 bytes follow the last tensor");
    let mut bytes = padded(&sample());
    let at = bytes.len() - 128 + 20;
    bytes[at] = 9;
    has(&bytes, Severity::Note, "is not zero");
    let llama = || Raw::new(3).entry_str("general.architecture", "llama");
    let mut bytes = llama().record("late", &[8], 0, 96).record("early", &[8], 0, 0).build();
    bytes.resize(bytes.len().next_multiple_of(32) + 128, 0);
    has(&bytes, Severity::Warning, "another order");
    has(&bytes, Severity::Warning, "64 bytes between tensors");
    has(&llama().tensor(&"n".repeat(64), &[1], 0, b"abcd").build(), Severity::Warning, "a name of 64 bytes");
    has(&llama().record("t", &[0], 0, 0).build(), Severity::Note, "tensor 't' is empty");
    has(&llama().alignment(24).build(), Severity::Warning, "no power of two");
    has(&Raw::new(1).entry_str("general.architecture", "llama").build(), Severity::Note, "version 1");
    has(&Raw::new(3).build(), Severity::Error, "no general.architecture");
}

#[test]
fn contradictions_are_found() {
    let has = |raw: Raw, text: &str| {
        let found = findings(&raw.build());
        assert!(
            found.iter().any(|(s, t)| *s == Severity::Error && t.contains(text)),
            "no '{text}' in {found:?}"
        );
    };
    let raw = || Raw::new(3).entry_str("general.architecture", "llama");
    let width = || raw().entry_u32("llama.embedding_length", 64);
    has(width().entry_u32("llama.attention.head_count", 5), "cannot be divided among 5 heads");
    has(width().entry_u32("llama.attention.head_count", 0), "cannot be divided among 0 heads");
    let heads = || width().entry_u32("llama.attention.head_count", 4);
    has(heads().entry_u32("llama.attention.head_count_kv", 3), "cannot share 3 heads");
    has(heads().entry_u32("llama.attention.head_count_kv", 0), "cannot share 0 heads");
    has(heads().entry_u32("llama.rope.dimension_count", 17), "more than a head has, 16");
    has(width().tensor("token_embd.weight", &[32], 0, &pattern(128)), "embedding_length is 64");
    has(raw().entry_u32("llama.block_count", 3).tensor("blk.1.x", &[1], 0, b"abcd"), "block_count is 3");
    let strings = |raw: &Raw| [raw.u32(8), raw.length(2), raw.string("x"), raw.string("y")].concat();
    let tokens = || {
        let list = strings(&raw());
        raw().entry("tokenizer.ggml.tokens", 9, &list)
    };
    let one = [6u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec(), vec![0; 4]].concat();
    has(tokens().entry("tokenizer.ggml.scores", 9, &one), "scores has 1 entries for 2 tokens");
    has(tokens().entry_u32("tokenizer.ggml.bos_token_id", 2), "bos_token_id is 2, but there are 2 tokens");
    has(tokens().entry_u32("tokenizer.ggml.eos_token_id", 1 << 31), "eos_token_id");
    has(
        tokens().tensor("token_embd.weight", &[1, 1], 0, b"abcd"),
        "there are 2 tokens, but token_embd.weight",
    );
}

#[test]
fn values_become_json() {
    let values = Value::Array(Array::Array(vec![Array::Bool(vec![true]), Array::String(vec!["ü".into()])]));
    assert_eq!(serde_json::to_string(&values).expect("data"), r#"[[true],["ü"]]"#);
    assert_eq!(serde_json::to_string(&Value::F32(f32::INFINITY)).expect("data"), "null");
    assert_eq!(serde_json::to_string(&Value::U64(u64::MAX)).expect("data"), u64::MAX.to_string());
}
