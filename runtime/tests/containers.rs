//! The same model in every container there has been gives the same logits to the bit, wherever the weights are the same.

mod tiny;

use std::path::{Path, PathBuf};

use quantsmith::files::convert::{ConvertOptions, ConvertReport, Exact, convert};
use quantsmith::files::ops::{ShardSize, SplitOptions, split};
use quantsmith::files::{ModelFile, OpenOptions};
use quantsmith::kernels::{Registry, cpu};
use quantsmith::quantise::{QuantiseOptions, Target, Workers, quantise};
use quantsmith::{LoadOptions, Model, Session, Want};
use tiny::{Era, Type, gguf, legacy, parts};

/// Types that GGML, GGMF and GGJT v1 can hold; the last two are GGJT's alone.
const FIRST: &[&str] = &["F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_2", "Q4_3"];
/// Types that GGJT v2 can hold.
const SECOND: &[&str] = &["F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"];
/// Types that came to GGJT v3.
const SUPER_BLOCKS: &[&str] = &["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"];

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

/// Bits of logits, of which a message shows the first.
#[derive(PartialEq)]
struct Logits(Vec<u32>);

impl std::fmt::Debug for Logits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?} and so on", &self.0[..4])
    }
}

/// The logits after a few tokens.
fn logits(path: &Path) -> Logits {
    let options = LoadOptions { threads: Some(1), context: Some(16), ..LoadOptions::default() };
    let model = Model::load(path, options).unwrap_or_else(|e| panic!("{e}"));
    let mut session = Session::new(&model).expect("a session");
    session.eval(&[1, 262, 101, 7], Want::Last, &mut |_, _| {}).expect("an evaluation");
    let logits: Vec<f32> = session.logits().to_vec();
    assert_eq!(logits.len() as u64, tiny::VOCABULARY);
    assert!(logits.iter().all(|l| l.is_finite()), "{}: {logits:?}", path.display());
    assert!(logits.iter().any(|l| l.abs() > 1e-3), "{}: nothing but zeros", path.display());
    Logits(logits.iter().map(|l| l.to_bits()).collect())
}

/// The logits of a file of these bytes.
fn logits_of(folder: &Path, bytes: &[u8]) -> Logits {
    logits(&write(folder, "model", bytes))
}

#[test]
fn every_gguf_gives_the_same_logits() {
    let folder = tempfile::tempdir().expect("a folder");
    let registry = Registry::builtin();
    let names: Vec<&str> = registry.iter().filter(|f| f.id.is_some()).map(|f| f.name).collect();
    assert!(names.len() >= 30, "{names:?}");
    for name in names {
        let ty = Type::named(name);
        let new = write(folder.path(), "model.gguf", &gguf(3, false, ty, Era::Third));
        let expected = logits(&new);
        for version in [1, 2] {
            assert_eq!(
                logits_of(folder.path(), &gguf(version, false, ty, Era::Third)),
                expected,
                "{name} v{version}"
            );
        }
        assert_eq!(logits_of(folder.path(), &gguf(3, true, ty, Era::Third)), expected, "{name} big-endian");
        let options = SplitOptions { size: ShardSize::Tensors(7), first_without_tensors: false };
        let shards = split(&new, &folder.path().join("s"), options, &registry).expect("split");
        assert_eq!(shards.len(), 3);
        assert_eq!(logits(&shards[0]), expected, "{name} in three");
    }
}

#[test]
fn old_containers_give_the_logits_of_gguf() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for &name in SECOND.iter().chain(SUPER_BLOCKS) {
        let ty = Type::named(name);
        let expected = logits_of(folder, &gguf(3, false, ty, Era::Third));
        assert_eq!(logits_of(folder, &legacy(b"tjgg", Some(3), ty, Era::Third)), expected, "{name} GGJT v3");
        if SECOND.contains(&name) {
            assert_eq!(
                logits_of(folder, &legacy(b"tjgg", Some(2), ty, Era::Second)),
                expected,
                "{name} GGJT v2"
            );
            assert_eq!(
                logits_of(folder, &legacy(b"tjgg", Some(1), ty, Era::First)),
                expected,
                "{name} GGJT v1"
            );
        }
    }
}

#[test]
fn the_first_containers_agree_in_one_file_and_in_two() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for &name in FIRST {
        let ty = Type::named(name);
        let expected = logits_of(folder, &legacy(b"tjgg", Some(1), ty, Era::First));
        for (magic, version) in [(b"lmgg", None), (b"fmgg", Some(1))] {
            assert_eq!(
                logits_of(folder, &legacy(magic, version, ty, Era::First)),
                expected,
                "{name} {magic:?}"
            );
            for (number, bytes) in parts(magic, version, ty, Era::First, 2).iter().enumerate() {
                let ending = if number == 0 { String::new() } else { format!(".{number}") };
                write(folder, &format!("model.bin{ending}"), bytes);
            }
            let first = folder.join("model.bin");
            let opened = ModelFile::open(&first, &Registry::builtin()).expect("opens");
            assert_eq!(opened.paths().count(), 2);
            assert_eq!(logits(&first), expected, "{name} {magic:?} in two");
        }
    }
}

#[test]
fn super_blocks_of_64_are_told_by_their_extent() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for &name in SUPER_BLOCKS {
        let ty = Type::named(&format!("{name}_64"));
        let new = write(folder, "new", &gguf(3, false, ty, Era::Third64));
        let old = write(folder, "old", &legacy(b"tjgg", Some(3), ty, Era::Third64));
        for path in [&new, &old] {
            let file = ModelFile::open(path, &Registry::builtin()).expect("opens");
            let matrix = file.tensor("blk.1.ffn_down.weight").expect("there");
            assert_eq!(matrix.type_name, format!("{name}_64"));
        }
        assert_eq!(logits(&new), logits(&old), "{name}");
    }
}

/// Converts bytes to the file `new.gguf`.
fn convert_to(folder: &Path, bytes: &[u8], exact: Option<Exact>) -> (PathBuf, ConvertReport) {
    let (old, new) = (write(folder, "old", bytes), folder.join("new.gguf"));
    let options = ConvertOptions { exact, open: OpenOptions::default() };
    let report = convert(&old, &new, &options, &Registry::builtin()).expect("converted");
    (new, report)
}

/// Converts bytes; returns the logits of the result and the largest change of a weight.
fn converted(folder: &Path, bytes: &[u8]) -> (Logits, f32) {
    let (new, report) = convert_to(folder, bytes, None);
    (logits(&new), report.largest_error())
}

#[test]
fn a_converted_model_gives_the_logits_of_the_original() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for &name in SECOND {
        let ty = Type::named(name);
        // The scales here are such that f16 holds them.
        for (magic, version, era) in [
            (b"lmgg", None, Era::First),
            (b"fmgg", Some(1), Era::First),
            (b"tjgg", Some(1), Era::First),
            (b"tjgg", Some(2), Era::Second),
            (b"tjgg", Some(3), Era::Third),
        ] {
            let bytes = legacy(magic, version, ty, era);
            assert_eq!(converted(folder, &bytes), (logits_of(folder, &bytes), 0.0), "{name} {version:?}");
        }
    }
    for &name in SUPER_BLOCKS {
        let bytes = legacy(b"tjgg", Some(3), Type::named(name), Era::Third);
        assert_eq!(converted(folder, &bytes), (logits_of(folder, &bytes), 0.0), "{name}");
    }
    for (version, big) in [(1, false), (2, false), (3, true)] {
        let bytes = gguf(version, big, Type::named("Q4_K"), Era::Third);
        assert_eq!(converted(folder, &bytes), (logits_of(folder, &bytes), 0.0), "GGUF v{version}");
    }
}

#[test]
fn blocks_that_gguf_never_had_are_kept_as_a_private_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let registry = Registry::builtin();
    for (era, containers, ids) in [
        (Era::First, &[(b"lmgg", None), (b"fmgg", Some(1)), (b"tjgg", Some(1))][..], &[2, 3, 4, 5, 8][..]),
        (Era::Second, &[(b"tjgg", Some(2))], &[2, 3, 8]),
    ] {
        for (&(magic, version), &id) in containers.iter().flat_map(|c| ids.iter().map(move |id| (c, id))) {
            let bytes = legacy(magic, version, Type::Fine(id), era);
            let old = ModelFile::open(&write(folder, "old", &bytes), &registry).expect("opens");
            let expected = logits_of(folder, &bytes);
            let (new, report) = convert_to(folder, &bytes, Some(Exact::Blocks));
            let converted = ModelFile::open(&new, &registry).expect("opens");
            let (was, is) = [&old, &converted].map(|f| f.tensor("output.weight").expect("there")).into();
            assert_eq!((was.type_name, was.bytes), (is.type_name, is.bytes), "{version:?} {id}");
            assert!(registry.by_name(is.type_name).is_some_and(|f| f.id.is_none()), "{}", is.type_name);
            assert_eq!(converted.metadata().u32("general.file_type"), None);
            assert_eq!((report.largest_error(), logits(&new)), (0.0, expected), "{}", is.type_name);
        }
    }
    // What a block of GGUF holds is in one.
    let bytes = legacy(b"tjgg", Some(1), Type::named("Q4_0"), Era::First);
    let (new, _) = convert_to(folder, &bytes, Some(Exact::Blocks));
    let converted = ModelFile::open(&new, &registry).expect("opens");
    assert_eq!(converted.tensor("output.weight").map(|t| t.type_name), Some("Q4_0"));
}

#[test]
fn an_old_file_is_quantised_as_its_gguf_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let registry = Registry::builtin();
    let quantised = |bytes: &[u8], to: &str| {
        let model = ModelFile::open(&write(folder, "model", bytes), &registry).expect("opens");
        let options =
            QuantiseOptions { allow_requantise: true, ..QuantiseOptions::new(Target::Named(to.into())) };
        let tier = cpu::choose(None).expect("a tier");
        let workers = Workers { registry: &registry, tier, threads: None, progress: &mut |_| {} };
        let out = folder.join("out.gguf");
        quantise(&model, &out, &options, workers).expect("quantised");
        logits(&out)
    };
    for name in ["F16", "Q4_1", "Q5_0"] {
        let ty = Type::named(name);
        let expected = quantised(&gguf(3, false, ty, Era::Third), "Q4_K_M");
        for (magic, version, era) in
            [(b"lmgg", None, Era::First), (b"tjgg", Some(2), Era::Second), (b"tjgg", Some(3), Era::Third)]
        {
            assert_eq!(quantised(&legacy(magic, version, ty, era), "Q4_K_M"), expected, "{name} {version:?}");
        }
        assert_eq!(quantised(&gguf(3, true, ty, Era::Third), "Q4_K_M"), expected, "{name} big-endian");
    }
    // Blocks of 16 weights exist in no GGUF, and are quantised from what they say.
    assert_ne!(
        quantised(&legacy(b"tjgg", Some(1), Type::named("Q4_2"), Era::First), "Q8_0"),
        Logits(Vec::new())
    );
}
