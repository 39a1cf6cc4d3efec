//! Files that are no models, or hostile ones, and requests that cannot be met: one line of error, the right exit
//! code, no panic, and memory bounded by the size of the file.

use std::path::{Path, PathBuf};

use quantsmith_tests::{Ended, Gguf, quantsmith, tiny_llama};

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("the file is written");
    path
}

fn run(model: &Path) -> Ended {
    quantsmith!("run", "-m", model, "-p", "hi").args("-n 4 --temp 0").run()
}

/// Every command that opens a model refuses this file, and says something with these words.
fn refused(path: &Path, words: &[&str]) {
    let commands = [
        run(path),
        quantsmith!("inspect", path).run(),
        quantsmith!("inspect", path, "--json").run(),
        quantsmith!("tokenize", "-m", path, "-p", "hi").run(),
        quantsmith!("plan", "-m", path).run(),
        quantsmith!("logits", "-m", path, "-p", "hi", "--json").run(),
        quantsmith!("fingerprint", "-m", path, "-p", "hi").run(),
    ];
    for ended in commands {
        let error = ended.error(1);
        for word in words {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    }
}

#[test]
fn what_is_no_model_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    refused(folder.path(), &["directory"]);
    refused(&folder.path().join("missing.gguf"), &["missing.gguf"]);
    refused(&write(folder.path(), "empty.gguf", b""), &["empty.gguf"]);
    refused(&write(folder.path(), "notes.txt", b"Dear diary,\ntoday I quantised a model.\n"), &["notes.txt"]);
    refused(&write(folder.path(), "zeros.gguf", &[0; 4096]), &["zeros.gguf"]);
    refused(&write(folder.path(), "ones.gguf", &[0xff; 4096]), &["ones.gguf"]);
}

#[test]
fn a_header_cut_anywhere_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = Gguf::default()
        .text("general.architecture", "llama")
        .texts("tokenizer.ggml.tokens", &["a", "b"])
        .description("token_embd.weight", &[32, 2], 0, 0)
        .header();
    for length in 0..header.len() {
        let path = write(folder.path(), "cut.gguf", &header[..length]);
        quantsmith!("inspect", &path).run().error(1);
    }
}

#[test]
fn lengths_and_counts_beyond_the_file_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, file: Gguf| refused(&write(folder.path(), name, &file.bytes()), &[name]);
    let plain = || Gguf::default().text("general.architecture", "llama");
    file("n_kv.gguf", plain().entry_count(1 << 63));
    file("n_tensors.gguf", plain().tensor_count(1 << 63));
    file("n_tensors_max.gguf", plain().tensor_count(u64::MAX));
    file("string.gguf", plain().entry("general.name", 8, &(1u64 << 63).to_le_bytes()));
    file("array.gguf", plain().array("general.tags", 10, 1 << 61, &[]));
    file("kind.gguf", plain().entry("general.name", 99, &[0; 8]));
    file("version.gguf", plain().version(77));
}

#[test]
fn tensors_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tensor = |name: &str, dims: &[u64], kind: u32, offset: u64, words: &[&str]| {
        let file = Gguf::default().text("general.architecture", "llama").description("w", dims, kind, offset);
        let words = [words, &[name]].concat();
        refused(&write(folder.path(), name, &file.bytes()), &words);
    };
    tensor("wrap.gguf", &[1 << 33, 1 << 31], 0, 0, &[]);
    tensor("wrap4.gguf", &[1 << 16, 1 << 16, 1 << 16, 1 << 16], 0, 0, &[]);
    tensor("past_end.gguf", &[1024], 0, 0, &["'w'"]);
    tensor("offset.gguf", &[8], 0, 1 << 40, &["'w'"]);
    tensor("offset_max.gguf", &[8], 0, u64::MAX - 31, &[]);
    tensor("type.gguf", &[32], 4096, 0, &["4096"]);
    tensor("removed.gguf", &[32], 5, 0, &["Q4_3"]);
    tensor("partial.gguf", &[33, 2], 2, 0, &[]);
}

#[test]
fn a_model_with_empty_tensors_is_refused_by_what_runs_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = tiny_llama().description("blk.9.attn_q.weight", &[0, 64], 0, 0);
    // Nothing is wrong with the file itself; the graph does not use the tensor.
    let path = write(folder.path(), "extra.gguf", &file.bytes());
    assert_eq!(quantsmith!("inspect", &path).run().code, 0);
    let file = Gguf::default().text("general.architecture", "llama").u32("llama.block_count", 1).description(
        "token_embd.weight",
        &[0, 0],
        0,
        0,
    );
    let path = write(folder.path(), "zero.gguf", &file.bytes());
    run(&path).error(1);
}

#[test]
fn text_from_a_file_does_not_reach_the_terminal_raw() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = Gguf::default().text("general.architecture", "lla\u{1b}[2J\nma").text("a\u{1b}b", "c\u{1b}d");
    let path = write(folder.path(), "escape.gguf", &file.bytes());
    let shown = quantsmith!("inspect", &path).run();
    assert!(!shown.stdout.contains('\u{1b}') && !shown.stderr.contains('\u{1b}'), "{shown:?}");
    assert!(!run(&path).error(1).contains('\u{1b}'));
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_figures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(folder.path(), "tiny.gguf", &tiny_llama().bytes());
    let prompt = "a".repeat(100);
    let commands = [
        quantsmith!("run", "-m", &path, "-p", &prompt).run(),
        quantsmith!("run", "-m", &path, "-p", &prompt, "--json").run(),
        quantsmith!("logits", "-m", &path, "-p", &prompt, "--json").run(),
        quantsmith!("fingerprint", "-m", &path, "-p", &prompt).run(),
    ];
    for ended in commands {
        let error = ended.error(1);
        assert!(error.contains("102 tokens") && error.contains("holds 64"), "{error}");
    }
    // What just fits runs.
    let fits = "a".repeat(62);
    assert_eq!(quantsmith!("logits", "-m", &path, "-p", &fits).run().code, 0);
}

#[test]
fn a_full_context_ends_the_text_and_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(folder.path(), "tiny.gguf", &tiny_llama().bytes());
    let start = || quantsmith!("run", "-m", &path, "-p", "abc").args("--temp 0 --ignore-eos -c 16");
    let open = start().run();
    assert_eq!(open.code, 0, "{open:?}");
    assert!(
        open.stderr.contains("context of 16 tokens is full after 12 generated tokens"),
        "{}",
        open.stderr
    );
    let asked = start().args("-n 20").run();
    assert_eq!(asked.code, 1);
    assert!(
        asked.stderr.lines().last().is_some_and(|l| l.contains("12 generated tokens of 20")),
        "{}",
        asked.stderr
    );
    assert_eq!(asked.stdout, open.stdout, "what was generated is there");
    assert_eq!(start().args("-n -2").run().stdout, open.stdout);
    assert_eq!(start().args("-n 12").run().code, 0);
}

#[test]
fn an_empty_prompt_is_the_begin_mark_or_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(folder.path(), "tiny.gguf", &tiny_llama().bytes());
    let json = quantsmith!("run", "-m", &path, "-p", "", "--json").args("-n 2 --temp 0").json();
    assert_eq!(json["prompt_tokens"], serde_json::json!([1]));
    let none =
        write(folder.path(), "none.gguf", &tiny_llama().bool("tokenizer.ggml.add_bos_token", false).bytes());
    let error = quantsmith!("run", "-m", &none, "-p", "").args("-n 2 --temp 0").run();
    assert!(error.error(2).contains("empty"), "{error:?}");
}

#[test]
fn no_tokens_are_no_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(folder.path(), "tiny.gguf", &tiny_llama().bytes());
    let ended = quantsmith!("run", "-m", &path, "-p", "abc").args("-n 0").run();
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
}

#[test]
fn sizes_that_no_memory_holds_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = write(folder.path(), "tiny.gguf", &tiny_llama().bytes());
    let huge = quantsmith!("run", "-m", &path, "-p", "abc").args("-n 1 -c 4294967295").run();
    assert!(huge.code == 1 || huge.code == 2, "{huge:?}");
    huge.error(huge.code);
    let batch = quantsmith!("run", "-m", &path, "-p", "abc").args("-n 1 -b 4294967295 -ub 4294967295").run();
    assert_eq!(batch.code, 0, "a batch is never larger than the context: {batch:?}");
}
