//! A session: its context, what it refuses, and that no order of calls changes an answer.

mod kit;

use kit::{Draft, MIXED, Shape, logits, tokens};
use quantsmith::model::arch::Architecture;
use quantsmith::{Error, LoadOptions, Model, Session, Want};
use std::sync::Arc;

fn model(name: &str, shape: Shape, ubatch: usize) -> Arc<Model> {
    let arch = Architecture::find(name).expect("an architecture");
    Draft::new(arch, shape, MIXED).write().load(LoadOptions {
        threads: Some(2),
        ubatch,
        ..Default::default()
    })
}

fn last(session: &Session) -> Vec<u32> {
    session.logits().iter().map(|x| x.to_bits()).collect()
}

fn quiet(_: usize, _: &[f32]) {}

#[test]
fn a_model_is_shared_between_threads_and_a_session_moves_between_them() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Model>();
    moved::<Session>();
}

#[test]
fn want_decides_which_positions_are_told_and_not_what_they_are() {
    let model = model("gemma3", Shape::default(), 16);
    let tokens = tokens(50);
    let all = logits(&model, &tokens);
    assert_eq!(all.len(), 50 * model.vocab_size());
    let mut session = Session::new(&model).expect("a session");
    assert!(session.logits().is_empty());
    let mut seen = Vec::new();
    session.eval(&tokens[..20], Want::None, &mut |p, _| seen.push(p)).expect("room");
    assert!(seen.is_empty() && session.logits().is_empty());
    session.eval(&tokens[20..45], Want::All, &mut |p, l| seen.push(p + l.len())).expect("room");
    assert_eq!(seen, (20..45).map(|p| p + model.vocab_size()).collect::<Vec<_>>());
    session.eval(&tokens[45..], Want::Last, &mut |p, _| seen.push(p)).expect("room");
    assert_eq!(seen.last(), Some(&49));
    assert_eq!(last(&session), all[49 * model.vocab_size()..]);
    assert_eq!(session.position(), 50);
}

#[test]
fn no_tokens_are_no_work() {
    let model = model("llama", Shape::default(), 16);
    let mut session = Session::new(&model).expect("a session");
    session.eval(&[], Want::All, &mut |_, _| panic!("nothing to tell")).expect("nothing to do");
    assert_eq!(session.position(), 0);
}

#[test]
fn the_context_ends_with_figures_and_what_was_in_it_stays() {
    let model = model("llama", Shape { context: 40, ..Shape::default() }, 16);
    assert_eq!(model.context(), 40);
    let mut session = Session::new(&model).expect("a session");
    let tokens = tokens(41);
    let error = session.eval(&tokens, Want::Last, &mut quiet).expect_err("one too many");
    assert!(matches!(error, Error::ContextFull { have: 0, need: 41, context: 40 }));
    assert_eq!(error.to_string(), "the context is full: 0 tokens are in it, 41 more do not fit into 40");
    assert_eq!(error.exit_code(), 1);
    session.eval(&tokens[..40], Want::Last, &mut quiet).expect("just enough");
    let before = last(&session);
    session.eval(&tokens[40..], Want::Last, &mut quiet).expect_err("full");
    assert_eq!((session.position(), last(&session)), (40, before));
}

#[test]
fn a_token_outside_the_vocabulary_is_refused_before_anything_runs() {
    let model = model("llama", Shape::default(), 16);
    let mut session = Session::new(&model).expect("a session");
    let error = session.eval(&[1, 96], Want::Last, &mut quiet).expect_err("no such token");
    assert_eq!(error.to_string(), "token 96 is not in the vocabulary of 96 tokens");
    assert_eq!(session.position(), 0);
}

#[test]
fn a_cut_context_goes_on_as_if_it_had_never_been_longer() {
    for name in ["llama", "gemma3"] {
        let model = model(name, Shape::default(), 16);
        let tokens = tokens(90);
        let mut session = Session::new(&model).expect("a session");
        session.eval(&tokens[..60], Want::Last, &mut quiet).expect("room");
        session.truncate(50).expect("the window is still there");
        session.eval(&tokens[70..], Want::Last, &mut quiet).expect("room");
        let mut other = Session::new(&model).expect("a session");
        other.eval(&tokens[..50], Want::None, &mut quiet).expect("room");
        other.eval(&tokens[70..], Want::Last, &mut quiet).expect("room");
        assert_eq!(last(&session), last(&other), "{name}");
        session.reset();
        session.eval(&tokens, Want::Last, &mut quiet).expect("room");
        let vocab = model.vocab_size();
        assert_eq!(last(&session), logits(&model, &tokens)[89 * vocab..], "{name}");
    }
}

#[test]
fn a_cut_that_a_sliding_window_cannot_undo_is_refused_and_not_answered_wrongly() {
    // A window of 24 and batches of 16 need a ring of 128 positions.
    let model = model("gemma3", Shape { context: 400, ..Shape::default() }, 16);
    let mut session = Session::new(&model).expect("a session");
    session.eval(&tokens(300), Want::Last, &mut quiet).expect("room");
    let before = last(&session);
    let error = session.truncate(100).expect_err("long gone");
    assert!(error.to_string().contains("positions from 77 on, and those before 172 are gone"), "{error}");
    assert_eq!((session.position(), last(&session)), (300, before));
    session.truncate(200).expect("still there");
    session.truncate(201).expect_err("it has fewer");
    session.truncate(0).expect("an empty context needs nothing");
}

#[test]
fn a_prompt_that_begins_like_the_context_evaluates_only_the_rest() {
    for name in ["llama", "gemma3"] {
        let model = model(name, Shape::default(), 16);
        let all = tokens(90);
        let mut session = Session::new(&model).expect("a session");
        assert_eq!(session.resume(&all), 0);
        session.eval(&all[..80], Want::Last, &mut quiet).expect("room");
        // The tail differs; and one token at least is always left.
        let other: Vec<u32> = all[..60].iter().copied().chain([1, 2, 3]).collect();
        assert_eq!(session.resume(&other), 60, "{name}");
        session.eval(&other[60..], Want::Last, &mut quiet).expect("room");
        assert_eq!(session.tokens(), other);
        let vocab = model.vocab_size();
        assert_eq!(last(&session), logits(&model, &other)[62 * vocab..], "{name}");
        assert_eq!(session.resume(&other), 62, "{name}");
        assert_eq!(session.resume(&[]), 0);
        assert_eq!(session.position(), 0);
    }
}

#[test]
fn a_window_that_has_moved_on_is_filled_again() {
    let model = model("gemma3", Shape { context: 400, ..Shape::default() }, 16);
    let all = tokens(300);
    let mut session = Session::new(&model).expect("a session");
    session.eval(&all, Want::Last, &mut quiet).expect("room");
    // Not long ago: kept. Long ago: all anew.
    assert_eq!(session.resume(&all[..280]), 279);
    assert_eq!(session.resume(&all[..100]), 0);
    session.eval(&all[..100], Want::Last, &mut quiet).expect("room");
    assert_eq!(last(&session), logits(&model, &all[..100])[99 * model.vocab_size()..]);
}

#[test]
fn a_shifted_context_is_that_of_the_tokens_that_are_left() {
    for name in ["llama", "gemma3"] {
        let model = model(name, Shape { context: 120, ..Shape::default() }, 16);
        let all = tokens(120);
        for (keep, count) in [(0, 60), (5, 50), (119, 0), (0, 119), (70, 20)] {
            let mut session = Session::new(&model).expect("a session");
            session.eval(&all, Want::Last, &mut quiet).expect("room");
            session.shift(keep, count).expect("something is left");
            let left = [&all[..keep], &all[keep + count..]].concat();
            assert_eq!(session.tokens(), left);
            let expected = logits(&model, &left);
            assert_eq!(last(&session), expected[(left.len() - 1) * model.vocab_size()..], "{name} {keep}");
        }
        let mut session = Session::new(&model).expect("a session");
        session.eval(&all[..50], Want::Last, &mut quiet).expect("room");
        for (keep, count) in [(50, 0), (0, 50), (20, 30), (usize::MAX, 1)] {
            let error = session.shift(keep, count).expect_err("nothing is left");
            assert!(error.to_string().contains("of a context of 50: none would be left"), "{error}");
        }
        assert_eq!(session.position(), 50);
    }
}

#[test]
fn two_sessions_of_one_model_do_not_disturb_each_other() {
    let model = model("llama", Shape::default(), 16);
    let tokens = tokens(40);
    let expected = logits(&model, &tokens);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(logits(&model, &tokens), expected);
                }
            });
        }
    });
}

#[test]
fn a_profile_tells_the_time_of_each_kind_of_step() {
    let model = model("llama", Shape::default(), 16);
    let mut session = Session::new(&model).expect("a session");
    assert_eq!(session.take_profile(), []);
    session.set_profile(true);
    session.eval(&tokens(17), Want::Last, &mut quiet).expect("room");
    let times = session.take_profile();
    let layers = model.hparams().layers.len() as u64;
    let count = |part: &str| -> u64 { times.iter().filter(|t| t.ops.contains(part)).map(|t| t.count).sum() };
    // A batch of sixteen, and one token after it. Without logits the last layer ends with its attention.
    assert_eq!((count("gate"), count("attend")), (2 * layers - 1, 2 * layers));
    let logits = model.plan().decode.nodes.last().map(|node| node.ops.clone()).expect("steps");
    assert_eq!(times.iter().find(|t| t.ops == logits).map(|t| t.count), Some(1), "the batch has none");
    assert!(times.is_sorted_by_key(|t| std::cmp::Reverse(t.time)));
    for step in &times {
        // There is nothing to merge in a short context.
        assert!(step.count > 0 && (step.kind == "merge" || !step.busy.is_zero()), "{step:?}");
        assert_eq!(
            (step.kind == "product", step.kind == "product"),
            (step.bytes > 0, !step.formats.is_empty())
        );
        let most = step.time * model.threads() as u32;
        assert!(step.busy <= most, "{step:?}");
    }
    assert_eq!(session.take_profile(), [], "taken once");
}

#[test]
fn options_that_cannot_be_had_are_wrong_use() {
    let arch = Architecture::find("llama").expect("an architecture");
    let file = Draft::new(arch, Shape::default(), MIXED).write();
    let error = |options| Model::load(&file.path, options).expect_err("cannot be had");
    let wrong = [
        LoadOptions { isa: Some("avx1024".into()), ..Default::default() },
        LoadOptions { threads: Some(0), ..Default::default() },
        LoadOptions { threads: Some(100_000), ..Default::default() },
        LoadOptions { ubatch: 0, ..Default::default() },
    ];
    let messages: Vec<String> = wrong
        .into_iter()
        .map(|options| {
            let error = error(options);
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
        .collect();
    assert!(messages[0].starts_with("instruction set 'avx1024' is not available here; available: scalar"));
    assert_eq!(messages[1], "threads: 0 cannot be used, accepted: 1 to 1024");
    assert_eq!(messages[3], "ubatch: 0 cannot be used, accepted: at least 1");
}

#[test]
fn progress_ends_at_the_bytes_that_are_packed() {
    let arch = Architecture::find("llama").expect("an architecture");
    let file = Draft::new(arch, Shape::default(), MIXED).write();
    let (sender, receiver) = std::sync::mpsc::channel();
    let progress = Box::new(move |p: quantsmith::Progress| sender.send(p).expect("a listener"));
    let model = file.load(LoadOptions { progress: Some(progress), ..Default::default() });
    let told: Vec<_> = receiver.iter().collect();
    let packed = model.plan().tensors.iter().map(|t| t.packed_bytes).sum::<u64>();
    assert_eq!(told.iter().map(|p| p.done).max(), Some(packed));
    assert!(told.iter().all(|p| p.total >= packed && p.done <= p.total));
}
