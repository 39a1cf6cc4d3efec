//! Activation functions, alone and gating a second row, in place.
//!
//! The functions themselves are in [`crate::ops::math`].

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    use isa::{math, wide};

    /// Replaces x by exp(x).
    pub fn exp(x: &mut [f32]) {
        wide::map(x, |x| math::exp(x));
    }

    /// Replaces x by tanh(x).
    pub fn tanh(x: &mut [f32]) {
        wide::map(x, |x| math::tanh(x));
    }

    /// Replaces x by the logistic function 1 / (1 + exp(-x)).
    pub fn sigmoid(x: &mut [f32]) {
        wide::map(x, |x| math::sigmoid(x));
    }

    /// Replaces x by x · sigmoid(x).
    pub fn silu(x: &mut [f32]) {
        wide::map(x, |x| math::silu(x));
    }

    /// Replaces x by GELU in its tanh form.
    pub fn gelu(x: &mut [f32]) {
        wide::map(x, |x| math::gelu(x));
    }

    /// Replaces x by x · sigmoid(1.702 x), the quick approximation of GELU.
    pub fn gelu_quick(x: &mut [f32]) {
        wide::map(x, |x| wide::mul(x, math::sigmoid(wide::mul(x, wide::splat(1.702)))));
    }

    /// Replaces x by max(x, 0).
    pub fn relu(x: &mut [f32]) {
        wide::map(x, |x| relu_lanes(x));
    }

    /// Replaces x by max(x, 0)².
    pub fn relu_squared(x: &mut [f32]) {
        wide::map(x, |x| {
            let x = relu_lanes(x);
            wide::mul(x, x)
        });
    }

    /// Zero where x is below it; a NaN stays.
    fn relu_lanes(x: wide::V) -> wide::V {
        wide::max(wide::splat(0.0), x)
    }

    /// Replaces the gate g by silu(g) · up.
    ///
    /// # Panics
    /// * if the rows have different lengths, like every function of two rows here
    pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
        wide::zip(gate, up, |g, u| wide::mul(math::silu(g), u));
    }

    /// Replaces the gate g by gelu(g) · up, GELU in its tanh form.
    pub fn gelu_mul(gate: &mut [f32], up: &[f32]) {
        wide::zip(gate, up, |g, u| wide::mul(math::gelu(g), u));
    }

    /// Replaces the gate g by max(g, 0) · up.
    pub fn relu_mul(gate: &mut [f32], up: &[f32]) {
        wide::zip(gate, up, |g, u| wide::mul(relu_lanes(g), u));
    }

    /// Replaces the gate g by max(g, 0)² · up.
    pub fn relu_squared_mul(gate: &mut [f32], up: &[f32]) {
        wide::zip(gate, up, |g, u| {
            let g = relu_lanes(g);
            wide::mul(wide::mul(g, g), u)
        });
    }

    /// Replaces x by x · sigmoid(g).
    pub fn sigmoid_mul(x: &mut [f32], gate: &[f32]) {
        wide::zip(x, gate, |x, g| wide::mul(x, math::sigmoid(g)));
    }

    /// Replaces the gate g by g' · sigmoid(alpha g') · (up' + 1), with g' = min(g, limit) and up' held within
    /// ±limit: the clamped gate of gpt-oss.
    pub fn silu_clamped_mul(gate: &mut [f32], up: &[f32], alpha: f32, limit: f32) {
        wide::zip(gate, up, |g, u| {
            let g = wide::min(wide::splat(limit), g);
            let u = wide::min(wide::splat(limit), wide::max(wide::splat(-limit), u));
            let gated = wide::mul(g, math::sigmoid(wide::mul(g, wide::splat(alpha))));
            wide::mul(gated, wide::add(u, wide::splat(1.0)))
        });
    }
}
