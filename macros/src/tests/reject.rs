//! Every rule of a declaration, broken one at a time: the message says what was found and what is accepted.

use super::messages;

const GOOD: &str = "Q = 900, 32 weights in 18 bytes; d: f16; qs: [u8; 16];
    code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8; scale = d; weight = scale * code;";

/// Breaks the good declaration and expects one message with these words.
fn expect(from: &str, to: &str, words: &str) {
    assert!(GOOD.contains(from), "the good declaration has `{from}`");
    let all = messages(&GOOD.replacen(from, to, 1));
    assert!(all.iter().any(|m| m.contains(words)), "`{words}` is missing from {all:#?}");
}

#[test]
fn sizes_that_do_not_add_up() {
    expect("18 bytes", "20 bytes", "20 bytes are stated");
    expect("18 bytes", "20 bytes", "the fields up to here sum to 18 bytes");
    expect("32 weights", "48 weights", "a multiple of 32");
    expect(
        "18 bytes;",
        "18 bytes, groups of 24;",
        "groups of 24 do not divide the block of 32; accepted: 16, or a",
    );
}

#[test]
fn bits_that_are_not_covered_or_not_there() {
    expect("& 15", "& 7", "of the 128 bits of `qs` are not part of any code");
    expect(
        "qs[i % 16]",
        "qs[i]",
        "`qs` is too narrow: it has 16 values and value 16 is asked for (at i = 16)",
    );
    expect("qs: [u8; 16]", "qs: [u8; 16]; qs: [u8; 0]", "`qs` is declared twice");
}

#[test]
fn codes_that_could_overflow() {
    let wide = "Q = 900, 32 weights in 66 bytes; d: f16; qs: [u16; 32]; code(i) = qs[i]; scale = d; weight = scale * code;";
    let all = messages(wide);
    assert!(all[0].contains("take 16 bits") && all[0].contains("could overflow i32"), "{all:#?}");
    expect(
        "qs[i % 16] >> 4 * (i / 16) & 15",
        "qs[i % 16] * qs[i / 2] * qs[i / 2] * qs[0] * 65536",
        "could overflow i32",
    );
}

#[test]
fn scales_of_the_wrong_kind() {
    expect("scale = d", "scale = 3", "needs a float field among its factors");
    expect("scale = d", "scale = d * d", "only one factor may be a float field");
    expect("scale = d", "scale = d * 0.3", "not a power of two");
    expect("scale = d", "scale(g) = d * (qs[g] * 2)", "do not fit a byte");
    expect("code(i) =", "code(i) = d *", "`d` is f16: only a scale or a minimum can use it");
}

#[test]
fn rules_that_are_missing_unknown_or_twice() {
    expect(
        "scale = d;",
        "",
        "the rule `scale` is missing; accepted rules: code(i), scale(g), min(g), weight",
    );
    expect("scale = d;", "scale = d; scale = d;", "`scale` is given twice");
    expect("scale = d;", "scale = d; bias = d;", "unknown rule `bias`");
    expect("scale = d;", "scale = d; min = d;", "`min` is declared but the weight does not use it");
    expect("scale * code;", "scale * code - min;", "the rule `min` is missing");
    expect(
        "scale * code;",
        "scale + code;",
        "accepted: scale * code, scale * code - min, scale * code + min",
    );
    expect("code(i)", "code", "the code is a function of the element: code(i)");
}

#[test]
fn names_and_grammar() {
    expect("qs[i % 16]", "qx[i % 16]", "`qx` is not declared; there are `d`, `qs`");
    expect("d: f16", "d: f17", "unknown field type `f17`; accepted: u8, i8, u16, u32, f16, bf16, f32");
    expect("qs[i % 16]", "qs", "`qs` is an array: an index is missing");
    expect("qs[i % 16]", "qs[qs[i % 16]]", "must not depend on the block");
    expect("- 8", "- i.abs()", "not an expression of a format");
}

#[test]
fn all_errors_of_a_declaration_come_at_once() {
    let broken =
        GOOD.replace("18 bytes", "19 bytes").replace("scale = d", "scale = d * 0.3").replace("qs[i", "qx[i");
    let all = messages(&broken);
    for words in ["19 bytes are stated", "sum to 18 bytes", "not a power of two", "`qx` is not declared"] {
        assert!(all.iter().any(|m| m.contains(words)), "`{words}` is missing from {all:#?}");
    }
}
