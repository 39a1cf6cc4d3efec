//! The generated code of one short format on every tier, as snapshots; and a printer for any format.

use super::printed;
use crate::isa::TIERS;
use std::fs;

const Q4_0: &str = "
    /// 32 weights of 4 bits, from -8 to 7.
    Q4_0 = 2, 32 weights in 18 bytes;
    d: f16;  qs: [u8; 16];
    code(i) = (qs[i % 16] >> 4 * (i / 16) & 15) - 8;
    scale   = d;
    weight  = scale * code;
";

#[test]
fn one_short_format_on_every_tier() {
    for tier in TIERS {
        insta::assert_snapshot!(format!("q4_0_{}", tier.name), printed(Q4_0, Some(tier.name)));
    }
}

#[test]
fn the_row_of_facts() {
    let all = printed(Q4_0, None);
    let facts: String = all.lines().take_while(|l| !l.contains("pub mod")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!("q4_0_facts", facts);
}

/// Prints the generated code of a built-in format: `FORMAT=q4_k TIER=avx512vnni`. Without a tier, all of it.
#[test]
#[ignore = "a printer, not a test"]
fn print_expansion() {
    let format = std::env::var("FORMAT").expect("FORMAT names a format");
    let tier = std::env::var("TIER").ok().filter(|t| !t.is_empty());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/src/formats");
    for entry in fs::read_dir(folder).expect("the folder of declarations") {
        let source = fs::read_to_string(entry.expect("an entry").path()).expect("a source file");
        for item in syn::parse_file(&source).expect("Rust").items {
            let syn::Item::Macro(declared) = item else { continue };
            let Ok(declaration) = syn::parse2::<crate::ast::Declaration>(declared.mac.tokens.clone()) else {
                continue;
            };
            if declaration.name.to_string().eq_ignore_ascii_case(&format) {
                println!("{}", printed(&declared.mac.tokens.to_string(), tier.as_deref()));
                return;
            }
        }
    }
    panic!("no built-in format is called `{format}`");
}
