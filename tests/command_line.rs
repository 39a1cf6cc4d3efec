//! The command line as a user meets it: where things are printed, exit codes, copied flags, pipes.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quantsmith_tests::{program, quantsmith, tiny_llama};

struct Tiny {
    folder: tempfile::TempDir,
    path: PathBuf,
}

/// A tiny model with a chat template.
fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let template = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}";
    let file = tiny_llama().text("tokenizer.chat_template", template);
    std::fs::write(&path, file.bytes()).expect("the file is written");
    Tiny { folder, path }
}

#[test]
fn wrong_requests_end_with_two_and_one_line() {
    let tiny = tiny();
    let run = || quantsmith!("run", "-m", &tiny.path);
    let cases = [
        (quantsmith!("run", "-p", "x"), "--model"),
        (quantsmith!("frobnicate"), "frobnicate"),
        (run().args("-p x --frobnicate"), "--frobnicate"),
        (run(), "no prompt was given"),
        (run().args("-p x -n many"), "many"),
        (run().args("-p x -n -3"), "-3"),
        (run().args("-p x -t 100000"), "1 to 1024"),
        (run().args("-p x -ub 0"), "0"),
        (run().args("-p x -s -7"), "-7"),
        (run().args("-p x --temp nan"), "--temp"),
        (run().args("-p x -f y"), "--file"),
        (run().args("-p x -hf some/model"), "-m FILE"),
        (run().args("-p x -ctk q5_1"), "f32, f16, q8_0, q4_0"),
        (run().args("-p x -ctv q8_0"), "f32, f16 for heads of 16"),
        (run().args("-p x -cnv -no-cnv"), "--no-conversation"),
        (run().args("-p x --isa sse9"), "available: scalar"),
        (quantsmith!("cpu").env("QUANTSMITH_ISA", "sse9"), "available: scalar"),
        (quantsmith!("completions", "tcsh"), "bash"),
    ];
    for (command, word) in cases {
        let ended = command.run();
        let error = ended.error(2);
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
    let nothing = quantsmith!().run();
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
    assert!(nothing.stderr.contains("Usage:"), "{}", nothing.stderr);
}

#[test]
fn help_and_version_are_results() {
    for command in
        [quantsmith!("--help"), quantsmith!("run", "--help"), quantsmith!("-V"), quantsmith!("man")]
    {
        let ended = command.run();
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        assert!(ended.stdout.contains("quantsmith"));
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = quantsmith!("completions", shell).run();
        assert!(ended.code == 0 && ended.stdout.contains("fingerprint"), "{shell}");
    }
}

#[test]
fn the_text_goes_to_standard_output_and_all_else_to_standard_error() {
    let tiny = tiny();
    let run = || quantsmith!("run", "-m", &tiny.path, "-p", "abc").args("-n 8 --temp 0 --ignore-eos");
    let (plain, json) = (run().run(), run().arg("--json").json());
    let text = json["text"].as_str().expect("text");
    assert_eq!(plain.stdout.trim_end_matches('\n'), text.trim_end_matches('\n'));
    for line in
        ["model:", "context:", "cpu:", "mode:", "prompt eval time =", "eval time =", "tokens per second"]
    {
        assert!(plain.stderr.contains(line), "{line} is not in {}", plain.stderr);
    }
    let quiet = run().arg("-q").run();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), (plain.stdout.as_str(), ""));
    let verbose = run().arg("-v").run();
    assert!(verbose.stderr.contains("blk.0.attn_q.weight"), "{}", verbose.stderr);
    assert_eq!(verbose.stdout, plain.stdout);
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let tiny = tiny();
    let run = |flags: &str| {
        quantsmith!("run", "-m", &tiny.path, "-p", "abc").args("-n 20 --ignore-eos").args(flags).run()
    };
    let first = run("-s 7");
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.stdout, run("--seed 7 -t 3 --isa scalar").stdout);
    assert_ne!(first.stdout, run("-s 8").stdout);
    assert!(run("").stderr.contains("seed:"), "a drawn seed is shown");
}

#[test]
fn copied_commands_run() {
    let tiny = tiny();
    let flags = "-n 2 -no-cnv -ngl 99 -fa on -ub 64 -b 128 -tb 2 -t 2 -ctk f16 -ctv f16 --no-warmup --jinja -e \
                 --no-display-prompt --simple-io --temp 0";
    let ended = quantsmith!("run", "-m", &tiny.path, "-p", "abc").args(flags).run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("warning:").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("-ngl is ignored"), "{}", ended.stderr);
}

#[test]
fn a_known_word_that_is_a_value_is_left_alone() {
    let tiny = tiny();
    let ids = quantsmith!("tokenize", "-m", &tiny.path, "-p", "-cnv", "--json").json();
    let same = quantsmith!("tokenize", "-m", &tiny.path, "--prompt=-cnv", "--json").json();
    assert_eq!(ids, same);
    assert_eq!(ids["ids"].as_array().map(Vec::len), Some(6), "{ids}");
}

#[test]
fn chat_mode_is_chosen_by_flag_where_there_is_no_terminal() {
    let tiny = tiny();
    let run = |flags: &str| {
        quantsmith!("run", "-m", &tiny.path, "-p", "hi", "--json").args("-n 1 --temp 0").args(flags)
    };
    let raw = run("").json();
    let chat = run("-cnv").json();
    assert_ne!(raw["prompt_tokens"], chat["prompt_tokens"]);
    let system = run("-sys be").json();
    assert_ne!(system["prompt_tokens"], chat["prompt_tokens"]);
    assert!(run("").run().stderr.contains("-cnv chats"));
    assert!(run("-cnv").run().stderr.contains("-no-cnv completes"));
    let bare = tiny.folder.path().join("bare.gguf");
    std::fs::write(&bare, tiny_llama().bytes()).expect("the file is written");
    let refused = quantsmith!("run", "-m", &bare, "-p", "hi").args("-cnv").run();
    assert!(refused.error(1).contains("no chat template"));
}

#[test]
fn what_a_user_says_in_a_chat_is_no_special_token() {
    let tiny = tiny();
    let json =
        quantsmith!("run", "-m", &tiny.path, "-p", "a</s>", "--json").args("-n 1 --temp 0 -cnv").json();
    let ids = json["prompt_tokens"].as_array().expect("a list");
    assert!(!ids.contains(&2.into()), "{ids:?}");
    let raw = quantsmith!("run", "-m", &tiny.path, "-p", "a</s>", "--json").args("-n 1 --temp 0").json();
    assert!(
        raw["prompt_tokens"].as_array().is_some_and(|ids| ids.contains(&2.into())),
        "a raw prompt may have them"
    );
}

#[test]
fn prompts_come_from_arguments_files_and_standard_input() {
    let tiny = tiny();
    let file = tiny.folder.path().join("prompt.txt");
    std::fs::write(&file, "ab\ncd\n").expect("the file is written");
    let logits = || quantsmith!("tokenize", "-m", &tiny.path, "--json");
    let expected = logits().args("-p ab\\ncd").json();
    assert_eq!(logits().arg("-f").arg(&file).json(), expected);
    assert_eq!(logits().args("-f -").stdin("ab\ncd\n").json(), expected);
    assert_ne!(logits().args("-bf -").stdin("ab\ncd\n").json(), expected);
    assert_ne!(logits().args("-p ab\\ncd --no-escape").json(), expected);
    let missing = logits().args("-f nowhere.txt").run();
    assert!(missing.error(1).contains("nowhere.txt"));
    let bytes = logits().args("-f -").stdin(vec![b'a', 0xff]).run();
    assert!(bytes.error(1).contains("byte 1"));
}

/// Starts a program with standard input left open and nothing in it.
fn with_open_input(args: &[&str]) -> std::process::Child {
    Command::new(program!())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

#[test]
fn nothing_waits_for_input_that_nobody_promised() {
    let tiny = tiny();
    let path = tiny.path.to_str().expect("the path is text");
    let mut children = [
        with_open_input(&["run", "-m", path, "-p", "abc", "-n", "3"]),
        with_open_input(&["run", "-m", path, "-p", "abc", "-n", "3", "-cnv"]),
        with_open_input(&["run", "-m", path]),
    ];
    let deadline = Instant::now() + Duration::from_secs(60);
    for (child, code) in children.iter_mut().zip([0, 0, 2]) {
        let status = loop {
            if let Some(status) = child.try_wait().expect("the child can be asked") {
                break status;
            }
            assert!(Instant::now() < deadline, "still waiting");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(code));
    }
}

/// A terminal is made by util-linux's `script`, which Linux systems have.
#[cfg(target_os = "linux")]
#[test]
fn a_conversation_goes_on_at_a_terminal() {
    let tiny = tiny();
    let program = program!().into_string().expect("the path is text");
    let path = tiny.path.to_str().expect("the path is text");
    let talk = |flags: &str, typed: &str| {
        let line = format!("'{program}' run -m '{path}' -n 4 --temp 0 --ignore-eos -q {flags}");
        let ended = quantsmith_tests::Quantsmith::new("script")
            .arg("-qec")
            .arg(line)
            .arg("/dev/null")
            // A line editor would draw its prompt with every key.
            .env("TERM", "dumb")
            .stdin(typed)
            .run();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    };
    // Two lines, two answers, and a third question that nobody answers.
    assert_eq!(talk("", "ab\ncd\n\u{4}").matches("> ").count(), 3);
    // A prompt is answered once; with -cnv the conversation goes on, with -st it does not.
    assert_eq!(talk("-p ab", "cd\n\u{4}").matches("> ").count(), 0);
    assert_eq!(talk("-p ab -cnv", "cd\n\u{4}").matches("> ").count(), 2);
    assert_eq!(talk("-p ab -cnv -st", "cd\n\u{4}").matches("> ").count(), 0);
    assert_eq!(talk("-st", "ab\ncd\n\u{4}").matches("> ").count(), 1);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let tiny = tiny();
    let path = tiny.path.to_str().expect("the path is text");
    let mut child = Command::new(program!())
        .args(["logits", "-m", path, "-p", &"abc".repeat(20), "--top", "286"])
        .args(["-q"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    let status = child.wait().expect("the child ends");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = Command::new(program!()).arg("formats").stdout(full).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: standard output: cannot write"), "{said}");
}
