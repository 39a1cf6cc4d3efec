//! One file a command; one folder for a command of several views.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod cpu;
pub(crate) mod fingerprint;
pub(crate) mod formats;
pub(crate) mod gguf;
pub(crate) mod inspect;
pub(crate) mod kernels;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod pack;
pub(crate) mod perplexity;
pub(crate) mod plan;
pub(crate) mod quantize;
pub(crate) mod run;
pub(crate) mod tokenize;
