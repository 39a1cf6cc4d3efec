//! A whole model, and one layer of it, on every tier of this CPU.
//!
//! The model is SmolLM2-135M if `models/` has it (`tests/fetch-models.sh smollm2`), or else one with random weights, made on
//! the spot; the name of the group says which. The layer is the classic pair: an int8 matrix of 1024 x 1024 against 1 and
//! 1024 rows of f32 activations, which are quantised in every run, on 1 and on 2 threads. `cargo bench --bench model --
//! layer` measures that alone, `-- avx2` one tier.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use quantsmith::files::{Array, GgufWriter, Layout, Metadata, NewTensor, Str, Value};
use quantsmith::measure::{LayerBench, weights};
use quantsmith::{LoadOptions, Model, Session, Want};
use quantsmith_kernels::{Format, Registry, Supported, Tier, cpu};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The real model.
const REAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/SmolLM2-135M-Instruct.Q4_1.gguf");
/// Tokens of the prompt, and of what is generated after it.
const PROMPT: usize = 128;
const GENERATED: usize = 8;
/// The size of the layer, and how many rows it is multiplied with.
const SIZE: usize = 1024;
const TOKENS: [usize; 2] = [1, 1024];

fn briefly<'c>(c: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = c.benchmark_group(name);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1500));
    group
}

/// The tiers to walk: all but the slow one.
fn tiers() -> impl Iterator<Item = Supported> {
    cpu::supported().into_iter().filter(|tier| tier.tier() != Tier::Scalar)
}

fn format(name: &str) -> &'static Format {
    Registry::builtin().by_name(name).expect("built in")
}

fn model(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, name) = match Path::new(REAL).is_file() {
        true => (PathBuf::from(REAL), "SmolLM2-135M Q4_1"),
        false => (random(folder.path()), "random model, Q8_0"),
    };
    let mut group = briefly(c, name);
    for tier in tiers() {
        let isa = tier.tier().name();
        let options = LoadOptions { isa: Some(isa.into()), context: Some(512), ..LoadOptions::default() };
        let model = Model::load(&path, options).expect("the model loads");
        let mut session = Session::new(&model).expect("threads and memory");
        let tokens: Vec<u32> = (0..PROMPT as u32).map(|i| i * 37 % 250 + 3).collect();
        let mut eval = |tokens: &[u32], keep: usize| {
            session.truncate(keep).expect("so many are there");
            for part in tokens {
                session.eval(std::slice::from_ref(part), Want::Last, &mut |_, _| {}).expect("room");
            }
        };
        eval(&tokens[..1], 0);
        group.throughput(Throughput::Elements(GENERATED as u64));
        group.bench_function(format!("generation {GENERATED}/{isa}"), |b| {
            b.iter(|| eval(&tokens[..GENERATED], 1));
        });
        group.throughput(Throughput::Elements(PROMPT as u64));
        group.bench_function(format!("prompt {PROMPT}/{isa}"), |b| {
            b.iter(|| {
                session.reset();
                session.eval(&tokens, Want::Last, &mut |_, _| {}).expect("room");
            });
        });
    }
    group.finish();
}

fn layer(c: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut group = briefly(c, &format!("layer {SIZE}x{SIZE} Q8_0"));
    for threads in [1, 2].into_iter().filter(|&threads| threads <= cores) {
        let bench = LayerBench::new(format("Q8_0"), SIZE, SIZE, Supported::SCALAR, threads);
        for tokens in TOKENS {
            group.throughput(Throughput::Elements((2 * SIZE * SIZE * tokens) as u64));
            for tier in tiers() {
                bench.check(tier, tokens.min(33)).expect("threads").expect("the bits of the scalar tier");
                let mut layer = bench.layer(tier, tokens).expect("threads and memory");
                let isa = tier.tier().name();
                group.bench_function(format!("{tokens} rows, {threads} threads/{isa}"), |b| {
                    b.iter(|| layer.run().expect("no panic"));
                });
            }
        }
    }
    group.finish();
}

/// Writes a model of the llama family with random weights of Q8_0.
fn random(folder: &Path) -> PathBuf {
    let (layers, embed, ff, heads, vocabulary) = (4, 512, 1408, 8, 4096u64);
    let kv = embed / 2;
    let [q8_0, float] = ["Q8_0", "F32"].map(|name| format(name).id.expect("a number in files"));
    let words: Vec<Str> = (0..vocabulary).map(|i| Str::from(format!("w{i}").as_str())).collect();
    let mut metadata = Metadata::new();
    let numbers: [(&str, u64); 6] = [
        ("block_count", layers),
        ("context_length", 512),
        ("embedding_length", embed),
        ("feed_forward_length", ff),
        ("attention.head_count", heads),
        ("attention.head_count_kv", heads / 2),
    ];
    metadata.insert("general.architecture", Value::String("llama".into()));
    for (key, number) in numbers {
        metadata.insert(format!("llama.{key}"), Value::U32(number as u32));
    }
    metadata.insert("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    metadata.insert("tokenizer.ggml.model", Value::String("llama".into()));
    metadata.insert("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0; words.len()])));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; words.len()])));
    metadata.insert("tokenizer.ggml.tokens", Value::Array(Array::String(words)));
    let mut tensors = Vec::new();
    let mut add = |name: String, dims: Vec<u64>, ty: u32| {
        tensors.push(NewTensor {
            name: format!("{name}.weight"),
            dims,
            type_id: ty,
            layout: Layout::Current,
        });
    };
    add("token_embd".into(), vec![embed, vocabulary], q8_0);
    add("output".into(), vec![embed, vocabulary], q8_0);
    add("output_norm".into(), vec![embed], float);
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        add(name("attn_norm"), vec![embed], float);
        add(name("ffn_norm"), vec![embed], float);
        let (square, wide) = (vec![embed, embed], vec![embed, ff]);
        let matrices = [
            ("attn_q", square.clone()),
            ("attn_k", vec![embed, kv]),
            ("attn_v", vec![embed, kv]),
            ("attn_output", square),
            ("ffn_gate", wide.clone()),
            ("ffn_up", wide),
            ("ffn_down", vec![ff, embed]),
        ];
        for (part, dims) in matrices {
            add(name(part), dims, q8_0);
        }
    }
    let path = folder.join("random.gguf");
    let writer = GgufWriter::create(&path, &[], &metadata, &tensors, &Registry::builtin());
    let mut writer = writer.expect("the file can be written");
    for tensor in &tensors {
        let (cols, rows) = (tensor.dims[0] as usize, tensor.dims.get(1).copied().unwrap_or(1) as usize);
        let bytes = if tensor.type_id == q8_0 {
            weights(format("Q8_0"), rows, cols)
        } else {
            1f32.to_le_bytes().repeat(cols)
        };
        writer.write(&bytes).expect("the file can be written");
    }
    writer.finish().expect("the file can be written");
    path
}

criterion_group!(benches, layer, model);
criterion_main!(benches);
