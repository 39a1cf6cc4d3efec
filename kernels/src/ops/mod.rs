//! Floating-point operations around the matrix kernels.
//!
//! Each operation is written once, over sixteen virtual lanes, and stamped for every tier: [`wide`] is the sixteen
//! lanes, [`math`] the project's own exponential and what follows from it, and the rest is what a model is made of.
//! A module's operations are the methods of its `Set`. An operation of one tier gives the bits of every other,
//! because all of them do the same IEEE operations in the same order; only the payload of a NaN may differ.
//!
//! Sums take element i into lane i mod 16 and then follow the fixed tree of `reduce_add`. A row whose length is not
//! a multiple of sixteen behaves as if zeros followed (for a maximum: minus infinity).

pub mod activation;
pub mod attention;
pub mod elementwise;
pub mod float_product;
pub mod math;
pub mod norm;
pub mod quantise;
pub mod roof;
pub mod rope;
pub mod softmax;
pub mod wide;
