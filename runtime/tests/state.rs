//! A saved context: it goes on with the same bits, and nothing wrong is taken for one.

mod kit;

use kit::{Draft, MIXED, Shape, logits, tokens};
use quantsmith::model::arch::Architecture;
use quantsmith::{LoadOptions, Model, Session, Want};
use std::sync::Arc;

fn model(name: &str, shape: Shape, ubatch: usize) -> Arc<Model> {
    let arch = Architecture::find(name).expect("an architecture");
    Draft::new(arch, shape, MIXED).write().load(LoadOptions {
        threads: Some(2),
        ubatch,
        ..Default::default()
    })
}

fn saved(model: &Arc<Model>, tokens: &[u32]) -> Vec<u8> {
    let mut session = Session::new(model).expect("a session");
    session.eval(tokens, Want::None, &mut |_, _| {}).expect("room");
    let mut file = Vec::new();
    session.save(&mut file).expect("memory is written");
    file
}

#[test]
fn a_restored_context_goes_on_with_the_same_bits() {
    // The window of gemma3 has moved on when it is saved.
    for (name, window) in [("llama", None), ("gemma3", Some(24))] {
        let shape = Shape { context: 400, window, ..Shape::default() };
        let model = model(name, shape, 16);
        let all = tokens(330);
        let file = saved(&model, &all[..300]);
        let mut session = Session::new(&model).expect("a session");
        // What was there before does not matter.
        session.eval(&all[100..350.min(all.len())], Want::None, &mut |_, _| {}).expect("room");
        session.restore(&file[..]).expect("the same model");
        assert_eq!(session.tokens(), &all[..300]);
        assert_eq!(session.resume(&all), 300);
        session.eval(&all[300..], Want::Last, &mut |_, _| {}).expect("room");
        let got: Vec<u32> = session.logits().iter().map(|x| x.to_bits()).collect();
        assert_eq!(got, logits(&model, &all)[329 * model.vocab_size()..], "{name}");
        // It can be cut back as far as the one that was saved, and no further.
        session.restore(&file[..]).expect("the same model");
        let cut = session.truncate(100).map_err(|e| e.to_string());
        assert_eq!(cut.is_err(), name == "gemma3", "{cut:?}");
        assert_eq!(saved(&model, &all[..300]), file, "the same context is the same file");
    }
}

#[test]
fn an_empty_context_can_be_saved() {
    let model = model("llama", Shape::default(), 16);
    let file = saved(&model, &[]);
    let mut session = Session::new(&model).expect("a session");
    session.restore(&file[..]).expect("the same model");
    assert_eq!(session.position(), 0);
}

#[test]
fn a_context_of_something_else_is_refused_with_what_differs() {
    let shape = Shape { context: 400, ..Shape::default() };
    let gemma = model("gemma3", shape, 16);
    let file = saved(&gemma, &tokens(200));
    let error = |model: &Arc<Model>, file: &[u8]| {
        let mut session = Session::new(model).expect("a session");
        let error = session.restore(file).expect_err("refused").to_string();
        assert_eq!(session.position(), 0);
        error
    };
    assert!(error(&model("llama", shape, 16), &file).contains("another model"));
    let other = model("gemma3", shape, 100);
    assert!(error(&other, &file).contains("rings of 128 positions (-ub), expected"));
    let arch = Architecture::find("gemma3").expect("an architecture");
    let written = Draft::new(arch, shape, MIXED).write();
    let options = || LoadOptions { ubatch: 16, context: Some(150), ..Default::default() };
    assert!(error(&written.load(options()), &file).contains("found 200 tokens, expected at most the 150"));
    assert!(error(&gemma, b"GGUF and more of it").contains("expected \"QSMSTATE\""));
    let mut older = file.clone();
    older[8] = 1;
    assert_eq!(error(&gemma, &older), "found version 1, expected version 2");
}

#[test]
fn no_damaged_file_is_taken_for_a_context() {
    let shape = Shape { layers: 2, ..Shape::default() };
    let model = model("llama", shape, 16);
    let file = saved(&model, &tokens(20));
    let mut session = Session::new(&model).expect("a session");
    for end in (0..200).chain((200..file.len()).step_by(997)).chain([file.len() - 1]) {
        session.restore(&file[..end]).expect_err("cut short");
        assert_eq!(session.position(), 0, "{end}");
    }
    for at in (0..200).chain((200..file.len()).step_by(997)) {
        for flip in [1, 0x80] {
            let mut bad = file.clone();
            bad[at] ^= flip;
            session.restore(&bad[..]).expect_err("changed");
        }
    }
    session.restore(&file[..]).expect("the whole and right one");
    assert_eq!(session.position(), 20);
}
