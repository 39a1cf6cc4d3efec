//! The package `gguf` for Python and this program read what the other writes, and agree on every field and weight.
//!
//! Python with the package is looked for under `QUANTSMITH_PYTHON`, else as `python3`. Where there is none the tests say
//! so and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use quantsmith::files::{Array, GgufWriter, Metadata, NewTensor, Value};
use quantsmith_kernels::Registry;
use quantsmith_tests::{RealModel, data, quantsmith};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// Runs the Python side, where there is one.
fn python(args: &[&str]) -> Option<Json> {
    let python = std::env::var("QUANTSMITH_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import gguf"]).output();
    if !found.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: {python} has no package gguf; QUANTSMITH_PYTHON may name another");
        return None;
    }
    let ended = Command::new(&python).arg(data("gguf_tool.py")).args(args).output().expect("python runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(serde_json::from_slice(&ended.stdout).expect("JSON"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// What this program says of a file, in the words of the Python side.
fn ours(path: &Path) -> Json {
    let shown = quantsmith!("inspect", path, "--json").json();
    let mut fields = serde_json::Map::new();
    for (key, entry) in shown["metadata"].as_object().expect("metadata") {
        let name = |kind: &Json| match kind.as_str().expect("a name") {
            "u8" => "UINT8",
            "i8" => "INT8",
            "u16" => "UINT16",
            "i16" => "INT16",
            "u32" => "UINT32",
            "i32" => "INT32",
            "u64" => "UINT64",
            "i64" => "INT64",
            "f32" => "FLOAT32",
            "f64" => "FLOAT64",
            "bool" => "BOOL",
            "str" => "STRING",
            "arr" => "ARRAY",
            other => panic!("{other}"),
        };
        let mut types = vec![name(&entry["type"])];
        types.extend(entry.get("of").map(name));
        fields.insert(key.clone(), json!({ "types": types, "value": entry["value"] }));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tensors = shown["tensors"].as_array().expect("tensors").iter().map(|tensor| {
        let (name, out) = (tensor["name"].as_str().expect("a name"), folder.path().join("x.npy"));
        let ended = quantsmith!("inspect", path, "--tensor", name, "--export", &out).run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let bytes = std::fs::read(&out).expect("exported");
        let values = &bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..];
        let digest: String = Sha256::digest(values).iter().map(|b| format!("{b:02x}")).collect();
        json!({ "name": name, "dims": tensor["dims"], "type": tensor["type"], "values": digest })
    });
    let tensors: Vec<Json> = tensors.collect();
    json!({ "fields": fields, "tensors": tensors })
}

/// Asserts that both sides say the same. Numbers are compared as numbers: 1 is 1.0.
fn assert_agree(theirs: &Json, ours: &Json) {
    let keys = |side: &Json| side["fields"].as_object().expect("fields").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(theirs), keys(ours));
    for key in keys(ours) {
        let (a, b) = (&theirs["fields"][&key], &ours["fields"][&key]);
        // An empty array has no type of elements on the Python side.
        let empty = b["value"].as_array().is_some_and(Vec::is_empty);
        assert!(empty || a["types"] == b["types"], "{key}: {} and {}", a["types"], b["types"]);
        assert!(same(&a["value"], &b["value"]), "{key}: {} and {}", a["value"], b["value"]);
    }
    let list = |side: &Json| side["tensors"].as_array().expect("tensors").clone();
    assert_eq!(list(theirs).len(), list(ours).len());
    for (a, b) in list(theirs).iter().zip(list(ours)) {
        assert_eq!(a, &b);
    }
}

fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        // A float is shown with as many digits as its own width needs.
        (Json::Number(_), Json::Number(_)) => {
            a == b || a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a as f32 == b as f32)
        }
        _ => a == b,
    }
}

/// A file with a value of every kind and a tensor of every format that both sides know.
fn everything(folder: &Path) -> PathBuf {
    let mut metadata = Metadata::new();
    let mut set = |key: &str, value: Value| metadata.insert(key, value);
    set("general.architecture", Value::String("none".into()));
    set("general.alignment", Value::U32(64));
    set("a.u8", Value::U8(u8::MAX));
    set("a.i8", Value::I8(i8::MIN));
    set("a.u16", Value::U16(u16::MAX));
    set("a.i16", Value::I16(i16::MIN));
    set("a.u32", Value::U32(u32::MAX));
    set("a.i32", Value::I32(i32::MIN));
    set("a.u64", Value::U64(1 << 52));
    set("a.i64", Value::I64(-(1 << 52)));
    set("a.f32", Value::F32(0.1));
    set("a.f64", Value::F64(0.1));
    set("a.bool", Value::Bool(false));
    set("a.str", Value::String("日本 \u{1f600}".into()));
    set("b.strs", Value::Array(Array::String(vec!["x".into(), "".into()])));
    set("b.bools", Value::Array(Array::Bool(vec![true, false])));
    set("b.floats", Value::Array(Array::F32(vec![1.5, -2.25])));
    set("b.bytes", Value::Array(Array::U8(vec![0, 255])));
    let registry = Registry::builtin();
    // What the Python side cannot turn into numbers, or does not know.
    let unknown = ["Q8_1", "Q8_K", "Q1_0", "Q2_0"];
    let formats = registry.iter().filter(|f| f.id.is_some() && !unknown.contains(&f.name));
    let formats: Vec<_> = formats.collect();
    let tensors: Vec<NewTensor> = formats
        .iter()
        .map(|f| NewTensor {
            name: format!("{}.weight", f.name),
            dims: vec![256, 3],
            type_id: f.id.expect("a number"),
            layout: Default::default(),
        })
        .collect();
    let path = folder.join("everything.gguf");
    let mut writer = GgufWriter::create(&path, &[], &metadata, &tensors, &registry).expect("a header");
    let tier = quantsmith_kernels::cpu::choose(None).expect("a tier");
    for (at, format) in formats.iter().enumerate() {
        let weights: Vec<f32> = (0..768).map(|i| ((i * 37 + at * 11) % 97) as f32 / 97.0 - 0.5).collect();
        let mut out = vec![0; 768 / format.elements * format.bytes];
        format.kernels(tier).quantise(&weights, 256, None, &mut out).expect("quantised");
        writer.write(&out).expect("data");
    }
    writer.finish().expect("a file");
    path
}

#[test]
fn python_reads_what_this_program_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = everything(folder.path());
    let Some(theirs) = python(&["read", text(&path)]) else { return };
    assert!(theirs["tensors"].as_array().is_some_and(|t| t.len() >= 25), "{}", theirs["tensors"]);
    assert_agree(&theirs, &ours(&path));
    let quantised = folder.path().join("q.gguf");
    let model = RealModel::SmolLm2.path();
    let ended = quantsmith!("quantize", "--allow-requantize", model, &quantised, "Q4_K_M", "-q").run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let theirs = python(&["read", text(&quantised)]).expect("python is there");
    let shown = quantsmith!("inspect", &quantised, "--json").json();
    let types = |side: &Json| -> Vec<Json> {
        side["tensors"].as_array().expect("tensors").iter().map(|t| t["type"].clone()).collect()
    };
    assert_eq!(types(&theirs), types(&shown));
}

#[test]
fn this_program_reads_what_python_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    for order in ["little", "big"] {
        let path = folder.path().join(order);
        let Some(theirs) = python(&["write", text(&path), order]) else { return };
        assert_agree(&theirs, &ours(&path));
        assert_eq!(quantsmith!("gguf", "verify", &path).run().code, 0);
    }
}
