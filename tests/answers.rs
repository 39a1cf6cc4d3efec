//! What an answer may be made to look like: samplers, forms, stop texts, templates and probabilities.

use std::path::PathBuf;

use quantsmith_tests::{Quantsmith, RealModel, quantsmith, tiny_llama};
use serde_json::Value;

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
    fn run(&self) -> Quantsmith {
        quantsmith!("run", "-m", &self.path, "-p", "abc")
    }

    fn text(&self, flags: &str) -> String {
        text(&self.run().args(flags).arg("--json").json())
    }
}

fn text(json: &Value) -> String {
    json["text"].as_str().expect("text").to_owned()
}

#[test]
fn wrong_values_end_with_two_and_name_the_flag() {
    let tiny = tiny();
    let cases = [
        ("--samplers top_k;topk", "--samplers"),
        ("--sampler-seq kq", "--sampler-seq"),
        ("--samplers top_k --sampler-seq k", "--sampler-seq"),
        ("--mirostat 3", "--mirostat"),
        ("--typical -1", "--typical"),
        ("--xtc-probability 2", "--xtc-probability"),
        ("--dry-multiplier nan", "--dry-multiplier"),
        ("-l 5", "15043+1"),
        ("-l 286+1", "--logit-bias"),
        ("-j {", "--json-schema: not JSON"),
        ("--json-schema {\"type\":\"nothing\"}", "--json-schema"),
        ("--regex (", "--regex"),
        ("--grammar root", "--grammar"),
        ("--grammar a --regex b", "--regex"),
        ("--chat-template nobody", "chatml"),
        ("--chat-template {%", "--chat-template"),
        ("--chat-template chatml -no-cnv", "--no-conversation"),
        ("--logprobs 2", "--json"),
        ("-r \\xff", "--reverse-prompt"),
    ];
    for (flags, word) in cases {
        let ended = tiny.run().args("-n 1").args(flags).run();
        let error = ended.error(2);
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn samplers_change_what_is_drawn() {
    let tiny = tiny();
    let text = |flags: &str| tiny.text(&format!("-n 30 --ignore-eos -s 5 {flags}"));
    let usual = text("");
    let greedy = text("--temp 0");
    assert_ne!(usual, greedy);
    // Settings that leave one token are greedy whatever the temperature, and only where the sampler is used.
    assert_eq!(text("--samplers top_k --top-k 1"), greedy);
    assert_eq!(text("--sampler-seq k --top-k 1"), greedy);
    assert_eq!(text("--top-nsigma 0.0001"), greedy);
    assert_ne!(text("--samplers temperature --top-k 1"), greedy);
    assert_eq!(text("-l 285+1000 --temp 0"), "z".repeat(30));
    assert!(!text("-l 285-inf").contains('z'));
    for flags in
        ["--mirostat 1", "--mirostat 2 --mirostat-ent 1", "--temp 1 --dynatemp-range 0.9 --top-k 0 --top-p 1"]
    {
        assert_ne!(text(flags), usual, "{flags}");
        assert_eq!(text(flags), text(flags), "{flags}");
    }
    // A bias that makes one letter certain, and a penalty on repeating it.
    assert_ne!(text("-l 285+20 --temp 0 --dry-multiplier 5"), "z".repeat(30));
    assert_eq!(
        text("-l 285+20 --temp 0 --dry-multiplier 5 --dry-sequence-breaker z"),
        text("-l 285+20 --temp 0")
    );
}

#[test]
fn answers_take_the_form_that_was_asked_for() {
    let tiny = tiny();
    for seed in 0..5 {
        let text = |flags: &str| tiny.text(&format!("-n 40 --temp 1 -s {seed} {flags}"));
        let letters = text("--regex [a-c]{3,5}");
        assert!((3..=5).contains(&letters.len()) && letters.chars().all(|c| "abc".contains(c)), "{letters}");
        assert!(["true", "false"].contains(&text("-j {\"type\":\"boolean\"}").as_str()));
        assert_eq!(text("--regex abc --ignore-eos"), "abc");
    }
    let file = |name: &str, content: &str| {
        let path = tiny.folder.path().join(name);
        std::fs::write(&path, content).expect("the file is written");
        path
    };
    let run = |flag: &str, path: &PathBuf| tiny.run().arg(flag).arg(path).args("--json -n 9");
    let grammar = file("g.gbnf", "root ::= \"ab\" [x-z]\n");
    let answer = text(&run("--grammar-file", &grammar).json());
    assert!(answer.len() == 3 && answer.starts_with("ab"), "{answer}");
    let schema = file("s.json", "{\"const\": 12}");
    assert_eq!(text(&run("-jf", &schema).json()), "12");
    let bad = file("bad.gbnf", "root ::= (\n");
    assert!(run("--grammar-file", &bad).run().error(1).contains("bad.gbnf"));
}

#[test]
fn a_stop_text_ends_the_answer_across_tokens() {
    let tiny = tiny();
    let flags = "-n 30 --temp 1 -s 3 --regex [a-z]{20}";
    let whole = tiny.text(flags);
    assert_eq!(whole.len(), 20, "{whole}");
    let stop = &whole[7..10];
    let at = whole.find(stop).expect("a part of it");
    assert_eq!(tiny.text(&format!("{flags} -r {stop}")), whole[..at]);
    assert_eq!(tiny.text(&format!("{flags} -r {stop}0 --reverse-prompt 1")), whole, "what never comes");
    let streamed = tiny.run().args(flags).args("-q -r").arg(stop).run();
    assert_eq!(streamed.stdout.trim_end(), &whole[..at]);
}

#[test]
fn a_chat_template_can_be_given() {
    let tiny = tiny();
    let run = |flags: &[&str]| {
        flags.iter().fold(tiny.run().args("-n 1 --temp 0 --json"), |run, flag| run.arg(flag)).json()
    };
    let text = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}";
    let given = run(&["--chat-template", text]);
    let path = tiny.folder.path().join("template.jinja");
    std::fs::write(&path, text).expect("the file is written");
    let from_file = run(&["--chat-template-file", path.to_str().expect("the path is text")]);
    assert_eq!(given["prompt_tokens"], from_file["prompt_tokens"]);
    // `user:abc` and the begin mark.
    assert!(given["prompt_tokens"].as_array().is_some_and(|ids| ids.len() >= 9), "{given}");
    let named = run(&["--chat-template", "chatml"]);
    assert!(
        named["prompt_tokens"].as_array().map(Vec::len) > given["prompt_tokens"].as_array().map(Vec::len)
    );
}

#[test]
fn probabilities_of_the_answer_are_given_on_request() {
    let tiny = tiny();
    let json = tiny.run().args("-n 5 --temp 0 --ignore-eos --json --logprobs 3").json();
    let scores = json["logprobs"].as_array().expect("a list");
    let tokens = json["tokens"].as_array().expect("a list");
    assert_eq!(scores.len(), tokens.len());
    for (score, token) in scores.iter().zip(tokens) {
        assert_eq!(&score["id"], token);
        assert_eq!(score["top"]["ids"].as_array().map(Vec::len), Some(3));
        let [own, most] = [&score["logp"], &score["top"]["logp"][0]].map(|p| p.as_f64().expect("a number"));
        assert!(own <= most + 1e-9 && most < 0.0, "{score}");
    }
    assert!(tiny.run().args("-n 1 --json").json().get("logprobs").is_none());
}

#[test]
fn smollm2_answers_with_json_of_a_schema() {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":99}},"required":["name","age"],"additionalProperties":false}"#;
    let run =
        quantsmith!("run", "-m", RealModel::SmolLm2.path(), "-p", "Describe a person called Tom as JSON.");
    let json = run.arg("--json-schema").arg(schema).args("-cnv --temp 0 -n 100 --json").json();
    let answer: Value = serde_json::from_str(&text(&json)).expect("JSON");
    assert!(answer["name"].is_string() && answer["age"].as_u64().is_some_and(|n| n < 100), "{answer}");
}

#[test]
fn smollm2_stops_at_a_special_token_that_is_not_shown() {
    let run = |flags: &str| {
        let run = quantsmith!("run", "-m", RealModel::SmolLm2.path(), "-p", "What is the capital of France?");
        run.args("-cnv --temp 0 -n 40 --json").args(flags).json()
    };
    let stopped = run("-r <|im_start|> -l 1+1000");
    assert_eq!((text(&stopped).as_str(), &stopped["tokens"]), ("", &serde_json::json!([1])));
    let (whole, cut) = (text(&run("")), text(&run("-r Marseillaise")));
    assert!(whole.starts_with(&cut) && whole[cut.len()..].starts_with("Marseillaise"), "{whole}");
}
