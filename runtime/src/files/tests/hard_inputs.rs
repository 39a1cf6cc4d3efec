//! Files that lie: each gets one clear line, and no memory beyond the size of the file.

use std::fs;
use std::path::Path;

use super::*;

const HUGE: u64 = 1 << 63;

/// A small file with some of everything.
fn sample(version: u32) -> Raw {
    let raw = Raw::new(version);
    let strings = [raw.u32(8), raw.length(2), raw.string("x"), raw.string("yz")].concat();
    raw.entry_str("general.architecture", "llama")
        .entry_u32("general.alignment", 32)
        .entry("list", 9, &strings)
        .tensor("a.weight", &[32, 2], 2, &pattern(36))
        .tensor("b.weight", &[5], 0, &pattern(20))
}

#[test]
fn a_file_cut_at_any_byte_is_refused_at_a_byte_within() {
    for version in [1, 2, 3] {
        let bytes = sample(version).build();
        assert!(open(&bytes).is_ok());
        for cut in 0..bytes.len() {
            let message = refusal(&bytes[..cut]);
            if cut >= 4 {
                let at: usize = message
                    .strip_prefix("m.gguf: byte ")
                    .and_then(|rest| rest.split_once(':'))
                    .and_then(|(number, _)| number.parse().ok())
                    .unwrap_or_else(|| panic!("no byte in: {message}"));
                assert!(at <= cut, "cut at {cut}: {message}");
            }
        }
    }
}

#[test]
fn counts_beyond_the_file_are_refused() {
    for count in [HUGE, u64::MAX, 1 << 32, 1000] {
        let mut raw = sample(3);
        raw.entry_count = Some(count);
        assert_refused(&raw.build(), &["byte 16", "metadata count", &count.to_string(), "at most"]);
        let mut raw = sample(3);
        raw.tensor_count = Some(count);
        assert_refused(&raw.build(), &["byte 8", "tensor count", &count.to_string(), "at most"]);
    }
}

#[test]
fn more_keys_or_tensors_than_any_model_has_are_refused() {
    let keys = (0..65537).fold(Raw::new(1), |raw, i| raw.entry(&format!("{i}"), 0, &[0]));
    assert_refused(&keys.build(), &["metadata count", "found 65537", "at most 65536"]);
    let tensors = (0..131_073).fold(Raw::new(1), |raw, i| raw.record(&format!("{i}"), &[], 0, 0));
    assert_refused(&tensors.build(), &["tensor count", "found 131073", "at most 131072"]);
}

#[test]
fn counts_beyond_the_records_are_refused() {
    let mut raw = sample(3);
    raw.entry_count = Some(4);
    refusal(&raw.build());
    let mut raw = sample(3);
    raw.tensor_count = Some(3);
    refusal(&raw.build());
}

#[test]
fn lengths_of_strings_and_keys_beyond_the_file_are_refused() {
    let long = [HUGE.to_le_bytes().to_vec(), b"text".to_vec()].concat();
    assert_refused(
        &Raw::new(3).entry("k", 8, &long).build(),
        &["value of 'k'", "9223372036854775808", "at most 4 bytes"],
    );
    let mut bytes = Raw::new(3).entry_u32("key", 1).build();
    bytes[24..32].copy_from_slice(&HUGE.to_le_bytes());
    assert_refused(&bytes, &["byte 24", "length of key 0", "1 to 65535"]);
    bytes[24..32].copy_from_slice(&65535u64.to_le_bytes());
    assert_refused(&bytes, &["byte 32", "key 0", "65535"]);
    bytes[24..32].copy_from_slice(&[0; 8]);
    assert_refused(&bytes, &["byte 24", "length of key 0", "found 0"]);
}

#[test]
fn arrays_beyond_the_file_are_refused() {
    for (kind, count) in
        [(0u32, 1u64 << 32), (0, HUGE), (8, HUGE), (9, HUGE), (12, u64::MAX), (6, (1 << 62) + 1)]
    {
        let array = [kind.to_le_bytes().to_vec(), count.to_le_bytes().to_vec(), vec![0; 8]].concat();
        let bytes = Raw::new(3).entry("k", 9, &array).build();
        assert!(bytes.len() <= 60, "{}", bytes.len());
        assert_refused(&bytes, &["count of the value of 'k'", &count.to_string(), "at most"]);
    }
}

#[test]
fn arrays_nested_ten_thousand_deep_are_refused() {
    let level = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat();
    let mut array = level.repeat(10_000);
    array.extend([0u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat());
    assert_refused(&Raw::new(3).entry("k", 9, &array).build(), &["value of 'k'", "16 levels"]);
}

#[test]
fn kinds_that_do_not_exist_are_refused() {
    assert_refused(&Raw::new(3).entry("k", 13, &[0; 8]).build(), &["kind of 'k'", "found 13", "0 to 12"]);
    let array = [99u32.to_le_bytes().to_vec(), vec![0; 8]].concat();
    assert_refused(
        &Raw::new(3).entry("k", 9, &array).build(),
        &["element kind of the value of 'k'", "found 99"],
    );
    assert_refused(&Raw::new(3).entry("k", 7, &[2]).build(), &["value of 'k'", "bool 2", "0 or 1"]);
}

#[test]
fn dims_whose_product_wraps_are_refused() {
    for dims in
        [[(1u64 << 42) + 1, 1 << 22], [1 << 63, 2], [1 << 32, 1 << 32], [u64::MAX, u64::MAX], [HUGE, 0]]
    {
        let bytes = Raw::new(3).record("t", &dims, 0, 0).build();
        if dims == [HUGE, 0] {
            assert_refused(&bytes, &["dimensions of tensor 't'", "2^63"]);
            continue;
        }
        assert_refused(&bytes, &["dimensions of tensor 't'", &dims[0].to_string(), "2^63"]);
    }
    assert_refused(
        &Raw::new(3).record("t", &[33, 2], 2, 0).build(),
        &["dimensions of tensor 't'", "multiple of 32"],
    );
    let five = Raw::new(3).record("t", &[1; 5], 0, 0).build();
    assert_refused(&five, &["number of dimensions of tensor 't'", "found 5", "at most 4"]);
}

#[test]
fn tensors_past_the_end_are_refused() {
    for offset in [32, 64, u64::MAX - 31, u64::MAX, HUGE] {
        let mut bytes = Raw::new(3).record("t", &[8], 0, offset).build();
        bytes.resize(bytes.len().next_multiple_of(32) + 32, 0);
        assert_refused(&bytes, &["offset of tensor 't'", &offset.to_string(), "within the 32 bytes"]);
    }
}

#[test]
fn tensors_that_overlap_are_refused() {
    let mut bytes = Raw::new(3).record("a", &[9], 0, 0).record("b", &[1], 0, 32).build();
    bytes.resize(bytes.len().next_multiple_of(32) + 64, 0);
    assert_refused(&bytes, &["offset of tensor 'b'", "where tensor 'a' ends"]);
}

#[test]
fn names_given_twice_are_refused() {
    let raw = Raw::new(3).entry_u32("k", 1).entry_str("k", "v");
    assert_refused(&raw.build(), &["key 1", "'k' a second time"]);
    let raw =
        Raw::new(3).tensor("t", &[1], 0, b"aaaa").tensor("u", &[1], 0, b"bbbb").tensor("t", &[1], 0, b"cccc");
    assert_refused(&raw.build(), &["tensor name", "'t' a second time"]);
}

#[test]
fn names_that_are_not_text_are_refused() {
    let mut bytes = Raw::new(3).entry_u32("key", 1).build();
    bytes[32] = 0xff;
    assert_refused(&bytes, &["byte 32", "key 0", "UTF-8"]);
    let mut bytes = Raw::new(3).tensor("t\u{1b}[2Jx", &[3], 2, &[0; 18]).build();
    assert_refused(&bytes, &["'t\\u{1b}[2Jx'"]);
    bytes[32] = 0xc0;
    assert_refused(&bytes, &["byte 32", "name of tensor 0", "UTF-8"]);
}

#[test]
fn types_that_are_not_read_are_named() {
    for (id, parts) in [
        (4, &["Q4_2", "removed"][..]),
        (5, &["Q4_3", "removed"]),
        (38, &["IQ4_NL_8_8", "removed"]),
        (36, &["I2_S", "BitNet"]),
        (9, &["Q8_1", "not stored"]),
        (16, &["IQ2_XXS", "has not got"]),
        (139, &["IQ4_K of ik_llama.cpp"]),
        (212, &["Q4_K_R4 of ik_llama.cpp"]),
        (43, &["43 (no known type)"]),
        (u32::MAX, &["4294967295 (no known type)"]),
    ] {
        let bytes = Raw::new(3).tensor("t", &[256], id, &[0; 256]).build();
        assert_refused(&bytes, &[&["type of tensor 't'", "accepted: F32, F16, Q4_0"], parts].concat());
    }
}

#[test]
fn alignments_that_cannot_be_used_are_refused() {
    for value in [0, 3, 12, 1 << 31, u32::MAX, (1 << 21) + 8] {
        let bytes = Raw::new(3).entry_u32("general.alignment", value).build();
        assert_refused(&bytes, &["value of 'general.alignment'", &format!("u32 {value}"), "power of two"]);
    }
    let as_i32 = Raw::new(3).entry("general.alignment", 5, &32u32.to_le_bytes()).build();
    assert_refused(&as_i32, &["i32 32", "accepted: u32"]);
    let as_str = Raw::new(3).entry_str("general.alignment", "32").build();
    assert_refused(&as_str, &["str '32'", "accepted: u32"]);
    let twice = Raw::new(3).entry_u32("general.alignment", 32).entry_u32("general.alignment", 64).build();
    assert_refused(&twice, &["'general.alignment' a second time"]);
}

#[test]
fn versions_that_do_not_exist_are_refused() {
    for version in [0, 4, 0x0004_0003, u32::MAX] {
        let bytes = Raw::new(version).build();
        assert_refused(&bytes, &["byte 4", "version", &version.to_string(), "1, 2 or 3"]);
    }
    let mut bytes = Raw::new(3).build();
    bytes[4..8].copy_from_slice(&[0, 0, 0, 2]);
    assert_refused(&bytes, &["2 (big-endian)", "3 (big-endian)"]);
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let message = |path: &Path| ModelFile::open(path, &Table).expect_err("no model").to_string();
    assert!(message(dir.path()).contains("is a directory"));
    let missing = message(&dir.path().join("missing.gguf"));
    assert!(missing.contains("missing.gguf: cannot open the file"), "{missing}");
    for (content, text) in [
        (&b""[..], "is empty (0 bytes)"),
        (b"hello, this is a text", "is a text file"),
        (b"PK\x03\x04\0\0\0\0\0", "PyTorch"),
        (b"\x08\0\0\0\0\0\0\0{\"a\":{}}", "safetensors"),
    ] {
        let path = dir.path().join("file");
        fs::write(&path, content).expect("written");
        let message = message(&path);
        assert!(message.contains(text) && message.contains("accepted: a GGUF"), "{message}");
    }
}

#[test]
fn a_mapped_file_reads_like_one_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.gguf");
    fs::write(&path, sample(3).build()).expect("written");
    let file = ModelFile::open(&path, &Table).expect("a right file");
    assert_eq!(file.path(), path);
    assert_eq!(file.data(file.tensor("b.weight").expect("b")), pattern(20));
    assert_eq!(file.metadata().str("general.architecture"), Some("llama"));
}
