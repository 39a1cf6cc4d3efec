//! The project's own exponential, and the hyperbolic tangent and logistic function made from it.
//!
//! `exp(x) = 2ⁿ · exp(r)` with n the integer nearest to x / ln 2 and |r| at most ln 2 / 2, where a polynomial of
//! degree six (least maximal relative error, its first two coefficients one) is within 3.2·10⁻⁹. Results are within
//! one unit in the last place. Rules at the ends:
//!
//! * a result above the largest f32 is infinity; one below about 1.66·10⁻³⁸ is zero (so there are no subnormal
//!   results, and `exp` of minus infinity is zero);
//! * a NaN stays a NaN.

use quantsmith_macros::tiered;

pub(crate) use tiers::*;

#[tiered]
mod tiers {
    use isa::wide::{self, V};

    const LOG2_E: f32 = core::f32::consts::LOG2_E;
    /// ln 2 as the f32 nearest to it and the f32 nearest to the rest.
    const LN_2: [f32; 2] = [core::f32::consts::LN_2, -1.904_654_2e-9];
    /// 1.5 · 2²³: the sum of this and a small value is rounded to an integer, which stands in the last bits.
    const ROUND: f32 = 12_582_912.0;
    /// Coefficients of r², r³, … r⁶ in exp(r).
    const C: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_266, 0.008_368_675, 0.001_382_066_2];

    /// e to the power of each lane.
    pub(crate) fn exp(x: V) -> V {
        // Past these ends the result is infinity or zero already, and n stays within the exponents of f32.
        let x = wide::min(wide::splat(89.0), wide::max(wide::splat(-87.3), x));
        // The last bits of `shifted` hold n + 126, which is the biased exponent of 2ⁿ⁻¹; for n = -126 it is zero.
        let shifted = wide::fma(x, wide::splat(LOG2_E), wide::splat(ROUND + 126.0));
        let n = wide::sub(shifted, wide::splat(ROUND + 126.0));
        let r = wide::fma(n, wide::splat(-LN_2[0]), x);
        let r = wide::fma(n, wide::splat(-LN_2[1]), r);
        // Twice the polynomial, since n = 128 would not fit as one factor.
        let mut p = wide::splat(2.0 * C[4]);
        for c in [2.0 * C[3], 2.0 * C[2], 2.0 * C[1], 2.0 * C[0], 2.0, 2.0] {
            p = wide::fma(p, r, wide::splat(c));
        }
        wide::mul(p, wide::low_bits_to_exponent(shifted))
    }

    /// The logistic function: 1 / (1 + exp(-x)).
    pub(crate) fn sigmoid(x: V) -> V {
        let one = wide::splat(1.0);
        wide::div(one, wide::add(one, exp(wide::neg(x))))
    }

    /// x times the logistic function of x. Minus infinity gives a NaN.
    pub(crate) fn silu(x: V) -> V {
        wide::div(x, wide::add(wide::splat(1.0), exp(wide::neg(x))))
    }

    /// The tanh form of GELU, x / 2 · (1 + tanh u) with u = √(2/π) · (x + 0.044715 x³), in the equal form
    /// x / (1 + exp(-2u)), which loses nothing to cancellation. Minus infinity gives a NaN.
    pub(crate) fn gelu(x: V) -> V {
        const ONE: f32 = -2.0 * 0.797_884_6;
        const CUBE: f32 = ONE * 0.044_715;
        let square = wide::mul(x, x);
        let minus_2u = wide::mul(x, wide::fma(square, wide::splat(CUBE), wide::splat(ONE)));
        wide::div(x, wide::add(wide::splat(1.0), exp(minus_2u)))
    }

    /// The hyperbolic tangent, with the relative accuracy of a small x kept: -t / (t + 2) with
    /// t = exp(-2|x|) - 1, which is formed without rounding the exponential first.
    pub(crate) fn tanh(x: V) -> V {
        // From here on the result is one.
        let a = wide::min(wide::splat(20.0), wide::abs(x));
        let y = wide::mul(a, wide::splat(-2.0));
        let shifted = wide::fma(y, wide::splat(LOG2_E), wide::splat(ROUND + 127.0));
        let n = wide::sub(shifted, wide::splat(ROUND + 127.0));
        let r = wide::fma(n, wide::splat(-LN_2[0]), y);
        let r = wide::fma(n, wide::splat(-LN_2[1]), r);
        let mut q = wide::splat(C[4]);
        for c in [C[3], C[2], C[1], C[0]] {
            q = wide::fma(q, r, wide::splat(c));
        }
        let p = wide::fma(wide::mul(q, r), r, r);
        let power = wide::low_bits_to_exponent(shifted);
        let t = wide::fma(power, p, wide::sub(power, wide::splat(1.0)));
        let tanh = wide::div(wide::neg(t), wide::add(t, wide::splat(2.0)));
        wide::copy_sign(tanh, x)
    }
}
