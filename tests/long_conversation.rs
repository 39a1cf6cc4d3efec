//! A conversation of many turns on the real models: what reuse of the cache gives is what a fresh evaluation gives,
//! to the bit, and memory does not grow.
//!
//! `QUANTSMITH_TURNS` sets the number of turns; 200 are the whole test, and fewer are usual, since the fresh
//! evaluations take their time.

use std::sync::{Arc, Mutex, PoisonError};

use quantsmith::text::{ChatTemplate, Message};
use quantsmith::{LoadOptions, Model, Session, Want};
use quantsmith_tests::RealModel;

/// Turns between two comparisons, of a short test and of a long one.
const COMPARED: [usize; 2] = [6, 25];

fn turns() -> usize {
    let text = std::env::var("QUANTSMITH_TURNS").unwrap_or_default();
    if text.is_empty() { 12 } else { text.parse().expect("a number of turns") }
}

/// Bytes of memory in use, without what is mapped from files.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn best(logits: &[f32]) -> u32 {
    let ids = (0u32..).zip(logits);
    ids.fold((0, f32::NEG_INFINITY), |best, (id, &x)| if x > best.1 { (id, x) } else { best }).0
}

/// The memory of the process is measured, so one conversation is held at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn talk(real: RealModel) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let turns = turns();
    let options = LoadOptions { context: Some(12288), ..LoadOptions::default() };
    let model: Arc<Model> = Model::load(&real.path(), options).expect("the model loads");
    let tokenizer = model.tokenizer();
    let chatml = ChatTemplate::builtin("chatml", tokenizer).expect("a known format");
    let template = model.chat_template().unwrap_or(&chatml);
    let mut session = Session::new(&model).expect("a session");
    let mut messages = vec![Message::new("system", "Be brief.")];
    let (mut evaluated, mut reused, mut before) = (0, 0, None);
    for turn in 1..=turns {
        messages.push(Message::new("user", format!("Say number {turn}, and one word.")));
        let prompt = template.render_tokens(&messages, true, tokenizer).expect("a conversation");
        let kept = session.resume(&prompt);
        (evaluated, reused) = (evaluated + prompt.len() - kept, reused + kept);
        session.eval(&prompt[kept..], Want::Last, &mut |_, _| {}).expect("room");
        let mut answer = Vec::new();
        while answer.len() < 8 {
            let id = best(session.logits());
            if tokenizer.is_end_of_generation(id) {
                break;
            }
            answer.push(id);
            session.eval(&[id], Want::Last, &mut |_, _| {}).expect("room");
        }
        messages.push(Message::new("assistant", tokenizer.decode(&answer)));
        if turn % COMPARED[usize::from(turns >= 100)] == 0 || turn == turns {
            let mut fresh = Session::new(&model).expect("a session");
            fresh.eval(session.tokens(), Want::Last, &mut |_, _| {}).expect("room");
            assert_eq!(bits(session.logits()), bits(fresh.logits()), "{}: turn {turn}", real.name());
            let tokens = session.position();
            drop(fresh);
            let now = memory();
            eprintln!("{}: turn {turn}, {tokens} tokens, {:?} bytes", real.name(), now);
            // Cells of the cache are touched as they are needed, and the system counts them then.
            let (Some(now), cells) = (now, model.plan().kv_bytes) else { continue };
            let first = *before.get_or_insert(now);
            assert!(now < first + cells + (8 << 20), "{} bytes more than at first", now - first);
        }
    }
    // A turn evaluates what is new: far less than all that has been said.
    assert!(evaluated < turns * 60, "{evaluated} tokens were evaluated, {reused} reused");
}

#[test]
fn smollm2_talks_long() {
    talk(RealModel::SmolLm2);
}

#[test]
fn gemma3_talks_beyond_its_window() {
    talk(RealModel::Gemma3);
}
