//! Every format that the golden blocks cover dequantises to the bit, on every tier that this CPU has.

mod support;

use quantsmith_kernels::Registry;
use serde_json::Value;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal"))
        .collect()
}

#[test]
fn golden_blocks_dequantise_to_the_bit_on_every_tier() {
    let golden: Value = serde_json::from_str(include_str!("data/blocks.json")).expect("JSON");
    let types = golden["types"].as_object().expect("an object of types");
    let registry = Registry::builtin();
    let mut seen = 0;
    for format in registry.iter().filter(|f| !f.is_float()) {
        let Some(case) =
            types.iter().find(|(name, _)| name.eq_ignore_ascii_case(format.name)).map(|(_, case)| case)
        else {
            continue;
        };
        seen += 1;
        assert_eq!(case["id"], format.id.expect("a number"), "{}", format.name);
        assert_eq!(case["block"], format.elements, "{}", format.name);
        assert_eq!(case["bytes"], format.bytes, "{}", format.name);
        let raw = hex(case["raw_hex"].as_str().expect("raw_hex"));
        let want: Vec<u32> = hex(case["f32_le_hex"].as_str().expect("f32_le_hex"))
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect();
        for tier in support::tiers() {
            let kernels = format.kernels(tier);
            assert_eq!(kernels.tier(), tier.tier(), "{} has no kernels for the tier", format.name);
            let mut out = vec![f32::NAN; want.len()];
            kernels.dequantise(&raw, &mut out);
            for (i, (got, want)) in out.iter().zip(&want).enumerate() {
                let (got, want) = (got.to_bits(), *want);
                let nan = f32::from_bits(got).is_nan() && f32::from_bits(want).is_nan();
                assert!(
                    got == want || nan,
                    "{} on {:?}: value {i} is {got:#x}, not {want:#x}",
                    format.name,
                    tier
                );
            }
        }
    }
    assert_eq!(seen, types.len(), "every golden type is declared");
    support::log_tiers("kernels/golden");
}
