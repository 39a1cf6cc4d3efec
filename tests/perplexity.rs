//! `perplexity`: its figures, its base file, and what it refuses.

use std::path::PathBuf;

use quantsmith_tests::{Quantsmith, RealModel, data, quantsmith, tiny_llama};

struct Tiny {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama().bytes()).expect("the file is written");
    std::fs::write(folder.path().join("text"), "the quick brown fox jumps over a lazy dog ".repeat(9))
        .expect("the file is written");
    Tiny { folder, path }
}

impl Tiny {
    fn run(&self, flags: &str) -> Quantsmith {
        quantsmith!("perplexity", "-m", &self.path).folder(self.folder.path()).args(flags)
    }
}

fn number(json: &serde_json::Value, name: &str) -> f64 {
    json[name].as_f64().unwrap_or_else(|| panic!("{name} in {json}"))
}

#[test]
fn a_chunk_is_what_its_logits_say() {
    let tiny = tiny();
    let json = tiny.run("-f text -c 32 --json").json();
    let count = json["chunks"].as_array().map_or(0, Vec::len);
    assert!(count >= 10, "{json}");
    assert_eq!(number(&json, "tokens"), 15.0 * count as f64);
    // The first chunk once more, from the log-probabilities of all tokens.
    let text = std::fs::read_to_string(tiny.folder.path().join("text")).expect("it is there");
    let ids = quantsmith!("tokenize", "-m", &tiny.path, "-p", &text, "--json").json();
    let first: String = text.chars().take(31).collect();
    let part = quantsmith!("logits", "-m", &tiny.path, "-p", &first, "--top", "286", "--json").json();
    let mut cost = 0.0;
    for at in 16..31 {
        let (position, next) = (&part["positions"][at], &ids["ids"][at + 1]);
        let rank = position["ids"].as_array().and_then(|ids| ids.iter().position(|id| id == next));
        cost -= position["logp"][rank.expect("the whole vocabulary")].as_f64().expect("a number") / 15.0;
    }
    let ppl = json["chunks"][0].as_f64().expect("a number");
    assert!((ppl - cost.exp()).abs() < 1e-3 * ppl, "{ppl} is not {}", cost.exp());
}

#[test]
fn figures_come_as_llama_cpp_prints_them() {
    let tiny = tiny();
    let ended = tiny.run("-f text -c 32 --chunks 3").run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("[1]") && ended.stdout.contains(",[3]"), "{}", ended.stdout);
    let last = ended.stdout.lines().last().expect("a line");
    assert!(last.starts_with("Final estimate: PPL = ") && last.contains(" +/- "), "{last}");
    let table = tiny.run("-f text -c 32 --chunks 3 --ppl-output-type 1").run();
    assert_eq!(table.stdout.lines().filter(|l| l.split_whitespace().count() == 4).count(), 3);
    let strided = tiny.run("-f text -c 32 --ppl-stride 8 --chunks 5 --json").json();
    assert_eq!(number(&strided, "tokens"), 40.0);
}

#[test]
fn a_model_does_not_diverge_from_itself_and_does_from_another() {
    let tiny = tiny();
    let written = tiny.run("-f text -c 32 --chunks 4 --kl-divergence-base base --json").json();
    let same = tiny.run("--kl-divergence --kl-divergence-base base --json").json();
    assert_eq!(number(&same, "tokens"), 60.0);
    assert!(same["kld"]["value"].as_f64().is_some_and(|kld| kld.abs() < 1e-5), "{same}");
    assert_eq!(same["same_top"]["value"], 1.0);
    let ppl = same["ppl"]["value"].as_f64().expect("a number");
    assert!((ppl - number(&written, "perplexity")).abs() < 1e-9 * ppl);
    let text = tiny.run("--kl-divergence --kl-divergence-base base --chunks 2 -c 16").run();
    let warning = "warning: -c 16 is ignored: the base file has chunks of 32 tokens";
    assert!(text.stderr.contains(warning), "{}", text.stderr);
    for line in ["Mean PPL(base)", "Median  KLD", "99.9%   Δp", "RMS Δp", "Same top p"] {
        assert!(text.stdout.contains(line), "{line} is not in {}", text.stdout);
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let tiny = tiny();
    let cases = [
        ("-c 32", 2, "no prompt"),
        ("-f text -c 3", 2, "-c: found a chunk of 3"),
        ("-f text -c 512", 1, "twice as many"),
        ("-f text -c 32 --ppl-stride 64", 1, "smaller --ppl-stride"),
        ("-f text --chunks -2", 2, "--chunks"),
        ("--kl-divergence", 2, "--kl-divergence-base"),
        ("--kl-divergence --kl-divergence-base text", 1, "text: found \"the quic\""),
        ("--kl-divergence --kl-divergence-base nowhere", 1, "nowhere: "),
    ];
    for (flags, code, word) in cases {
        let ended = tiny.run(flags).run();
        assert!(ended.error(code).contains(word), "{word:?} is not in {}", ended.stderr);
    }
}

/// llama.cpp's figures for this text, these models and 4 chunks of 512 tokens; a model may be as far from them as the
/// estimate itself is from the truth.
#[test]
fn real_models_predict_as_well_as_elsewhere() {
    for (model, expected) in [(RealModel::SmolLm2, SMOLLM2), (RealModel::Gemma3, GEMMA3)] {
        let run = quantsmith!("perplexity", "-m", model.path(), "-f", data("texts/alice.txt"));
        let json = run.args("--chunks 4 --json").json();
        let (ppl, error) = (number(&json, "perplexity"), number(&json, "error"));
        assert!((ppl - expected).abs() < error, "{}: {ppl} +/- {error}, elsewhere {expected}", model.name());
    }
}

const SMOLLM2: f64 = 20.4650;
const GEMMA3: f64 = 18.2966;
