//! What the generator finds out about writing codes, from rules that only say how to read them.

use super::tokens;
use crate::inverse::{Codes, Grid, Inverse, Levels, find};
use crate::model::Values;

/// The inverse of a declaration.
fn inverse(text: &str) -> Result<Inverse, String> {
    let declaration = syn::parse2(tokens(text)).expect("a declaration");
    let format = crate::check::check(&declaration).expect("a legal format");
    let Values::Codes(codes) = &format.values else { panic!("a format with codes") };
    find(&format, codes)
}

/// A declaration with 32 bytes of codes and one scale.
fn with_code(code: &str) -> Result<Inverse, String> {
    inverse(&format!(
        "F = private, 32 weights in 34 bytes; d: f16; qs: [u8; 32]; {code} scale = d; weight = scale * code;"
    ))
}

fn grid(text: &str) -> Grid {
    match inverse(text).map(|found| found.codes) {
        Ok(Codes::Grid(grid)) => grid,
        Ok(_) => panic!("not a grid"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn codes_of_their_own_bits_keep_their_places() {
    let found = with_code("code(i) = qs[31 - i] >> 4 | (qs[31 - i] & 15 ^ 15) << 4;").expect("an inverse");
    let Codes::Each { places, levels: Levels::Range(0, 255) } = found.codes else {
        panic!("codes of their own")
    };
    assert_eq!(places[0][..4], [252, 253, 254, 255].map(|bit| Some((bit + 16, false))));
    assert_eq!(places[0][4..], [248, 249, 250, 251].map(|bit| Some((bit + 16, true))));
}

#[test]
fn a_value_that_several_bits_give_is_written_with_the_lowest() {
    let found = with_code("code(i) = qs[i] * 3 / 256;").expect("an inverse");
    let Codes::Joint { cells, levels } = found.codes else { panic!("not looked up") };
    assert_eq!((cells.len(), levels), (32, vec![0, 1, 2]));
    assert_eq!((&cells[2].elements, &cells[2].inverse), (&vec![2], &vec![0, 86, 171]));
}

#[test]
fn base_three_is_found_without_being_told() {
    let found = inverse(
        "F = private, 32 weights in 10 bytes; d: f16; qs: [u8; 8];
         table POWER = [1, 3, 9, 27];
         code(i) = (qs[i % 8] * POWER[i / 8] % 256 * 3 >> 8) - 1;
         scale = d; weight = scale * code;",
    );
    let Codes::Joint { cells, levels } = found.expect("an inverse").codes else { panic!("not looked up") };
    assert_eq!((cells.len(), levels), (8, vec![-1, 0, 1]));
    assert_eq!(cells[3].elements, [3, 11, 19, 27]);
    // 0 0 0 0 in the middle: any byte with those digits will do, and it must have them.
    let byte = usize::from(cells[3].inverse[1 + 3 + 9 + 27]);
    for power in [1, 3, 9, 27] {
        assert_eq!((byte * power % 256 * 3) >> 8, 1, "digit of {byte}");
    }
}

const GRID: &str = "F = private, 32 weights in 10 bytes; d: f16; qs: [u8; 4]; signs: [u8; 4];
    table G = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];";

/// The rules of signs, in front of the rest.
fn signed(sign: &str) -> String {
    let entry = "entry(i) = if i % 8 < 4 { qs[i / 8] & 15 } else { qs[i / 8] >> 4 };";
    format!(
        "{GRID} {entry} {sign} code(i) = G[entry(i) + i % 4] * (1 - 2 * negative(i)); scale = d; weight = scale * code;"
    )
}

#[test]
fn rows_of_a_grid_with_free_signs() {
    let grid = grid(&signed("negative(i) = signs[i / 8] >> i % 8 & 1;"));
    assert_eq!((grid.width, grid.index.len(), grid.even), (4, 8, 0));
    assert_eq!(grid.rows[..8], [1, 2, 3, 4, 2, 3, 4, 5]);
    assert_eq!(grid.index[1], [20, 21, 22, 23]);
    assert_eq!(grid.signs[9], Some((48 + 9, false)));
}

#[test]
fn signs_with_a_parity_belong_together() {
    let text = signed(
        "seven(k) = signs[k] & 127;
         negative(i) = if i % 8 < 7 { seven(i / 8) >> i % 8 & 1 } else { parity(seven(i / 8)) };",
    );
    // The eighth bits make the scale, so that every bit means something.
    let text = text.replace(
        "scale = d",
        "scale = d * (signs[0] >> 7 | signs[1] >> 7 << 1 | signs[2] >> 7 << 2 | signs[3] >> 7 << 3)",
    );
    let grid = grid(&text);
    assert_eq!((grid.width, grid.even), (4, 8));
    assert_eq!(grid.signs[7], None);
    assert_eq!(grid.signs[8], Some((56, false)));
}

#[test]
fn what_cannot_be_turned_round_says_why() {
    for (code, why) in [
        ("code(i) = (qs[i] & 15) * (qs[i] >> 4);", "no rows of a grid"),
        ("code(i) = qs[i * 7 % 32] * 3 % 64 + parity(qs[i]);", "no rows of a grid"),
    ] {
        let found = with_code(code).err().expect("no inverse");
        assert!(found.contains(why), "{code}: {found}");
    }
    let mixed = inverse(
        "F = private, 64 weights in 38 bytes, groups of 32; d: f16; m: [f16; 2]; qs: [u8; 32];
         code(i) = qs[i % 32] >> 4 * (i / 32) & 15; scale(g) = d; min(g) = m[g]; weight = scale * code + min;",
    );
    assert!(mixed.err().is_some_and(|why| why.contains("not for the same groups")));
}
