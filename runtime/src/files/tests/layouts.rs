//! GGUF files whose data is in another order than it is used in.

use std::borrow::Cow;
use std::path::Path;

use super::*;
use crate::files::{Layout, OpenOptions};

#[test]
fn the_interleaved_types_become_q4_0() {
    // One group of rows of one block; the scales first, then codes in chunks.
    for (id, rows, chunk) in [(31u32, 4usize, 4usize), (32, 4, 8), (33, 8, 8)] {
        let blocks: Vec<Vec<u8>> =
            (0..rows).map(|r| pattern(18).iter().map(|b| b ^ (r as u8 * 16)).collect()).collect();
        let mut data: Vec<u8> = blocks.iter().flat_map(|b| b[..2].to_vec()).collect();
        for c in 0..rows * 16 / chunk {
            data.extend(blocks[c % rows][2 + chunk * (c / rows)..][..chunk].iter().map(|b| b ^ 0x88));
        }
        let file =
            open(&Raw::new(3).tensor("t", &[32, rows as u64], id, &data).build()).expect("a right file");
        let t = file.tensor("t").expect("t");
        assert_eq!((t.type_id, t.type_name, t.layout), (2, "Q4_0", Layout::Current));
        assert!(t.stored_as().is_some_and(|s| s.contains("Q4_0_")));
        assert_eq!(&*file.data(t), blocks.concat());
        let odd = Raw::new(3).tensor("t", &[32, rows as u64 + 1], id, &vec![0; 18 * (rows + 1)]);
        assert_refused(&odd.build(), &["dimensions of tensor 't'", &format!("multiple of {rows}")]);
    }
}

#[test]
fn k_quants_of_64_elements_are_recognised() {
    let narrow = Raw::new(3).tensor("t", &[64, 3], 12, &pattern(114)).tensor("f", &[8], 0, &pattern(32));
    let file = open(&narrow.build()).expect("a right file");
    let t = file.tensor("t").expect("t");
    assert_eq!((t.layout, t.type_name, t.bytes), (Layout::K64, "Q4_K_64", 114));
    assert_eq!(file.tensor("f").map(|f| f.layout), Some(Layout::Current));

    // 256 columns: only the extents tell, and all K-quants of the file must agree.
    let wide = |size: usize| {
        Raw::new(3).tensor("a", &[256, 8], 12, &pattern(8 * size)).tensor(
            "b",
            &[256, 8],
            12,
            &pattern(8 * size),
        )
    };
    for (size, layout) in [(144, Layout::Current), (152, Layout::K64)] {
        let file = open(&wide(size).build()).expect("a right file");
        assert!(file.tensors().iter().all(|t| t.layout == layout), "{size}");
        assert_eq!(&*file.data(file.tensor("b").expect("b")), pattern(8 * size));
    }
    let mixed = Raw::new(3).tensor("a", &[256, 8], 12, &pattern(8 * 152)).tensor(
        "b",
        &[256, 8],
        12,
        &pattern(8 * 144),
    );
    assert!(open(&mixed.build()).expect("gaps").tensors().iter().all(|t| t.layout == Layout::Current));
    assert_refused(&Raw::new(3).tensor("t", &[96], 12, &[0; 144]).build(), &["multiple of 256"]);
}

/// Experts one by one, in the order given.
fn experts(order: &[(u32, &str)]) -> Raw {
    order.iter().fold(Raw::new(3), |raw, (expert, kind)| {
        let data = [*expert as u8 + kind.len() as u8; 24];
        raw.tensor(&format!("blk.0.{kind}.{expert}.weight"), &[2, 3], 0, &data)
    })
}

#[test]
fn experts_stored_one_by_one_are_joined() {
    let apart = experts(&[(0, "ffn_up"), (0, "ffn_gate"), (1, "ffn_gate"), (1, "ffn_up")]);
    let apart = apart.tensor("output.weight", &[1], 0, b"abcd");
    let file = open(&apart.build()).expect("a right file");
    let names: Vec<&str> = file.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_exps.weight", "output.weight"]);
    let up = file.tensor("blk.0.ffn_up_exps.weight").expect("joined");
    assert_eq!((&up.dims[..], up.bytes, up.pieces()), (&[2, 3, 2][..], 48, 2));
    assert_eq!(&*file.data(up), [[6; 24], [7; 24]].concat());
    assert!(matches!(file.expert_data(up, 1), Cow::Borrowed(d) if d == [7; 24]));
    assert!(matches!(file.expert_data(up, 0), Cow::Borrowed(d) if d == [6; 24]));

    let bytes = apart.build();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, bytes).expect("written");
    let separate = OpenOptions { separate_experts: true, ..OpenOptions::default() };
    assert_eq!(ModelFile::open_with(&path, &Table, &separate).expect("a right file").tensors().len(), 5);
}

#[test]
fn experts_side_by_side_are_borrowed_as_one() {
    // 24 bytes each need padding to 32; 32 bytes follow one another.
    let raw = (0..3u8)
        .fold(Raw::new(3), |raw, e| raw.tensor(&format!("blk.7.ffn_down.{e}.weight"), &[8, 1], 0, &[e; 32]));
    let file = open(&raw.build()).expect("a right file");
    let down = file.tensor("blk.7.ffn_down_exps.weight").expect("joined");
    assert!(matches!(file.data(down), Cow::Borrowed(d) if d == [[0; 32], [1; 32], [2; 32]].concat()));
    assert!(matches!(file.expert_data(down, 2), Cow::Borrowed(d) if d == [2; 32]));
}

#[test]
fn experts_that_do_not_match_stay_apart_with_a_warning() {
    for order in [&[(0, "ffn_up"), (2, "ffn_up")][..], &[(1, "ffn_up"), (2, "ffn_up")]] {
        let file = open(&experts(order).build()).expect("a right file");
        assert_eq!(file.tensors().len(), 2);
        assert_eq!(file.warnings(), ["the experts of 'blk.0.ffn_up_exps.weight' do not match one another"]);
    }
    let raw = experts(&[(0, "ffn_up")]).tensor("blk.0.ffn_up.1.weight", &[3, 2], 0, &[0; 24]);
    assert_eq!(open(&raw.build()).expect("a right file").tensors().len(), 2);
}

#[test]
fn a_shard_in_memory_is_refused() {
    let raw = Raw::new(3).entry("split.count", 2, &[3, 0]).entry("split.no", 2, &[0, 0]);
    let name = Path::new("/nowhere/m-00001-of-00003.gguf");
    let error = ModelFile::from_bytes(name, raw.build(), &Table).expect_err("others are missing").to_string();
    assert!(error.contains("shard 2 of 3: found no such file"), "{error}");
}

#[test]
fn k_quants_of_64_elements_in_the_other_byte_order_are_refused() {
    let raw = Raw::big_endian().tensor("t", &[64], 12, &pattern(38));
    assert_refused(&raw.build(), &["type of tensor 't'", "Q4_K_64 in a big-endian file"]);
}
