//! What a GGUF reader must read right.

use std::borrow::Cow;

use super::*;
use crate::files::{Array, ByteOrder, Container, Layout, Value};

/// A file with every kind of value, in one version.
fn every_kind(raw: Raw) -> Raw {
    let array = |raw: &Raw, kind: ValueType, count: u64, elements: &[u8]| {
        [raw.u32(kind.id()), raw.length(count), elements.to_vec()].concat()
    };
    let strings = [raw.string("a"), raw.string(""), raw.string("ü")].concat();
    let inner = [
        array(&raw, ValueType::U8, 2, &[1, 2]),
        array(&raw, ValueType::Array, 1, &array(&raw, ValueType::String, 1, &raw.string("deep"))),
    ]
    .concat();
    let (s, u16s, f32s) =
        (raw.string("text"), [raw.u16(1), raw.u16(0xfffe)].concat(), raw.u32(0.25f32.to_bits()));
    let (lists, words, nested) = (
        array(&raw, ValueType::String, 3, &strings),
        array(&raw, ValueType::I16, 2, &u16s),
        array(&raw, ValueType::Array, 2, &inner),
    );
    let (bools, empty) = (array(&raw, ValueType::Bool, 2, &[1, 0]), array(&raw, ValueType::F64, 0, &[]));
    let (i16v, i32v) = (raw.u16(-5i16 as u16), raw.u32(-6i32 as u32));
    let (u16v, u32v, u64v, i64v) = (raw.u16(7), raw.u32(8), raw.u64(9), raw.u64(-10i64 as u64));
    let f64v = raw.u64(0.125f64.to_bits());
    raw.entry("k.u8", 0, &[200])
        .entry("k.i8", 1, &[0xff])
        .entry("k.u16", 2, &u16v)
        .entry("k.i16", 3, &i16v)
        .entry("k.u32", 4, &u32v)
        .entry("k.i32", 5, &i32v)
        .entry("k.f32", 6, &f32s)
        .entry("k.bool", 7, &[1])
        .entry("k.str", 8, &s)
        .entry("k.strings", 9, &lists)
        .entry("k.i16s", 9, &words)
        .entry("k.nested", 9, &nested)
        .entry("k.bools", 9, &bools)
        .entry("k.empty", 9, &empty)
        .entry("k.u64", 10, &u64v)
        .entry("k.i64", 11, &i64v)
        .entry("k.f64", 12, &f64v)
}

fn check_every_kind(raw: Raw) {
    let file = open(&every_kind(raw).build()).expect("a right file");
    let m = file.metadata();
    let expected = [
        ("k.u8", Value::U8(200)),
        ("k.i8", Value::I8(-1)),
        ("k.u16", Value::U16(7)),
        ("k.i16", Value::I16(-5)),
        ("k.u32", Value::U32(8)),
        ("k.i32", Value::I32(-6)),
        ("k.f32", Value::F32(0.25)),
        ("k.bool", Value::Bool(true)),
        ("k.str", Value::String("text".into())),
        ("k.strings", Value::Array(Array::String(vec!["a".into(), "".into(), "ü".into()]))),
        ("k.i16s", Value::Array(Array::I16(vec![1, -2]))),
        (
            "k.nested",
            Value::Array(Array::Array(vec![
                Array::U8(vec![1, 2]),
                Array::Array(vec![Array::String(vec!["deep".into()])]),
            ])),
        ),
        ("k.bools", Value::Array(Array::Bool(vec![true, false]))),
        ("k.empty", Value::Array(Array::F64(vec![]))),
        ("k.u64", Value::U64(9)),
        ("k.i64", Value::I64(-10)),
        ("k.f64", Value::F64(0.125)),
    ];
    let found: Vec<(&str, &Value)> = m.iter().collect();
    let expected: Vec<(&str, &Value)> = expected.iter().map(|(k, v)| (*k, v)).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_kind_of_value_is_read_in_every_version_and_order() {
    check_every_kind(Raw::new(1));
    check_every_kind(Raw::new(2));
    check_every_kind(Raw::new(3));
    check_every_kind(Raw::big_endian());
}

#[test]
fn the_version_and_order_are_reported() {
    for version in [1, 2, 3] {
        let container = open(&Raw::new(version).build()).expect("an empty model").container();
        assert_eq!(container, Container::Gguf { version, order: ByteOrder::Little });
        assert_eq!(container.to_string(), format!("GGUF v{version}"));
    }
    let container = open(&Raw::big_endian().build()).expect("an empty model").container();
    assert_eq!(container, Container::Gguf { version: 3, order: ByteOrder::Big });
}

#[test]
fn tensors_have_their_dims_types_and_bytes() {
    for version in [1, 2, 3] {
        let (a, b, c) = (pattern(4 * 6), pattern(36 * 3), pattern(4));
        let raw = Raw::new(version)
            .entry_str("general.architecture", "test")
            .tensor("a", &[2, 3], 0, &a)
            .tensor("b.weight", &[64, 3], 2, &b)
            .tensor("scalar", &[], 0, &c);
        let bytes = raw.build();
        let file = open(&bytes).expect("a right file");
        assert_eq!(file.file_size(), bytes.len() as u64);
        assert_eq!(file.alignment(), 32);
        let names: Vec<&str> = file.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b.weight", "scalar"]);
        let t = file.tensor("b.weight").expect("by name");
        assert_eq!((&t.dims[..], t.type_id, t.type_name, t.bytes), (&[64, 3][..], 2, "Q4_0", 108));
        assert_eq!((t.layout, t.part, t.elements()), (Layout::Current, 0, 192));
        assert_eq!(t.offset % 32, 0);
        assert!(matches!(file.data(t), Cow::Borrowed(d) if d == b));
        assert_eq!(file.data(file.tensor("a").expect("a")), a);
        assert_eq!(file.data(file.tensor("scalar").expect("scalar")), c);
        assert_eq!(file.tensor("scalar").map(super::super::TensorInfo::elements), Some(1));
        assert!(file.tensor("c").is_none() && file.warnings().is_empty());
    }
}

#[test]
fn a_big_endian_file_is_swapped_field_by_field() {
    let raw = Raw::big_endian();
    let f32s: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let f16: Vec<u8> = [0x3c00u16, 0xc000].iter().flat_map(|v| v.to_be_bytes()).collect();
    let mut q4_0 = pattern(18);
    let raw = raw.tensor("f32", &[2], 0, &f32s).tensor("f16", &[2], 1, &f16).tensor("q", &[32], 2, &q4_0);
    let raw = raw.tensor("i8", &[4], 24, &[1, 2, 3, 4]);
    let file = open(&raw.build()).expect("a right file");
    let data = |name: &str| file.data(file.tensor(name).expect("by name")).into_owned();
    assert_eq!(data("f32"), [1.5f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat());
    assert_eq!(data("f16"), [0x00, 0x3c, 0x00, 0xc0]);
    q4_0.swap(0, 1);
    assert_eq!(data("q"), q4_0);
    assert!(matches!(file.data(file.tensor("i8").expect("i8")), Cow::Borrowed([1, 2, 3, 4])));
}

#[test]
fn a_big_endian_file_with_a_type_of_unknown_order_is_refused() {
    let raw = Raw::big_endian().tensor("q", &[32], 6, &pattern(22));
    assert_refused(&raw.build(), &["type of tensor 'q'", "Q5_0 in a big-endian file"]);
}

#[test]
fn alignment_places_the_data() {
    for alignment in [1, 8, 16, 24, 64, 4096] {
        let raw =
            Raw::new(3).alignment(alignment).tensor("a", &[3], 0, &pattern(12)).tensor("b", &[1], 0, b"abcd");
        let file = open(&raw.build()).expect("a right file");
        assert_eq!(file.alignment(), u64::from(alignment));
        assert_eq!(file.data_start() % u64::from(alignment), 0);
        assert_eq!(file.data(file.tensor("a").expect("a")), pattern(12));
        assert_eq!(&*file.data(file.tensor("b").expect("b")), b"abcd");
    }
}

#[test]
fn offsets_may_have_any_order_and_gaps_and_a_trailer() {
    let mut bytes = Raw::new(3).record("late", &[1], 0, 96).record("early", &[2], 0, 0).build();
    let start = bytes.len().next_multiple_of(32);
    bytes.resize(start, 0);
    bytes.extend(pattern(100));
    bytes.extend(b"trailer");
    let file = open(&bytes).expect("a right file");
    assert_eq!(&*file.data(file.tensor("late").expect("late")), &pattern(100)[96..]);
    assert_eq!(file.data(file.tensor("early").expect("early")), pattern(8));
    assert!(file.warnings().is_empty());
}

#[test]
fn tensors_off_the_alignment_are_read_with_a_warning() {
    let mut bytes = Raw::new(3).entry_u32("general.alignment", 64);
    bytes = bytes.record("a", &[8], 0, 0).record("b", &[8], 0, 32);
    let mut bytes = bytes.build();
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    bytes.extend(pattern(64));
    bytes.extend([0; 7]);
    let file = open(&bytes).expect("a usable file");
    assert_eq!(&*file.data(file.tensor("b").expect("b")), &pattern(64)[32..]);
    assert_eq!(file.warnings(), ["1 tensors lie off the alignment of 64, the first is 'b' at offset 32"]);
}

#[test]
fn an_empty_tensor_has_no_bytes() {
    let raw = Raw::new(3).record("none", &[32, 0, 1, 1], 2, 0).record("flat", &[0], 0, 0);
    let file = open(&raw.build()).expect("a file with empty tensors");
    for t in file.tensors() {
        assert_eq!((t.elements(), t.bytes, file.data(t).len()), (0, 0, 0));
    }
}

#[test]
fn strings_that_are_not_utf8_are_kept_as_bytes() {
    let raw = Raw::new(3).entry("k", 8, &[2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]);
    let file = open(&raw.build()).expect("a right file");
    let Some(Value::String(s)) = file.metadata().get("k") else { panic!("no string") };
    assert_eq!(
        (s.as_bytes(), s.as_str(), s.to_string_lossy().as_ref()),
        (&[0xff, 0xfe][..], None, "\u{fffd}\u{fffd}")
    );
}

#[test]
fn a_model_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&open(&Raw::new(3).build()).expect("an empty model"));
}
