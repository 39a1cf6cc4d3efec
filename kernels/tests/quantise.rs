//! Quantising: the same bytes everywhere, and what happens at the edges. Every test walks the registry.

mod support;

use quantsmith_kernels::{Derived, Format, QuantiseError, Registry, Supported, cpu};
use support::quantised::{DIGITS, dequantised, error, importance, quantised, weights};

/// The columns that a test of many formats needs: whole blocks of all of them.
fn short(format: &Format) -> usize {
    format.elements.max(32)
}

/// The bytes of a few blocks in every format, plain and weighted.
fn sample(format: &'static Format, tier: Supported) -> Vec<u8> {
    let cols = short(format);
    let blocks = if format.name.starts_with("IQ") { 2 } else { 6 };
    let (weights, importance) = (weights(), importance());
    let mut bytes = quantised(format, tier, &weights[300..300 + blocks * cols], cols, None);
    bytes.extend(quantised(format, tier, &weights[..blocks * cols], cols, Some(&importance[..cols])));
    bytes
}

#[test]
fn every_tier_gives_the_same_bytes() {
    for format in Registry::builtin().iter() {
        let want = sample(format, Supported::SCALAR);
        for tier in cpu::supported() {
            assert!(sample(format, tier) == want, "{} on {tier:?}", format.name);
        }
    }
    support::log_tiers("kernels/quantise");
}

#[test]
fn every_machine_gives_the_same_bytes() {
    // FNV-1a over the samples of the types of files; a change of the search changes it, another machine may not.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for format in Registry::builtin().iter().filter(|f| f.id.is_some()) {
        for byte in sample(format, Supported::SCALAR) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!(hash, 0x59f2_e996_83d2_8a21, "{hash:#018x}");
}

#[test]
fn blocks_do_not_depend_on_each_other() {
    let weights = weights();
    for format in Registry::builtin().iter() {
        let cols = short(format);
        let together = quantised(format, Supported::SCALAR, &weights[..3 * cols], 3 * cols, None);
        let rows = quantised(format, Supported::SCALAR, &weights[..3 * cols], cols, None);
        assert!(together == rows, "{}", format.name);
    }
}

/// Rows at the edges, of `n` weights.
fn hard(n: usize) -> Vec<(&'static str, Vec<f32>)> {
    let row = |f: &dyn Fn(usize) -> f32| (0..n).map(f).collect::<Vec<f32>>();
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    vec![
        ("zeros", row(&|_| 0.0)),
        ("negative zeros", row(&|_| -0.0)),
        ("the smallest subnormals", row(&|i| sign(i) * f32::from_bits(1 + (i % 3) as u32))),
        ("subnormals", row(&|i| f32::from_bits(i as u32 * 1000))),
        ("the smallest normal numbers", row(&|i| sign(i / 3) * f32::MIN_POSITIVE * (1.0 + i as f32 / 7.0))),
        ("what f16 cannot hold", row(&|i| sign(i) * 1e-9 * i as f32)),
        ("one small weight", row(&|i| if i == n / 2 { 1e-30 } else { 0.0 })),
        ("one outlier", row(&|i| if i == 5 { 1e6 } else { sign(i) * 1e-3 })),
        ("beyond f16", row(&|i| sign(i / 2) * 1e7 * (i % 9) as f32)),
        ("near the end of f32", row(&|i| sign(i) * 3e38 / (1 + i % 4) as f32)),
        ("the largest", row(&|_| f32::MAX)),
        ("the largest and the smallest", row(&|i| sign(i) * f32::MAX)),
        ("the largest once", row(&|i| if i == n - 1 { f32::MIN } else { 1.0 })),
        ("all the same", row(&|_| 0.7)),
        ("all the same, negative", row(&|_| -3.0)),
        ("two values", row(&|i| sign(i / 5) * 0.25)),
        ("all positive", row(&|i| 1.0 + (i * 7 % 13) as f32)),
        ("all negative", row(&|i| -1.0 - (i * 7 % 13) as f32)),
        ("a slope", row(&|i| i as f32 - 20.0)),
        ("every size", row(&|i| sign(i) * 2.0f32.powi((i * 11 % 250) as i32 - 125))),
    ]
}

#[test]
fn hard_rows_become_finite_blocks_on_every_tier() {
    for format in Registry::builtin().iter() {
        let n = short(format);
        for (what, row) in hard(n) {
            let want = quantised(format, Supported::SCALAR, &row, n, None);
            let back = dequantised(format, &want);
            for (i, (w, b)) in row.iter().zip(&back).enumerate() {
                assert!(b.is_finite(), "{}: {what}: weight {i}, {w:e}, became {b:e}", format.name);
            }
            // Nothing is worse than zeros, but for what a power of two as the smallest scale must leave.
            let (ours, zeros) = (error(&row, &back, None), error(&row, &vec![0.0; n], None));
            assert!(
                ours <= zeros * DIGITS + 1e-37,
                "{}: {what}: {ours:e}, with zeros {zeros:e}",
                format.name
            );
            for tier in cpu::supported() {
                assert!(
                    quantised(format, tier, &row, n, None) == want,
                    "{}: {what} on {tier:?}",
                    format.name
                );
            }
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for format in Registry::builtin().iter() {
        let n = short(format);
        for zeros in [vec![0.0; n], vec![-0.0; n]] {
            let back = dequantised(format, &quantised(format, Supported::SCALAR, &zeros, n, None));
            assert!(back.iter().all(|b| b.abs() <= 1e-37), "{}: {back:?}", format.name);
        }
    }
}

#[test]
fn what_is_not_finite_is_an_error_that_names_the_place() {
    for format in Registry::builtin().iter() {
        let (n, kernels) = (short(format), format.kernels(Supported::SCALAR));
        let mut out = vec![0; 3 * format.row_bytes(n).expect("whole blocks")];
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut rows = vec![1.0; 3 * n];
            rows[2 * n + 7] = value;
            match kernels.quantise(&rows, n, None, &mut out) {
                Err(QuantiseError::NotFinite { row: 2, col: 7, value: found }) => {
                    assert_eq!(found.to_bits(), value.to_bits());
                }
                other => panic!("{}: {other:?}", format.name),
            }
        }
        for value in [f32::NAN, f32::INFINITY, -1.0] {
            let mut importance = vec![1.0; n];
            importance[9] = value;
            let error = kernels.quantise(&vec![1.0; 3 * n], n, Some(&importance), &mut out);
            assert!(
                matches!(error, Err(QuantiseError::Importance { col: 9, .. })),
                "{}: {error:?}",
                format.name
            );
        }
    }
    let error = QuantiseError::NotFinite { row: 2, col: 7, value: f32::NAN };
    assert_eq!(error.to_string(), "the weight in row 2, column 7 is NaN; a finite number is expected");
}

#[test]
fn sums_that_follow_from_the_codes_are_filled() {
    let weights = &weights()[..2048];
    let mut seen = 0;
    for format in Registry::builtin().iter() {
        for field in format.fields {
            let Some(derived) = field.derived else { continue };
            seen += 1;
            let bytes = quantised(format, Supported::SCALAR, weights, 2048, None);
            let values = dequantised(format, &bytes);
            for (block, values) in bytes.chunks(format.bytes).zip(values.chunks(format.elements)) {
                let covered = format.elements / field.count;
                for n in 0..field.count {
                    let sum: f64 = values[n * covered..(n + 1) * covered].iter().map(|v| f64::from(*v)).sum();
                    let at = &block[field.offset + 2 * n..][..2];
                    match derived {
                        Derived::ScaledSum => {
                            let stored = half::f16::from_le_bytes([at[0], at[1]]).to_f64();
                            assert!((stored - sum).abs() <= sum.abs() * 1e-3, "{stored} for {sum}");
                        }
                        Derived::Sum => {
                            let scale =
                                f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
                            let stored = f64::from(i16::from_le_bytes([at[0], at[1]]));
                            assert!(
                                (stored * scale - sum).abs() < 0.01 * scale.abs(),
                                "{stored} for {}",
                                sum / scale
                            );
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, 2, "Q8_1 and Q8_K");
}

#[test]
fn floats_are_rounded_to_the_nearest() {
    let registry = Registry::builtin();
    let weights: Vec<f32> =
        weights().into_iter().take(4096).chain([65_519.9, 1e9, -1e30, 6e-8, 1e-40]).collect();
    let n = weights.len();
    let f16 = dequantised(
        registry.by_name("F16").expect("built in"),
        &quantised(registry.by_name("F16").expect("built in"), Supported::SCALAR, &weights, n, None),
    );
    for (w, got) in weights.iter().zip(f16) {
        let want = half::f16::from_f32(w.clamp(-65504.0, 65504.0)).to_f32();
        assert_eq!(got.to_bits(), want.to_bits(), "{w}");
    }
    let bf16 = registry.by_name("BF16").expect("built in");
    for (w, got) in
        weights.iter().zip(dequantised(bf16, &quantised(bf16, Supported::SCALAR, &weights, n, None)))
    {
        assert_eq!(got.to_bits(), half::bf16::from_f32(*w).to_f32().to_bits(), "{w}");
    }
}

#[test]
fn nothing_is_quantised_to_nothing() {
    for format in Registry::builtin().iter() {
        let kernels = format.kernels(Supported::SCALAR);
        assert_eq!(kernels.quantise(&[], short(format), None, &mut []), Ok(()));
        assert_eq!(kernels.quantise(&[], 0, Some(&[]), &mut []), Ok(()));
    }
}

#[test]
#[should_panic(expected = "not whole rows")]
fn weights_that_are_not_whole_rows_are_a_mistake() {
    let kernels = Registry::builtin().by_name("Q4_0").expect("built in").kernels(Supported::SCALAR);
    let _ = kernels.quantise(&[0.0; 33], 32, None, &mut [0; 18]);
}

#[test]
#[should_panic(expected = "31 importances for 32 columns")]
fn importance_of_another_length_is_a_mistake() {
    let kernels = Registry::builtin().by_name("Q4_0").expect("built in").kernels(Supported::SCALAR);
    let _ = kernels.quantise(&[0.0; 32], 32, Some(&[1.0; 31]), &mut [0; 18]);
}
