//! One answer: the same logits, to the bit, on every tier, for every number of threads and every batch size, with
//! weights packed or not.

use std::fs;

use quantsmith_kernels::cpu;
use quantsmith_tests::{RealModel, data, quantsmith};

const PROMPT: &str = "Once upon a time, in a small village by the sea, there lived a fisherman";

fn fingerprint(model: RealModel, flags: &str) -> String {
    let json = quantsmith!("fingerprint", "-m", model.path(), "-p", PROMPT, "--json").args(flags).json();
    json["sha256"].as_str().expect("a hash").to_owned()
}

/// All ways to compute must give the hash that the repository holds, so that machines that never meet agree, too.
///
/// After a deliberate change of the arithmetic, `QUANTSMITH_BLESS=1` writes the hash of the scalar tier down.
fn all_ways_agree(model: RealModel) {
    let path = data(&format!("fingerprints/{}.txt", model.name()));
    if std::env::var_os("QUANTSMITH_BLESS").is_some() {
        let hash = fingerprint(model, "--isa scalar");
        fs::write(&path, format!("{hash}\n")).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let expected = expected.trim();
    let best = cpu::supported().last().map_or("scalar", |tier| tier.tier().name());
    let mut ways: Vec<String> = Vec::new();
    for tier in cpu::supported() {
        let tier = tier.tier().name();
        ways.push(format!("--isa {tier}"));
        ways.push(format!("--isa {tier} -t 3 -ub 5 --no-repack"));
    }
    for threads in [1, 2, 3] {
        for batch in [1, 5, 512] {
            ways.push(format!("--isa {best} -t {threads} -ub {batch}"));
        }
    }
    for way in ways {
        assert_eq!(fingerprint(model, &way), expected, "{}: {way}", model.name());
    }
}

#[test]
fn smollm2_has_one_fingerprint() {
    all_ways_agree(RealModel::SmolLm2);
}

#[test]
fn gemma3_has_one_fingerprint() {
    all_ways_agree(RealModel::Gemma3);
}

#[test]
fn another_prompt_has_another_fingerprint() {
    let other = quantsmith!("fingerprint", "-m", RealModel::SmolLm2.path(), "-p", "Once upon a time").run();
    assert_eq!(other.stdout.trim().len(), 64);
    assert_ne!(other.stdout.trim(), fingerprint(RealModel::SmolLm2, ""));
}
