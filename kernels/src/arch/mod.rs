//! The vocabulary of each tier: one module per tier, the same names in all of them.
//!
//! `LANES` is the number of 32-bit lanes of a register, `F` a register of f32 lanes, `I` a register of 32-bit
//! integer lanes (or of 4 × `LANES` bytes). `SUBS` registers make the 16 lanes that the kernels are written for.
//! A tier that adds an instruction or two to another takes over that one's words and says its own anew.
//! These modules hold the crate's loads, stores and instructions; kernels and generated code only call them.

#![allow(
    clippy::missing_safety_doc,
    reason = "a function with target features is safe to call from one that has them, which is what clippy overlooks"
)]

pub mod scalar;

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
pub mod avx512vnni;
#[cfg(target_arch = "x86_64")]
pub mod avxvnni;

#[cfg(target_arch = "aarch64")]
pub mod dotprod;
#[cfg(target_arch = "aarch64")]
pub mod i8mm;
#[cfg(target_arch = "aarch64")]
pub mod neon;
