//! The macro works from any crate: nothing of the prelude is in scope here, and no name is what it usually is.

#![no_implicit_prelude]

::quantsmith_kernels::quant_formats! {
    /// A format with a table, a helper, groups and a minimum.
    OWN = private, 64 weights in 40 bytes, groups of 32;
    d: [f16; 2];  m: [f16; 2];  qs: [u8; 32];
    table STEPS = [-60, -44, -32, -22, -14, -8, -4, -1, 1, 4, 8, 14, 22, 32, 44, 60];
    nibble(i) = qs[i % 32] >> 4 * (i / 32) & 15;
    code(i)   = STEPS[nibble(i)];
    scale(g)  = d[g];
    min(g)    = m[g];
    weight    = scale * code - min;

    /// A format whose codes are computed one by one.
    ODD = private, 32 weights in 34 bytes;
    d: f16;  qs: [u8; 32];
    code(i) = qs[i * 7 % 32] * 3 % 64 + parity(qs[i]);
    scale   = d;
    weight  = scale * code;
}

/// Names that emitted code must not take for its own.
#[allow(dead_code)]
mod core {}
#[allow(dead_code)]
struct Option;
#[allow(dead_code)]
struct Some;

#[test]
fn a_format_of_another_crate_dequantises() {
    let tier = ::quantsmith_kernels::Supported::SCALAR;
    let mut block = [0u8; 40];
    block[0..2].copy_from_slice(&[0x00, 0x3c]); // 1.0
    block[2..4].copy_from_slice(&[0x00, 0x40]); // 2.0
    block[4..6].copy_from_slice(&[0x00, 0x38]); // 0.5
    block[8] = 0xf0; // weight 0 has index 0, weight 32 index 15
    let mut out = [0.0f32; 64];
    OWN.kernels(tier).dequantise(&block, &mut out);
    ::std::assert_eq!((out[0], out[32]), (-60.5, 120.0));
    ::std::assert_eq!(FORMATS.len(), 2);
}

#[test]
fn a_format_of_another_crate_quantises_or_says_why_not() {
    let tier = ::quantsmith_kernels::Supported::SCALAR;
    let mut weights = [0.0f32; 64];
    for (n, weight) in weights.iter_mut().enumerate() {
        *weight = n as f32;
    }
    let (mut block, mut again) = ([0u8; 40], [0.0f32; 64]);
    OWN.kernels(tier).quantise(&weights, 64, ::std::option::Option::None, &mut block).unwrap();
    OWN.kernels(tier).dequantise(&block, &mut again);
    // Sixteen uneven steps over a range of 32.
    for (weight, again) in ::std::iter::zip(weights, again) {
        ::std::assert!((weight - again).abs() < 2.5, "{weight} became {again}");
    }
    let refused = ODD.kernels(tier).quantise(&weights, 64, ::std::option::Option::None, &mut [0u8; 68]);
    ::std::assert_eq!(refused, ODD.can_quantise());
    let message = refused.unwrap_err();
    let message = ::std::string::ToString::to_string(&message);
    ::std::assert!(message.starts_with("weights cannot be quantised to ODD: "), "{message}");
}

#[test]
fn a_family_joins_the_registry_by_name() {
    let registry = ::quantsmith_kernels::Registry::builtin().with(&OWN).with(&ODD);
    ::std::assert!(registry.by_name("own").is_some() && registry.by_name("ODD").is_some());
    ::std::assert_eq!(registry.iter().filter(|f| f.id.is_none() && f.name == "OWN").count(), 1);
}

use ::std::iter::Iterator;
