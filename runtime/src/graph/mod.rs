//! The graph of a model: built once from its architecture, planned once, run many times.
//!
//! ```text
//! build: row of the architecture + tensors -> operations on numbered values
//! group: operations -> steps (fusion)
//! plan:  steps -> places in one arena, by lifetime; how each step is split
//! ```
//! There are two plans: one for a single token and one for a batch. Both do the same arithmetic.

pub(crate) mod arena;
pub(crate) mod build;
pub(crate) mod group;
pub(crate) mod op;
pub(crate) mod plan;
pub(crate) mod report;
