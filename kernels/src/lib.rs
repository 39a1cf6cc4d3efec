//! Quantised kernels for every CPU, generated from one declaration per format.
//!
//! ```
//! use quantsmith_kernels::{Registry, cpu};
//! let format = Registry::builtin().by_name("Q4_0").expect("built in");
//! let kernels = format.kernels(cpu::choose(None)?);
//! let mut block = [0x99u8; 18];
//! block[..2].copy_from_slice(&0x3800u16.to_le_bytes()); // a scale of 0.5
//! let mut weights = [0.0f32; 32];
//! kernels.dequantise(&block, &mut weights);
//! assert_eq!(weights, [0.5f32; 32]); // (9 - 8) * 0.5
//! # Ok::<(), quantsmith_kernels::cpu::Unavailable>(())
//! ```
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;
extern crate self as quantsmith_kernels;

pub mod act;
pub mod arch;
pub mod cpu;
#[doc(hidden)]
pub mod emitted;
pub mod float;
mod format;
pub mod formats;
pub mod ops;
mod out;
pub mod panel;
mod plain;
#[doc(hidden)]
pub mod quantise;
mod registry;

pub use act::{ActGroup, Activations, ActivationsMut};
pub use cpu::{Cpu, Supported};
pub use format::{Derived, Field, FieldType, Format, KernelSet, PRIVATE, Product, TierKernels, Values};
pub use out::OutMut;
pub use panel::PANEL;
pub use quantise::QuantiseError;
pub use quantsmith_macros::{quant_format, quant_formats, tiered};
pub use registry::Registry;

quantsmith_macros::tier_enum!();
