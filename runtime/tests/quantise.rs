//! Quantising files: which tensor gets which format, what stands in the way, and what is written.

use std::path::{Path, PathBuf};

use quantsmith::files::ops::Edit;
use quantsmith::files::{Array, GgufWriter, Metadata, ModelFile, NewTensor, OpenOptions, Value};
use quantsmith::kernels::{Registry, cpu};
use quantsmith::quantise::{
    Importance, Plan, QuantiseOptions, QuantiseReport, Reason, Target, Workers, plan, quantise,
};
use quantsmith::{Error, Progress};
use serde_json::Value as Json;

/// A model in the making: metadata, and tensors with their weights.
#[derive(Clone, Default)]
struct Draft {
    metadata: Metadata,
    tensors: Vec<(String, Vec<u64>, Vec<f32>)>,
}

impl Draft {
    fn new(arch: &str) -> Self {
        let mut draft = Self::default();
        draft.metadata.insert("general.architecture", Value::String(arch.into()));
        draft
    }

    fn set(mut self, key: &str, value: u32) -> Self {
        self.metadata.insert(key, Value::U32(value));
        self
    }

    /// Adds a tensor of numbers without pattern.
    fn tensor(mut self, name: &str, dims: &[u64]) -> Self {
        let mut state = self.tensors.len() as u32 + 1;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let values = (0..dims.iter().product()).map(|_| noise()).collect();
        self.tensors.push((name.into(), dims.into(), values));
        self
    }

    fn write(&self, path: &Path) -> PathBuf {
        let new = |(name, dims, _): &(String, Vec<u64>, Vec<f32>)| NewTensor {
            name: name.clone(),
            dims: dims.clone(),
            type_id: 0,
            layout: Default::default(),
        };
        let tensors: Vec<NewTensor> = self.tensors.iter().map(new).collect();
        let mut writer =
            GgufWriter::create(path, &[], &self.metadata, &tensors, &Registry::builtin()).expect("a header");
        for (_, _, values) in &self.tensors {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            writer.write(&bytes).expect("data");
        }
        writer.finish().expect("a file");
        path.into()
    }

    fn open(&self) -> ModelFile {
        let folder = tempfile::tempdir().expect("a folder");
        open(&self.write(&folder.path().join("m.gguf")))
    }
}

fn open(path: &Path) -> ModelFile {
    ModelFile::open(path, &Registry::builtin()).expect("opens")
}

fn to(name: &str) -> QuantiseOptions {
    QuantiseOptions::new(Target::Named(name.into()))
}

fn planned(model: &ModelFile, options: &QuantiseOptions) -> Plan {
    plan(model, options, &Registry::builtin()).expect("a plan")
}

fn format_of<'a>(plan: &'a Plan, name: &str) -> &'a str {
    plan.tensors.iter().find(|t| t.name == name).expect("the tensor is planned").to
}

/// The header of a model of a recorded shape. Only rows decide, so that two of each matrix are enough.
fn recorded(shape: &Json) -> Draft {
    let number = |key: &str| shape[key].as_u64().expect("a number");
    let arch = shape["arch"].as_str().expect("a name");
    let key = |key: &str| format!("{arch}.{key}");
    let mut draft = Draft::new(arch)
        .set(&key("block_count"), number("layers") as u32)
        .set(&key("attention.head_count"), number("heads") as u32)
        .set(&key("attention.head_count_kv"), number("kv") as u32);
    let (embed, ff, experts) = (number("embd"), number("ff"), number("experts"));
    if experts > 0 {
        draft = draft.set(&key("expert_count"), experts as u32);
    }
    draft = draft.tensor("token_embd.weight", &[embed, 2]);
    for layer in 0..number("layers") {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        draft = draft.tensor(&name("attn_norm"), &[embed]).tensor(&name("attn_output"), &[embed, 2]);
        let parts: &[&str] =
            if shape["fused"] == true { &["attn_qkv"] } else { &["attn_v", "attn_q", "attn_k"] };
        for part in parts {
            draft = draft.tensor(&name(part), &[embed, 2]);
        }
        for (part, columns) in [("ffn_gate", embed), ("ffn_down", ff), ("ffn_up", embed)] {
            draft = match experts {
                0 => draft.tensor(&name(part), &[columns, 2]),
                n => draft.tensor(&name(&format!("{part}_exps")), &[columns, 2, n]),
            };
        }
        if experts > 0 {
            draft = draft.tensor(&name("ffn_gate_inp"), &[embed, experts]);
        }
    }
    if shape["out"] == true { draft.tensor("output.weight", &[embed, 2]) } else { draft }
}

/// The formats of each part in order of layers, in the way of the record: `attn_v Q6_K*2 Q4_K; output Q6_K`.
fn describe(plan: &Plan) -> String {
    let mut parts = std::collections::BTreeMap::<String, Vec<(usize, &str)>>::new();
    for tensor in &plan.tensors {
        let name = tensor.name.trim_end_matches(".weight");
        let (layer, part) = match name.strip_prefix("blk.").and_then(|n| n.split_once('.')) {
            Some((layer, part)) => (layer.parse().expect("a layer"), part),
            None => (0, name),
        };
        if !part.contains("norm") && part != "ffn_gate_inp" {
            parts.entry(part.into()).or_default().push((layer, tensor.to));
        }
    }
    let runs = |mut formats: Vec<(usize, &str)>| {
        formats.sort_unstable();
        let runs = formats.chunk_by(|a, b| a.1 == b.1).map(|run| match run.len() {
            1 => run[0].1.to_owned(),
            n => format!("{}*{n}", run[0].1),
        });
        runs.collect::<Vec<_>>().join(" ")
    };
    let parts: Vec<String> =
        parts.into_iter().map(|(part, formats)| format!("{part} {}", runs(formats))).collect();
    parts.join("; ")
}

#[test]
fn every_tensor_gets_the_format_that_llama_cpp_gives_it() {
    let record: Json = serde_json::from_str(include_str!("data/mixes.json")).expect("JSON");
    let mut compared = 0;
    for entry in record.as_array().expect("a list") {
        let label = entry["name"].as_str().expect("a name");
        let draft = recorded(&entry["shape"]);
        let model = draft.open();
        let importance = (label == "importance").then(|| importance(&draft));
        for (name, expected) in entry["types"].as_object().expect("types") {
            let options = QuantiseOptions { importance: importance.clone(), ..to(name) };
            assert_eq!(
                describe(&planned(&model, &options)),
                expected.as_str().expect("text"),
                "{label} {name}"
            );
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

/// Importance for all matrices of a model, as the binary form has it.
fn binary(entries: &[(String, Vec<f32>)], calls: i32) -> Vec<u8> {
    let mut bytes = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, values) in entries {
        bytes.extend((name.len() as i32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(calls.to_le_bytes());
        bytes.extend((values.len() as i32).to_le_bytes());
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    bytes
}

fn read_importance(bytes: &[u8]) -> Result<Importance, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("imatrix.dat");
    std::fs::write(&path, bytes).expect("written");
    Importance::read(&path, &Registry::builtin()).map_err(|e| e.to_string())
}

fn importance(draft: &Draft) -> Importance {
    let matrices = draft.tensors.iter().filter(|(_, dims, _)| dims.len() > 1);
    let entries: Vec<_> =
        matrices.map(|(name, dims, _)| (name.clone(), vec![1.0; dims[0] as usize])).collect();
    read_importance(&binary(&entries, 1)).expect("importance")
}

#[test]
fn importance_is_read_in_both_forms() {
    let entries = [("a.weight".to_owned(), vec![2.0, 4.0]), ("b.weight".to_owned(), vec![6.0])];
    let mut old = binary(&entries, 2);
    let read = read_importance(&old).expect("importance");
    assert_eq!((read.len(), read.dataset.as_deref(), read.chunks), (2, None, None));
    old.extend(7i32.to_le_bytes());
    old.extend(4i32.to_le_bytes());
    old.extend(b"text");
    let read = read_importance(&old).expect("importance");
    assert_eq!((read.dataset.as_deref(), read.chunks), (Some("text"), Some(7)));

    let folder = tempfile::tempdir().expect("a folder");
    let mut draft = Draft::default();
    draft.metadata.insert("general.type", Value::String("imatrix".into()));
    draft.metadata.insert("imatrix.datasets", Value::Array(Array::String(vec!["text".into()])));
    draft.metadata.insert("imatrix.chunk_count", Value::U32(7));
    // Two experts, of which the second was never used.
    draft.tensors.push(("b.weight.in_sum2".into(), vec![2, 2], vec![2.0, 4.0, 0.0, 0.0]));
    draft.tensors.push(("b.weight.counts".into(), vec![1, 2], vec![2.0, 0.0]));
    let path = draft.write(&folder.path().join("imatrix.gguf"));
    let read = Importance::read(&path, &Registry::builtin()).expect("importance");
    assert_eq!((read.len(), read.dataset.as_deref(), read.chunks), (1, Some("text"), Some(7)));
    draft.tensors.pop();
    let error = Importance::read(&draft.write(&path), &Registry::builtin()).expect_err("refused").to_string();
    assert!(error.contains("no counts") && error.contains("b.weight.in_sum2"), "{error}");
}

#[test]
fn importance_that_is_none_is_refused() {
    let good = binary(&[("a".into(), vec![1.0, 2.0])], 1);
    for cut in 0..good.len() {
        let error = read_importance(&good[..cut]).expect_err("cut short");
        assert!(error.contains("imatrix.dat") && !error.contains('\n'), "{error}");
    }
    for at in (0..good.len()).step_by(4) {
        for word in [i32::MIN, -1, i32::MAX] {
            let mut bad = good.clone();
            bad.splice(at..(at + 4).min(good.len()), word.to_le_bytes());
            // Whatever it is, it ends, and a value below zero or without meaning is never taken.
            let _ = read_importance(&bad);
        }
    }
    for value in [f32::NAN, f32::INFINITY, -1.0] {
        let error =
            read_importance(&binary(&[("a".into(), vec![1.0, value])], 1)).expect_err("no importance");
        assert!(error.contains("'a'") && error.contains("0 or more"), "{error}");
    }
    assert!(read_importance(b"").is_err() && read_importance(b"GGUF").is_err());
}

fn small() -> Draft {
    Draft::new("llama")
        .set("llama.block_count", 3)
        .set("llama.attention.head_count", 4)
        .set("general.file_type", 0)
        .tensor("token_embd.weight", &[256, 4])
        .tensor("blk.0.attn_norm.weight", &[256])
        .tensor("blk.0.attn_q.weight", &[256, 8])
        .tensor("blk.1.attn_q.weight", &[256, 8])
        .tensor("blk.2.attn_q.weight", &[64, 8])
        .tensor("blk.2.ffn_down_exps.weight", &[256, 2, 3])
        .tensor("output.weight", &[256, 4])
}

#[test]
fn options_go_before_the_mix() {
    let model = small().open();
    let options = QuantiseOptions {
        tensor_types: vec![(r"blk\.1\..*q".into(), "q8_0".into()), ("attn_q".into(), "Q3_K".into())],
        output_type: Some("Q4_1".into()),
        embedding_type: Some("f16".into()),
        ..to("Q4_K_M")
    };
    let plan = planned(&model, &options);
    assert_eq!(format_of(&plan, "token_embd.weight"), "F16");
    assert_eq!(format_of(&plan, "output.weight"), "Q4_1");
    assert_eq!(
        (format_of(&plan, "blk.0.attn_q.weight"), format_of(&plan, "blk.1.attn_q.weight")),
        ("Q3_K", "Q8_0")
    );
    assert_eq!(format_of(&plan, "blk.0.attn_norm.weight"), "F32");
    // Rows of 64 are no super-blocks.
    let ragged = plan.tensors.iter().find(|t| t.name == "blk.2.attn_q.weight").expect("planned");
    assert_eq!((ragged.to, &ragged.reason), ("Q4_0", &Reason::Fallback { wanted: "Q3_K" }));
    let options = QuantiseOptions { leave_output: true, pure: true, ..to("q4_k") };
    let plan = planned(&model, &options);
    assert_eq!((format_of(&plan, "output.weight"), format_of(&plan, "token_embd.weight")), ("F32", "Q4_K"));
    assert_eq!(plan.file_type, Some(15));
}

#[test]
fn a_wrong_request_says_what_would_be_right() {
    let model = small().open();
    let error = |options: &QuantiseOptions| match plan(&model, options, &Registry::builtin()) {
        Err(error) => (error.to_string(), error.exit_code()),
        Ok(_) => panic!("planned"),
    };
    let (text, code) = error(&to("Q4_Z"));
    assert!(
        code == 2 && text.contains("Q4_Z") && text.contains("Q4_K_M") && text.contains("NVFP4"),
        "{text}"
    );
    let (text, code) =
        error(&QuantiseOptions { tensor_types: vec![("(".into(), "Q4_0".into())], ..to("Q4_0") });
    assert!(code == 2 && text.contains("regular expression"), "{text}");
    let (text, code) = error(&QuantiseOptions { prune_layers: vec![3], ..to("Q4_0") });
    assert!(code == 2 && text.contains("0 to 2"), "{text}");
    let wrong =
        read_importance(&binary(&[("blk.0.attn_q.weight".into(), vec![1.0; 255])], 1)).expect("importance");
    let (text, code) = error(&QuantiseOptions { importance: Some(wrong), ..to("Q4_0") });
    assert!(code == 1 && text.contains("255") && text.contains("256"), "{text}");
}

fn run(
    model: &ModelFile,
    output: &Path,
    options: &QuantiseOptions,
    threads: usize,
) -> Result<QuantiseReport, Error> {
    let mut last = Progress { done: 0, total: 0 };
    let mut check = |now: Progress| {
        assert!(now.done >= last.done && now.done <= now.total, "{now:?} after {last:?}");
        last = now;
    };
    let registry = Registry::builtin();
    let tier = cpu::choose(None).expect("a tier");
    let workers = Workers { registry: &registry, tier, threads: Some(threads), progress: &mut check };
    let report = quantise(model, output, options, workers)?;
    assert_eq!(last.done, last.total, "all bytes are reported");
    Ok(report)
}

/// The weights of a tensor.
fn weights(model: &ModelFile, name: &str) -> Vec<f32> {
    let registry = Registry::builtin();
    let tensor = model.tensor(name).expect("the tensor is there");
    let mut out = vec![0.0; tensor.elements() as usize];
    let format = registry.by_name(tensor.type_name).expect("a format");
    format.kernels(cpu::choose(Some("scalar")).expect("there")).dequantise(&model.data(tensor), &mut out);
    out
}

#[test]
fn what_is_written_is_what_was_planned() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = small().open();
    let mut first = None;
    for threads in [1, 3] {
        let path = folder.path().join(format!("{threads}.gguf"));
        let report = run(&model, &path, &to("Q4_K_M"), threads).expect("written");
        assert_eq!(report.bytes, std::fs::metadata(&path).expect("there").len());
        let back = open(&path);
        for (planned, error) in report.plan.tensors.iter().zip(&report.errors) {
            let tensor = back.tensor(&planned.name).expect("written");
            assert_eq!(
                (tensor.type_name, tensor.bytes, &tensor.dims),
                (planned.to, planned.bytes_after, &planned.dims)
            );
            assert!(
                (0.0..0.12).contains(error) && (*error > 0.0) == (planned.from != planned.to),
                "{planned:?} {error}"
            );
            let (old, new) = (weights(&model, &planned.name), weights(&back, &planned.name));
            let change = old.iter().zip(&new).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            let size = old.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>();
            assert!(((change / size).sqrt() - error).abs() < 1e-9, "{planned:?} {error}");
        }
        assert_eq!(
            (back.metadata().u32("general.file_type"), back.metadata().u32("general.quantization_version")),
            (Some(15), Some(2))
        );
        let bytes = std::fs::read(&path).expect("there");
        assert_eq!(*first.get_or_insert(bytes.clone()), bytes, "the same bits for any number of threads");
    }
}

#[test]
fn quantising_twice_must_be_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (once, twice) = (folder.path().join("1.gguf"), folder.path().join("2.gguf"));
    run(&small().open(), &once, &to("Q8_0"), 1).expect("written");
    let model = open(&once);
    let error = run(&model, &twice, &to("Q4_0"), 1).expect_err("refused").to_string();
    assert!(error.contains("Q8_0 already") && error.contains("--allow-requantize"), "{error}");
    assert!(!twice.exists());
    let planned = planned(&model, &QuantiseOptions { dry_run: true, ..to("Q4_0") });
    assert!(planned.warnings.iter().any(|w| w.contains("--allow-requantize")), "{:?}", planned.warnings);
    let options = QuantiseOptions { allow_requantise: true, ..to("Q4_0") };
    let report = run(&model, &twice, &options, 1).expect("written");
    assert!(report.plan.warnings.iter().any(|w| w.contains("lose twice")), "{:?}", report.plan.warnings);
    // What has the format already is copied, and needs no leave.
    let copied = run(&model, &twice, &to("Q8_0"), 1).expect("written");
    assert!(copied.errors.iter().all(|e| *e == 0.0));
    assert_eq!(std::fs::read(&once).expect("there"), std::fs::read(&twice).expect("there"));
}

#[test]
fn layers_are_left_out_and_metadata_is_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    let options = QuantiseOptions {
        prune_layers: vec![1, 1],
        overrides: vec![
            Edit::Set("general.name".into(), Value::String("x".into())),
            Edit::Remove("absent".into()),
        ],
        ..QuantiseOptions::new(Target::Copy)
    };
    let model = small().open();
    run(&model, &path, &options, 1).expect("written");
    let back = open(&path);
    assert_eq!(
        (back.metadata().u32("llama.block_count"), back.metadata().str("general.name")),
        (Some(2), Some("x"))
    );
    assert_eq!(back.metadata().u32("general.file_type"), Some(0));
    let names: Vec<&str> =
        back.tensors().iter().map(|t| t.name.as_str()).filter(|n| n.contains("attn_q")).collect();
    assert_eq!(names, ["blk.0.attn_q.weight", "blk.1.attn_q.weight"]);
    assert_eq!(weights(&back, "blk.1.attn_q.weight"), weights(&model, "blk.2.attn_q.weight"));
}

#[test]
fn a_weight_that_is_no_number_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.gguf");
    let mut draft = small();
    draft.tensors[3].2[700] = f32::NAN;
    let error = run(&draft.open(), &path, &to("Q4_0"), 2).expect_err("refused");
    let text = error.to_string();
    assert!(error.exit_code() == 1 && text.contains("blk.1.attn_q.weight") && text.contains("NaN"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "no half file is left");
}

#[test]
fn shards_stay_shards_when_asked() {
    use quantsmith::files::ops::{ShardSize, SplitOptions, split};
    let folder = tempfile::tempdir().expect("a folder");
    let whole = small().write(&folder.path().join("m.gguf"));
    let options = SplitOptions { size: ShardSize::Tensors(3), first_without_tensors: false };
    let shards = split(&whole, &folder.path().join("s"), options, &Registry::builtin()).expect("split");
    let model = open(&shards[0]);
    let options = QuantiseOptions { keep_split: true, ..to("Q4_K_M") };
    let report = run(&model, &folder.path().join("q.gguf"), &options, 1).expect("written");
    let names: Vec<_> = report.files.iter().map(|f| f.file_name().expect("a name").to_owned()).collect();
    assert_eq!(names, ["q-00001-of-00003.gguf", "q-00002-of-00003.gguf", "q-00003-of-00003.gguf"]);
    let (kept, joined) = (open(&report.files[0]), folder.path().join("j.gguf"));
    run(&model, &joined, &to("Q4_K_M"), 1).expect("written");
    let joined = open(&joined);
    assert_eq!((kept.tensors().len(), joined.paths().count(), kept.paths().count()), (7, 1, 3));
    for tensor in joined.tensors() {
        let other = kept.tensor(&tensor.name).expect("there");
        assert_eq!(
            (tensor.type_name, joined.data(tensor)),
            (other.type_name, kept.data(other)),
            "{}",
            tensor.name
        );
    }
    let parts = |file: &ModelFile| file.tensors().iter().map(|t| t.part).collect::<Vec<_>>();
    assert_eq!(parts(&kept), parts(&model));
}

#[test]
fn experts_that_lie_apart_are_quantised_with_their_own_importance() {
    let folder = tempfile::tempdir().expect("a folder");
    let apart = Draft::new("llama")
        .set("llama.block_count", 1)
        .tensor("blk.0.ffn_down.0.weight", &[64, 4])
        .tensor("blk.0.ffn_down.1.weight", &[64, 4]);
    let source = apart.write(&folder.path().join("apart.gguf"));
    let model = ModelFile::open_with(&source, &Registry::builtin(), &OpenOptions::default()).expect("opens");
    let name = "blk.0.ffn_down_exps.weight";
    assert_eq!(model.tensor(name).expect("joined").pieces(), 2);
    let only = |expert: usize| {
        let mut values = vec![1.0; 128];
        values[64 * expert..64 * expert + 8].fill(1000.0);
        read_importance(&binary(&[(name.to_owned(), values)], 1)).expect("importance")
    };
    let out = |label: &str, importance: Option<Importance>| {
        let path = folder.path().join(label);
        run(&model, &path, &QuantiseOptions { importance, ..to("Q4_0") }, 1).expect("written");
        weights(&open(&path), name)
    };
    let (plain, first, second) = (out("p", None), out("0", Some(only(0))), out("1", Some(only(1))));
    assert_ne!(first[..256], second[..256], "the first expert's own importance decides over it");
    assert_ne!(first[256..], second[256..], "and the second's over the second");
    let old = weights(&model, name);
    let farthest = |range: std::ops::Range<usize>, new: &[f32]| {
        old[range.clone()].iter().zip(&new[range]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    assert!(farthest(0..512, &plain) < 0.13, "{}", farthest(0..512, &plain));
    for row in 0..4 {
        let first_columns = 64 * row..64 * row + 8;
        assert!(farthest(first_columns.clone(), &first) <= farthest(first_columns, &plain) + 0.02);
    }
}
