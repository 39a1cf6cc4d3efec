//! The errors of one declaration, all of them.
//!
//! Checks push errors and go on; [`Errors::finish`] gives them to the compiler together. Dropping a collection that
//! holds errors without finishing it is a bug of the generator and fails its tests.

use proc_macro2::Span;
use std::fmt::Display;

#[derive(Default)]
pub(crate) struct Errors {
    all: Vec<syn::Error>,
    finished: bool,
}

impl Errors {
    /// Adds an error at a token.
    pub(crate) fn push(&mut self, span: Span, message: impl Display) {
        self.all.push(syn::Error::new(span, message));
    }

    /// Adds an error that a helper returned.
    pub(crate) fn add(&mut self, error: syn::Error) {
        self.all.push(error);
    }

    /// Whether there is none so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All errors as one, or the value.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> syn::Result<T> {
        self.finished = true;
        let errors = std::mem::take(&mut self.all).into_iter().reduce(|mut all, next| {
            all.combine(next);
            all
        });
        match (errors, value) {
            (Some(errors), _) => Err(errors),
            (None, Some(value)) => Ok(value),
            (None, None) => unreachable!("a check that gives no value has pushed an error"),
        }
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        debug_assert!(
            self.finished || self.all.is_empty() || std::thread::panicking(),
            "errors were dropped"
        );
    }
}
