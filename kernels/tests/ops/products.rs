//! Products of float weights: the bits of the scalar tier and of single dot products, and the mathematics in f64.

use crate::{Random, assert_same, tiers};
use core::ops::Range;
use quantsmith_kernels::OutMut;
use quantsmith_kernels::cpu::{Supported, supported};
use quantsmith_kernels::ops::float_product::Set;

type Dot = fn(Set, &[u8], &[f32]) -> f32;
type Matmul = for<'a> fn(Set, &[u8], usize, Range<usize>, &[f32], OutMut<'a>);

/// A weight format: its name, bytes of a weight, and how weights are written and multiplied.
struct Weights {
    name: &'static str,
    bytes: usize,
    write: fn(f32) -> Vec<u8>,
    read: fn(&[u8]) -> f32,
    dot: Dot,
    matmul: Matmul,
}

const WEIGHTS: [Weights; 3] = [
    Weights {
        name: "f32",
        bytes: 4,
        write: |x| x.to_le_bytes().into(),
        read: |b| f32::from_le_bytes(b.try_into().unwrap()),
        dot: |s, w, x| s.dot_f32(w, x),
        matmul: |s, w, cols, rows, x, out| s.matmul_f32(w, cols, rows, x, out),
    },
    Weights {
        name: "f16",
        bytes: 2,
        write: |x| half::f16::from_f32(x).to_le_bytes().into(),
        read: |b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f32(),
        dot: |s, w, x| s.dot_f16(w, x),
        matmul: |s, w, cols, rows, x, out| s.matmul_f16(w, cols, rows, x, out),
    },
    Weights {
        name: "bf16",
        bytes: 2,
        write: |x| half::bf16::from_f32(x).to_le_bytes().into(),
        read: |b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32(),
        dot: |s, w, x| s.dot_bf16(w, x),
        matmul: |s, w, cols, rows, x, out| s.matmul_bf16(w, cols, rows, x, out),
    },
];

#[test]
fn dot_products_equal_scalar_and_are_right() {
    let mut random = Random(7);
    for weights in &WEIGHTS {
        for cols in (0..=70).chain([1000]) {
            let bytes: Vec<u8> = random.row(cols, 1.0).into_iter().flat_map(weights.write).collect();
            let x = random.row(cols, 1.0);
            let expected = (weights.dot)(Set::new(Supported::SCALAR), &bytes, &x);
            let terms = bytes.chunks(weights.bytes).zip(&x);
            let terms: Vec<f64> = terms.map(|(w, &x)| f64::from((weights.read)(w)) * f64::from(x)).collect();
            let (exact, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
            assert!((f64::from(expected) - exact).abs() <= size * 1e-6, "{} {cols}", weights.name);
            for tier in tiers() {
                assert_same(weights.name, tier, &[expected], &[(weights.dot)(Set::new(tier), &bytes, &x)]);
            }
        }
    }
}

#[test]
fn any_tile_of_a_product_has_the_bits_of_single_dot_products() {
    let mut random = Random(8);
    for (rows, cols) in [(1, 1), (3, 16), (9, 33), (40, 100), (67, 530), (7, 1100)] {
        for weights in &WEIGHTS {
            let row_bytes = cols * weights.bytes;
            let bytes: Vec<u8> = random.row(rows * cols, 1.0).into_iter().flat_map(weights.write).collect();
            for tokens in [1, 2, 3, 4, 5, 6, 7, 11] {
                let x = random.row(tokens * cols, 1.0);
                let dot = |token: usize, row: usize| {
                    let weight = &bytes[row * row_bytes..][..row_bytes];
                    (weights.dot)(Set::new(Supported::SCALAR), weight, &x[token * cols..][..cols])
                };
                let stride = rows + 2;
                for tier in supported() {
                    let mut found = vec![f32::NAN; tokens * stride];
                    for part in [0..rows / 3, rows / 3..rows] {
                        let out = OutMut::new(&mut found, stride, tokens);
                        (weights.matmul)(Set::new(tier), &bytes, cols, part, &x, out);
                    }
                    for (token, found) in found.chunks(stride).enumerate() {
                        let expected: Vec<f32> = (0..rows).map(|row| dot(token, row)).collect();
                        assert_same(weights.name, tier, &expected, &found[..rows]);
                        assert!(found[rows..].iter().all(|x| x.is_nan()), "written beyond the rows");
                    }
                }
            }
        }
    }
}
