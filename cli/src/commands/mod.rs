//! One file a command.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod cpu;
pub(crate) mod fingerprint;
pub(crate) mod formats;
pub(crate) mod inspect;
pub(crate) mod logits;
pub(crate) mod man;
pub(crate) mod perplexity;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod tokenize;
