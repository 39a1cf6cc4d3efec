//! The error type of the runtime: one line that says where, what was found and what is accepted.

use crate::files::FileError;
use crate::text::TextError;
use quantsmith_kernels::cpu::Unavailable;
use std::path::PathBuf;

/// Why a model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tokenizer or the chat template cannot be built from the metadata.
    #[error("{}: {source}", path.display())]
    Text {
        /// The model file.
        path: PathBuf,
        /// What is wrong.
        source: TextError,
    },
    /// The instruction set that was asked for is not there.
    #[error(transparent)]
    Isa(#[from] Unavailable),
    /// An option has a value that cannot be used.
    #[error("{option}: {found} cannot be used, accepted: {accepted}")]
    Option {
        /// The option by the name of its field.
        option: &'static str,
        /// Its value.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The architecture is not described here.
    #[error("{}: architecture '{found}' is not supported, supported: {supported}", path.display())]
    Architecture {
        /// The model file.
        path: PathBuf,
        /// The value of `general.architecture`.
        found: String,
        /// All architectures that are described.
        supported: String,
    },
    /// The model asks for something that its architecture can have, but that does not run here.
    #[error("{}: {what} is not supported", path.display())]
    Unsupported {
        /// The model file.
        path: PathBuf,
        /// What it asks for.
        what: String,
    },
    /// A metadata key is missing or has a value that makes no sense.
    #[error("{}: {key}: {found}, accepted: {accepted}", path.display())]
    Metadata {
        /// The model file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What was found.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// A tensor is missing or has another shape than the graph needs.
    #[error("{}: tensor '{name}': {found}, expected {expected}", path.display())]
    Tensor {
        /// The model file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What was found.
        found: String,
        /// What the graph needs.
        expected: String,
    },
    /// The operating system gives no memory of this size.
    #[error("no memory for {what}: {bytes} bytes; {hint}")]
    Memory {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        bytes: u64,
        /// What makes it smaller.
        hint: &'static str,
    },
    /// The operating system starts no more threads.
    #[error("cannot start thread {index} of {count}: {source}")]
    Thread {
        /// Which thread.
        index: usize,
        /// How many were asked for.
        count: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The tokens do not fit into the context.
    #[error("the context is full: {have} tokens are in it, {need} more do not fit into {context}")]
    ContextFull {
        /// Tokens that are in the context.
        have: usize,
        /// Tokens that were to be added.
        need: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token {id} is not in the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        id: u32,
        /// The size of the vocabulary.
        vocab: usize,
    },
    /// The context was to be cut to more tokens than it has.
    #[error("cannot cut the context to {to} tokens: {why}")]
    Truncate {
        /// The length asked for.
        to: usize,
        /// Why it cannot be had.
        why: String,
    },
    /// More was to be dropped from the context than it can spare.
    #[error(
        "cannot drop {count} tokens after the first {keep} of a context of {have}: none would be left after them"
    )]
    Shift {
        /// Tokens at the begin that were to stay.
        keep: usize,
        /// Tokens that were to go.
        count: usize,
        /// Tokens that are in the context.
        have: usize,
    },
    /// A worker thread panicked; the session cannot be used any more.
    #[error("internal error: a thread of the session panicked; please report it")]
    Panicked,
}

impl Error {
    /// The exit code of a command that ends with this error: 2 for a wrong request, 1 for everything else.
    pub fn exit_code(&self) -> i32 {
        match self {
            Error::Isa(_) | Error::Option { .. } => 2,
            Error::File(_)
            | Error::Text { .. }
            | Error::Architecture { .. }
            | Error::Unsupported { .. }
            | Error::Metadata { .. }
            | Error::Tensor { .. }
            | Error::Memory { .. }
            | Error::Thread { .. }
            | Error::ContextFull { .. }
            | Error::Token { .. }
            | Error::Truncate { .. }
            | Error::Shift { .. }
            | Error::Panicked => 1,
        }
    }
}
