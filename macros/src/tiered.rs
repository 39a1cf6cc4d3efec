//! `#[tiered]`: ordinary Rust, stamped once for every instruction-set tier.
//!
//! ```text
//! #[tiered] pub mod norm {            pub mod norm {
//!     pub fn double(x: &mut [f32])        pub mod scalar { use …::arch::scalar as isa; … }
//!     { … isa::add(v, v) … }              pub mod avx2   { use …::arch::avx2 as isa; #[target_feature…] … }
//! }                                       …
//!                                         pub struct Set(…);  // one safe method per public function
//!                                     }
//! ```
//! Inside such a module the name `isa` is the tier's vocabulary, every function carries the tier's target features,
//! and items outside are reached by absolute paths. A public function without generic parameters, whose signature does
//! not speak of `isa`, also gets a field
//! in the module's function table and a safe method on `Set`, which can only be built from a proof that the CPU has
//! the tier. Functions are written once, so the tiers cannot drift apart; and since the compiler neither reorders
//! nor contracts floating-point operations, all tiers give the same bits.

use crate::isa::{IsaSpec, TIERS};
use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Error, FnArg, Item, ItemFn, ItemMod, Pat, ReturnType, Type, Visibility};

pub(crate) fn expand(module: ItemMod) -> syn::Result<TokenStream> {
    let Some((_, items)) = &module.content else {
        return Err(Error::new_spanned(&module, "`#[tiered]` needs the module's body: `mod name { … }`"));
    };
    let (attrs, vis, name) = (&module.attrs, &module.vis, &module.ident);
    let stamps = TIERS.iter().map(|tier| stamp(tier, items));
    let entries = items.iter().filter_map(entry).collect::<syn::Result<Vec<_>>>()?;
    let imports = items.iter().filter(|item| matches!(item, Item::Use(_)) && !mentions_isa(item));
    let set = if entries.is_empty() { TokenStream::new() } else { set(&entries) };
    Ok(quote! {
        #(#attrs)* #vis mod #name {
            #(#stamps)*
            #(#[allow(unused_imports, reason = "the table names types of the signatures")] #imports)*
            #set
        }
    })
}

/// The module's items under one tier.
fn stamp(tier: &IsaSpec, items: &[Item]) -> TokenStream {
    let (cfg, name, feature, about) = (tier.cfg(), tier.ident(), tier.target_feature(), tier.about);
    let items = items.iter().map(|item| match item {
        Item::Fn(function) => quote!(#[inline] #feature #function),
        other => quote!(#other),
    });
    quote! {
        #cfg
        #[doc = #about]
        #[allow(unused_imports, dead_code, reason = "a tier may need less than the others")]
        #[allow(
            clippy::missing_safety_doc, clippy::redundant_closure, clippy::needless_range_loop, clippy::int_plus_one,
            clippy::manual_is_multiple_of, clippy::modulo_one, clippy::too_many_arguments, clippy::identity_op,
            reason = "what is odd on one tier is needed on another"
        )]
        pub mod #name {
            use ::quantsmith_kernels::arch::#name as isa;
            #(#items)*
        }
    }
}

/// Whether tokens use the tier's vocabulary, which means something only inside a tier.
fn mentions_isa(tokens: &impl ToTokens) -> bool {
    fn any(stream: TokenStream) -> bool {
        stream.into_iter().any(|tree| match tree {
            TokenTree::Ident(ident) => ident == "isa",
            TokenTree::Group(group) => any(group.stream()),
            _ => false,
        })
    }
    any(tokens.to_token_stream())
}

/// A public function that belongs into the table: its name, documentation and signature.
struct Entry<'a> {
    function: &'a ItemFn,
    names: Vec<&'a syn::Ident>,
    types: Vec<&'a Type>,
}

fn entry(item: &Item) -> Option<syn::Result<Entry<'_>>> {
    let Item::Fn(function) = item else { return None };
    let public = matches!(function.vis, Visibility::Public(_));
    let generic = function.sig.generics.params.iter().any(|p| !matches!(p, syn::GenericParam::Lifetime(_)));
    if !public || generic || mentions_isa(&function.sig) {
        return None;
    }
    let mut names = Vec::new();
    let mut types = Vec::new();
    for arg in &function.sig.inputs {
        match arg {
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(pat) => {
                    names.push(&pat.ident);
                    types.push(&*typed.ty);
                }
                other => {
                    return Some(Err(Error::new_spanned(
                        other,
                        "a tiered function names its arguments plainly",
                    )));
                }
            },
            FnArg::Receiver(receiver) => {
                return Some(Err(Error::new_spanned(receiver, "a tiered function has no `self`")));
            }
        }
    }
    Some(Ok(Entry { function, names, types }))
}

/// The function table, one static row per tier, and the safe handle to a row.
fn set(entries: &[Entry<'_>]) -> TokenStream {
    let names: Vec<_> = entries.iter().map(|e| &e.function.sig.ident).collect();
    let pointers = entries.iter().map(|e| {
        let (types, output) = (&e.types, &e.function.sig.output);
        quote!(unsafe fn(#(#types),*) #output)
    });
    let rows = TIERS.iter().map(|tier| {
        let (cfg, module, variant) = (tier.cfg(), tier.ident(), tier.variant_ident());
        quote!(#cfg (::quantsmith_kernels::Tier::#variant, SetTable { #(#names: #module::#names),* }))
    });
    let methods = entries.iter().map(|e| {
        let (name, args, types) = (&e.function.sig.ident, &e.names, &e.types);
        let docs = e.function.attrs.iter().filter(|a| a.path().is_ident("doc"));
        let output = match &e.function.sig.output {
            ReturnType::Default => TokenStream::new(),
            output => quote!(#output),
        };
        let lifetimes = &e.function.sig.generics;
        quote! {
            #(#docs)*
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "the signature is the function's own")]
            pub fn #name #lifetimes (self, #(#args: #types),*) #output {
                // SAFETY: a `Set` is only made from a `Supported` tier, so the CPU has every feature that the
                // functions of this row need.
                unsafe { (self.0.#name)(#(#args),*) }
            }
        }
    });
    quote! {
        struct SetTable { #(#names: #pointers),* }

        static SET_ROWS: &[(::quantsmith_kernels::Tier, SetTable)] = &[#(#rows),*];

        /// The functions of this module for one tier that the CPU has.
        #[derive(Clone, Copy)]
        pub struct Set(&'static SetTable);

        #[allow(clippy::undocumented_unsafe_blocks, reason = "comments do not survive in generated code; the reason stands in the generator")]
        impl Set {
            /// Picks the functions for a tier that this CPU is known to have.
            pub fn new(tier: ::quantsmith_kernels::Supported) -> Self {
                let row = SET_ROWS.iter().find(|(t, _)| *t == tier.tier());
                // Every tier of this architecture has a row, because both are made from one table.
                Set(&row.expect("a supported tier has a row").1)
            }
            #(#methods)*
        }

        impl ::core::fmt::Debug for Set {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let tier = SET_ROWS.iter().find(|(_, t)| ::core::ptr::eq(t, self.0)).map(|(t, _)| t.name());
                f.debug_tuple("Set").field(&tier).finish()
            }
        }
    }
}
