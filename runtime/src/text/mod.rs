//! Text in, token ids out, and back: tokenizers, chat templates and sampling.
//!
//! Everything is built from a model file's metadata alone. The file is not trusted: a vocabulary that
//! contradicts itself is a [`TextError`], never a panic, and every algorithm is linear or n log n in its input.
//!
//! * [`Tokenizer`] turns text into ids: it cuts out special tokens, hands the text between them to the
//!   algorithm of the vocabulary, and adds the begin and end marks that the metadata asks for.
//! * [`StreamDecoder`] turns ids into text as they come and never splits a UTF-8 sequence.
//! * [`ChatTemplate`] renders a conversation with the model's own template. What a user wrote never becomes a
//!   special token.
//! * [`Constraints`] keep an answer to a grammar, a JSON schema or a regular expression.
//! * [`StopStrings`] end an answer at a text, wherever the borders of tokens fall.
//! * [`Sampler`] draws the next token. The same seed gives the same text on every machine.

mod bpe;
mod bytes;
mod chat;
mod constrain;
mod error;
mod hash;
mod merge;
mod pre;
mod rwkv;
mod sampling;
mod special;
mod spm;
mod stop;
mod stream;
mod tokenizer;
mod trie;
mod ugm;
mod vocab;
mod words;
mod wpm;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
pub(crate) mod testing;

pub use chat::{ChatTemplate, Message, RenderOptions};
pub use constrain::{Allowed, Constraint, Constraints};
pub use error::TextError;
pub use sampling::{LogProbs, Mirostat, Rng, Sampler, SamplerKind, SamplingParams, log_probability};
pub use stop::{StopStep, StopStrings};
pub use stream::StreamDecoder;
pub use tokenizer::{EncodeOptions, Tokenizer};
