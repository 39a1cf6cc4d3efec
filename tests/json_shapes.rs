//! The JSON of every command: the keys and kinds that programs rely on.

use std::path::PathBuf;

use quantsmith_kernels::Tier;
use quantsmith_tests::{quantsmith, tiny_llama};
use serde_json::Value;

struct Tiny {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama().bytes()).expect("the file is written");
    Tiny { _folder: folder, path }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("an id")).collect()
}

#[test]
fn run_gives_tokens_text_and_timings() {
    let tiny = tiny();
    let run =
        quantsmith!("run", "-m", &tiny.path, "-p", "abc", "--json").args("-n 5 --temp 0 --ignore-eos -t 1");
    let json = run.json();
    assert_eq!(keys(&json), ["prompt_tokens", "tokens", "text", "timings", "isa", "threads"]);
    // BOS, the blank in front, three letters.
    assert_eq!(ids(&json["prompt_tokens"]), [1, 259, 260, 261, 262]);
    assert_eq!(ids(&json["tokens"]).len(), 5);
    assert!(json["text"].is_string());
    assert_eq!(keys(&json["timings"]), ["load_ms", "prompt_per_second", "predicted_per_second"]);
    for speed in ["prompt_per_second", "predicted_per_second"] {
        assert!(json["timings"][speed].as_f64().is_some_and(|s| s > 0.0), "{speed}");
    }
    assert_eq!(json["threads"], 1);
}

#[test]
fn a_profile_tells_where_the_time_of_both_phases_went() {
    let tiny = tiny();
    let run = |flags: &str| {
        quantsmith!("run", "-m", &tiny.path, "-p", "abc").args("-n 9 --temp 0 --ignore-eos -t 2").args(flags)
    };
    let profile = &run("--json --profile").json()["profile"];
    assert_eq!(keys(profile), ["prompt", "generation"]);
    assert_eq!(
        (profile["prompt"]["tokens"].as_u64(), profile["generation"]["tokens"].as_u64()),
        (Some(5), Some(8))
    );
    for phase in ["prompt", "generation"] {
        let steps = profile[phase]["steps"].as_array().expect("a list");
        let sum = |key: &str| steps.iter().map(|step| step[key].as_f64().expect("a number")).sum::<f64>();
        let ms = profile[phase]["ms"].as_f64().expect("a number");
        // What is no step is called so, hence nothing is missing.
        assert!((sum("ms") - ms).abs() < 0.01 * ms + 1e-6, "{phase}: {} of {ms}", sum("ms"));
        assert!((sum("share") - 1.0).abs() < 0.01, "{phase}");
        let of = |kind: &str| steps.iter().filter(|step| step["kind"] == kind).cloned().collect::<Vec<_>>();
        // Two layers; one pass over the prompt, eight of one token.
        let passes = if phase == "prompt" { 1 } else { 8 };
        let attends: u64 = of("attend").iter().filter_map(|step| step["calls"].as_u64()).sum();
        assert_eq!(attends, 2 * passes, "{phase}");
        for product in of("product") {
            assert_eq!(product["formats"], "F32");
            assert!(product["gb_per_s"].as_f64().is_some_and(|speed| speed > 0.0));
            assert!(product["waiting"].as_f64().is_some_and(|part| (0.0..=1.0).contains(&part)));
        }
        assert_eq!(of("other").len(), 1);
    }
    let draws =
        profile["generation"]["steps"].as_array().and_then(|s| s.iter().find(|s| s["kind"] == "sampling"));
    assert_eq!(draws.and_then(|step| step["calls"].as_u64()), Some(9));

    let (plain, shown) = (run("").run(), run("-v --profile").run());
    assert_eq!(shown.stdout, plain.stdout, "the same text, and the tables elsewhere");
    for part in
        ["prompt: 5 tokens, ", "generation: 8 tokens, ", "GB/s", "waiting", "attend", "sampling", "other"]
    {
        assert!(shown.stderr.contains(part), "{part} is not in {}", shown.stderr);
    }
    assert!(!plain.stderr.contains("waiting"));
    assert!(run("--json").json().get("profile").is_none());
    let nothing = quantsmith!("run", "-m", &tiny.path, "-p", "abc").args("-n 0 --profile").run();
    assert!(
        nothing.stderr.contains("prompt: 5 tokens") && !nothing.stderr.contains("generation:"),
        "{nothing:?}"
    );
}

#[test]
fn run_with_no_tokens_gives_an_empty_text() {
    let tiny = tiny();
    let json = quantsmith!("run", "-m", &tiny.path, "-p", "abc", "--json").args("-n 0").json();
    assert_eq!((ids(&json["tokens"]), json["text"].as_str()), (vec![], Some("")));
    assert_eq!(json["timings"]["predicted_per_second"], 0.0);
}

#[test]
fn logits_gives_positions_with_ids_logarithms_and_the_rest() {
    let tiny = tiny();
    let json = quantsmith!("logits", "-m", &tiny.path, "-p", "abc", "--json", "--top", "4").json();
    assert_eq!(keys(&json), ["tokens", "positions"]);
    let positions = json["positions"].as_array().expect("a list");
    assert_eq!(positions.len(), ids(&json["tokens"]).len());
    for position in positions {
        assert_eq!(keys(position), ["ids", "logp", "rest"]);
        let logp: Vec<f64> =
            position["logp"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        assert_eq!((ids(&position["ids"]).len(), logp.len()), (4, 4));
        assert!(logp.is_sorted_by(|a, b| a >= b), "{logp:?}");
        let mass: f64 = logp.iter().map(|l| l.exp()).sum();
        assert!((mass + position["rest"].as_f64().expect("a number") - 1.0).abs() < 1e-9);
    }
}

#[test]
fn logits_of_the_whole_vocabulary_leave_no_rest() {
    let tiny = tiny();
    let vocabulary = 286;
    let json =
        quantsmith!("logits", "-m", &tiny.path, "-p", "abc", "--json", "--top", vocabulary.to_string())
            .json();
    let position = &json["positions"][0];
    let mut all = ids(&position["ids"]);
    all.sort_unstable();
    assert_eq!(all, (0..vocabulary).collect::<Vec<u64>>());
    assert_eq!(position["rest"], 0.0);
    let too_many = quantsmith!("logits", "-m", &tiny.path, "-p", "abc", "--json", "--top", "287").run();
    assert!(too_many.error(2).contains("0 to 286"));
}

#[test]
fn tokenize_gives_ids_and_pieces() {
    let tiny = tiny();
    let json = quantsmith!("tokenize", "-m", &tiny.path, "-p", "a</s>é", "--json").json();
    assert_eq!(keys(&json), ["ids", "pieces"]);
    let e = 3 + 0xC3;
    assert_eq!(ids(&json["ids"])[..4], [1, 259, 260, 2]);
    assert!(ids(&json["ids"]).contains(&e));
    assert_eq!(json["pieces"][0], "<s>");
    assert_eq!(json["pieces"][2], "a");
    let plain =
        quantsmith!("tokenize", "-m", &tiny.path, "-p", "a</s>", "--json", "--no-bos", "--no-parse-special");
    let plain = ids(&plain.json()["ids"]);
    assert!(!plain.contains(&1) && !plain.contains(&2), "{plain:?}");
}

#[test]
fn tokenize_turns_ids_into_text() {
    let tiny = tiny();
    let json = quantsmith!("tokenize", "-m", &tiny.path, "--decode", "260,198,172", "--json").json();
    assert_eq!((ids(&json["ids"]), json["text"].as_str()), (vec![260, 198, 172], Some("aé")));
    assert!(quantsmith!("tokenize", "-m", &tiny.path, "--decode", "286").run().error(2).contains("0 to 285"));
}

#[test]
fn fingerprint_gives_a_hash_the_tier_and_the_threads() {
    let tiny = tiny();
    let json =
        quantsmith!("fingerprint", "-m", &tiny.path, "-p", "abc", "--json").args("-t 2 --isa scalar").json();
    assert_eq!(keys(&json), ["sha256", "isa", "threads"]);
    let hash = json["sha256"].as_str().expect("text");
    assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
    assert_eq!((json["isa"].as_str(), json["threads"].as_u64()), (Some("scalar"), Some(2)));
}

#[test]
fn cpu_gives_features_tiers_and_threads() {
    let json = quantsmith!("cpu", "--json").json();
    assert_eq!(keys(&json), ["features", "available", "chosen", "threads"]);
    let available = json["available"].as_array().expect("a list");
    assert_eq!(available.first(), Some(&Value::from("scalar")));
    assert_eq!(available.last(), Some(&json["chosen"]), "the best is chosen");
    assert!(json["threads"].as_u64().is_some_and(|n| n > 0));
    let lowered = quantsmith!("cpu", "--json", "--isa", "scalar", "-t", "7").json();
    assert_eq!((lowered["chosen"].as_str(), lowered["threads"].as_u64()), (Some("scalar"), Some(7)));
}

#[test]
fn formats_gives_sizes_and_tiers() {
    let json = quantsmith!("formats", "--json").json();
    let formats = json.as_array().expect("a list");
    let q4_k = formats.iter().find(|f| f["name"] == "Q4_K").expect("Q4_K is there");
    assert_eq!(keys(q4_k), ["name", "id", "block", "bytes", "bpw", "tiers"]);
    let numbers = ["id", "block", "bytes"].map(|key| q4_k[key].as_u64());
    assert_eq!((numbers, q4_k["bpw"].as_f64()), ([Some(12), Some(256), Some(144)], Some(4.5)));
    let here = Tier::ALL.iter().filter(|tier| tier.arch().is_none_or(|arch| arch == std::env::consts::ARCH));
    for tier in here {
        for format in formats {
            assert!(
                format["tiers"][tier.name()].is_object(),
                "{} has no kernels for {}",
                format["name"],
                tier.name()
            );
        }
    }
}

#[test]
fn inspect_gives_all_that_is_in_the_file() {
    let tiny = tiny();
    let json = quantsmith!("inspect", &tiny.path, "--json").json();
    assert_eq!((json["container"].as_str(), json["version"].as_u64()), (Some("GGUF"), Some(3)));
    assert_eq!(
        json["metadata"]["general.architecture"],
        serde_json::json!({ "type": "str", "value": "llama" })
    );
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["value"].as_array().map(Vec::len), Some(286));
    let size = std::fs::metadata(&tiny.path).expect("the file is there").len();
    assert_eq!(json["file_size"].as_u64(), Some(size));
    let tensors = json["tensors"].as_array().expect("a list");
    assert_eq!(tensors[0]["name"], "token_embd.weight");
    assert_eq!(tensors[0]["dims"], serde_json::json!([64, 286]));
    assert_eq!(tensors[0]["bytes"], 4 * 64 * 286);
    let share: f64 = tensors.iter().filter_map(|t| t["share"].as_f64()).sum();
    assert!((share - 1.0).abs() < 1e-9);
    assert_eq!(json["types"][0]["type"], "F32");
    assert_eq!(json["totals"]["tensors"].as_u64(), Some(tensors.len() as u64));
}

#[test]
fn plan_gives_nodes_values_tensors_and_memory() {
    let tiny = tiny();
    let json = quantsmith!("plan", "-m", &tiny.path, "--json").json();
    for pass in ["decode", "batch"] {
        let nodes = json[pass]["nodes"].as_array().expect("a list");
        assert!(nodes.iter().any(|n| n["kind"] == "attend"), "{pass}");
        let values = json[pass]["values"].as_array().expect("a list");
        assert!(
            values.iter().all(|v| v["first"].as_u64() <= v["last"].as_u64() && v["bytes"].as_u64() > Some(0))
        );
    }
    let tensors = json["tensors"].as_array().expect("a list");
    for key in ["name", "format", "kernel", "tier", "reason"] {
        assert!(tensors.iter().all(|t| t[key].as_str().is_some_and(|text| !text.is_empty())), "{key}");
    }
    for size in ["arena_bytes", "kv_bytes", "weight_bytes", "total_bytes"] {
        assert!(json[size].as_u64().is_some_and(|n| n > 0), "{size}");
    }
}
