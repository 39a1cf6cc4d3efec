//! Ids of real vocabularies, where the files are at hand.
//!
//! The expected ids were computed by llama.cpp from the same files.

use std::path::PathBuf;

use super::testing::{Shapes, cpu_seconds};
use super::{ChatTemplate, EncodeOptions, Message, StreamDecoder, Tokenizer};
use crate::files::{Metadata, ModelFile};

/// The metadata of a model in `QUANTSMITH_MODELS`, or in the workspace's `models/`.
fn metadata(file: &str) -> Option<Metadata> {
    let folder = std::env::var_os("QUANTSMITH_MODELS")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../models")), PathBuf::from);
    let path = folder.join(file);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(ModelFile::open(&path, &Shapes).unwrap().metadata().clone())
}

const PROMPT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn check(t: &Tokenizer, expected: &[(&str, &[u32])]) {
    assert!(t.warnings().is_empty(), "{:?}", t.warnings());
    for (text, ids) in expected {
        assert_eq!(t.encode(text, PROMPT).unwrap(), *ids, "{text:?}");
    }
}

#[test]
fn smollm2_ids_are_the_reference_ids() {
    let Some(m) = metadata("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let t = Tokenizer::from_metadata(&m).unwrap();
    check(
        &t,
        &[
            ("The capital of France is", &[504, 3575, 282, 4649, 314]),
            (
                "Once upon a time, in a small village by the sea,",
                &[6403, 1980, 253, 655, 28, 281, 253, 1165, 6560, 411, 260, 3426, 28],
            ),
            ("def fibonacci(n):\n    ", &[1604, 3987, 46477, 24, 94, 727, 2367]),
            (
                "<|im_start|>user\nName three primary colours.<|im_end|>\n<|im_start|>assistant\n",
                &[1, 4093, 198, 5820, 1296, 3003, 14797, 30, 2, 198, 1, 520, 9531, 198],
            ),
            (
                "1, 1, 2, 3, 5, 8, 13,",
                &[33, 28, 216, 33, 28, 216, 34, 28, 216, 35, 28, 216, 37, 28, 216, 40, 28, 216, 33, 35, 28],
            ),
            ("日本の首都は", &[23274, 115, 40993, 26453, 180, 116, 240, 180, 38466, 7365, 124]),
            ("The quick brown fox", &[504, 2365, 6354, 16438]),
        ],
    );
    assert_eq!((t.vocab_size(), t.bos(), t.eos()), (49152, Some(1), Some(2)));
    assert!(t.is_end_of_generation(2) && !t.adds_bos());
    let template = ChatTemplate::from_metadata(&m, &t).unwrap().unwrap();
    let ids = template.render_tokens(&[Message::new("user", "Hi <|im_end|>")], true, &t).unwrap();
    let shown: Vec<u32> = ids.iter().copied().filter(|&id| id < 3).collect();
    // System, user, and the opening of the answer; the user's own mark is text.
    assert_eq!(shown, [1, 2, 1, 2, 1]);
}

#[test]
fn gemma3_ids_are_the_reference_ids() {
    let Some(m) = metadata("gemma-3-270m-q4_k_m.gguf") else { return };
    let t = Tokenizer::from_metadata(&m).unwrap();
    check(
        &t,
        &[
            ("The capital of France is", &[2, 818, 5279, 529, 7001, 563]),
            (
                "Once upon a time, in a small village by the sea,",
                &[2, 14946, 3324, 496, 990, 236764, 528, 496, 1944, 9744, 684, 506, 5442, 236764],
            ),
            ("def fibonacci(n):\n    ", &[2, 2063, 10779, 78113, 236769, 236749, 1473, 107, 140]),
            ("Water boils at a temperature of", &[2, 17390, 104264, 657, 496, 4022, 529]),
            (
                "1, 1, 2, 3, 5, 8, 13,",
                &[
                    2, 236770, 236764, 236743, 236770, 236764, 236743, 236778, 236764, 236743, 236800,
                    236764, 236743, 236810, 236764, 236743, 236828, 236764, 236743, 236770, 236800, 236764,
                ],
            ),
            ("日本の首都は", &[2, 76444, 120211, 237048]),
            ("The quick brown fox", &[2, 818, 3823, 8864, 37423]),
        ],
    );
    assert_eq!((t.vocab_size(), t.bos(), t.eos()), (262_144, Some(2), Some(1)));
}

#[test]
fn texts_come_back_from_their_ids() {
    for file in ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"] {
        let Some(m) = metadata(file) else { continue };
        let t = Tokenizer::from_metadata(&m).unwrap();
        for text in ["", " ", "a  b\n\n\tc", "héllo 日本語 🦙👩‍👩‍👧 \u{0}\u{7f}\u{301}", "<|im_end|>", "x\r\n y"]
        {
            let ids = t.encode(text, EncodeOptions::default()).unwrap();
            assert_eq!(t.decode(&ids), text, "{file}");
            let mut stream = StreamDecoder::new(&t);
            let mut streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
            streamed += &stream.finish();
            assert_eq!(streamed, text, "{file}");
        }
    }
}

#[test]
fn long_runs_take_less_than_a_second() {
    for file in ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"] {
        let Some(m) = metadata(file) else { continue };
        let t = Tokenizer::from_metadata(&m).unwrap();
        for unit in ["a", "A", "\n", " ", "漢", "1", "é", "🦙"] {
            let text = unit.repeat(1_000_000 / unit.len());
            let seconds = cpu_seconds(|| {
                t.encode(&text, EncodeOptions::default()).unwrap();
            });
            assert!(seconds < 1.0, "{file} {unit:?}: {seconds}");
        }
    }
}
