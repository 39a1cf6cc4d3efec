//! The real models against the oracle: the same prompt tokens, the same greedy text as far as it is certain, and no
//! further from the exact computation than llama.cpp is.

use quantsmith::{LoadOptions, Model, Session, Want};
use quantsmith_tests::{Oracle, RealModel, quantsmith};

/// The prompt as an argument: what is no escape must not become one.
fn escaped(prompt: &str) -> String {
    prompt.replace('\\', "\\\\").replace('\n', "\\n")
}

fn tokens_are_those_of_the_oracle(model: RealModel) {
    for prompt in Oracle::of(model).prompts {
        let json =
            quantsmith!("tokenize", "-m", model.path(), "-p", escaped(&prompt.prompt), "--json").json();
        assert_eq!(json["ids"], serde_json::json!(prompt.tokens), "{}", prompt.prompt);
    }
}

#[test]
fn smollm2_tokens_are_those_of_the_oracle() {
    tokens_are_those_of_the_oracle(RealModel::SmolLm2);
}

#[test]
fn gemma3_tokens_are_those_of_the_oracle() {
    tokens_are_those_of_the_oracle(RealModel::Gemma3);
}

fn greedy_text_is_that_of_the_oracle_where_it_is_certain(model: RealModel) {
    let mut compared = 0;
    for prompt in Oracle::of(model).prompts {
        let run = quantsmith!("run", "-m", model.path(), "-p", escaped(&prompt.prompt), "--json");
        let json = run.args("-n 32 --temp 0 -no-cnv").json();
        assert_eq!(json["prompt_tokens"], serde_json::json!(prompt.tokens), "{}", prompt.prompt);
        let tokens: Vec<u32> = serde_json::from_value(json["tokens"].clone()).expect("tokens are ids");
        let certain = prompt.certain();
        assert_eq!(&tokens[..certain.len().min(tokens.len())], certain, "{}", prompt.prompt);
        compared += certain.len();
    }
    assert!(compared > 10, "only {compared} tokens are certain");
}

#[test]
fn smollm2_greedy_text_is_that_of_the_oracle() {
    greedy_text_is_that_of_the_oracle_where_it_is_certain(RealModel::SmolLm2);
}

#[test]
fn gemma3_greedy_text_is_that_of_the_oracle() {
    greedy_text_is_that_of_the_oracle_where_it_is_certain(RealModel::Gemma3);
}

/// After the text that the exact computation gives, its next token comes first here, too, wherever it is half a
/// logit ahead.
fn every_certain_token_comes_first(model: RealModel) {
    let loaded = Model::load(&model.path(), LoadOptions::default()).expect("the model loads");
    let (mut compared, mut wrong) = (0, Vec::new());
    for prompt in &Oracle::of(model).prompts {
        let start = prompt.tokens.len() - 1;
        let text: Vec<u32> = prompt.tokens.iter().chain(&prompt.truth_greedy).copied().collect();
        let mut session = Session::new(&loaded).expect("a session starts");
        let mut compare = |at: usize, logits: &[f32]| {
            let Some(next) =
                at.checked_sub(start).filter(|next| prompt.truth_margin.get(*next) >= Some(&0.5))
            else {
                return;
            };
            let first = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("logits");
            compared += 1;
            if first != prompt.truth_greedy[next] as usize {
                wrong.push(format!(
                    "{:?}: token {next} is {first}, not {}",
                    prompt.prompt, prompt.truth_greedy[next]
                ));
            }
        };
        session.eval(&text, Want::All, &mut compare).expect("the text is evaluated");
    }
    println!("{}: {compared} certain tokens", model.name());
    assert!(compared > 100 && wrong.is_empty(), "{compared} compared, wrong: {wrong:#?}");
}

#[test]
fn smollm2_puts_every_certain_token_first() {
    every_certain_token_comes_first(RealModel::SmolLm2);
}

#[test]
fn gemma3_puts_every_certain_token_first() {
    every_certain_token_comes_first(RealModel::Gemma3);
}

/// The mean divergence from the exact computation is at most this.
fn divergence_is_at_most(model: RealModel, bound: f64) {
    let oracle = Oracle::of(model);
    let loaded = Model::load(&model.path(), LoadOptions::default()).expect("the model loads");
    let (mut sum, mut positions) = (0.0, 0);
    for prompt in &oracle.prompts {
        let mut session = Session::new(&loaded).expect("a session starts");
        let mut add = |at: usize, logits: &[f32]| {
            sum += prompt.truth_top64[at].divergence(logits);
            positions += 1;
        };
        session.eval(&prompt.tokens, Want::All, &mut add).expect("the prompt is evaluated");
    }
    let mean = sum / f64::from(positions);
    println!(
        "{}: mean divergence {mean:.5} over {positions} positions, llama.cpp {:.5}",
        model.name(),
        oracle.peer_mean_kl
    );
    assert!(mean <= bound, "mean divergence {mean} is above {bound}");
}

#[test]
fn smollm2_is_no_further_from_the_truth_than_llama_cpp() {
    divergence_is_at_most(RealModel::SmolLm2, 0.0047);
}

#[test]
fn gemma3_is_no_further_from_the_truth_than_llama_cpp() {
    divergence_is_at_most(RealModel::Gemma3, 0.0072);
}

#[test]
fn logits_are_those_that_the_library_gives() {
    let model = RealModel::SmolLm2;
    let prompt = &Oracle::of(model).prompts[0];
    let run =
        quantsmith!("logits", "-m", model.path(), "-p", escaped(&prompt.prompt), "--top", "64", "--json");
    let json = run.json();
    assert_eq!(json["tokens"], serde_json::json!(prompt.tokens));
    let loaded = Model::load(&model.path(), LoadOptions::default()).expect("the model loads");
    let mut session = Session::new(&loaded).expect("a session starts");
    let mut positions = 0;
    let mut compare = |at: usize, logits: &[f32]| {
        let position: quantsmith_tests::Position =
            serde_json::from_value(json["positions"][at].clone()).expect("a position");
        assert!(position.divergence(logits).abs() < 1e-9);
        positions += 1;
    };
    session.eval(&prompt.tokens, Want::All, &mut compare).expect("the prompt is evaluated");
    assert_eq!(positions, prompt.tokens.len());
}
