//! The only place that makes identifiers and paths of emitted code.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

/// The module of a format: `q4_k` for `Q4_K`.
pub(crate) fn module(format: &Ident) -> Ident {
    Ident::new(&format.to_string().to_lowercase(), format.span())
}

/// The crate that emitted code calls, from any crate.
pub(crate) fn support() -> TokenStream {
    quote!(::quantsmith_kernels::emitted)
}

/// The local that holds one line of a unit.
pub(crate) fn line(number: usize) -> Ident {
    format_ident!("line{}", number)
}

/// The local that holds sixteen codes.
pub(crate) fn run(number: usize) -> Ident {
    format_ident!("run{}", number)
}

/// An identifier that only emitted code uses.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}
