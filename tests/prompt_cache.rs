//! What is kept between runs and in which type: `--prompt-cache`, `-ctk` and `-ctv`.

use std::path::PathBuf;

use quantsmith_tests::{Quantsmith, RealModel, quantsmith, tiny_llama};

struct Tiny {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama().bytes()).expect("the file is written");
    Tiny { folder, path }
}

impl Tiny {
    fn run(&self, prompt: &str, flags: &str) -> Quantsmith {
        let run = quantsmith!("run", "-m", &self.path, "-p", prompt).folder(self.folder.path());
        run.args("-n 6 --temp 0 --ignore-eos --repeat-penalty 1.3").args(flags)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).expect("it is there")
    }
}

/// How many tokens of the prompt were evaluated.
fn evaluated(stderr: &str) -> usize {
    let line = stderr.lines().find(|line| line.starts_with("prompt eval time")).expect("the speed is told");
    let count = line.split('/').nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_kept_prompt_is_not_evaluated_again_and_changes_nothing() {
    let tiny = tiny();
    let (first, second) = ("abcdefghijkl", "abcdefghijxy");
    let expected = tiny.run(first, "").run().stdout;
    let made = tiny.run(first, "--prompt-cache kept").run();
    assert_eq!((made.stdout.as_str(), evaluated(&made.stderr)), (expected.as_str(), 14), "{}", made.stderr);
    let kept = tiny.bytes("kept");
    let again = tiny.run(first, "--prompt-cache kept --prompt-cache-ro").run();
    assert_eq!((again.stdout.as_str(), evaluated(&again.stderr)), (expected.as_str(), 1), "{}", again.stderr);
    assert!(again.stderr.contains("14 tokens from kept"), "{}", again.stderr);
    // Another end, on another instruction set.
    let expected = tiny.run(second, "").run().stdout;
    let other = tiny.run(second, "--prompt-cache kept --prompt-cache-ro --isa scalar").run();
    assert_eq!((other.stdout.as_str(), evaluated(&other.stderr)), (expected.as_str(), 2), "{}", other.stderr);
    assert_eq!(tiny.bytes("kept"), kept, "it was only read");
    tiny.run(second, "--prompt-cache kept").run();
    assert_ne!(tiny.bytes("kept"), kept, "it was replaced");
    // With the answer, the file is longer.
    let before = tiny.bytes("kept").len();
    tiny.run(second, "--prompt-cache kept --prompt-cache-all").run();
    assert!(tiny.bytes("kept").len() > before);
    assert!(!tiny.folder.path().join("kept.part").exists());
}

#[test]
fn what_was_kept_for_something_else_is_refused() {
    let tiny = tiny();
    let run = |flags: &str| tiny.run("abc", flags).run();
    assert!(run("--prompt-cache none --prompt-cache-ro").error(1).contains("none: "));
    assert!(run("--prompt-cache-all").error(2).contains("--prompt-cache <FILE>"));
    assert_eq!(run("--prompt-cache kept").code, 0);
    let kept = tiny.bytes("kept");
    assert!(
        run("--prompt-cache kept -ctk f32").error(1).contains("found a cache of f16 keys and f16 values")
    );
    let other = tiny.folder.path().join("other.gguf");
    std::fs::write(&other, tiny_llama().text("general.author", "somebody else").bytes())
        .expect("the file is written");
    let refused = quantsmith!("run", "-m", &other, "-p", "abc").folder(tiny.folder.path());
    assert!(refused.args("--prompt-cache kept").run().error(1).contains("the context of another model"));
    assert_eq!(tiny.bytes("kept"), kept, "what was refused is left alone");
    std::fs::write(tiny.folder.path().join("kept"), &kept[..kept.len() - 1]).expect("the file is written");
    assert!(run("--prompt-cache kept").error(1).contains("--prompt-cache: kept: "));
    std::fs::write(tiny.folder.path().join("kept"), "not a cache").expect("the file is written");
    assert!(run("--prompt-cache kept").error(1).contains("\"QSMSTATE\""));
    assert!(run("--prompt-cache /nowhere/kept").error(1).contains("/nowhere/kept: "));
}

#[test]
fn every_type_of_the_cache_gives_the_same_bits_everywhere() {
    let fingerprint = |flags: &str| {
        let run = quantsmith!("fingerprint", "-m", RealModel::SmolLm2.path());
        run.args("-p Once_upon_a_time_there_was").args(flags).run().stdout
    };
    let types = ["f16", "f32", "q8_0", "q4_0"];
    let prints = types.map(|ty| fingerprint(&format!("-ctk {ty} -ctv {ty}")));
    for (at, print) in prints.iter().enumerate() {
        assert_eq!(print.trim().len(), 64);
        assert!(!prints[..at].contains(print), "{} differs from the others", types[at]);
    }
    assert_eq!(fingerprint("-ctk Q8_0 -ctv q8_0 --isa scalar -t 1 -ub 3"), prints[2]);
    assert_ne!(fingerprint("-ctk q8_0"), prints[2]);
}

#[test]
fn a_smaller_cache_costs_little() {
    let ppl = |flags: &str| {
        let run = quantsmith!("perplexity", "-m", RealModel::SmolLm2.path());
        let run = run.arg("-f").arg(quantsmith_tests::data("texts/alice.txt"));
        let json = run.args("--chunks 2 -c 256 --json").args(flags).json();
        json["perplexity"].as_f64().expect("a number")
    };
    let whole = ppl("-ctk f32 -ctv f32");
    for (flags, bound) in [("", 0.02), ("-ctk q8_0 -ctv q8_0", 0.02), ("-ctk q8_0 -ctv q4_0", 0.1)] {
        let found = ppl(flags);
        assert!((found / whole - 1.0).abs() < bound, "{flags}: {found} instead of {whole}");
    }
}
