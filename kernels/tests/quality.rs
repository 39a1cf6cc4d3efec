//! How good quantising is: beside another implementation, and with importance.
//!
//! All tiers give the same bytes, which another test compares, so these run on one.

mod support;

use quantsmith_kernels::{FieldType, Format, Registry, Supported, cpu};
use support::quantised::{DIGITS, dequantised, error, importance, quantised, weights};

/// Errors of ggml 0.25.3's quantisers on the same data (its tables and search are not used here): the root mean square
/// without importance, where it works without, and with importance, weighted by it.
#[rustfmt::skip]
const GGML: &[(&str, Option<f64>, f64)] = &[
    ("Q4_0", Some(0.002398061), 0.002259321),
    ("Q4_1", Some(0.001938446), 0.001582172),
    ("Q5_0", Some(0.001200386), 0.001122975),
    ("Q5_1", Some(0.0009388724), 0.0007621255),
    ("Q8_0", Some(0.0001498092), 0.0001507862),
    ("Q2_K", Some(0.006984444), 0.005646258),
    ("Q3_K", Some(0.003750335), 0.003415056),
    ("Q4_K", Some(0.001775842), 0.001622322),
    ("Q5_K", Some(0.0008920306), 0.0008216829),
    ("Q6_K", Some(0.0004800052), 0.0004413523),
    ("IQ2_XXS", None, 0.008419048),
    ("IQ2_XS", None, 0.007043238),
    ("IQ3_XXS", Some(0.00560523), 0.003930998),
    ("IQ1_S", None, 0.01115737),
    ("IQ4_NL", Some(0.001992599), 0.001887731),
    ("IQ3_S", Some(0.004268344), 0.003238948),
    ("IQ2_S", Some(0.007405955), 0.006325065),
    ("IQ4_XS", Some(0.002017647), 0.001931035),
    ("IQ1_M", None, 0.009510079),
    ("TQ1_0", Some(0.0185368), 0.01872265),
    ("TQ2_0", Some(0.0185368), 0.01872265),
    ("MXFP4", Some(0.002991431), 0.002925152),
    ("NVFP4", Some(0.002332158), 0.002318935),
    ("Q1_0", Some(0.0149804), 0.01455158),
    ("Q2_0", Some(0.01614299), 0.01626867),
];

const COLS: usize = 2048;

/// The fastest tier.
fn best() -> Supported {
    *cpu::supported().last().expect("the scalar tier")
}

#[test]
fn no_type_is_worse_than_in_ggml() {
    let (weights, importance) = (weights(), importance());
    let registry = Registry::builtin();
    let mut bad = Vec::new();
    for (name, plain, weighted) in GGML {
        let format = registry.by_name(name).expect("a built-in format");
        let reached = |importance: Option<&[f32]>| {
            let bytes = quantised(format, best(), &weights, COLS, importance);
            error(&weights, &dequantised(format, &bytes), importance)
        };
        let (ours, ours_weighted) = (reached(None), reached(Some(&importance)));
        println!("{name:8} {ours:.9} of {plain:?}, weighted {ours_weighted:.9} of {weighted}");
        if plain.is_some_and(|plain| ours > plain * DIGITS) || ours_weighted > weighted * DIGITS {
            bad.push(*name);
        }
    }
    assert!(bad.is_empty(), "worse: {bad:?}");
    let quantised =
        |f: &&&Format| !f.is_float() && f.id.is_some() && !f.fields.iter().any(|f| f.derived.is_some());
    let all = registry.iter().collect::<Vec<_>>();
    assert_eq!(all.iter().filter(quantised).count(), GGML.len(), "a type of files is not compared");
}

#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let weights = &weights()[..4 * COLS];
    let matters: Vec<f32> = (0..COLS).map(|c| if c % 4 == 1 { 1.0 } else { 0.01 }).collect();
    let only: Vec<f32> = (0..COLS).map(|c| if c % 4 == 1 { 1.0 } else { 0.0 }).collect();
    for format in Registry::builtin().iter().filter(|f| !f.is_float()) {
        let back = |i| dequantised(format, &quantised(format, best(), weights, COLS, i));
        let (plain, weighted) = (back(None), back(Some(&matters[..])));
        let there = |back: &[f32]| error(weights, back, Some(&only));
        assert!(there(&weighted) < there(&plain), "{}", format.name);
        // Importance has no unit, all of it the same is none, and none anywhere is too.
        let larger: Vec<f32> = matters.iter().map(|w| w * 2.0f32.powi(100)).collect();
        assert!(back(Some(&larger[..])) == weighted, "{}", format.name);
        assert!(back(Some(&[3.0; COLS][..])) == plain, "{}", format.name);
        assert!(back(Some(&[0.0; COLS][..])) == plain, "{}", format.name);
        if format.name == "Q4_K" || format.name == "IQ2_XS" {
            assert!(back(Some(&only[..])).iter().all(|b| b.is_finite()), "{}", format.name);
        }
    }
}

/// Numbers without pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}

/// Blocks of random bits, but for their floats, which are of one order of magnitude. Nothing where the bits of a float lie
/// in pieces.
fn random_blocks(format: &Format, blocks: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..blocks * format.bytes).map(|_| random.below(256) as u8).collect();
    let mut floats = 0;
    for block in bytes.chunks_exact_mut(format.bytes) {
        for field in format.fields {
            for n in 0..field.count {
                let value = (500 + random.below(1000)) as f32 / 1000.0;
                let bits = match field.ty {
                    FieldType::F16 => u32::from(half::f16::from_f32(value).to_bits()),
                    FieldType::Bf16 => value.to_bits() >> 16,
                    FieldType::F32 => value.to_bits(),
                    FieldType::E8m0 => 120 + random.below(8) as u32,
                    FieldType::E4m3 => 8 + random.below(100) as u32,
                    _ => continue,
                };
                let (at, width) = (field.offset + n * field.ty.bytes(), field.ty.bytes());
                block[at..at + width].copy_from_slice(&bits.to_le_bytes()[..width]);
                floats += 1;
            }
        }
    }
    if floats == 0 { Vec::new() } else { bytes }
}

/// The part of blocks that come back when what they hold is quantised, and the error of all together, beside their values.
fn found_again(format: &'static Format, blocks: &[u8]) -> (f64, f64) {
    let held = dequantised(format, blocks);
    let back = dequantised(format, &quantised(format, best(), &held, format.elements.max(32), None));
    let relative = |(held, back): (&[f32], &[f32])| {
        error(held, back, None) / error(held, &vec![0.0; held.len()], None).max(1e-30)
    };
    let each = held.chunks(format.elements).zip(back.chunks(format.elements));
    let exact = each.map(relative).filter(|error| *error < 1e-5).count();
    (exact as f64 / (blocks.len() / format.bytes) as f64, relative((&held, &back)))
}

#[test]
fn what_a_block_holds_is_found_again() {
    let (weights, mut random) = (weights(), Random(0x9e37_79b9_7f4a_7c15));
    let mut bad = Vec::new();
    for format in Registry::builtin().iter().filter(|f| !f.is_float()) {
        let inverse = format.inverse.expect("a format that can be quantised to");
        let blocks = (32 * 256 / format.elements).min(128);
        let cols = format.elements.max(32);
        let made = quantised(format, best(), &weights[..blocks * format.elements], cols, None);
        let (exact, lost) = found_again(format, &made);
        println!("{:8} quantised before: {exact:.3} exact, error {lost:.1e}", format.name);
        let least = if format.id.is_some() { 1.0 } else { 0.95 };
        if exact < least || lost > 2e-3 {
            bad.push((format.name, "quantised before", exact, lost));
        }
        let random = random_blocks(format, blocks, &mut random);
        if random.is_empty() {
            assert_eq!(format.name, "IQ1_M");
            continue;
        }
        let (exact, lost) = found_again(format, &random);
        println!("{:8} random bits:      {exact:.3} exact, error {lost:.1e}", format.name);
        // Codes of a group that does not use them all can be told from others only by the offsets of its neighbours.
        let shared = inverse.offset.as_ref().is_some_and(|o| o.floats.len() == 1 && o.bits > 0);
        let (least, most) = if shared { (0.7, 0.02) } else { (0.98, 1e-3) };
        if exact < least || lost > most {
            bad.push((format.name, "random bits", exact, lost));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}
