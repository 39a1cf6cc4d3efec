//! Runs GGUF models on any CPU, with the same bits on every one.
//!
//! ```no_run
//! use quantsmith::text::EncodeOptions;
//! use quantsmith::{LoadOptions, Model, Session, Want};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::load("model.gguf".as_ref(), LoadOptions::default())?;
//! let mut session = Session::new(&model)?;
//! let prompt = model.tokenizer().encode("The capital of France is", EncodeOptions::default())?;
//! session.eval(&prompt, Want::Last, &mut |_, _| {})?;
//! let logits = session.logits();
//! # let _ = logits;
//! # Ok(())
//! # }
//! ```
//!
//! * [`files`]: containers, metadata and tensors, taken for hostile until checked.
//! * [`text`]: tokenizers, chat templates, sampling.
//! * [`quantise`]: a model file in other formats.
//! * [`model`]: architectures as data; a [`Model`] is loaded, bound to kernels and planned.
//! * [`measure`]: kernels and the machine under the clock.
//! * [`perplexity`]: how well a model predicts a text.
//! * [`session`]: a [`Session`] evaluates tokens; it allocates nothing while it does.
//! * [`state`]: a context saved in a file.
//!
//! For the same model and tokens, logits are the same to the bit on every instruction set, with any number of threads,
//! in batches of any size, with weights interleaved or not.

pub mod error;
mod exec;
pub mod files;
mod graph;
mod kv;
pub mod measure;
pub mod model;
mod packed;
pub mod perplexity;
pub mod quantise;
mod registry;
pub mod session;
pub mod state;
pub mod text;
pub mod threads;
mod weights;

pub use error::Error;
pub use graph::report::{NodeReport, PassReport, PlanReport, TensorReport, ValueReport};
pub use kv::CacheTypes;
pub use model::hparams::HParams;
pub use model::{LoadOptions, Model, Progress};
pub use packed::{PackReport, pack};
pub use quantsmith_kernels as kernels;
pub use quantsmith_kernels::ops::attention::CellType;
pub use session::{Session, StepTime, Want};
pub use state::StateError;
