//! GGUF models in several files.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::files::OpenOptions;

/// Three shards, the first one with the metadata, each with a tensor.
fn shards() -> [Raw; 3] {
    [0u16, 1, 2].map(|number| {
        let mut raw = Raw::new(3);
        if number == 0 {
            raw = raw.entry_str("general.architecture", "llama").entry_u32("llama.block_count", 1);
        }
        raw.entry("split.no", 2, &number.to_le_bytes())
            .entry("split.count", 2, &3u16.to_le_bytes())
            .entry("split.tensors.count", 5, &3i32.to_le_bytes())
            .tensor(
                ["a", "b", "c"][number as usize],
                &[4],
                0,
                &pattern(16 + number as usize)[number as usize..],
            )
    })
}

fn name(number: usize) -> String {
    format!("model-{number:05}-of-00003.gguf")
}

fn write(dir: &Path, files: &[Raw]) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (1..=files.len()).map(|i| dir.join(name(i))).collect();
    for (path, raw) in paths.iter().zip(files) {
        fs::write(path, raw.build()).expect("written");
    }
    paths
}

fn refusal(path: &Path) -> String {
    let message = ModelFile::open(path, &Table).expect_err("shards that do not fit").to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn any_shard_leads_to_the_whole_model() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = write(dir.path(), &shards());
    for path in &paths {
        let file = ModelFile::open(path, &Table).expect("a right model");
        assert_eq!(file.path(), paths[0]);
        assert!(file.paths().eq(&paths));
        assert_eq!(file.metadata().u32("llama.block_count"), Some(1));
        let found: Vec<(&str, usize)> = file.tensors().iter().map(|t| (t.name.as_str(), t.part)).collect();
        assert_eq!(found, [("a", 0), ("b", 1), ("c", 2)]);
        for (i, t) in file.tensors().iter().enumerate() {
            assert_eq!(&*file.data(t), &pattern(16 + i)[i..]);
        }
    }
    let alone = OpenOptions { single_file: true, ..OpenOptions::default() };
    let file = ModelFile::open_with(&paths[1], &Table, &alone).expect("one shard");
    assert_eq!(file.tensors().len(), 1);
}

#[test]
fn the_first_shard_may_have_no_tensors() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut files = shards();
    files[0] = Raw::new(3)
        .entry_str("general.architecture", "llama")
        .entry("split.no", 2, &[0, 0])
        .entry("split.count", 2, &[3, 0])
        .entry("split.tensors.count", 5, &[2, 0, 0, 0]);
    // The others still say 3.
    let paths = write(dir.path(), &files);
    assert!(refusal(&paths[0]).contains("split.tensors.count"));
    let later = |number: u8, tensor: &str| {
        Raw::new(3).entry("split.no", 2, &[number, 0]).entry("split.count", 2, &[3, 0]).tensor(
            tensor,
            &[4],
            0,
            &pattern(16),
        )
    };
    let paths = write(dir.path(), &[files[0].clone(), later(1, "b"), later(2, "c")]);
    assert_eq!(ModelFile::open(&paths[2], &Table).expect("a right model").tensors().len(), 2);
}

#[test]
fn a_missing_shard_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    for missing in 1..=3 {
        let paths = write(dir.path(), &shards());
        fs::remove_file(&paths[missing - 1]).expect("removed");
        let start = &paths[if missing == 1 { 1 } else { 0 }];
        let message = refusal(start);
        assert!(message.contains(&name(missing)) && message.contains("no such file"), "{message}");
        assert!(message.contains(&format!("shard {missing} of 3")), "{message}");
    }
}

#[test]
fn swapped_shards_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let [a, b, c] = shards();
    let paths = write(dir.path(), &[a, c, b]);
    let message = refusal(&paths[0]);
    assert!(message.contains(&name(2)) && message.contains("split.no: found 2, accepted: 1"), "{message}");
}

#[test]
fn a_renamed_shard_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = write(dir.path(), &shards());
    for other in ["model.gguf", "model-1-of-3.gguf", "model-00001-of-00004.gguf"] {
        let renamed = dir.path().join(other);
        fs::copy(&paths[0], &renamed).expect("copied");
        let message = refusal(&renamed);
        assert!(message.contains(other) && message.contains("PREFIX-00001-of-00003.gguf"), "{message}");
    }
}

#[test]
fn shards_that_disagree_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = |count: u8, total: u8, tensor: &str| {
        Raw::new(3)
            .entry("split.no", 2, &[1, 0])
            .entry("split.count", 2, &[count, 0])
            .entry("split.tensors.count", 5, &[total, 0, 0, 0])
            .tensor(tensor, &[4], 0, &pattern(16))
    };
    let with = |second: Raw| {
        let [a, _, c] = shards();
        let paths = write(dir.path(), &[a, second, c]);
        let message = refusal(&paths[0]);
        assert!(message.contains(&name(2)), "{message}");
        message
    };
    assert!(with(shard(4, 3, "b")).contains("split.count: found 4, accepted: 3"));
    assert!(with(shard(3, 9, "b")).contains("split.tensors.count: found 9, accepted: 3"));
    assert!(with(shard(3, 3, "a")).contains("'a' which an earlier shard has"));
    let other = shard(3, 3, "b").entry_str("general.architecture", "gemma3");
    assert!(with(other).contains("general.architecture: found 'gemma3', accepted: 'llama'"));
    assert!(with(Raw::new(3).tensor("b", &[4], 0, &pattern(16))).contains("split.count: found none"));
    let [a, b, _] = shards();
    let two = Raw::new(3).entry("split.no", 2, &[2, 0]).entry("split.count", 2, &[3, 0]);
    let paths = write(dir.path(), &[a, b, two]);
    assert!(refusal(&paths[0]).contains("split.tensors.count: found 3, accepted: 2"));
    let text = Raw::new(3).entry_str("split.count", "3");
    let paths = write(dir.path(), &[text]);
    assert!(refusal(&paths[0]).contains("a whole number"));
}
