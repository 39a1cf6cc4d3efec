//! Every operation on every tier that this CPU has: the bits of the scalar tier, over odd lengths and extreme values;
//! and the mathematics against f64.

mod attention;
mod cells;
mod conversions;
mod fingerprint;
mod products;
mod roof;

use quantsmith_kernels::cpu::supported;
use quantsmith_kernels::ops::*;
use quantsmith_kernels::{ActGroup, Activations, ActivationsMut, Supported};

/// A small generator (splitmix64), so that the tests need no seed from outside.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform between -1 and 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 2f32.powi(23) - 1.0
    }

    /// Roughly normal values of the given size.
    pub(crate) fn row(&mut self, len: usize, size: f32) -> Vec<f32> {
        (0..len).map(|_| (self.unit() + self.unit() + self.unit()) * size).collect()
    }

    /// Any bit pattern now and then, ends of the range often.
    fn wild(&mut self, len: usize) -> Vec<f32> {
        const ENDS: [f32; 16] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1e-45,
            -1e-40,
            f32::MIN_POSITIVE,
            88.7,
            -87.4,
            65520.0,
        ];
        (0..len)
            .map(|_| match self.bits() % 4 {
                0 => f32::from_bits(self.bits() as u32),
                1 => ENDS[(self.bits() % 16) as usize],
                _ => self.unit() * 20.0,
            })
            .collect()
    }
}

/// The tiers above scalar that run here.
pub(crate) fn tiers() -> Vec<Supported> {
    supported().into_iter().filter(|t| *t != Supported::SCALAR).collect()
}

/// The same bits, or a NaN on both sides.
#[track_caller]
pub(crate) fn assert_same(what: &str, tier: Supported, expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len());
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let same = e.to_bits() == f.to_bits() || e.is_nan() && f.is_nan();
        assert!(
            same,
            "{what} {}: element {i} of {}: {f:e}, scalar {e:e}",
            tier.tier().name(),
            expected.len()
        );
    }
}

/// Rows of every length up to 70, tame and wild, and a long one.
pub(crate) fn rows() -> Vec<Vec<f32>> {
    let mut random = Random(1);
    let mut rows = Vec::new();
    for len in (0..=70).chain([1000]) {
        rows.push(random.row(len, 3.0));
        rows.push(random.wild(len));
        rows.push(random.row(len, 1e-39));
    }
    rows
}

type InPlace<S> = fn(S, &mut [f32], &[f32]);

fn check_in_place<S: Copy>(make: fn(Supported) -> S, operations: &[(&str, InPlace<S>)]) {
    let scalar = make(Supported::SCALAR);
    let rows = rows();
    for (name, operation) in operations {
        for (x, y) in rows.iter().zip(rows.iter().map(|r| r.iter().rev().copied().collect::<Vec<_>>())) {
            let mut expected = x.clone();
            operation(scalar, &mut expected, &y);
            for tier in tiers() {
                let mut found = x.clone();
                operation(make(tier), &mut found, &y);
                assert_same(name, tier, &expected, &found);
            }
        }
    }
}

#[test]
fn activations_equal_scalar() {
    check_in_place(
        activation::Set::new,
        &[
            ("exp", |s, x, _| s.exp(x)),
            ("tanh", |s, x, _| s.tanh(x)),
            ("sigmoid", |s, x, _| s.sigmoid(x)),
            ("silu", |s, x, _| s.silu(x)),
            ("gelu", |s, x, _| s.gelu(x)),
            ("gelu_quick", |s, x, _| s.gelu_quick(x)),
            ("relu", |s, x, _| s.relu(x)),
            ("relu_squared", |s, x, _| s.relu_squared(x)),
            ("silu_mul", |s, x, y| s.silu_mul(x, y)),
            ("gelu_mul", |s, x, y| s.gelu_mul(x, y)),
            ("relu_mul", |s, x, y| s.relu_mul(x, y)),
            ("relu_squared_mul", |s, x, y| s.relu_squared_mul(x, y)),
            ("sigmoid_mul", |s, x, y| s.sigmoid_mul(x, y)),
            ("silu_clamped_mul", |s, x, y| s.silu_clamped_mul(x, y, 1.702, 7.0)),
        ],
    );
}

#[test]
fn elementwise_operations_equal_scalar() {
    check_in_place(
        elementwise::Set::new,
        &[
            ("add", |s, x, y| s.add(x, y)),
            ("sub", |s, x, y| s.sub(x, y)),
            ("mul", |s, x, y| s.mul(x, y)),
            ("add_scaled", |s, x, y| s.add_scaled(x, y, 0.1)),
            ("scale", |s, x, _| s.scale(x, 1.7)),
            ("clamp", |s, x, _| s.clamp(x, -1.5, 2.5)),
            ("softcap", |s, x, _| s.softcap(x, 30.0)),
            ("max", |s, x, _| {
                let max = s.max(x);
                x.fill(max);
            }),
            ("f16 and back", |s, x, _| {
                let mut halves = vec![0x7e01; x.len()];
                s.f32_to_f16(x, &mut halves);
                s.f16_to_f32(&halves, x);
            }),
        ],
    );
}

#[test]
fn norms_softmax_and_rope_equal_scalar() {
    check_in_place(
        norm::Set::new,
        &[
            ("rms_norm", |s, x, y| {
                let from = x.to_vec();
                s.rms_norm(&from, Some(y), 1e-5, x);
            }),
            ("rms_norm without weight", |s, x, _| {
                let from = x.to_vec();
                s.rms_norm(&from, None, 0.0, x);
            }),
            ("rms_norm_in_place", |s, x, y| {
                let len = if x.len() % 5 == 0 { x.len() / 5 } else { x.len() };
                if len > 0 {
                    s.rms_norm_in_place(x, len, Some(&y[..len]), 1e-6);
                }
            }),
            ("l2_norm_in_place", |s, x, _| s.l2_norm_in_place(x, x.len().max(1), 1e-6)),
            ("layer_norm", |s, x, y| {
                let from = x.to_vec();
                s.layer_norm(&from, Some(y), Some(&from), 1e-5, x);
            }),
            ("layer_norm without bias", |s, x, y| {
                let from = x.to_vec();
                s.layer_norm(&from, Some(y), None, 1e-5, x);
            }),
            ("layer_norm without both", |s, x, _| {
                let from = x.to_vec();
                s.layer_norm(&from, None, None, 1e-5, x);
            }),
        ],
    );
    check_in_place(softmax::Set::new, &[("softmax", |s, x, _| s.softmax(x))]);
    check_in_place(
        rope::Set::new,
        &[
            ("rope_norm", |s, x, y| {
                if let head_dim @ 1.. = x.len() / 2 {
                    let (cos, sin) = y.split_at(y.len() / 2);
                    let used = head_dim / 2 * 2 / 2;
                    s.rope_norm(&mut x[..2 * head_dim], head_dim, &cos[..used], &sin[..used]);
                }
            }),
            ("rope_neox", |s, x, y| {
                if let head_dim @ 1.. = x.len() / 2 {
                    let (cos, sin) = y.split_at(y.len() / 2);
                    let used = head_dim / 2;
                    s.rope_neox(&mut x[..2 * head_dim], head_dim, &cos[..used], &sin[..used]);
                }
            }),
        ],
    );
}

fn quantised(tier: Supported, x: &[f32]) -> (Vec<i8>, Vec<ActGroup>) {
    let mut codes = vec![99; Activations::padded(x.len())];
    let mut groups = vec![ActGroup { scale: 99.0, ..Default::default() }; codes.len() / 32];
    let mut out = ActivationsMut::new(&mut codes, &mut groups, x.len(), 1);
    quantise::Set::new(tier).quantise(&[x], &mut out, 0, 0);
    (codes, groups)
}

#[test]
fn quantised_activations_equal_scalar() {
    for x in rows() {
        let (codes, groups) = quantised(Supported::SCALAR, &x);
        for tier in tiers() {
            let (found_codes, found_groups) = quantised(tier, &x);
            assert_eq!(codes, found_codes, "{}", tier.tier().name());
            for (e, f) in groups.iter().zip(&found_groups) {
                assert_eq!((e.minus, e.minus_halves), (f.minus, f.minus_halves));
                let list = |g: &ActGroup| [g.scale, g.scaled_sum, g.scaled_halves[0], g.scaled_halves[1]];
                assert_same("quantise", tier, &list(e), &list(f));
            }
        }
    }
}

#[test]
fn quantised_activations_follow_the_stated_rule() {
    for x in rows() {
        let (codes, groups) = quantised(Supported::SCALAR, &x);
        for ((x, codes), group) in x.chunks(32).zip(codes.chunks(32)).zip(&groups) {
            let sums = [0, 16].map(|h| codes[h..h + 16].iter().map(|&q| i32::from(q)).sum::<i32>());
            assert_eq!((group.minus, group.minus_halves), (-(sums[0] + sums[1]), sums.map(|s| -s)));
            if x.iter().any(|x| !x.is_finite()) {
                assert!(group.scale.is_nan() && group.scaled_sum.is_nan() && codes.iter().all(|&q| q == 0));
                continue;
            }
            let largest = x.iter().fold(0f32, |m, x| m.max(x.abs()));
            if !(127.0 / largest).is_finite() {
                assert_eq!(*group, ActGroup::default());
                assert!(codes.iter().all(|&q| q == 0));
                continue;
            }
            assert_eq!(group.scale, largest / 127.0);
            assert_eq!(group.scaled_sum, group.scale * (sums[0] + sums[1]) as f32);
            assert_eq!(group.scaled_halves, sums.map(|s| group.scale * s as f32));
            for (x, &q) in x.iter().zip(codes) {
                assert_eq!(q, (x * (127.0 / largest)).round_ties_even() as i8);
                assert!((-127..=127).contains(&q));
            }
            assert!(codes[x.len()..].iter().all(|&q| q == 0));
        }
    }
}

/// The largest error of `f` against `exact` over a range, in units in the last place of the exact value.
fn worst_ulp(f: impl Fn(&mut [f32]), exact: impl Fn(f64) -> f64, low: f32, high: f32) -> f64 {
    const STEPS: usize = 400_000;
    let mut x: Vec<f32> = (0..=STEPS).map(|i| low + (high - low) * (i as f32 / STEPS as f32)).collect();
    let exact: Vec<f64> = x.iter().map(|&x| exact(f64::from(x))).collect();
    f(&mut x);
    let ulp = |e: f64| {
        let a = (e as f32).abs().max(f32::MIN_POSITIVE);
        f64::from(f32::from_bits(a.to_bits() + 1)) - f64::from(a)
    };
    x.iter().zip(exact).map(|(&x, e)| (f64::from(x) - e).abs() / ulp(e)).fold(0.0, f64::max)
}

#[test]
fn functions_are_as_accurate_as_stated() {
    let best = *supported().last().unwrap();
    let set = activation::Set::new(best);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    let cases: [(&str, f64, f64); 9] = [
        ("exp near zero", worst_ulp(|x| set.exp(x), f64::exp, -1.0, 1.0), 1.0),
        ("exp", worst_ulp(|x| set.exp(x), f64::exp, -86.9, 88.7), 1.0),
        ("tanh near zero", worst_ulp(|x| set.tanh(x), f64::tanh, -0.01, 0.01), 2.5),
        ("tanh", worst_ulp(|x| set.tanh(x), f64::tanh, -12.0, 12.0), 2.5),
        ("sigmoid", worst_ulp(|x| set.sigmoid(x), sigmoid, -80.0, 20.0), 2.5),
        ("silu", worst_ulp(|x| set.silu(x), |x| x * sigmoid(x), -80.0, 20.0), 2.5),
        ("gelu, positive", worst_ulp(|x| set.gelu(x), gelu, 0.0, 20.0), 3.0),
        ("gelu, small", worst_ulp(|x| set.gelu(x), gelu, -1.0, 0.0), 4.0),
        ("gelu, negative", worst_ulp(|x| set.gelu(x), gelu, -4.0, -1.0), 30.0),
    ];
    for (name, found, bound) in cases {
        assert!(found <= bound, "{name}: {found:.2} units in the last place, stated {bound}");
    }
}

#[test]
fn the_ends_of_the_exponential_are_as_stated() {
    let mut x =
        [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 88.73, 88.72, -86.98, -87.0, 1e30, -1e30, 0.0, -0.0];
    activation::Set::new(Supported::SCALAR).exp(&mut x);
    assert!(x[0] == f32::INFINITY && x[3] == f32::INFINITY && x[7] == f32::INFINITY);
    assert!(x[4].is_finite() && x[4] > 3.38e38);
    assert!(x[1].to_bits() == 0 && x[6].to_bits() == 0 && x[8].to_bits() == 0);
    assert!(x[5] > 1.66e-38 && x[2].is_nan() && x[9] == 1.0 && x[10] == 1.0);
}

#[test]
fn the_ends_of_the_activations_are_as_stated() {
    let set = activation::Set::new(Supported::SCALAR);
    let ends = [f32::INFINITY, -1e30, f32::NAN, -0.0, f32::NEG_INFINITY];
    let mut tanh = ends;
    set.tanh(&mut tanh);
    assert!(tanh[0] == 1.0 && tanh[1] == -1.0 && tanh[2].is_nan() && tanh[4] == -1.0);
    assert_eq!(tanh[3].to_bits(), (-0.0f32).to_bits());
    for f in [activation::Set::silu, activation::Set::gelu] {
        let mut x = ends;
        f(set, &mut x);
        assert!(x[0] == f32::INFINITY && x[1] == 0.0 && x[2].is_nan() && x[3] == 0.0 && x[4].is_nan());
    }
    let mut relu = ends;
    set.relu(&mut relu);
    assert!(relu[0] == f32::INFINITY && relu[1] == 0.0 && relu[2].is_nan() && relu[4] == 0.0);
}

#[test]
fn softmax_and_norms_agree_with_f64() {
    let mut random = Random(5);
    for len in [1, 2, 15, 16, 17, 100, 4096] {
        let x = random.row(len, 4.0);
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let n = len as f64;

        let mut found = x.clone();
        softmax::Set::new(Supported::SCALAR).softmax(&mut found);
        let max = wide.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = wide.iter().map(|x| (x - max).exp()).sum();
        for (f, x) in found.iter().zip(&wide) {
            let exact = (x - max).exp() / sum;
            assert!((f64::from(*f) - exact).abs() <= 2e-6 * exact, "{f} {exact}");
        }

        let norm = norm::Set::new(Supported::SCALAR);
        let (weight, bias) = (random.row(len, 1.0), random.row(len, 1.0));
        let mut found = vec![f32::NAN; len];
        norm.rms_norm(&x, Some(&weight), 1e-5, &mut found);
        let factor = 1.0 / (wide.iter().map(|x| x * x).sum::<f64>() / n + 1e-5).sqrt();
        for ((f, x), w) in found.iter().zip(&wide).zip(&weight) {
            let exact = x * factor * f64::from(*w);
            assert!((f64::from(*f) - exact).abs() <= 2e-6 * exact.abs(), "{f} {exact}");
        }

        norm.layer_norm(&x, Some(&weight), Some(&bias), 1e-5, &mut found);
        let mean = wide.iter().sum::<f64>() / n;
        let factor = 1.0 / (wide.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
        for (((f, x), w), b) in found.iter().zip(&wide).zip(&weight).zip(&bias) {
            let exact = (x - mean) * factor * f64::from(*w) + f64::from(*b);
            assert!((f64::from(*f) - exact).abs() <= 2e-5, "{f} {exact}");
        }
    }
}

#[test]
fn rope_turns_the_stated_pairs_and_leaves_the_rest() {
    let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
    // A quarter turn for the first pair, a half turn for the second.
    let (cos, sin) = ([0.0, -1.0], [1.0, 0.0]);
    let set = rope::Set::new(Supported::SCALAR);
    let mut norm = x.clone();
    set.rope_norm(&mut norm, 12, &cos, &sin);
    assert_eq!(norm[..6], [-1.0, 0.0, -2.0, -3.0, 4.0, 5.0]);
    assert_eq!(norm[12..18], [-13.0, 12.0, -14.0, -15.0, 16.0, 17.0]);
    let mut neox = x.clone();
    set.rope_neox(&mut neox, 12, &cos, &sin);
    assert_eq!(neox[..6], [-2.0, -1.0, 0.0, -3.0, 4.0, 5.0]);
    assert_eq!(neox[12..18], [-14.0, -13.0, 12.0, -15.0, 16.0, 17.0]);
}
