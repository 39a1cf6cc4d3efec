//! The generated code of one short format on every tier, as snapshots. `make expand` prints that of any format.

use super::printed;
use crate::isa::TIERS;

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
