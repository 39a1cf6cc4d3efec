//! The generator of Quantsmith.
//!
//! * [`quant_format!`] turns the declaration of a block format into its kernels.
//! * [`macro@tiered`] stamps ordinary Rust once per instruction-set tier.
//! * [`tier_enum!`] makes the `Tier` type of the kernels crate from the table of tiers.
//!
//! This file holds the entry points and no logic. Everything else works on `proc_macro2` tokens, so it is tested
//! without compiling a crate.

mod ast;
mod check;
mod diag;
mod emit;
mod emit_inverse;
mod inverse;
mod isa;
mod model;
mod names;
mod parse;
mod plan;
mod symbol;
#[cfg(test)]
mod tests;
mod tiered;

use proc_macro::TokenStream;

/// Stamps the functions of an inline module once per tier; see the module `tiered` of this crate.
#[proc_macro_attribute]
pub fn tiered(attr: TokenStream, item: TokenStream) -> TokenStream {
    let none = syn::parse_macro_input!(attr as syn::parse::Nothing);
    let _ = none;
    let module = syn::parse_macro_input!(item as syn::ItemMod);
    tiered::expand(module).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Emits the `Tier` enum from the table of tiers.
#[proc_macro]
pub fn tier_enum(input: TokenStream) -> TokenStream {
    let _ = syn::parse_macro_input!(input as syn::parse::Nothing);
    isa::tier_enum().into()
}

/// Declares a quantisation format; see the module `parse` of this crate for the grammar, and the documentation of
/// `quantsmith_kernels` for how to write one.
#[proc_macro]
pub fn quant_format(input: TokenStream) -> TokenStream {
    expand_format(input.into()).into()
}

/// Declares formats one after the other, and `FORMATS`, the list of them.
#[proc_macro]
pub fn quant_formats(input: TokenStream) -> TokenStream {
    expand_family(input.into()).into()
}

/// Declaration to code.
fn expand_format(input: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    match syn::parse2::<ast::Declaration>(input) {
        Ok(declaration) => expand_declaration(&declaration),
        Err(error) => error.into_compile_error(),
    }
}

/// Declarations to code and a list.
fn expand_family(input: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let family = match syn::parse2::<parse::Family>(input) {
        Ok(family) => family.0,
        Err(error) => return error.into_compile_error(),
    };
    let twice = check::distinct(&family).err().map(syn::Error::into_compile_error);
    let formats = family.iter().map(expand_declaration);
    let list = emit::list(family.iter().map(|d| &d.name));
    quote::quote!(#twice #(#formats)* #list)
}

/// One declaration to code. After an error the items still exist, so that one mistake gives one message.
fn expand_declaration(declaration: &ast::Declaration) -> proc_macro2::TokenStream {
    match check::check(declaration) {
        Ok(format) => emit::emit(&format),
        Err(errors) => {
            let (errors, stub) = (errors.into_compile_error(), emit::stub(&declaration.name));
            quote::quote!(#errors #stub)
        }
    }
}
