//! The one error type of the text layer.

use std::fmt;

/// What can be wrong with a vocabulary, a template, a text or a sampling setting.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A metadata key is missing or holds something that cannot be used.
    #[error("metadata key {key}: found {found}; accepted: {accepted}")]
    Metadata {
        /// The key.
        key: String,
        /// What the file holds.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The text cannot be expressed in this vocabulary.
    #[error("cannot tokenize: {0}")]
    Encode(String),
    /// A chat template is malformed, refuses the conversation, or exceeds a limit.
    #[error("chat template: {0}")]
    Template(String),
    /// A grammar, schema or expression cannot be used, or an answer cannot follow it.
    #[error("constraint: {0}")]
    Constraint(String),
    /// A sampling parameter is out of its range.
    #[error("sampling parameter {name}: found {found}; accepted: {accepted}")]
    Parameter {
        /// The parameter as its flag names it.
        name: &'static str,
        /// The value given.
        found: String,
        /// What would be accepted.
        accepted: &'static str,
    },
}

impl TextError {
    /// Builds the error for one metadata key.
    pub(crate) fn metadata(key: &str, found: impl fmt::Display, accepted: impl fmt::Display) -> Self {
        Self::Metadata { key: key.to_owned(), found: found.to_string(), accepted: accepted.to_string() }
    }
}
