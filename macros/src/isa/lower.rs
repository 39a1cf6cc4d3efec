//! Plan to words of a tier's vocabulary: what stands in the body of the generated functions.
//!
//! ```text
//! stored codes of a block:   run0 = h_shr_and::<0>(h_load(block[2..18]), 15);  h_store(out[0..16], run0)
//! stored codes of a unit:    line0 = words(unit, 0, sub);  [shr_and::<0>(line0, 15), shr_and::<4>(line0, 15), …]
//! ```
//! All tiers speak the same words, so one lowering serves them; a word that a tier can do better is done better in
//! that tier's `kernels/src/arch/` module. Which instructions are exact for the codes' range is decided there too,
//! from the largest code, which every dot product gets as a constant.

use crate::ast::{BinaryOp, Expr, ExprKind};
use crate::model::{Each, Field, Table};
use crate::names;
use crate::plan::{Fetch, Piece, Run};
use crate::symbol::{Bit, Symbol, Tree};
use proc_macro2::TokenStream;
use quote::quote;

/// The body that writes the stored codes of `block` into `out`, sixteen at a time.
pub(crate) fn block_codes(runs: &[Run]) -> TokenStream {
    let lets = runs.iter().enumerate().map(|(k, run)| {
        let name = names::run(k);
        let value = match run {
            Run::Pieces(pieces) => {
                pieces.iter().map(piece).reduce(|a, b| quote!(isa::h_or(#a, #b))).unwrap_or_default()
            }
            Run::Each(from) => quote!(isa::h_load(k::bytes::<16>(&all, #from))),
        };
        quote!(let #name = #value;)
    });
    let each = runs.iter().any(|run| matches!(run, Run::Each(_)));
    let all = each.then(|| quote!(let all = each(block);));
    let stores = (0..runs.len()).map(|k| {
        let (name, at) = (names::run(k), 16 * k);
        quote!(isa::h_store(k::bytes_mut(&mut out[#at..]), #name);)
    });
    quote!(#all #(#lets #stores)*)
}

/// One piece of sixteen codes.
fn piece(piece: &Piece) -> TokenStream {
    let (mask, width, at) = ((1u32 << piece.width) - 1, piece.width, piece.at as i32);
    let mask = mask as u8;
    let fetched = match piece.fetch {
        Fetch::Slice { byte, shift } => {
            let shift = shift as i32;
            let bytes = quote!(isa::h_load(k::bytes::<16>(block, #byte)));
            if width == 8 { bytes } else { quote!(isa::h_shr_and::<#shift>(#bytes, #mask)) }
        }
        Fetch::Packed { byte } => match width {
            1 => quote!(isa::h_unpack1(k::bytes::<2>(block, #byte))),
            2 => quote!(isa::h_unpack2(k::bytes::<4>(block, #byte))),
            _ => quote!(isa::h_unpack4(k::bytes::<8>(block, #byte))),
        },
    };
    let plain = if piece.inverted { quote!(isa::h_xor(#fetched, #mask)) } else { fetched };
    if at == 0 { plain } else { quote!(isa::h_shl::<#at>(#plain)) }
}

/// The body that turns `unit` into the eight registers of stored codes of register `sub`.
pub(crate) fn unit_codes(bits: u32) -> TokenStream {
    let widths = planes(bits);
    let lines = widths.iter().sum::<u32>() as usize;
    let lets = (0..lines).map(|n| {
        let name = names::line(n);
        quote!(let #name = product::words(unit, #n, sub);)
    });
    let quads = (0..8u32).map(|quad| {
        let (mut first_line, mut at) = (0, 0);
        let mut value: Option<TokenStream> = None;
        for width in &widths {
            let per_line = 8 / width;
            let line = names::line((first_line + quad / per_line) as usize);
            let shift = (width * (quad % per_line)) as i32 - at;
            let mask = (((1u32 << width) - 1) << at) as u8;
            let part = match shift {
                0 if *width == 8 => quote!(#line),
                0.. => quote!(isa::shr_and::<#shift>(#line, #mask)),
                _ => {
                    let left = -shift;
                    quote!(isa::shl_and::<#left>(#line, #mask))
                }
            };
            value = Some(match value {
                None => part,
                Some(value) => quote!(isa::or(#value, #part)),
            });
            first_line += *width;
            at += *width as i32;
        }
        value.unwrap_or_default()
    });
    quote!(#(#lets)* [#(#quads),*])
}

/// The widths of the bit planes that hold codes of `bits` bits; the packing function has the same rule.
fn planes(bits: u32) -> Vec<u32> {
    if bits >= 8 { vec![8] } else { [4, 2, 1].into_iter().filter(|w| bits & w != 0).collect() }
}

/// A symbol as an `i32` expression over `block`.
pub(crate) fn scalar(symbol: &Symbol) -> TokenStream {
    match symbol {
        Symbol::Bits { bits, offset } => leaf(bits, *offset),
        Symbol::Opaque { tree, .. } => walk(tree),
    }
}

fn walk(tree: &Tree) -> TokenStream {
    match tree {
        Tree::Leaf(bits, offset) => leaf(bits, *offset),
        Tree::Table(name, index) => {
            let (name, index) = (names::local(name), walk(index));
            quote!((#name[(#index) as usize] as i32))
        }
        Tree::Parity(a) => {
            let a = walk(a);
            quote!((((#a).count_ones() & 1) as i32))
        }
        Tree::If(cond, a, b) => {
            let (cond, a, b) = (walk(cond), walk(a), walk(b));
            quote!((if #cond != 0 { #a } else { #b }))
        }
        Tree::Binary(op, a, b) => operation(*op, &walk(a), &walk(b), &quote!(i32)),
    }
}

/// An operation on two values of an integer type.
fn operation(op: BinaryOp, a: &TokenStream, b: &TokenStream, ty: &TokenStream) -> TokenStream {
    match op {
        BinaryOp::Add => quote!((#a + #b)),
        BinaryOp::Sub => quote!((#a - #b)),
        BinaryOp::Mul => quote!((#a * #b)),
        BinaryOp::Div => quote!((#a / #b)),
        BinaryOp::Rem => quote!((#a % #b)),
        BinaryOp::And => quote!((#a & #b)),
        BinaryOp::Or => quote!((#a | #b)),
        BinaryOp::Xor => quote!((#a ^ #b)),
        BinaryOp::Shl => quote!((#a << #b)),
        BinaryOp::Shr => quote!((#a >> #b)),
        BinaryOp::Lt => quote!(((#a < #b) as #ty)),
        BinaryOp::Le => quote!(((#a <= #b) as #ty)),
        BinaryOp::Gt => quote!(((#a > #b) as #ty)),
        BinaryOp::Ge => quote!(((#a >= #b) as #ty)),
        BinaryOp::Eq => quote!(((#a == #b) as #ty)),
        BinaryOp::Ne => quote!(((#a != #b) as #ty)),
    }
}

/// Bits of the block put together, plus an offset.
fn leaf(bits: &[Bit], offset: i64) -> TokenStream {
    let mut constant = offset;
    let mut parts = Vec::new();
    let mut k = 0;
    while k < bits.len() {
        match bits[k] {
            Bit::Zero => k += 1,
            Bit::One => {
                constant += 1 << k;
                k += 1;
            }
            Bit::Block { index, inverted } => {
                let mut width = 1;
                while k + width < bits.len()
                    && bits[k + width] == (Bit::Block { index: index + width, inverted })
                    && (index + width) / 8 == index / 8
                {
                    width += 1;
                }
                parts.push(field(index, width, inverted, k));
                k += width;
            }
        }
    }
    let constant = proc_macro2::Literal::i32_unsuffixed(constant as i32);
    match parts.into_iter().reduce(|a, b| quote!(#a | #b)) {
        None => quote!(#constant),
        Some(sum) if constant.to_string() == "0" => quote!((#sum)),
        Some(sum) => quote!(((#sum) + #constant)),
    }
}

fn field(index: usize, width: usize, inverted: bool, at: usize) -> TokenStream {
    let (byte, shift, mask) = (index / 8, (index % 8) as u32, ((1u32 << width) - 1) as i32);
    let mut value = quote!(block[#byte] as i32);
    if shift != 0 {
        value = quote!((#value >> #shift));
    }
    if (shift as usize) + width != 8 {
        value = quote!((#value & #mask));
    }
    if inverted {
        value = quote!((#value ^ #mask));
    }
    let at = at as u32;
    if at == 0 { quote!((#value)) } else { quote!((#value << #at)) }
}

/// How a code is computed from an element's number: the body of `fn element(block, i) -> i64`, and the rules that it
/// calls as functions.
pub(crate) fn element(each: &Each, fields: &[Field], tables: &[Table]) -> TokenStream {
    let context = Context { fields, tables };
    let rules =
        each.rules.iter().filter(|(name, ..)| !matches!(name.as_str(), "code" | "scale" | "min" | "weight"));
    let functions = rules.map(|(name, parameter, body)| {
        let (name, parameter, body) = (rule(name), names::local(parameter), context.expr(body));
        quote! {
            #[inline(always)]
            fn #name(block: &[u8], #parameter: i64) -> i64 { #body }
        }
    });
    let (parameter, body) = (names::local(&each.parameter), context.expr(&each.body));
    quote! {
        #(#functions)*
        #[inline(always)]
        fn element(block: &[u8], #parameter: i64) -> i64 { #body }
    }
}

fn rule(name: &str) -> proc_macro2::Ident {
    quote::format_ident!("rule_{}", name)
}

/// What names mean in an expression that is computed at run time.
struct Context<'a> {
    fields: &'a [Field],
    tables: &'a [Table],
}

impl Context<'_> {
    fn expr(&self, e: &Expr) -> TokenStream {
        match &e.kind {
            ExprKind::Int(value) => {
                let value = proc_macro2::Literal::i64_unsuffixed(*value);
                quote!(#value)
            }
            ExprKind::Float(_) => quote!(compile_error!("a fraction in a code")),
            ExprKind::Name(name) => match self.field(name) {
                Some(field) => Self::read(field, &quote!(0)),
                None => {
                    let name = names::local(name);
                    quote!(#name)
                }
            },
            ExprKind::Index(name, index) => {
                let index = self.expr(index);
                match (self.field(name), self.tables.iter().find(|t| t.name == name)) {
                    (Some(field), _) => Self::read(field, &index),
                    (None, Some(table)) => {
                        let name = &table.name;
                        quote!((#name[(#index) as usize] as i64))
                    }
                    (None, None) => quote!(compile_error!("an unknown name in a code")),
                }
            }
            ExprKind::Call(name, argument) => {
                let argument = self.expr(argument);
                if name == "parity" {
                    return quote!((((#argument).count_ones() & 1) as i64));
                }
                let name = rule(name);
                quote!(#name(block, #argument))
            }
            ExprKind::Negate(a) => {
                let a = self.expr(a);
                quote!((-#a))
            }
            ExprKind::Binary(op, a, b) => operation(*op, &self.expr(a), &self.expr(b), &quote!(i64)),
            ExprKind::If(cond, a, b) => {
                let (cond, a, b) = (self.expr(cond), self.expr(a), self.expr(b));
                quote!((if #cond != 0 { #a } else { #b }))
            }
        }
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    fn read(field: &Field, index: &TokenStream) -> TokenStream {
        let (byte, read) = (field.byte, quote::format_ident!("int_{}", field.ty.name()));
        quote!(k::#read(block, #byte, #index))
    }
}
