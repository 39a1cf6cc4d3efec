//! Models that make no sense: one line that names the file, the place, what was found and what is accepted.

mod kit;

use kit::{Draft, MIXED, Shape};
use quantsmith::files::{Array, Value};
use quantsmith::model::arch::Architecture;
use quantsmith::{LoadOptions, Model};

fn llama() -> Draft {
    Draft::new(Architecture::find("llama").expect("an architecture"), Shape::default(), MIXED)
}

/// Loads a draft that must be refused, and gives the message without the path.
fn refused(draft: &Draft) -> String {
    let file = draft.write();
    let error = match Model::load(&file.path, LoadOptions::default()) {
        Ok(_) => panic!("the model was accepted"),
        Err(error) => error,
    };
    assert_eq!(error.exit_code(), 1);
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    let path = file.path.display().to_string();
    message.strip_prefix(&format!("{path}: ")).unwrap_or_else(|| panic!("no path in '{message}'")).to_string()
}

#[test]
fn counts_that_are_zero_or_missing_are_refused_with_the_key() {
    let zero = |key: &str| refused(&llama().set(key, Value::U32(0)));
    assert_eq!(zero("{a}.block_count"), "llama.block_count: found 0, accepted: at least 1");
    assert_eq!(zero("{a}.embedding_length"), "llama.embedding_length: found 0, accepted: at least 1");
    assert_eq!(zero("{a}.context_length"), "llama.context_length: found 0, accepted: at least 1");
    assert_eq!(
        zero("{a}.attention.head_count"),
        "llama.attention.head_count: found 0 for layer 0, accepted: at least 1"
    );
    assert_eq!(
        zero("{a}.attention.head_count_kv"),
        "llama.attention.head_count_kv: found 0 for layer 0, accepted: at least 1"
    );
    assert_eq!(
        zero("{a}.feed_forward_length"),
        "llama.feed_forward_length: found 0 for layer 0, accepted: at least 1"
    );
    assert_eq!(zero("{a}.attention.key_length"), "llama.attention.key_length: found 0, accepted: at least 1");
    assert_eq!(
        zero("{a}.rope.dimension_count"),
        "llama.rope.dimension_count: found 0, accepted: an even number from 2 to 32"
    );
    let missing = |key: &str| refused(&llama().unset(key));
    assert_eq!(missing("{a}.block_count"), "llama.block_count: not there, accepted: an integer from 1");
    assert_eq!(
        missing("{a}.attention.head_count"),
        "llama.attention.head_count: not there, accepted: an integer, or an array of 4 integers below 2^32"
    );
    assert_eq!(
        missing("{a}.attention.layer_norm_rms_epsilon"),
        "llama.attention.layer_norm_rms_epsilon: not there, accepted: a number from 0"
    );
    assert!(
        missing("general.architecture")
            .starts_with("general.architecture: not there, accepted: llama, qwen2")
    );
}

#[test]
fn values_of_the_wrong_kind_or_size_are_refused() {
    let text = |key: &str| refused(&llama().set(key, Value::String("four".into())));
    assert_eq!(
        text("{a}.block_count"),
        "llama.block_count: found a value of another kind, accepted: an integer below 2^32"
    );
    let huge = llama().set("{a}.block_count", Value::U64(1 << 31));
    assert!(refused(&huge).contains("found 2147483648 in a file of"), "{}", refused(&huge));
    let heads = llama().set("{a}.attention.head_count_kv", Value::U32(3));
    assert_eq!(
        refused(&heads),
        "llama.attention.head_count_kv: found 3 for layer 0 with 4 heads, accepted: a divisor of the number of heads"
    );
    let array = llama().set("{a}.attention.head_count", Value::Array(Array::U32(vec![4; 3])));
    assert_eq!(
        refused(&array),
        "llama.attention.head_count: found an array of 3, accepted: an integer, or an array of 4 integers below 2^32"
    );
    let nan = llama().set("{a}.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN));
    assert_eq!(refused(&nan), "llama.attention.layer_norm_rms_epsilon: found NaN, accepted: a finite number");
    let base = llama().set("{a}.rope.freq_base", Value::F32(-1.0));
    assert_eq!(refused(&base), "llama.rope.freq_base: found -1, accepted: a number above 0");
    let scaling = llama().set("{a}.rope.scaling.type", Value::String("spiral".into()));
    assert_eq!(
        refused(&scaling),
        "llama.rope.scaling.type: found 'spiral', accepted: none, linear, yarn, longrope"
    );
}

#[test]
fn tensors_that_are_missing_misshapen_or_left_over_are_refused_by_name() {
    assert_eq!(
        refused(&llama().without("blk.2.ffn_up.weight")),
        "tensor 'blk.2.ffn_up.weight': not in the file, expected [64, 160]"
    );
    assert_eq!(
        refused(&llama().without("token_embd.weight")),
        "tensor 'token_embd.weight': not in the file, expected a row for each token, from 1 to 2^31"
    );
    let wide = llama().set("{a}.feed_forward_length", Value::U32(192));
    assert_eq!(refused(&wide), "tensor 'blk.0.ffn_gate.weight': dimensions [64, 160], expected [64, 192]");
    let extra = llama().with("blk.1.attn_q_norm.weight", &[32]);
    assert_eq!(
        refused(&extra),
        "tensor 'blk.1.attn_q_norm.weight', which the graph of 'llama' has no place for, is not supported"
    );
    let odd = llama().set("{a}.embedding_length", Value::U32(48));
    assert!(
        refused(&odd).starts_with("tensor 'token_embd.weight': dimensions [64, 96]"),
        "{}",
        refused(&odd)
    );
    let short = llama().set("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["a".into(); 3])));
    assert_eq!(
        refused(&short),
        "tensor 'token_embd.weight': 96 rows, expected one for each of the 3 tokens of the vocabulary"
    );
    let divisors = llama().with("rope_freqs.weight", &[16]);
    assert_eq!(
        refused(&divisors),
        "tensor 'rope_freqs.weight': a divisor that is not above 0, expected finite numbers above 0"
    );
}

#[test]
fn what_does_not_run_here_is_named() {
    let other = llama().set("general.architecture", Value::String("mamba\nx".into()));
    let message = refused(&other);
    assert!(
        message.starts_with("architecture 'mambax' is not supported, supported: llama, qwen2"),
        "{message}"
    );
    let experts = llama().set("{a}.expert_count", Value::U32(8));
    assert_eq!(refused(&experts), "a mixture of experts (llama.expert_count) is not supported");
}

#[test]
fn a_context_that_only_the_file_asks_for_is_bounded() {
    let file = llama().set("{a}.context_length", Value::U32(u32::MAX)).write();
    let model = file.load(LoadOptions::default());
    assert!(model.context() <= 1 << 20);
    assert!(
        model.warnings().iter().any(|w| w.contains("of 4294967295 in training")),
        "{:?}",
        model.warnings()
    );
}

#[test]
fn a_context_that_there_is_no_memory_for_is_refused_before_the_weights_are_read() {
    // 8 MiB for each position.
    let shape =
        Shape { layers: 16, heads: 256, kv_heads: 256, head_dim: 256, embed: 32, ff: 32, ..Shape::default() };
    let file = Draft::new(Architecture::find("llama").expect("an architecture"), shape, MIXED).write();
    let options = LoadOptions {
        context: Some(1 << 24),
        progress: Some(Box::new(|_| panic!("weights were packed"))),
        ..LoadOptions::default()
    };
    let error = Model::load(&file.path, options).expect_err("more memory than there is").to_string();
    let expected = "no memory for keys and values: 70368744177664 bytes; ask for a smaller context with -c";
    assert_eq!(error, expected);
}

#[test]
fn learned_positions_must_be_there_and_bound_the_context() {
    let gpt2 = Draft::new(Architecture::find("gpt2").expect("an architecture"), Shape::default(), MIXED);
    let without = refused(&gpt2.clone().without("position_embd.weight"));
    assert!(without.contains("'position_embd.weight'"), "{without}");
    let file = gpt2.write();
    let load = |context| {
        let options = LoadOptions { context: Some(context), ..Default::default() };
        Model::load(&file.path, options).map(|model| model.context()).map_err(|error| error.to_string())
    };
    assert_eq!(load(0), Ok(256));
    assert_eq!(load(256), Ok(256));
    let error = load(257).expect_err("there is no position 256");
    assert!(error.contains("257") && error.contains("at most 256, as positions are learned"), "{error}");
}

#[test]
fn limits_of_queries_keys_and_values_are_refused_unless_they_are_none() {
    let key = "{a}.attention.clamp_kqv";
    assert_eq!(
        refused(&llama().set(key, Value::F32(8.0))),
        "llama.attention.clamp_kqv: found 8, accepted: 0, as queries, keys and values are not cut off"
    );
    llama().set(key, Value::F32(0.0)).write().load(LoadOptions::default());
}

#[test]
fn heads_that_are_not_there_take_no_memory_for_their_slopes() {
    let refact = Draft::new(Architecture::find("refact").expect("an architecture"), Shape::default(), MIXED);
    let many = refact.set("{a}.attention.head_count", Value::U32(1 << 31));
    assert!(refused(&many).contains("'blk.0.attn_q.weight'"), "{}", refused(&many));
}
