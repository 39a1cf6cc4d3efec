//! Writing, and what happens when it fails.

use std::fs;
use std::path::Path;

use super::kit_legacy::Legacy;
use super::*;
use crate::files::ops::{Edit, edit};
use crate::files::{Array, GgufWriter, Layout, Metadata, NewTensor, Value};

/// A file in the canonical form: what a right writer makes.
fn canonical(alignment: Option<u32>) -> Vec<u8> {
    let mut raw = Raw::new(3).entry_str("general.architecture", "llama");
    if let Some(alignment) = alignment {
        raw = raw.alignment(alignment);
    }
    let list = [raw.u32(8), raw.length(2), raw.string("x"), raw.string("")].concat();
    let nan = f32::from_bits(0x7fc0_1234).to_le_bytes();
    let raw = raw
        .entry("list", 9, &list)
        .entry("nan", 6, &nan)
        .entry("flag", 7, &[1])
        .tensor("a.weight", &[32, 2], 2, &pattern(36))
        .record("empty", &[0], 0, 64)
        .tensor("b.weight", &[5], 0, &pattern(20));
    let mut bytes = raw.build();
    let alignment = alignment.unwrap_or(32) as usize;
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
    bytes
}

fn listing(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("listed").map(|e| e.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|n| n.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_canonical_file_is_written_again_as_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
    for alignment in [None, Some(32), Some(64)] {
        let bytes = canonical(alignment);
        fs::write(&input, &bytes).expect("written");
        let size = edit(&input, &output, &[], &Table).expect("rewritten");
        assert_eq!(size, bytes.len() as u64);
        assert!(fs::read(&output).expect("read") == bytes, "alignment {alignment:?}");
    }
    assert_eq!(listing(dir.path()), ["in.gguf", "out.gguf"]);
}

#[test]
fn metadata_is_set_and_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
    fs::write(&input, canonical(None)).expect("written");
    let edits = [
        Edit::Set("flag".into(), Value::F64(0.5)),
        Edit::Remove("list".into()),
        Edit::Set(
            "new".into(),
            Value::Array(Array::Array(vec![Array::U8(vec![1]), Array::String(vec!["s".into()])])),
        ),
        Edit::Set("general.alignment".into(), Value::U32(256)),
    ];
    edit(&input, &output, &edits, &Table).expect("rewritten");
    let (old, new) = (open(&canonical(None)).expect("old"), ModelFile::open(&output, &Table).expect("new"));
    let keys: Vec<&str> = new.metadata().iter().map(|(k, _)| k).collect();
    assert_eq!(keys, ["general.architecture", "nan", "flag", "new", "general.alignment"]);
    assert_eq!(new.metadata().f32("flag"), Some(0.5));
    assert_eq!((new.alignment(), new.data_start() % 256), (256, 0));
    for t in old.tensors() {
        assert_eq!(old.data(t), new.data(new.tensor(&t.name).expect("kept")));
    }
    let error =
        edit(&input, &output, &[Edit::Remove("none".into())], &Table).expect_err("no such key").to_string();
    assert!(error.contains("no key 'none' to remove"), "{error}");
}

#[test]
fn an_output_that_is_the_input_is_refused_under_every_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("in.gguf");
    let bytes = canonical(None);
    fs::write(&input, &bytes).expect("written");
    let hard = dir.path().join("hard.gguf");
    fs::hard_link(&input, &hard).expect("linked");
    let mut names = vec![input.clone(), hard, dir.path().join(".").join("in.gguf")];
    #[cfg(unix)]
    {
        let soft = dir.path().join("soft.gguf");
        std::os::unix::fs::symlink(&input, &soft).expect("linked");
        names.push(soft);
    }
    for output in names {
        let error = edit(&input, &output, &[], &Table).expect_err("the same file").to_string();
        assert!(error.contains("the output is the input"), "{error}");
    }
    assert_eq!(fs::read(&input).expect("read"), bytes);
}

#[test]
fn outputs_that_cannot_be_files_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let input = dir.path().join("in.gguf");
    fs::write(&input, canonical(None)).expect("written");
    let message = |output: &Path| edit(&input, output, &[], &Table).expect_err("no file").to_string();
    assert!(message(dir.path()).contains("is a directory"));
    assert!(message(Path::new("/dev/null")).contains("not a regular file"));
    assert!(message(&dir.path().join("none/out.gguf")).contains("cannot create a file"));
    assert!(message(Path::new("/")).contains("no file name"));
    assert_eq!(listing(dir.path()), ["in.gguf"]);
}

fn f32s(name: &str, count: u64) -> NewTensor {
    NewTensor { name: name.into(), dims: vec![count], type_id: 0, layout: Layout::Current }
}

#[test]
fn what_fails_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = dir.path().join("out.gguf");
    fs::write(&output, b"old").expect("written");
    let begin =
        || GgufWriter::create(&output, &[], &Metadata::new(), &[f32s("t", 4)], &Table).expect("begun");

    let mut short = begin();
    short.write(&[0; 15]).expect("fits");
    assert_eq!(listing(dir.path()).len(), 2);
    let error = short.finish().expect_err("one byte is missing").to_string();
    assert!(error.contains("tensor 't' has 15 of 16 bytes"), "{error}");
    let mut long = begin();
    let error = long.write(&[0; 17]).expect_err("one byte too many").to_string();
    assert!(error.contains("1 bytes of data are left"), "{error}");
    drop(long);
    drop(begin().seal());
    assert_eq!(listing(dir.path()), ["out.gguf"]);
    assert_eq!(fs::read(&output).expect("read"), b"old");

    let mut right = begin();
    right.write(&[7; 3]).expect("fits");
    right.write(&[7; 13]).expect("fits");
    let size = right.finish().expect("finished");
    assert_eq!(fs::metadata(&output).expect("there").len(), size);
    assert_eq!(listing(dir.path()), ["out.gguf"]);
}

#[test]
fn what_cannot_be_stored_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = dir.path().join("out.gguf");
    let refusal = |metadata: &Metadata, tensors: &[NewTensor]| {
        let error =
            GgufWriter::create(&output, &[], metadata, tensors, &Table).err().expect("refused").to_string();
        assert_eq!(listing(dir.path()), [""; 0]);
        error
    };
    let none = Metadata::new();
    assert!(refusal(&none, &[f32s("t", 1), f32s("t", 2)]).contains("two tensors are called 't'"));
    assert!(refusal(&none, &[f32s("t", 1 << 62)]).contains("2^63"));
    assert!(
        refusal(&none, &[f32s("t", 1 << 60), f32s("u", 1 << 60), f32s("v", 1 << 60)])
            .contains("larger in all")
    );
    let new =
        |type_id, layout, dims: &[u64]| NewTensor { name: "t".into(), dims: dims.into(), type_id, layout };
    assert!(refusal(&none, &[new(4, Layout::Current, &[32])]).contains("found 4, accepted: F32"));
    assert!(refusal(&none, &[new(2, Layout::V1, &[32])]).contains("Q4_0_V1, which GGUF cannot hold"));
    assert!(refusal(&none, &[new(2, Layout::Current, &[33])]).contains("multiple of 32"));
    assert!(refusal(&none, &[new(0, Layout::Current, &[1; 5])]).contains("5 dimensions"));
    let mixed =
        [new(12, Layout::K64, &[64]), NewTensor { name: "u".into(), ..new(12, Layout::Current, &[256]) }];
    assert!(refusal(&none, &mixed).contains("super-blocks"));
    for value in
        [Value::U32(0), Value::U32(24), Value::U32(1 << 31), Value::I32(32), Value::String("32".into())]
    {
        let metadata = Metadata::from_iter([("general.alignment", value)]);
        assert!(refusal(&metadata, &[]).contains("general.alignment"));
    }
    let long = Metadata::from_iter([("k".repeat(65536), Value::U8(0))]);
    assert!(refusal(&long, &[]).contains("65536"));
    assert!(refusal(&Metadata::from_iter([("", Value::U8(0))]), &[]).contains("a key of 0 bytes"));
}

#[test]
fn old_blocks_that_gguf_has_are_written_and_others_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("m.bin"), dir.path().join("m.gguf"));
    let legacy = Legacy::new(b"tjgg", Some(3)).model(2, 32, 18);
    fs::write(&input, legacy.build()).expect("written");
    edit(&input, &output, &[], &Table).expect("written");
    let (old, new) =
        (ModelFile::open(&input, &Table).expect("old"), ModelFile::open(&output, &Table).expect("new"));
    assert_eq!(old.metadata(), new.metadata());
    for t in old.tensors() {
        assert_eq!(old.data(t), new.data(new.tensor(&t.name).expect("kept")));
    }
    fs::write(&input, Legacy::new(b"tjgg", Some(2)).model(2, 32, 20).build()).expect("written");
    let error = edit(&input, &output, &[], &Table).expect_err("no such layout").to_string();
    assert!(error.contains("Q4_0_V2, which GGUF cannot hold"), "{error}");
}

#[test]
fn k_quants_of_64_elements_stay_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
    let raw = Raw::new(3).tensor("a", &[256, 8], 12, &pattern(8 * 152)).tensor(
        "b",
        &[256, 8],
        12,
        &pattern(8 * 152),
    );
    fs::write(&input, raw.build()).expect("written");
    edit(&input, &output, &[], &Table).expect("written");
    let file = ModelFile::open(&output, &Table).expect("a right file");
    assert!(file.tensors().iter().all(|t| t.layout == Layout::K64));
}
