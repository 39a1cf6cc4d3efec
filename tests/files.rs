//! Model files as files: shown to the byte, exported, edited, split, merged, compared, converted.

use std::path::{Path, PathBuf};

use quantsmith::files::{GgufWriter, Metadata, ModelFile, NewTensor, Value};
use quantsmith_kernels::{Registry, cpu};
use quantsmith_tests::{Gguf, RealModel, quantsmith, repository, tiny_llama};
use serde_json::Value as Json;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("the file is written");
    path
}

fn tiny(folder: &Path) -> PathBuf {
    write(folder, "tiny.gguf", &tiny_llama().bytes())
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The header and the numbers of a NumPy file of format 1.0.
fn npy(path: &Path) -> (String, Vec<f32>) {
    let bytes = std::fs::read(path).expect("the export is there");
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(data.is_multiple_of(64), "the data is aligned");
    (String::from_utf8_lossy(&bytes[10..data]).into_owned(), floats(&bytes[data..]))
}

fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{what} {at}: {a} is not {b}");
    }
}

#[test]
fn every_golden_block_is_exported_as_its_golden_values() {
    let text = std::fs::read(repository().join("kernels/tests/data/blocks.json")).expect("the data is there");
    let golden: Json = serde_json::from_slice(&text).expect("JSON");
    let types = golden["types"].as_object().expect("types");
    assert!(types.len() >= 25, "{} types", types.len());
    let folder = folder();
    let path = folder.path().join("golden.gguf");
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", Value::String("none".into()));
    let blocks: Vec<Vec<u8>> =
        types.values().map(|t| bytes_of(t["raw_hex"].as_str().expect("blocks"))).collect();
    let number = |t: &Json, key: &str| t[key].as_u64().expect("a number");
    let tensors: Vec<NewTensor> = types
        .iter()
        .map(|(name, t)| NewTensor {
            name: name.clone(),
            dims: vec![number(t, "block") * 4, number(t, "n") / 4],
            type_id: number(t, "id") as u32,
            layout: Default::default(),
        })
        .collect();
    let mut writer =
        GgufWriter::create(&path, &[], &metadata, &tensors, &Registry::builtin()).expect("a file");
    blocks.iter().for_each(|data| writer.write(data).expect("data"));
    writer.finish().expect("the file is written");
    for (name, t) in types {
        let out = folder.path().join(format!("{name}.npy"));
        let json = quantsmith!("inspect", &path, "--tensor", name, "--export", &out, "--json").json();
        let (rows, cols) = (number(t, "n") / 4, number(t, "block") * 4);
        assert_eq!(json["shape"], serde_json::json!([rows, cols]), "{name}");
        let (header, numbers) = npy(&out);
        assert!(header.contains("'<f4'") && header.contains(&format!("({rows}, {cols},)")), "{header}");
        assert_same(&numbers, &floats(&bytes_of(t["f32_le_hex"].as_str().expect("values"))), name);
    }
}

#[test]
fn an_exported_tensor_of_a_real_model_is_what_the_kernels_give() {
    let path = RealModel::SmolLm2.path();
    let registry = Registry::builtin();
    let file = ModelFile::open(&path, &registry).expect("opens");
    let tensor = file.tensor("blk.7.ffn_down.weight").expect("the tensor is there");
    let format = registry.by_name(tensor.type_name).expect("a format");
    let mut expected = vec![0.0; tensor.elements() as usize];
    format
        .kernels(cpu::choose(Some("scalar")).expect("always there"))
        .dequantise(&file.data(tensor), &mut expected);
    let folder = folder();
    let out = folder.path().join("w.npy");
    let ended = quantsmith!("inspect", "-m", &path, "--tensor", &tensor.name, "--export", &out).run();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{}", ended.stderr);
    assert_same(&npy(&out).1, &expected, "weight");
}

#[test]
fn blocks_are_shown_field_by_field() {
    let folder = folder();
    // A scale of 0.5, a minimum of -1, codes 0 and 15 in turn.
    let block = [&0x3800u16.to_le_bytes()[..], &0xbc00u16.to_le_bytes(), &[0xf0; 16]].concat();
    let mut bytes =
        Gguf::default().text("general.architecture", "none").description("w", &[32], 3, 0).bytes();
    bytes.extend(&block);
    let path = write(folder.path(), "block.gguf", &bytes);
    let json = quantsmith!("inspect", &path, "--tensor", "w", "--blocks", "9", "--json").json();
    assert_eq!((json["type"].as_str(), json["blocks"].as_array().map(Vec::len)), (Some("Q4_1"), Some(1)));
    let block = &json["blocks"][0];
    let names: Vec<&str> =
        block["fields"].as_array().expect("fields").iter().filter_map(|f| f["name"].as_str()).collect();
    assert_eq!(names, ["d", "m", "qs"]);
    assert_eq!(block["fields"][0]["values"], serde_json::json!([0.5]));
    assert_eq!(block["fields"][1]["values"], serde_json::json!([-1.0]));
    assert_eq!(block["fields"][2]["values"][15], 240);
    assert_eq!((block["values"][0].as_f64(), block["values"][16].as_f64()), (Some(-1.0), Some(6.5)));
    let text = quantsmith!("inspect", &path, "--tensor", "w").run().stdout;
    assert!(text.contains("d (f16)        0.5\n") && text.contains("m (f16)        -1\n"), "{text}");
}

/// The ranges of the lines of `--hex`, as (first byte, byte behind the last).
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let hex = |t: &str| u64::from_str_radix(t.trim_start_matches("0x"), 16).expect("an offset");
    let range = |line: &str| {
        let (from, to) = line.strip_prefix('[')?.split_once(']')?.0.split_once('-')?;
        Some((hex(from), hex(to) + 1))
    };
    text.lines().map(|line| range(line).unwrap_or_else(|| panic!("no range: {line}"))).collect()
}

#[test]
fn every_byte_is_shown_once_in_every_container() {
    let folder = folder();
    let legacy = Legacy { magic: b"tjgg", version: Some(3) }.bytes();
    for (name, bytes) in [("a.gguf", tiny_llama().bytes()), ("b.bin", legacy)] {
        let path = write(folder.path(), name, &bytes);
        let shown = quantsmith!("inspect", &path, "--hex").run();
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        let ranges = ranges(&shown.stdout);
        let mut end = 0;
        for &(from, to) in &ranges {
            assert_eq!(from, end, "{name}");
            end = to;
        }
        assert_eq!(end, bytes.len() as u64, "{name}");
        let json = quantsmith!("inspect", &path, "--hex", "--json").json();
        let fields = json["fields"].as_array().expect("a list");
        let told: Vec<_> =
            fields.iter().filter_map(|f| Some((f["start"].as_u64()?, f["end"].as_u64()?))).collect();
        assert_eq!(told, ranges, "{name}");
    }
}

#[test]
fn bytes_can_be_limited_and_looked_up() {
    let folder = folder();
    let path = tiny(folder.path());
    let shown = quantsmith!("inspect", &path, "--hex", "--limit", "2", "--from", "0x8").run();
    assert_eq!(ranges(&shown.stdout), [(8, 16), (16, 24)]);
    let legacy = write(folder.path(), "b.bin", &Legacy { magic: b"fmgg", version: Some(1) }.bytes());
    for (path, name) in
        [(&path, "output_norm.weight"), (&legacy, "output_norm.weight"), (&legacy, "norm.weight")]
    {
        let text = quantsmith!("inspect", path, "--hex", "--tensor", name).run().stdout;
        assert!(text.contains(": F32, 256 bytes, 64 elements"), "{text}");
        let json = quantsmith!("inspect", path, "--hex", "--tensor", name, "--json").json();
        assert_eq!(json["fields"].as_array().map(Vec::len), Some(text.lines().count()), "{name}");
    }
    quantsmith!("inspect", &path, "--hex", "--tensor", "x").run().error(1);
    quantsmith!("inspect", &path, "--tensor", "x").run().error(1);
    quantsmith!("inspect", &path, "--limit", "2").run().error(2);
    quantsmith!("inspect", &path, "--export", "x.npy").run().error(2);
    quantsmith!("inspect", &path, "--hex", "--from", "zz").run().error(2);
}

#[test]
fn what_is_split_and_merged_has_the_same_hash() {
    let folder = folder();
    let path = tiny(folder.path());
    let prefix = folder.path().join("part");
    let json = quantsmith!("gguf", "split", &path, &prefix, "--split-max-tensors", "8", "--json").json();
    let files: Vec<&str> =
        json["files"].as_array().expect("a list").iter().filter_map(Json::as_str).collect();
    assert_eq!(files.len(), 3);
    let merged = folder.path().join("merged.gguf");
    let ended = quantsmith!("gguf", "merge", files[1], &merged, "-q").run();
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""));
    let hash = |path: &Path| quantsmith!("gguf", "hash", path, "--json").json();
    let (before, split, after) = (hash(&path), hash(Path::new(files[0])), hash(&merged));
    assert_eq!(before, after);
    assert_eq!(before["tensors"], split["tensors"]);
    assert_eq!(before["tensor_data"], split["tensor_data"]);
    let text = quantsmith!("gguf", "hash", &path).run().stdout;
    assert!(text.contains(&format!("{}  (file)", before["file"].as_str().expect("text"))), "{text}");
    let parts = quantsmith!("inspect", files[2]).run();
    assert_eq!(parts.code, 0, "{}", parts.stderr);
    assert_eq!(parts.stdout.matches("file:  ").count(), 3);
    quantsmith!("gguf", "split", &path, &prefix, "--split-max-size", "5X").run().error(2);
    quantsmith!("gguf", "merge", &path, &path).run().error(1);
    assert_eq!(hash(&path), before, "the input is not harmed");
}

#[test]
fn metadata_is_set_and_removed_and_the_difference_is_told() {
    let folder = folder();
    let path = tiny(folder.path());
    let (set, removed) = (folder.path().join("set.gguf"), folder.path().join("removed.gguf"));
    let ended = quantsmith!("gguf", "set", &path, &set, "llama.context_length=128", "a.b=arr:u8:1,2").run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let json = quantsmith!("inspect", &set, "--json").json();
    assert_eq!(json["metadata"]["llama.context_length"], serde_json::json!({ "type": "u32", "value": 128 }));
    assert_eq!(json["metadata"]["a.b"], serde_json::json!({ "type": "arr", "of": "u8", "value": [1, 2] }));
    let differ = quantsmith!("gguf", "diff", &path, &set).run();
    assert_eq!(differ.code, 1);
    assert_eq!(differ.stdout, "~ key llama.context_length: 64 -> 128\n+ key a.b: [1, 2]\n");
    assert!(differ.stderr.starts_with("error: "), "{}", differ.stderr);
    let args = ["llama.context_length=u32:64"];
    assert_eq!(quantsmith!("gguf", "set", &set, &set.with_extension("2"), args[0]).run().code, 0);
    let ended = quantsmith!("gguf", "remove", set.with_extension("2"), &removed, "a.b", "--json").json();
    assert_eq!(ended["bytes"].as_u64(), std::fs::metadata(&path).ok().map(|m| m.len()));
    let same = quantsmith!("gguf", "diff", &path, &removed).run();
    assert_eq!((same.code, same.stdout.as_str()), (0, ""));

    quantsmith!("gguf", "remove", &path, &removed, "no.such.key").run().error(1);
    quantsmith!("gguf", "set", &path, &removed, "new=1").run().error(2);
    quantsmith!("gguf", "set", &path, &removed, "llama.context_length=x").run().error(2);
    quantsmith!("gguf", "set", &path, &path, "llama.context_length=1").run().error(1);
}

#[test]
fn a_file_that_contradicts_itself_does_not_pass() {
    let folder = folder();
    let path = tiny(folder.path());
    assert_eq!(quantsmith!("gguf", "verify", &path).run().code, 0);
    let wrong = folder.path().join("wrong.gguf");
    assert_eq!(quantsmith!("gguf", "set", &path, &wrong, "llama.block_count=5").run().code, 0);
    let ended = quantsmith!("gguf", "verify", &wrong, "--json").run();
    assert_eq!(ended.code, 1);
    let json: Json = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(json["findings"][0]["text"].as_str().is_some_and(|t| t.contains("block_count is 5")), "{json}");
    let shown = quantsmith!("inspect", &wrong).run();
    assert!(shown.stderr.contains("warning: block_count is 5"), "{}", shown.stderr);
}

/// A llama model of one layer in a container before GGUF, its matrices in Q4_0.
struct Legacy {
    magic: &'static [u8; 4],
    version: Option<u32>,
}

impl Legacy {
    fn bytes(&self) -> Vec<u8> {
        let (embed, ff, heads) = (64u32, 128u32, 4u32);
        let mut tokens: Vec<Vec<u8>> = vec![" \u{2047} ".into(), vec![], vec![]];
        tokens.extend((0..=255u8).map(|b| vec![b]));
        let vocabulary = tokens.len() as u32;
        let mut out = self.magic.to_vec();
        let words = [vocabulary, embed, 32, heads, 1, embed / heads, 2];
        out.extend(self.version.iter().chain(&words).flat_map(|word| word.to_le_bytes()));
        for (at, text) in tokens.iter().enumerate() {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text);
            out.extend((-(at as f32)).to_le_bytes());
        }
        let layer = |name: &str| format!("layers.0.{name}.weight");
        let tensors = [
            ("tok_embeddings.weight".into(), vec![embed, vocabulary]),
            ("norm.weight".into(), vec![embed]),
            ("output.weight".into(), vec![embed, vocabulary]),
            (layer("attention.wq"), vec![embed, embed]),
            (layer("attention.wk"), vec![embed, embed]),
            (layer("attention.wv"), vec![embed, embed]),
            (layer("attention.wo"), vec![embed, embed]),
            (layer("attention_norm"), vec![embed]),
            (layer("feed_forward.w1"), vec![embed, ff]),
            (layer("feed_forward.w2"), vec![ff, embed]),
            (layer("feed_forward.w3"), vec![embed, ff]),
            (layer("ffn_norm"), vec![embed]),
        ];
        for (seed, (name, dims)) in tensors.iter().enumerate() {
            let matrix = dims.len() > 1;
            let head = [dims.len() as u32, name.len() as u32, if matrix { 2 } else { 0 }];
            out.extend(head.iter().chain(dims).flat_map(|word| word.to_le_bytes()));
            out.extend(name.as_bytes());
            if self.magic == b"tjgg" {
                out.resize(out.len().next_multiple_of(32), 0);
            }
            let count: u32 = dims.iter().product();
            if !matrix {
                out.extend((0..count).flat_map(|_| 1f32.to_le_bytes()));
                continue;
            }
            for block in 0..count / 32 {
                // A scale of about 0.02: as f16 since version 3, as an f32 that f16 cannot hold before.
                match self.version {
                    Some(3) => out.extend(0x2520u16.to_le_bytes()),
                    _ => out.extend(0.020_001f32.to_le_bytes()),
                }
                out.extend((0..16u32).map(|i| ((block * 37 + i * 101 + seed as u32 * 59) % 251) as u8));
            }
        }
        out
    }
}

#[test]
fn an_old_model_is_converted_and_computes_the_same() {
    let folder = folder();
    let old = write(folder.path(), "v3.bin", &Legacy { magic: b"tjgg", version: Some(3) }.bytes());
    let new = folder.path().join("v3.gguf");
    let json = quantsmith!("convert", &old, &new, "--context-length", "77", "--eps", "1e-5", "--json").json();
    assert_eq!(json["container"], "GGJT v3");
    let errors = json["tensors"].as_array().expect("a list").iter().map(|t| t["largest_error"].as_f64());
    assert!(errors.into_iter().all(|error| error == Some(0.0)), "{json}");
    let shown = quantsmith!("inspect", &new, "--json").json();
    assert_eq!(shown["metadata"]["llama.context_length"]["value"], 77);
    assert_eq!(quantsmith!("gguf", "verify", &new).run().code, 0);
    let again = folder.path().join("default.gguf");
    assert_eq!(quantsmith!("convert", &old, &again).run().code, 0);
    let print = |path: &Path| quantsmith!("fingerprint", "-m", path, "-p", "abc").run();
    let (before, after) = (print(&old), print(&again));
    assert_eq!((before.code, after.code), (0, 0), "{} {}", before.stderr, after.stderr);
    assert_eq!(before.stdout, after.stdout);
    let shown = quantsmith!("inspect", &old, "--json").json();
    assert_eq!((shown["container"].as_str(), shown["version"].as_u64()), (Some("GGJT"), Some(3)));
    assert_eq!(shown["hyperparameters"]["n_embd"], 64);
}

#[test]
fn what_gguf_cannot_hold_is_rounded_with_the_error_told_or_kept_on_request() {
    let folder = folder();
    let old = write(folder.path(), "v1.bin", &Legacy { magic: b"tjgg", version: Some(1) }.bytes());
    let new = folder.path().join("new.gguf");
    let error = |json: &Json| -> f64 {
        let errors = json["tensors"].as_array().expect("a list").iter();
        errors.filter_map(|t| t["largest_error"].as_f64()).fold(0.0, f64::max)
    };
    let rounded = quantsmith!("convert", &old, &new, "--json").json();
    assert!(error(&rounded) > 0.0 && error(&rounded) < 1e-3, "{rounded}");
    let exact = quantsmith!("convert", &old, &new, "--exact", "--json").json();
    assert_eq!(error(&exact), 0.0);
    let (a, b) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
    for (file, out) in [(&old, &a), (&new, &b)] {
        let ended = quantsmith!("inspect", file, "--tensor", "output.weight", "--export", out).run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    assert_same(&npy(&a).1, &npy(&b).1, "weight");

    let kept = quantsmith!("convert", &old, &new, "--exact=blocks", "--json").json();
    assert_eq!(error(&kept), 0.0);
    assert!(kept["bytes"].as_u64() < exact["bytes"].as_u64(), "{kept}");
    let shown = quantsmith!("inspect", &new).run().stdout;
    assert!(shown.contains("Q4_0_V1") && shown.contains("quantsmith.formats.digests"), "{shown}");
    assert_eq!(quantsmith!("gguf", "verify", &new).run().code, 0);
    let print = |path: &Path| quantsmith!("fingerprint", "-m", path, "-p", "abc").run().stdout;
    assert_eq!(print(&new), print(&old));
    quantsmith!("convert", &old, &new, "--exact=f16").run().error(2);
    quantsmith!("convert", &old, &old).run().error(1);
    quantsmith!("convert", &old, &new, "--eps", "0").run().error(2);
    quantsmith!("convert", folder.path().join("none"), &new).run().error(1);
}
