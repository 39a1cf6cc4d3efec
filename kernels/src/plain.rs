//! Functions of f32 that the core library leaves to the standard library; without that they come from `libm`. All of them
//! are rounded correctly, so it does not matter which.

#[cfg(feature = "std")]
mod from {
    #[inline]
    pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline]
    pub(crate) fn sqrt(x: f32) -> f32 {
        x.sqrt()
    }

    #[inline]
    pub(crate) fn round_even(x: f32) -> f32 {
        x.round_ties_even()
    }
}

#[cfg(not(feature = "std"))]
mod from {
    #[inline]
    pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
        libm::fmaf(a, b, c)
    }

    #[inline]
    pub(crate) fn sqrt(x: f32) -> f32 {
        libm::sqrtf(x)
    }

    #[inline]
    pub(crate) fn round_even(x: f32) -> f32 {
        libm::rintf(x)
    }
}

pub(crate) use from::{fma, round_even, sqrt};
