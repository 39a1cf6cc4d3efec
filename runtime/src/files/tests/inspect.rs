//! Showing a file: summaries, and every byte of it once.

use std::fmt::Arguments;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use tempfile::TempDir;

use super::kit_legacy::Legacy;
use super::*;
use crate::files::inspect::{HexOptions, NpyWriter, hex, summarise, trace};
use crate::files::{OpenOptions, Trace};

/// Files of every container and version, each with tensors; with the directory they lie in.
pub(crate) fn one_of_each() -> Vec<(&'static str, Vec<u8>)> {
    let gguf = |raw: Raw| {
        let list = [raw.u32(8), raw.length(2), raw.string("x"), raw.string("yz")].concat();
        let nested = [raw.u32(9), raw.length(1), raw.u32(0), raw.length(2), vec![1, 2]].concat();
        raw.entry_str("general.architecture", "llama")
            .entry_u32("general.alignment", 32)
            .entry("list", 9, &list)
            .entry("nested", 9, &nested)
            .entry("flag", 7, &[1])
            .tensor("token_embd.weight", &[32, 2], 2, &pattern(36))
            .tensor("norm", &[5], 0, &pattern(20))
            .build()
    };
    let mut all = vec![
        ("gguf-v1", gguf(Raw::new(1))),
        ("gguf-v2", gguf(Raw::new(2))),
        ("gguf-v3", gguf(Raw::new(3))),
        ("gguf-v3-big-endian", gguf(Raw::big_endian())),
    ];
    let names = ["ggml", "ggmf", "ggjt-v1", "ggjt-v2", "ggjt-v3"];
    for (name, legacy) in names.into_iter().zip(Legacy::containers()) {
        let mut legacy = legacy;
        // A short vocabulary keeps these small.
        legacy.tokens.truncate(8);
        legacy.words[0] = 8;
        let mut legacy = legacy.model(1, 1, 2);
        for tensor in &mut legacy.tensors {
            if tensor.1.get(1) == Some(&super::kit_legacy::VOCABULARY) {
                tensor.1[1] = 8;
                tensor.3.truncate(64 * 8 * 2);
            }
        }
        all.push((name, legacy.build()));
    }
    all
}

fn save(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m");
    fs::write(&path, bytes).expect("written");
    (dir, path)
}

/// Keeps the ranges of all fields.
#[derive(Default)]
pub(crate) struct Ranges(pub(crate) Vec<(Range<u64>, String)>);

impl Trace for Ranges {
    fn field(&mut self, bytes: Range<u64>, name: Arguments<'_>, _: Arguments<'_>) {
        self.0.push((bytes, name.to_string()));
    }
}

pub(crate) fn fields(bytes: &[u8]) -> Vec<(Range<u64>, String)> {
    let (_dir, path) = save(bytes);
    let mut ranges = Ranges::default();
    trace(&path, &Table, &OpenOptions::default(), &mut ranges).expect("a right file");
    ranges.0
}

#[test]
fn every_byte_belongs_to_exactly_one_field() {
    for (name, mut bytes) in one_of_each() {
        if name.starts_with("gguf") {
            bytes.extend([5; 77]);
        }
        let fields = fields(&bytes);
        let mut at = 0;
        for (range, field) in &fields {
            assert_eq!(range.start, at, "{name}: {field}");
            assert!(range.end > range.start, "{name}: {field} is empty");
            at = range.end;
        }
        assert_eq!(at, bytes.len() as u64, "{name}");
        assert!(fields.len() > 30, "{name}");
    }
}

fn lines(bytes: &[u8], options: &HexOptions) -> Vec<String> {
    let (_dir, path) = save(bytes);
    let mut out = Vec::new();
    hex(&path, &Table, &OpenOptions::default(), options, &mut out).expect("a right file");
    String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn bytes_are_shown_with_their_meaning() {
    let all = one_of_each();
    let ggjt = lines(&all[8].1, &HexOptions::default());
    assert_eq!(
        ggjt[..3],
        [
            "[0x000000-0x000003] 74 6a 67 67                                       -> magic    : 'tjgg' (GGJT)",
            "[0x000004-0x000007] 03 00 00 00                                       -> version  : 3",
            "[0x000008-0x00000b] 08 00 00 00                                       -> n_vocab  : 8",
        ]
    );
    let shows = |lines: &[String], parts: &[&str]| {
        assert!(lines.iter().any(|l| parts.iter().all(|p| l.contains(p))), "no {parts:?} in {lines:#?}");
    };
    shows(&ggjt, &["-> token 0  : ' \u{2047} '"]);
    shows(&ggjt, &["-> padding  : ", "(aligns the data to 32)"]);
    shows(&ggjt, &["…", "-> data of tensor 'tok_embeddings.weight': F16, 1,024 bytes, 512 elements"]);
    let gguf = lines(&all[2].1, &HexOptions::default());
    shows(&gguf, &["20 00 00 00 ", "-> value of 'general.alignment': 32"]);
    shows(&gguf, &["-> value of 'list': ['x', 'yz']"]);
    shows(&gguf, &["-> value of 'nested': [[2 x u8]]"]);
    shows(
        &gguf,
        &["-> data of tensor 'token_embd.weight': Q4_0, 36 bytes, 2 blocks of 32, at 0 in the data"],
    );
    shows(&gguf, &["-> kind of 'list': 9 (arr)"]);
    shows(&gguf, &["-> element kind of the value of 'list': 8 (str)"]);
    shows(&gguf, &["-> type of tensor 'token_embd.weight': 2 (Q4_0)"]);
    let v1 = lines(&all[0].1, &HexOptions::default());
    shows(&v1, &["[0x000008-0x00000b] 02 00 00 00 ", "tensor count: 2"]);
}

#[test]
fn what_is_shown_can_be_limited() {
    for (name, bytes) in one_of_each() {
        let all = lines(&bytes, &HexOptions::default());
        assert_eq!(lines(&bytes, &HexOptions { limit: Some(3), ..HexOptions::default() }), all[..3]);
        let from = lines(&bytes, &HexOptions { from: 9, ..HexOptions::default() });
        assert_eq!(from[..], all[all.len() - from.len()..]);
        assert!(from[0].starts_with("[0x000008-"), "{}", from[0]);
        let one =
            lines(&bytes, &HexOptions { tensor: Some("token_embd.weight".into()), ..HexOptions::default() });
        assert!((5..=9).contains(&one.len()), "{name}: {one:#?}");
        assert!(one.last().is_some_and(|l| l.contains("-> data of tensor")), "{name}");
    }
    let (_dir, path) = save(&one_of_each()[2].1);
    let options = HexOptions { tensor: Some("none".into()), ..HexOptions::default() };
    let error =
        hex(&path, &Table, &OpenOptions::default(), &options, &mut Vec::new()).expect_err("no such tensor");
    assert!(error.to_string().contains("there is no tensor 'none'"));
}

#[test]
fn a_broken_file_is_shown_up_to_the_fault() {
    for (name, bytes) in one_of_each() {
        let (_dir, path) = save(&bytes[..61]);
        let mut out = Vec::new();
        let error =
            hex(&path, &Table, &OpenOptions::default(), &HexOptions::default(), &mut out).expect_err("cut");
        assert!(out.iter().filter(|&&b| b == b'\n').count() >= 4, "{name}");
        assert!(error.offset().is_some_and(|at| at <= 61), "{name}: {error}");
    }
}

#[test]
fn an_output_that_fails_is_told() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (_dir, path) = save(&one_of_each()[2].1);
    let error =
        hex(&path, &Table, &OpenOptions::default(), &HexOptions::default(), &mut Full).expect_err("full");
    let FileError::Io { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_summary_adds_up() {
    let strings = |raw: &Raw| [raw.u32(8), raw.length(2), raw.string("x"), raw.string("yz")].concat();
    let kinds = [5u32, 2, 0, 1, 3].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let raw = Raw::new(3);
    let list = strings(&raw);
    let raw = raw
        .entry_str("general.architecture", "llama")
        .entry("tokenizer.ggml.tokens", 9, &list)
        .entry("tokenizer.ggml.token_type", 9, &kinds)
        .entry_u32("tokenizer.ggml.eos_token_id", 1)
        .tensor("a", &[64, 2], 2, &pattern(72))
        .tensor("b", &[32], 2, &pattern(18))
        .tensor("c", &[4], 0, &pattern(16));
    let summary = summarise(&open(&raw.build()).expect("a right file"));
    assert_eq!((summary.elements, summary.data_bytes), (164, 106));
    assert_eq!(summary.container, "GGUF v3");
    let types: Vec<(&str, usize, u64, u64)> =
        summary.types.iter().map(|t| (t.type_name, t.tensors, t.elements, t.bytes)).collect();
    assert_eq!(types, [("Q4_0", 2, 160, 90), ("F32", 1, 4, 16)]);
    assert!((summary.types[0].bits_per_weight - 4.5).abs() < 1e-12);
    assert!((summary.tensors.iter().map(|t| t.share).sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(summary.metadata[1].kind, "arr[str; 2]");
    let vocabulary = summary.vocabulary.as_ref().expect("a vocabulary");
    assert_eq!((vocabulary.tokens, &vocabulary.kinds[..]), (2, &[("normal", 1), ("control", 1)][..]));
    assert_eq!(vocabulary.special, [("eos".to_owned(), 1, "yz".to_owned())]);
    let json = serde_json::to_value(&summary).expect("data");
    assert_eq!(json["tensors"][0]["type"], "Q4_0");
    assert_eq!(json["metadata"][0]["value"], "llama");

    let legacy = open(&one_of_each()[5].1).expect("a right file");
    let summary = summarise(&legacy);
    assert_eq!(summary.hyperparameters[1], ("n_embd", 64));
    assert_eq!(summary.vocabulary.map(|v| v.tokens), Some(8));
}

#[test]
fn numbers_are_exported_for_numpy() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("x.npy");
    let mut npy = NpyWriter::create(&path, &[], &[3, 2]).expect("begun");
    npy.write(&[1.0, 2.0]).expect("fits");
    assert!(npy.write(&[0.0; 5]).is_err());
    npy.write(&[3.0, 4.0, 5.0, 6.0]).expect("fits");
    assert_eq!(npy.finish().expect("complete"), 128 + 24);
    let bytes = fs::read(&path).expect("read");
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,), }";
    assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
    assert!(bytes[10..].starts_with(text.as_bytes()));
    assert_eq!(&bytes[127..132], b"\n\x00\x00\x80\x3f");
    let short = NpyWriter::create(&dir.path().join("y.npy"), &[], &[]).expect("begun");
    assert!(short.finish().expect_err("one is missing").to_string().contains("1 numbers are missing"));
}
