//! A second opinion on tokenizers: the `tokenizers` crate, given the same vocabularies, must find the same ids.
//!
//! The vocabularies are those of the reference tests (`QUANTSMITH_VOCABS` names their folder) and of the models in
//! `models/`. The texts are drawn at random, the same in every run, from what tokenizers trip over. Where the two
//! differ for a reason, the reason is written down with the characters that it concerns, and they must agree on
//! every text without those.

mod peer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peer::{Difference, Peer};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use quantsmith::files::{Metadata, ModelFile};
use quantsmith::kernels::Registry;
use quantsmith::text::{EncodeOptions, Tokenizer};

/// Texts for each vocabulary.
const TEXTS: u32 = 400;

/// One kind of text, a few characters of it.
fn part() -> impl Strategy<Value = String> {
    let chosen = |texts: &'static [&'static str]| prop::sample::select(texts).prop_map(str::to_owned);
    prop_oneof![
        4 => "[a-z]{1,9}",
        2 => "[A-Z][a-z]{0,6}|[A-Z]{1,5}",
        4 => "[ ]{1,5}",
        2 => "[ \\n\\r\\t]{1,6}",
        2 => "[0-9]{1,9}",
        2 => "[!-/:-@\\[-`{-~]{1,4}",
        1 => "[\\p{Greek}\\p{Cyrillic}\\p{Arabic}\\p{Devanagari}\\p{Thai}]{1,5}",
        1 => "[一-龥ぁ-んァ-ヶ가-힣]{1,6}",
        1 => "\\p{M}{1,3}|[a-zA-Z]\\p{M}{1,2}",
        1 => "\\p{N}{1,3}",
        1 => "[\\p{P}\\p{S}]{1,3}",
        1 => "[\\p{Zs}\\p{Zl}\\p{Zp}\\x0B\\x0C\\u{85}]{1,2}",
        1 => "\\p{Cc}",
        1 => any::<char>().prop_map(String::from),
        2 => chosen(&["'s", "'LL", "'Re", "'vE", "'d", "'M", "'T", "’s", "''ll", "'ſ", " 's"]),
        1 => chosen(&[
            "🦙", "👩‍👩‍👧‍👦", "🇩🇪", "☺️", "👍🏽", "e\u{301}", "\u{FEFF}", "\u{FFFD}", "\u{200B}", "\u{AD}", "\u{10FFFF}",
        ]),
        1 => chosen(&["▁", "<|endoftext|>", "<s>", "[UNK]", "[SEP]", "##ing", "<0x41>", "Ġthe", "ﬁ", "ǆ", "İ", "ß", "Å"]),
    ]
}

/// Parts in a row, seldom one of them many times.
fn text() -> impl Strategy<Value = String> {
    let times = prop_oneof![12 => Just(1usize), 1 => 2usize..40, 1 => 200usize..400];
    let part = (part(), times).prop_map(|(part, times)| part.repeat(times));
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

/// The vocabularies that are there, by name.
fn vocabularies() -> BTreeMap<String, PathBuf> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let folders = [std::env::var_os("QUANTSMITH_VOCABS").map(PathBuf::from), Some(models)];
    if folders[0].is_none() {
        eprintln!("not run: the reference vocabularies, since QUANTSMITH_VOCABS is not set");
    }
    let files = folders.into_iter().flatten().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = files.map(|file| file.expect("a file").path());
    let models = paths.filter(|path| path.extension().is_some_and(|end| end == "gguf"));
    models.map(|path| (path.file_stem().expect("a name").display().to_string(), path)).collect()
}

/// The vocabularies of one kind of tokenizer.
fn of_kind(kind: &str) -> impl Iterator<Item = (String, Metadata)> {
    vocabularies().into_iter().filter_map(move |(name, path)| {
        let file = ModelFile::open(&path, &Registry::builtin()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let metadata = file.metadata();
        (metadata.str("tokenizer.ggml.model") == Some(kind)).then(|| (name, metadata.clone()))
    })
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, EncodeOptions::default()).expect("ids")
}

/// Compares all vocabularies of a kind on random texts. Of the reference ones, at least so many have it.
fn compare(kind: &str, least: usize) {
    let mut compared = 0;
    for (name, metadata) in of_kind(kind) {
        let ours = Tokenizer::from_metadata(&metadata).unwrap_or_else(|e| panic!("{name}: {e}"));
        let peer = match Peer::new(&metadata) {
            Ok(peer) => peer,
            Err(why) => {
                eprintln!("not run: {name}: {why}");
                continue;
            }
        };
        for difference in peer.differences {
            let Difference { why, concerns, example } = difference;
            assert!(example.chars().any(concerns), "{why}: {example:?} does not show it");
            assert_ne!(encode(&ours, example), peer.encode(example), "{name}: no longer so: {why}");
        }
        let agreed = |text: String| {
            let kept = |c: &char| !peer.differences.iter().any(|difference| (difference.concerns)(*c));
            let text: String = text.chars().filter(kept).collect();
            let (found, expected) = (encode(&ours, &text), peer.encode(&text));
            let spelled = |ids: &[u32]| -> Vec<String> {
                ids.iter().map(|&id| String::from_utf8_lossy(ours.token_text(id)).into_owned()).collect()
            };
            prop_assert_eq!(&found, &expected, "{:?} is {:?} here", text, spelled(&found));
            Ok(())
        };
        let config = Config { cases: TEXTS, failure_persistence: None, ..Config::default() };
        let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        TestRunner::new_with_rng(config, random)
            .run(&text(), agreed)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        eprintln!("equal ids: {name}, {TEXTS} texts");
        compared += 1;
    }
    if std::env::var_os("QUANTSMITH_VOCABS").is_some() {
        assert!(compared >= least, "{kind}: only {compared} of at least {least} vocabularies were compared");
    }
}

#[test]
fn byte_level_merges_agree() {
    compare("gpt2", 13);
}

#[test]
fn merges_of_characters_agree() {
    compare("gemma4", 1);
}

#[test]
fn merges_by_score_agree() {
    compare("llama", 3);
}

#[test]
fn longest_entries_agree() {
    compare("bert", 1);
}

#[test]
fn best_sums_agree() {
    compare("t5", 1);
}
