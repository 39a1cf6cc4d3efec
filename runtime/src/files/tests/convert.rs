//! Conversion of every container.

use std::fs;

use half::f16;

use super::kit_legacy::Legacy;
use super::*;
use crate::files::convert::{ConvertOptions, ConvertReport, Exact, convert};
use crate::files::{Container, Layout, OpenOptions};

/// Gives every block of a model scales that are right numbers.
fn with_scales(mut legacy: Legacy, block: usize, floats: &[u8]) -> Legacy {
    for tensor in legacy.tensors.iter_mut().filter(|t| t.1.len() == 2) {
        for block in tensor.3.chunks_exact_mut(block) {
            block[..floats.len()].copy_from_slice(floats);
        }
    }
    legacy
}

fn run(legacy: &Legacy, exact: bool) -> (ConvertReport, ModelFile, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("m.bin"), dir.path().join("m.gguf"));
    fs::write(&input, legacy.build()).expect("written");
    let options = ConvertOptions { exact: exact.then_some(Exact::F32), open: OpenOptions::default() };
    let report = convert(&input, &output, &options, &Table).expect("converted");
    assert_eq!(fs::metadata(&output).expect("there").len(), report.bytes);
    let model = ModelFile::open(&output, &Table).expect("a right file");
    (report, model, dir)
}

#[test]
fn old_blocks_become_those_of_gguf() {
    let exactly = |v: f32| v.to_le_bytes();
    let (d, m) = (f16::from_f32(0.37).to_f32(), f16::from_f32(-1.5).to_f32());
    let both = [exactly(d), exactly(m)].concat();
    let narrow = [f16::from_f32(d).to_le_bytes(), f16::from_f32(m).to_le_bytes()].concat();
    type Case<'a> = (usize, u32, u32, u32, &'a [u8], &'a str);
    let cases: &[Case<'_>] = &[
        (0, 2, 32, 20, &both[..4], "Q4_0"),
        (1, 3, 32, 24, &both, "Q4_1"),
        (2, 6, 32, 22, &narrow[..2], "Q5_0"),
        (2, 7, 32, 24, &narrow, "Q5_1"),
        (2, 8, 32, 36, &both[..4], "Q8_0"),
        (3, 2, 32, 20, &both[..4], "Q4_0"),
        (3, 3, 32, 24, &both, "Q4_1"),
        (3, 6, 32, 22, &narrow[..2], "Q5_0"),
        (3, 8, 32, 36, &both[..4], "Q8_0"),
        (4, 2, 32, 18, &narrow[..2], "Q4_0"),
    ];
    for &(container, id, elements, bytes, floats, name) in cases {
        for exact in [false, true] {
            let legacy = Legacy::containers()[container].clone().model(id, elements, bytes);
            let legacy = with_scales(legacy, bytes as usize, floats);
            let (report, model, _dir) = run(&legacy, exact);
            assert_eq!(report.largest_error(), 0.0, "{name}");
            let t = model.tensor("output.weight").expect("kept");
            assert_eq!((t.type_name, t.layout, t.dims[0]), (name, Layout::Current, 64));
            assert_eq!(model.metadata().u32("general.quantization_version"), Some(2));
            assert_eq!(model.metadata().u32("general.file_type"), Some(0));
            if container == 4 || container == 3 && id == 6 {
                assert_eq!(&*model.data(t), legacy.data("output.weight"));
            }
        }
    }
}

#[test]
fn scales_beyond_f16_are_rounded_or_kept_exactly() {
    let scale = 1.0f32 + 0.25 / 1024.0;
    let legacy = Legacy::new(b"tjgg", Some(1)).model(2, 32, 20);
    let legacy = with_scales(legacy, 20, &scale.to_le_bytes());
    let (report, model, _dir) = run(&legacy, false);
    assert_eq!(model.tensor("output.weight").map(|t| t.type_name), Some("Q4_0"));
    assert!(report.largest_error() > 0.0 && report.largest_error() <= 8.0 * 0.25 / 1024.0);
    assert_eq!(report.tensors[1].largest_error, 0.0, "a vector of F32 is copied");

    let (report, model, _dir) = run(&legacy, true);
    let t = model.tensor("output.weight").expect("kept");
    assert_eq!((t.type_name, report.largest_error()), ("F32", 0.0));
    assert_eq!(model.metadata().u32("general.file_type"), Some(0));
    let byte = legacy.data("output.weight")[4];
    let first = f32::from_le_bytes(*model.data(t).first_chunk().expect("four bytes"));
    assert_eq!(first, (f32::from(byte & 15) - 8.0) * scale);

    // Too large for f16: nothing to round to.
    let huge = with_scales(Legacy::new(b"tjgg", Some(2)).model(2, 32, 20), 20, &1e6f32.to_le_bytes());
    let (report, model, _dir) = run(&huge, false);
    assert_eq!(model.tensor("output.weight").map(|t| t.type_name), Some("F32"));
    assert_eq!(report.largest_error(), 0.0);
}

#[test]
fn blocks_that_gguf_never_had_become_numbers() {
    for (id, bytes) in [(4u32, 10u32), (5, 12)] {
        let floats = [f16::from_f32(0.3).to_le_bytes(), f16::from_f32(0.1).to_le_bytes()].concat();
        let legacy = Legacy::new(b"tjgg", Some(1)).model(id, 16, bytes);
        let legacy = with_scales(legacy, bytes as usize, &floats[..(bytes - 8) as usize]);
        let (report, model, _dir) = run(&legacy, false);
        assert_eq!(model.tensor("output.weight").map(|t| t.type_name), Some("F16"));
        assert!(report.largest_error() < 0.003, "{}", report.largest_error());
        assert_eq!(model.metadata().u32("general.file_type"), Some(1));
        let (report, model, _dir) = run(&legacy, true);
        assert_eq!(model.tensor("output.weight").map(|t| t.type_name), Some("F32"));
        assert_eq!(report.largest_error(), 0.0);
    }
}

#[test]
fn other_gguf_files_become_version_3() {
    for raw in [Raw::new(1), Raw::new(2), Raw::big_endian()] {
        let big = raw.u32(1) == [0, 0, 0, 1];
        let value: Vec<u8> = if big { 1.5f32.to_be_bytes().into() } else { 1.5f32.to_le_bytes().into() };
        let raw = raw.entry_u32("k", 7).tensor("t", &[1], 0, &value);
        let dir = tempfile::tempdir().expect("a directory");
        let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
        fs::write(&input, raw.build()).expect("written");
        convert(&input, &output, &ConvertOptions::default(), &Table).expect("converted");
        let model = ModelFile::open(&output, &Table).expect("a right file");
        let order = crate::files::ByteOrder::Little;
        assert_eq!(model.container(), Container::Gguf { version: 3, order });
        assert_eq!(model.metadata().u32("k"), Some(7));
        assert_eq!(&*model.data(model.tensor("t").expect("t")), 1.5f32.to_le_bytes());
    }
}
