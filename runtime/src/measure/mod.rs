//! Measuring kernels and the machine they run on, in one run and by one clock.
//!
//! [`Machine`] is what the machine can do at most: reading memory, and multiplying on each tier. [`KernelBench`] checks a
//! kernel against the scalar tier and then times it, [`LayerBench`] does so with a whole layer of a model. [`repeat`] times anything on several threads at once. The
//! `kernels` and `bench` commands and the criterion benchmarks are made from these.

mod kernel;
mod layer;
mod machine;
mod time;
mod work;

pub use crate::exec::layer::Layer;
pub use kernel::{Differs, KernelBench, KernelSpeed};
pub use layer::LayerBench;
pub use machine::Machine;
pub use time::{Budget, Times, repeat};
pub use work::{Tokens, weights};
