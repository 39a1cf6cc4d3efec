//! What the planner makes of declarations.

use super::{messages, tokens};
use crate::ast::Declaration;
use crate::check::check;
use crate::model::{Codes, Format, Values};
use crate::plan::{Fetch, Run, plan};

fn format(text: &str) -> Format {
    let declaration: Declaration = syn::parse2(tokens(text)).expect("the declaration parses");
    check(&declaration).unwrap_or_else(|e| panic!("the declaration holds: {e}"))
}

fn codes(format: &Format) -> &Codes {
    match &format.values {
        Values::Codes(codes) => codes,
        Values::Float(_) => panic!("a format with codes"),
    }
}

fn fetches(text: &str) -> Vec<Vec<Fetch>> {
    let format = format(text);
    plan(&format, codes(&format))
        .runs
        .iter()
        .map(|run| match run {
            Run::Pieces(pieces) => pieces.iter().map(|p| p.fetch.clone()).collect(),
            Run::Each(_) => Vec::new(),
        })
        .collect()
}

#[test]
fn split_halves_become_slices() {
    let text = "Q = 900, 32 weights in 18 bytes; d: f16; qs: [u8; 16];
        code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8; scale = d; weight = scale * code;";
    let slices = [vec![Fetch::Slice { byte: 2, shift: 0 }], vec![Fetch::Slice { byte: 2, shift: 4 }]];
    assert_eq!(fetches(text), slices);
    let format = format(text);
    assert_eq!((codes(&format).bits, codes(&format).bias, codes(&format).max), (4, 8, 15));
}

#[test]
fn interleaved_nibbles_become_packed_fields() {
    let text = "Q = 900, 32 weights in 20 bytes; d: f32; qs: [u8; 16];
        code(i) = (qs[i / 2] >> 4 * (i % 2) & 15) - 8; scale = d; weight = scale * code;";
    assert_eq!(fetches(text), [vec![Fetch::Packed { byte: 4 }], vec![Fetch::Packed { byte: 12 }]]);
}

#[test]
fn a_fifth_bit_becomes_a_piece_of_its_own() {
    let text = "Q = 900, 32 weights in 22 bytes; d: f16; qh: [u8; 4]; qs: [u8; 16];
        code(i) = qs[i % 16] >> 4 * (i / 16) & 15 | (qh[i / 8] >> i % 8 & 1) << 4; scale = d; weight = scale * code;";
    let halves = [
        vec![Fetch::Slice { byte: 6, shift: 0 }, Fetch::Packed { byte: 2 }],
        vec![Fetch::Slice { byte: 6, shift: 4 }, Fetch::Packed { byte: 4 }],
    ];
    assert_eq!(fetches(text), halves);
}

#[test]
fn a_word_is_the_same_as_its_bytes() {
    let bytes = "Q = 900, 32 weights in 22 bytes; d: f16; qh: [u8; 4]; qs: [u8; 16];
        code(i) = qs[i % 16] >> 4 * (i / 16) & 15 | (qh[i / 8] >> i % 8 & 1) << 4; scale = d; weight = scale * code;";
    let word = bytes.replace("qh: [u8; 4]", "qh: u32").replace("qh[i / 8] >> i % 8", "qh >> i");
    assert_eq!(fetches(bytes), fetches(&word));
}

#[test]
fn a_layout_without_order_is_computed_one_by_one() {
    let text = "Q = 900, 32 weights in 34 bytes; d: f16; qs: [u8; 32];
        code(i) = qs[i * 7 % 32]; scale = d; weight = scale * code;";
    assert_eq!(fetches(text), [Vec::<Fetch>::new(), Vec::new()]);
}

#[test]
fn ranges_are_exact() {
    let signed = format(
        "Q = 900, 32 weights in 34 bytes; d: f16; qs: [i8; 32]; code(i) = qs[i]; scale = d; weight = scale * code;",
    );
    assert_eq!((codes(&signed).bits, codes(&signed).bias, codes(&signed).max), (8, 128, 255));
    let table = format(
        "Q = 900, 32 weights in 18 bytes; d: f16; qs: [u8; 16];
         table K = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
         code(i) = K[qs[i % 16] >> 4 * (i / 16) & 15]; scale = d; weight = scale * code;",
    );
    assert_eq!((codes(&table).bits, codes(&table).bias, codes(&table).max), (4, 127, 240));
}

#[test]
fn what_is_accepted_gives_no_message() {
    let text = "Q = 900, 32 weights in 18 bytes; d: f16; qs: [u8; 16];
        code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8; scale = d; weight = scale * code;";
    assert!(messages(text).is_empty());
}
