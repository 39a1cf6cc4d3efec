//! One answer: the same bits on every tier, for every number of threads, batch and packing, for every architecture.

mod kit;

use kit::{Draft, EXACT, MIXED, Shape, logits, tokens};
use quantsmith::kernels::cpu;
use quantsmith::model::arch::ARCHITECTURES;
use quantsmith::{LoadOptions, Model, Session, Want};

/// How to run a model.
fn options(isa: &str, threads: usize, ubatch: usize, pack: bool) -> LoadOptions {
    LoadOptions { isa: Some(isa.into()), threads: Some(threads), ubatch, pack, ..Default::default() }
}

#[test]
fn every_architecture_gives_the_same_bits_however_it_is_run() {
    let tokens = tokens(75);
    for arch in ARCHITECTURES {
        let file = Draft::new(arch, Shape::default(), MIXED).write();
        let expected = logits(&file.load(options("scalar", 1, 512, true)), &tokens);
        assert!(expected.iter().all(|bits| f32::from_bits(*bits).is_finite()), "{}", arch.name);
        for (threads, ubatch, pack) in
            [(1, 1, true), (2, 512, true), (3, 5, true), (2, 1, false), (4, 64, false)]
        {
            for tier in cpu::supported() {
                let isa = tier.tier().name();
                let found = logits(&file.load(options(isa, threads, ubatch, pack)), &tokens);
                let first = found.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(
                    first, None,
                    "{} on {isa}, {threads} threads, batches of {ubatch}, pack {pack}",
                    arch.name
                );
            }
        }
    }
}

#[test]
fn a_long_context_gives_the_same_bits_when_threads_share_out_its_pieces() {
    let arch = &ARCHITECTURES[0];
    let shape = Shape { layers: 2, heads: 3, kv_heads: 1, context: 1024, ..Shape::default() };
    let file = Draft::new(arch, shape, MIXED).write();
    let tokens = tokens(800);
    let last = |threads: usize, split: usize| {
        let model = file.load(LoadOptions { threads: Some(threads), ..Default::default() });
        let mut session = Session::new(&model).expect("a session");
        let (first, rest) = tokens.split_at(split);
        session.eval(first, Want::None, &mut |_, _| {}).expect("the first tokens");
        for token in rest {
            session.eval(&[*token], Want::Last, &mut |_, _| {}).expect("a token");
        }
        session.logits().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    let expected = last(1, 790);
    for threads in [1, 2, 3, 5] {
        assert_eq!(last(threads, 780), expected, "{threads} threads");
    }
}

#[test]
fn a_scale_beside_a_tensor_multiplies_its_product() {
    let file = Draft::new(&ARCHITECTURES[0], Shape::default(), EXACT);
    let tokens = tokens(9);
    let expected = logits(&file.write().load(LoadOptions::default()), &tokens);
    // Powers of two are exact, so that weights of twice the size and a scale of one half are the same model.
    let mut scaled = file.clone();
    for name in ["blk.0.attn_q", "blk.1.ffn_up", "blk.0.ffn_down"] {
        let weight =
            scaled.tensors.iter_mut().find(|t| t.name == format!("{name}.weight")).expect("a matrix");
        weight.values.iter_mut().for_each(|value| *value *= 2.0);
        scaled = scaled.with(&format!("{name}.scale"), &[1]).with(&format!("{name}.input_scale"), &[1]);
        let scale =
            scaled.tensors.iter_mut().find(|t| t.name == format!("{name}.scale")).expect("just added");
        scale.values = vec![0.5];
    }
    let model = scaled.write().load(LoadOptions::default());
    assert_eq!(logits(&model, &tokens), expected);
    assert!(model.plan().unused.is_empty(), "{:?}", model.plan().unused);
}

#[test]
fn a_file_that_is_packed_ahead_of_time_is_the_same_model() {
    let tier = cpu::choose(None).expect("a tier");
    let registry = quantsmith::kernels::Registry::builtin();
    let tokens = tokens(40);
    for arch in [&ARCHITECTURES[0], ARCHITECTURES.iter().find(|a| a.name == "gemma3").expect("in the table")]
    {
        let file = Draft::new(arch, Shape::default(), MIXED).write();
        let model = file.load(LoadOptions::default());
        let expected = logits(&model, &tokens);
        let packed = file.path.with_file_name("packed.gguf");
        let report = quantsmith::pack(&file.path, &packed, &registry, tier, &mut |_, _| {}).expect("packed");
        assert!(report.matrices > 5, "{report:?}");
        for pack in [true, false] {
            let again = Model::load(&packed, LoadOptions { pack, ..Default::default() }).expect("loaded");
            assert_eq!(logits(&again, &tokens), expected, "{}", arch.name);
            assert_eq!(again.parameters(), model.parameters());
            let plan = again.plan();
            assert!(plan.tensors.iter().any(|t| t.reason.contains("interleaved in the file")), "{plan:?}");
            assert_eq!(plan.packed_bytes, 0, "nothing is packed again");
            assert!(plan.bytes_per_token().is_some_and(|bytes| bytes > 0));
            assert_eq!(plan.bytes_per_token(), model.plan().bytes_per_token(), "{}", arch.name);
        }
        let twice = quantsmith::pack(
            &packed,
            &file.path.with_file_name("twice.gguf"),
            &registry,
            tier,
            &mut |_, _| {},
        );
        assert!(twice.expect_err("packed already").to_string().contains("packed already"));
    }
}

#[test]
fn what_a_packed_file_says_about_itself_is_checked() {
    use quantsmith::files::Value;
    use quantsmith::files::ops::{Edit, edit};
    let registry = quantsmith::kernels::Registry::builtin();
    let file = Draft::new(&ARCHITECTURES[0], Shape::default(), MIXED).write();
    let (packed, wrong) = (file.path.with_file_name("packed.gguf"), file.path.with_file_name("wrong.gguf"));
    let tier = cpu::choose(None).expect("a tier");
    quantsmith::pack(&file.path, &packed, &registry, tier, &mut |_, _| {}).expect("packed");
    let refused = |change: Edit| {
        edit(&packed, &wrong, &[change], &registry).expect("changed");
        Model::load(&wrong, LoadOptions::default()).expect_err("refused").to_string()
    };
    let error = refused(Edit::Set("quantsmith.packed.version".into(), Value::U32(2)));
    assert!(error.contains("the version is 2") && error.contains("pack the original again"), "{error}");
    let error = refused(Edit::Remove("quantsmith.packed.dims".into()));
    assert!(error.contains("are missing"), "{error}");
    let model = quantsmith::files::ModelFile::open(&packed, &registry).expect("opened");
    let mut dims = model.metadata().ints("quantsmith.packed.dims").expect("a list");
    dims[0] = i64::MAX;
    let list = dims.iter().map(|d| *d as u64).collect();
    let error = refused(Edit::Set(
        "quantsmith.packed.dims".into(),
        Value::Array(quantsmith::files::Array::U64(list)),
    ));
    assert!(error.contains("has dimensions"), "{error}");
}
