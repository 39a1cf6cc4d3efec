//! The reference vocabularies of llama.cpp: texts and the ids they must give.
//!
//! `QUANTSMITH_VOCABS` names a folder with `ggml-vocab-NAME.gguf`, `.gguf.inp` and `.gguf.out`.

use std::path::{Path, PathBuf};

use super::testing::{Shapes, cpu_seconds};
use super::{EncodeOptions, Tokenizer};
use crate::files::ModelFile;

/// What separates the texts of an `.inp` file.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("QUANTSMITH_VOCABS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: QUANTSMITH_VOCABS is not set");
    }
    folder
}

fn vocabularies(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    paths.sort();
    paths
}

fn tokenizer(path: &Path) -> Tokenizer {
    let file = ModelFile::open(path, &Shapes).unwrap();
    Tokenizer::from_metadata(file.metadata()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_reference_id_is_equal() {
    let Some(folder) = folder() else { return };
    let mut checked = 0;
    let mut wrong = Vec::new();
    for path in vocabularies(&folder) {
        let (texts, ids) = (path.with_extension("gguf.inp"), path.with_extension("gguf.out"));
        if !texts.exists() {
            continue;
        }
        let t = tokenizer(&path);
        let texts = std::fs::read_to_string(texts).unwrap();
        let ids = std::fs::read_to_string(ids).unwrap();
        let texts: Vec<&str> = texts.split(SEPARATOR).collect();
        let lines: Vec<&str> = ids.lines().collect();
        assert!(texts.len() >= lines.len() && texts.len() - lines.len() <= 1, "{}", path.display());
        for (text, line) in texts.iter().zip(&lines) {
            let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let got = t.encode(text, EncodeOptions::default()).unwrap();
            if got != expected {
                let show = |ids: &[u32]| {
                    ids.iter()
                        .map(|&i| String::from_utf8_lossy(t.token_text(i)).into_owned())
                        .collect::<Vec<_>>()
                };
                wrong.push(format!(
                    "{} {text:?}\n  got      {:?}\n  expected {:?}",
                    path.file_name().unwrap().display(),
                    show(&got),
                    show(&expected)
                ));
            }
        }
        checked += 1;
    }
    eprintln!("{checked} vocabularies checked");
    assert!(wrong.is_empty(), "{} texts differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= 15, "only {checked} vocabularies have reference ids");
}

#[test]
fn texts_come_back_from_every_vocabulary() {
    let Some(folder) = folder() else { return };
    for path in vocabularies(&folder) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        // These rewrite the text before they look at it.
        if name.contains("bert") {
            continue;
        }
        let t = tokenizer(&path);
        let texts = std::fs::read_to_string(folder.join("ggml-vocab-gpt-2.gguf.inp")).unwrap();
        for text in
            texts.split(SEPARATOR).chain(["\u{0}\u{1}\u{7f}", "é\u{301}\u{200d}", "\u{10FFFF}\u{FFFD}"])
        {
            let ids = t.encode(text, EncodeOptions::default()).unwrap();
            assert_eq!(t.detokenize(&ids), text, "{name}");
        }
    }
}

#[test]
fn long_runs_are_fast_in_every_vocabulary() {
    let Some(folder) = folder() else { return };
    for path in vocabularies(&folder) {
        let t = tokenizer(&path);
        for unit in ["a", "A", "\n", " ", "漢", "1", "é", "🦙", " a"] {
            let text = unit.repeat(1_000_000 / unit.len());
            let seconds = cpu_seconds(|| {
                t.encode(&text, EncodeOptions::default()).unwrap();
            });
            assert!(seconds < 1.0, "{} {unit:?}: {seconds}", path.display());
        }
    }
}

/// Ten thousand characters a second are asked for; the table shows what there is, on one core.
#[test]
fn every_vocabulary_is_fast_on_prose() {
    let Some(folder) = folder() else { return };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/texts/alice.txt");
    let text = std::fs::read_to_string(text).unwrap().repeat(4);
    for path in vocabularies(&folder) {
        let t = tokenizer(&path);
        let mut tokens = 0;
        let seconds = cpu_seconds(|| tokens = t.encode(&text, EncodeOptions::default()).unwrap().len());
        let name = path.file_stem().unwrap().display().to_string();
        eprintln!("{name:<32} {:>8.2} MB/s {tokens:>8} tokens", text.len() as f64 / seconds / 1e6);
        assert!(text.chars().count() as f64 / seconds > 10_000.0, "{name}: {seconds} s");
    }
}
