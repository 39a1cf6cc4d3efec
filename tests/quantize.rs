//! `quantize` and what may go wrong while a file is written: the input is never harmed, and no half file stays.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quantsmith_tests::{RealModel, program, quantsmith, tiny_llama};
use serde_json::Value as Json;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn tiny(folder: &Path) -> PathBuf {
    let path = folder.join("tiny.gguf");
    std::fs::write(&path, tiny_llama().bytes()).expect("the file is written");
    path
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// How many tensors of each format a file has.
fn formats(path: &Path) -> Vec<(String, u64)> {
    let json = quantsmith!("inspect", path, "--json").json();
    let types = json["types"].as_array().expect("a list").iter();
    let row =
        |t: &Json| (t["type"].as_str().expect("a name").to_owned(), t["tensors"].as_u64().expect("a number"));
    let mut rows: Vec<(String, u64)> = types.map(row).collect();
    rows.sort();
    rows
}

fn expected(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
    rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_small_model_is_quantised_and_runs() {
    let folder = folder();
    let (path, out) = (tiny(folder.path()), folder.path().join("q.gguf"));
    let before = std::fs::read(&path).expect("there");
    let ended = quantsmith!("quantize", &path, &out, "q4_0", "2").run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("bits per weight: "), "{}", ended.stdout);
    assert!(ended.stderr.contains("read back and found as written"), "{}", ended.stderr);
    // Rows of 64 are no super-blocks: the output gets the next best.
    assert_eq!(formats(&out), expected(&[("F32", 5), ("Q4_0", 15), ("Q8_0", 1)]));
    assert_eq!(quantsmith!("gguf", "verify", &out).run().code, 0);
    assert_eq!(quantsmith!("fingerprint", "-m", &out, "-p", "abc").run().code, 0);
    assert_eq!(std::fs::read(&path).expect("there"), before);

    let dry = quantsmith!("quantize", "--dry-run", "--json", &path, "Q4_K_M").json();
    let fallback = dry["plan"]["tensors"][0].clone();
    assert_eq!(
        (fallback["to"].as_str(), fallback["reason"]["fallback"]["wanted"].as_str()),
        (Some("Q5_0"), Some("Q4_K"))
    );
    assert_eq!(names(folder.path()), ["q.gguf", "tiny.gguf"], "a dry run writes nothing");
    let named = quantsmith!("quantize", &path, "Q8_0", "--json").json();
    let file = named["report"]["files"][0].as_str().expect("a path");
    assert!(file.ends_with("ggml-model-Q8_0.gguf") && Path::new(file).exists(), "{file}");
}

#[test]
fn arguments_of_llama_cpp_mean_the_same() {
    let folder = folder();
    let (path, out) = (tiny(folder.path()), folder.path().join("q.gguf"));
    let line = "--pure --tensor-type attn_q=q8_0 --token-embedding-type f16 --output-tensor-type q5_1 \
                --override-kv llama.context_length=int:32 --override-kv general.name=str:other";
    let ended = quantsmith!("quantize").args(line).arg(&path).arg(&out).arg("Q4_1").run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(formats(&out), expected(&[("F16", 1), ("F32", 5), ("Q4_1", 12), ("Q5_1", 1), ("Q8_0", 2)]));
    let shown = quantsmith!("inspect", &out, "--json").json();
    assert_eq!(shown["metadata"]["llama.context_length"], serde_json::json!({ "type": "u32", "value": 32 }));
    assert_eq!(shown["metadata"]["general.name"]["value"], "other");
    assert_eq!(shown["metadata"]["general.file_type"]["value"], 3);
    let patterns = folder.path().join("patterns");
    std::fs::write(&patterns, "ffn=q8_0\nattn_[kv]=f16 ").expect("written");
    let ended =
        quantsmith!("quantize", "--tensor-type-file", &patterns, "--leave-output-tensor", &path, &out, "2")
            .run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(formats(&out), expected(&[("F16", 4), ("F32", 6), ("Q4_0", 5), ("Q8_0", 6)]));
    let again = folder.path().join("again.gguf");
    quantsmith!("quantize", &out, &again, "Q5_0").run().error(1);
    assert_eq!(quantsmith!("quantize", "--allow-requantize", &out, &again, "Q5_0").run().code, 0);
    assert_eq!(quantsmith!("quantize", &out, &again, "copy").run().code, 0);
    assert_eq!(quantsmith!("gguf", "diff", &out, &again).run().stdout.lines().count(), 0);

    assert!(quantsmith!("quantize", &path, &out, "Q4_Z").run().error(2).contains("Q4_K_M"));
    quantsmith!("quantize", &path, &out, "Q4_0", "none").run().error(2);
    quantsmith!("quantize", &path).run().error(2);
    quantsmith!("quantize", &path, &out, "Q4_0", "--tensor-type", "x").run().error(2);
    quantsmith!("quantize", &path, &out, "Q4_0", "--tensor-type", "(=Q4_0").run().error(2);
    quantsmith!("quantize", &path, &out, "Q4_0", "--imatrix", &path).run().error(1);
    quantsmith!("quantize", folder.path().join("none"), &out, "Q4_0").run().error(1);
}

#[test]
fn a_real_model_gets_the_formats_that_llama_cpp_gives_it() {
    let folder = folder();
    let out = folder.path().join("q.gguf");
    let quantised = |ty: &str| {
        let path = RealModel::SmolLm2.path();
        let ended = quantsmith!("quantize", "--allow-requantize", "-q", path, &out, ty).run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        formats(&out)
    };
    // As counted in what llama.cpp's tool makes of the same file.
    let four = [("F32", 61), ("Q4_K", 16), ("Q5_0", 166), ("Q6_K", 14), ("Q8_0", 15)];
    assert_eq!(quantised("Q4_K_M"), expected(&four));
    let answer =
        quantsmith!("run", "-m", &out, "-p", "The capital of France is", "-n", "4", "--temp", "0", "-no-cnv");
    let answer = answer.run();
    assert!(answer.code == 0 && answer.stdout.contains("Paris"), "{answer:?}");
}

/// The ways to write a file, as arguments around the input.
fn writers<'a>(input: &'a str, output: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["quantize", input, output, "Q8_0"],
        vec!["convert", input, output],
        vec!["gguf", "set", input, output, "a=u8:1"],
        vec!["gguf", "remove", input, output, "general.name"],
        vec!["gguf", "merge", input, output],
        vec!["inspect", input, "--tensor", "output.weight", "--export", output],
    ]
}

#[test]
fn the_output_is_never_the_input() {
    let folder = folder();
    let path = tiny(folder.path());
    let before = std::fs::read(&path).expect("there");
    let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
    std::fs::hard_link(&path, &hard).expect("a link");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&path, &soft).expect("a link");
    #[cfg(not(unix))]
    std::fs::hard_link(&path, &soft).expect("a link");
    let dotted = folder.path().join(".").join("tiny.gguf");
    let found = names(folder.path());
    for output in [&path, &soft, &hard, &dotted] {
        for args in writers(path.to_str().expect("text"), output.to_str().expect("text")) {
            let error =
                args.iter().fold(quantsmith!(), |command, arg| command.arg(arg)).run().error(1).to_owned();
            assert!(error.contains("is the input"), "{args:?}: {error}");
        }
    }
    assert_eq!(std::fs::read(&path).expect("there"), before);
    assert_eq!(names(folder.path()), found);
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let folder = folder();
    let (path, out) = (tiny(folder.path()), folder.path().join("out"));
    std::fs::write(&out, b"what was there").expect("written");
    for args in writers(path.to_str().expect("text"), out.to_str().expect("text")) {
        // Files may not grow beyond 16 KiB, which is told as a fault and not by a signal.
        let script = "trap '' XFSZ; ulimit -f 16 || exit 99; exec \"$0\" \"$@\"";
        let ended = Command::new("bash")
            .args(["-c", script])
            .arg(program!())
            .args(&args)
            .stdin(Stdio::null())
            .output()
            .expect("bash starts");
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains("cannot"), "{args:?}: {error}");
        assert_eq!(std::fs::read(&out).expect("there"), b"what was there", "{args:?}");
        assert_eq!(names(folder.path()), ["out", "tiny.gguf"], "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let path = tiny(folder.path());
    let closed = folder.path().join("closed");
    std::fs::create_dir(&closed).expect("a folder");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).expect("closed");
    // Some users may write everywhere; a folder that is none stops them, too.
    let everywhere = std::fs::write(closed.join("x"), b"").is_ok();
    let places = [closed.join("out"), path.join("out"), folder.path().join("none").join("out")];
    for out in places.iter().skip(usize::from(everywhere)) {
        for args in writers(path.to_str().expect("text"), out.to_str().expect("text")) {
            let ended = args.iter().fold(quantsmith!(), |command, arg| command.arg(arg)).run();
            assert!(ended.error(1).contains("cannot"), "{args:?}: {}", ended.stderr);
        }
    }
    let reserved = folder.path().join("folder");
    std::fs::create_dir(&reserved).expect("a folder");
    assert!(quantsmith!("convert", &path, &reserved).run().error(1).contains("directory"));
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).expect("opened again");
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let model = RealModel::SmolLm2.path();
    let before = std::fs::metadata(&model).expect("there").len();
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let out = folder.path().join("out.gguf");
        let mut child = Command::new(program!())
            .args(["quantize", "--allow-requantize"])
            .args([&model, &out])
            .args(["Q6_K", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let start = Instant::now();
        while names(folder.path()).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is written");
            assert!(child.try_wait().expect("a child").is_none(), "it ended before it wrote");
            std::thread::sleep(Duration::from_millis(2));
        }
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
        let ended = child.wait_with_output().expect("ends");
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(130), "{signal}: {error}");
        assert!(error.ends_with("error: interrupted; what was half written is removed\n"), "{error}");
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{signal}");
    }
    assert_eq!(std::fs::metadata(&model).expect("there").len(), before);
}
