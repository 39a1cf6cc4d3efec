//! Tests of the generator, in memory: no crate is compiled here.

mod accept;
mod golden;
mod inverse;
mod reject;

use crate::expand_format;
use proc_macro2::TokenStream;

/// Tokens of a declaration.
fn tokens(text: &str) -> TokenStream {
    text.parse().expect("the declaration is made of Rust tokens")
}

/// The messages that a declaration gives.
fn messages(text: &str) -> Vec<String> {
    match syn::parse2::<crate::ast::Declaration>(tokens(text)) {
        Err(error) => error.into_iter().map(|e| e.to_string()).collect(),
        Ok(declaration) => match crate::check::check(&declaration) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.into_iter().map(|e| e.to_string()).collect(),
        },
    }
}

/// The generated code, formatted, or only one of its modules.
fn printed(text: &str, module: Option<&str>) -> String {
    let file: syn::File = syn::parse2(expand_format(tokens(text))).expect("the output is Rust");
    let Some(module) = module else { return prettyplease::unparse(&file) };
    let of = |items: &[syn::Item]| {
        items.iter().find_map(|item| match item {
            syn::Item::Mod(m) if m.ident == module => m.content.as_ref().map(|(_, items)| items.clone()),
            _ => None,
        })
    };
    let nested = file.items.iter().find_map(|item| match item {
        syn::Item::Mod(m) => m.content.as_ref().and_then(|(_, items)| of(items)),
        _ => None,
    });
    let items = nested.unwrap_or_else(|| panic!("there is no module `{module}` in the output"));
    prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items })
}
