//! `chat`: what a person at a terminal sees, and what happens where there is none.
//!
//! A terminal is made by util-linux's `script`, which Linux systems have.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quantsmith_tests::{RealModel, program, quantsmith, tiny_llama};
use serde_json::Value;

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}[a]";

struct Tiny {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn tiny() -> Tiny {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let file = tiny_llama().text("tokenizer.chat_template", TEMPLATE);
    std::fs::write(&path, file.bytes()).expect("the file is written");
    Tiny { folder, path }
}

/// A program at a terminal, and the person who types there.
struct Terminal {
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    /// How much of what was seen has been waited for.
    read: usize,
}

impl Terminal {
    fn open(tiny: &Tiny, flags: &str, variables: &[(&str, &str)]) -> Self {
        let program = program!().into_string().expect("the path is text");
        // Without `exec` some shells stay in between, and Ctrl-C ends them.
        let line = format!("exec '{program}' chat -m '{}' --temp 0 {flags}", tiny.path.display());
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR");
        command.envs(variables.iter().copied()).current_dir(tiny.folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (child.stdout.take().expect("piped"), seen.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut piece) {
                to.lock().expect("no panic").extend(&piece[..n]);
            }
        });
        Self { child, seen, read: 0 }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    /// Waits for a text, after all that was waited for before, and returns what came before it.
    fn wait(&mut self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let all = self.text();
            if let Some(at) = all[self.read..].find(text) {
                let before = all[self.read..self.read + at].to_owned();
                self.read += at + text.len();
                return before;
            }
            assert!(Instant::now() < deadline, "waiting for {text:?} after {:?}", &all[self.read..]);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&mut self, keys: &str) {
        // What is typed before the line editor is ready would be lost.
        std::thread::sleep(Duration::from_millis(50));
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(keys.as_bytes()).expect("script reads");
        stdin.flush().expect("script reads");
    }

    /// Types a line at the next prompt.
    fn say(&mut self, line: &str) {
        self.wait("> ");
        self.press(&format!("{line}\r"));
    }

    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                return (status.code(), self.text());
            }
            assert!(Instant::now() < deadline, "still there: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_person_talks_and_commands_are_obeyed() {
    let tiny = tiny();
    let mut t = Terminal::open(&tiny, "-n 3 --ignore-eos", &[]);
    t.say("/help");
    t.wait("/regen");
    t.say("ab");
    t.wait("stopped after 3 tokens, as -n says");
    t.say("/stats");
    t.wait("of 64 tokens, 2 messages");
    t.wait("tokens per second");
    t.say("/system be");
    t.say("/system");
    t.wait("be");
    t.say("/save talk.json");
    t.wait("3 messages saved in talk.json");
    t.say("/nope");
    t.wait("error: there is no command /nope");
    t.say("/load nowhere.json");
    t.wait("error: nowhere.json: cannot read");
    t.say("/reset");
    t.wait("forgotten");
    t.say("/regen");
    t.wait("error: /regen: nothing has been said yet");
    t.say("/load talk.json");
    t.wait("3 messages read from talk.json");
    t.say("/regen");
    t.say("/save");
    t.wait("saved in talk.json");
    t.say("/exit");
    let (code, seen) = t.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("eval time ="), "the speed comes at the end: {seen}");
    let saved = std::fs::read_to_string(tiny.folder.path().join("talk.json")).expect("it was saved");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    assert_eq!(saved[0], serde_json::json!({"role": "system", "content": "be"}));
    assert_eq!(saved[1]["content"], "ab");
    assert!(saved[2]["content"].as_str().is_some_and(|text| !text.is_empty()), "{saved}");
    // A file of somebody else is not overwritten.
    let mut t = Terminal::open(&tiny, "-n 1", &[]);
    t.say("/save talk.json");
    t.wait("error: talk.json: cannot write");
    t.wait("> ");
    t.press("\u{4}");
    assert_eq!(t.end().0, Some(0));
}

#[test]
fn lines_go_on_after_a_backslash_and_slashes_can_be_said() {
    let tiny = tiny();
    let mut t = Terminal::open(&tiny, "-n 2 --ignore-eos", &[]);
    t.say("a\\");
    t.press("b\r");
    t.wait("\n");
    t.say("//c");
    t.say("/save talk.json");
    t.wait("saved");
    t.say("/exit");
    assert_eq!(t.end().0, Some(0));
    let saved = std::fs::read_to_string(tiny.folder.path().join("talk.json")).expect("it was saved");
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    assert_eq!((saved[0]["content"].as_str(), saved[2]["content"].as_str()), (Some("a\nb"), Some("/c")));
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let tiny = tiny();
    // Without an end of its own the answer goes on for ever.
    let mut t = Terminal::open(&tiny, "--ignore-eos --context-shift", &[]);
    t.say("ab");
    std::thread::sleep(Duration::from_millis(500));
    t.press("\u{3}");
    t.wait("stopped; /regen answers again");
    t.wait("> ");
    t.press("\u{3}");
    t.wait("Ctrl-D or /exit ends the conversation");
    t.say("/exit");
    assert_eq!(t.end().0, Some(0));
}

#[test]
fn a_full_context_is_told_with_figures_or_makes_room() {
    let tiny = tiny();
    let long = "a".repeat(50);
    let mut t = Terminal::open(&tiny, "-n 9 --ignore-eos", &[]);
    t.say(&long);
    t.wait("stopped: the context of 64 tokens is full");
    t.say(&long);
    t.wait("error: the context is full: the conversation has");
    t.wait("64 tokens");
    t.say("/reset");
    t.say("ab");
    t.say("/stats");
    t.wait("2 messages");
    t.say("/exit");
    assert_eq!(t.end().0, Some(0));
    let mut t = Terminal::open(&tiny, "-n 9 --ignore-eos --context-shift", &[]);
    t.say(&long[..20]);
    t.say(&long[..30]);
    t.wait("the context is full: the oldest 2 messages were dropped");
    t.say("/stats");
    t.wait("2 messages");
    t.say("/exit");
    assert_eq!(t.end().0, Some(0));
}

#[test]
fn colours_are_for_those_who_want_them() {
    let tiny = tiny();
    let seen = |flags: &str, variables: &[(&str, &str)]| {
        let mut t = Terminal::open(&tiny, &format!("-n 1 {flags}"), variables);
        t.say("/exit");
        t.end().1
    };
    let green = "\u{1b}[1;32m";
    assert!(seen("", &[]).contains(green));
    assert!(!seen("", &[("NO_COLOR", "1")]).contains(green));
    assert!(seen("-co on", &[("NO_COLOR", "1")]).contains(green));
    assert!(!seen("--color off", &[]).contains(green));
    assert!(!seen("", &[("TERM", "dumb")]).contains('\u{1b}'), "a terminal without cursor keys");
}

#[test]
fn without_a_terminal_there_is_one_answer_or_an_error() {
    let tiny = tiny();
    let chat = || quantsmith!("chat", "-m", &tiny.path).args("-n 4 --temp 0 --ignore-eos");
    assert!(chat().run().error(2).contains("no prompt was given"));
    let ended = chat().args("-p ab").run();
    assert_eq!((ended.code, ended.stdout.lines().count()), (0, 1), "{ended:?}");
    let same = quantsmith!("run", "-m", &tiny.path).args("-n 4 --temp 0 --ignore-eos -cnv -p ab").run();
    assert_eq!(ended.stdout, same.stdout);
    let read = chat().args("-f -").stdin("ab\n").run();
    assert_eq!(ended.stdout, read.stdout);
    let json = chat().args("-p ab --json").json();
    assert_eq!(json["tokens"].as_array().map(Vec::len), Some(4));
    let bare = tiny.folder.path().join("bare.gguf");
    std::fs::write(&bare, tiny_llama().bytes()).expect("the file is written");
    let refused = quantsmith!("chat", "-m", &bare, "-p", "ab").run();
    assert!(refused.error(1).contains("--chat-template"));
}

#[test]
fn a_generation_goes_on_past_the_context_only_where_that_was_asked_for() {
    let tiny = tiny();
    let run = |flags: &str| {
        quantsmith!("run", "-m", &tiny.path).args("-p abc -n 200 --temp 0 --ignore-eos").args(flags)
    };
    let error = run("").run();
    assert_eq!(error.code, 1);
    assert!(error.stderr.contains("the context of 64 tokens is full after"), "{}", error.stderr);
    assert!(error.stderr.contains("--context-shift"), "{}", error.stderr);
    for keep in ["", "--keep 2", "--keep -1"] {
        let json = run(&format!("--context-shift --json {keep}")).json();
        assert_eq!(json["tokens"].as_array().map(Vec::len), Some(200));
    }
    let full = quantsmith!("run", "-m", &tiny.path).args("-p").arg("a".repeat(61));
    let full = full.args("-n 20 --temp 0 --ignore-eos --context-shift --keep -1").run();
    assert_eq!(full.code, 1, "{full:?}");
    assert!(full.stderr.contains("--keep takes fewer"), "{}", full.stderr);
    assert!(run("--context-shift --keep -2").run().error(2).contains("--keep"));
}

#[test]
fn smollm2_answers_and_evaluates_only_what_is_new() {
    let tiny = tiny();
    let tiny = Tiny { path: RealModel::SmolLm2.path().canonicalize().expect("it is there"), ..tiny };
    let mut t = Terminal::open(&tiny, "-c 1024 -n 24 --seed 1", &[]);
    let evaluated = |t: &mut Terminal| -> usize {
        t.say("/stats");
        t.wait("prompt eval time =");
        let line = t.wait("tokens");
        line.rsplit('/').next().and_then(|n| n.trim().parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    t.say("My name is Ada. What is the capital of Italy?");
    let first = evaluated(&mut t);
    t.say("And of Spain?");
    let both = evaluated(&mut t);
    assert!(first > 30 && both - first < 20, "{first} tokens and then {both} in all");
    t.say("/exit");
    assert_eq!(t.end().0, Some(0));
}
