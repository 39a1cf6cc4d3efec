//! The digest of a declaration: what tells two formats of one name apart.
//!
//! SHA-256 of the declaration's tokens, one space between each, without documentation, comments and layout; and of the
//! entries of tables that come from files. So a file can name a format by name and digest, and a program knows whether
//! what it calls by that name is the same.

use crate::ast::Table;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use syn::buffer::Cursor;

/// The digest of the tokens between two places, and of tables.
pub(crate) fn digest(from: Cursor<'_>, to: Cursor<'_>, tables: &[Table]) -> [u8; 32] {
    let mut text = String::new();
    let mut at = from;
    while at != to {
        let Some((tree, next)) = at.token_tree() else { break };
        token(&tree, &mut text);
        at = next;
    }
    for table in tables.iter().filter(|table| table.file.is_some()) {
        for entry in &table.entries {
            let _ = write!(text, "{} ", entry.value);
        }
    }
    Sha256::digest(text.as_bytes()).into()
}

fn token(tree: &TokenTree, text: &mut String) {
    let TokenTree::Group(group) = tree else {
        let _ = write!(text, "{tree} ");
        return;
    };
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ("( ", ") "),
        Delimiter::Bracket => ("[ ", "] "),
        Delimiter::Brace => ("{ ", "} "),
        Delimiter::None => ("", ""),
    };
    text.push_str(open);
    tokens(group.stream(), text);
    text.push_str(close);
}

fn tokens(stream: TokenStream, text: &mut String) {
    stream.into_iter().for_each(|tree| token(&tree, text));
}
