//! Conversions and the fused multiply-add of the scalar tier, against the standard library and an independent crate.

use quantsmith_kernels::arch::scalar::{f16_to_f32, f32_to_f16, fma_in_f64};

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Bit patterns from a small generator, so that every exponent, infinities and NaN occur.
fn patterns(count: usize) -> impl Iterator<Item = u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    })
}

#[test]
fn fma_in_f64_rounds_once_like_the_standard_library() {
    let mut p = patterns(900_000).map(f32::from_bits);
    while let (Some(a), Some(b), Some(c)) = (p.next(), p.next(), p.next()) {
        assert!(same(fma_in_f64(a, b, c), a.mul_add(b, c)), "{a:e} {b:e} {c:e}");
    }
    // Close to cancellation, at ties, at the ends of the range and among the subnormal numbers.
    let one = |n: u32| f32::from_bits(0x3f80_0000 + n);
    for n in 0..2000 {
        let (a, b) = (one(n * 37), one(n * 91));
        for c in
            [-a * b, a * b * 2f32.powi(-25), -a * b * 2f32.powi(-24), 2f32.powi(24), 2f32.powi(-60), -0.0]
        {
            for s in [1.0, 2f32.powi(-80), 2f32.powi(-70), 2f32.powi(63)] {
                let (a, b, c) = (a * s, b * s, c * s * s);
                assert!(same(fma_in_f64(a, b, c), a.mul_add(b, c)), "{a:e} {b:e} {c:e}");
            }
        }
    }
}

#[test]
fn f16_conversions_agree_with_an_independent_crate() {
    for h in 0..=u16::MAX {
        assert!(same(f16_to_f32(h), half::f16::from_bits(h).to_f32_const()), "{h:04x}");
    }
    let near = (0..=u16::MAX).flat_map(|h| {
        let bits = f16_to_f32(h).to_bits();
        [-0x1001, -0x1000, -0xfff, -1, 0, 1, 0xfff, 0x1000, 0x1001].map(|d| bits.wrapping_add_signed(d))
    });
    for bits in patterns(200_000).chain(near) {
        let (ours, theirs) =
            (f32_to_f16(f32::from_bits(bits)), half::f16::from_f32_const(f32::from_bits(bits)));
        assert!(ours == theirs.to_bits() || theirs.is_nan() && ours & 0x7fff > 0x7c00, "{bits:08x}");
    }
}
