//! Tokens to tree: the grammar and nothing else.
//!
//! ```text
//! NAME = ID | private, N weights in B bytes [, groups of G];
//! field: type;            type = u8 | i8 | u16 | i16 | u32 | f16 | bf16 | f32 | e8m0 | e4m3 | [type; N]
//! field: type = sum;      carries only the sum of the codes; `= scale * sum`
//! table NAME = [ … ];     table NAME = grid "file" [ … ];
//! rule(parameter) = expression;    rule = expression;
//! ```
//! The rules `code`, `scale`, `min` and `weight` make the format; others are helpers that they call. A grid file holds
//! hexadecimal digits, two bits an entry where the list has up to four values and else four, the lowest bits first;
//! `#` starts a comment. Built-in functions: `parity(x)`, the number of set bits modulo 2, and, as a factor of a scale,
//! `f16(x)`, the number that these sixteen bits are.
//! Expressions are Rust's, with Rust's precedence; `>>` binds looser than `*` and tighter than `&`.

use crate::ast::{At, BinaryOp, Declaration, Derived, Expr, ExprKind, Field, FieldType, Rule, Table};
use crate::digest::digest;
use proc_macro2::Ident;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, LitInt, LitStr, Result, Token, bracketed, parenthesized};

mod word {
    syn::custom_keyword!(weights);
    syn::custom_keyword!(bytes);
    syn::custom_keyword!(groups);
    syn::custom_keyword!(of);
    syn::custom_keyword!(table);
    syn::custom_keyword!(private);
    syn::custom_keyword!(grid);
    syn::custom_keyword!(sum);
    syn::custom_keyword!(scale);
}

fn number<T>(input: ParseStream<'_>) -> Result<At<T>>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let literal: LitInt = input.parse()?;
    Ok(At { value: literal.base10_parse()?, span: literal.span() })
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let docs = input.call(Attribute::parse_outer)?;
        let start = input.cursor();
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let id = if input.peek(word::private) {
            input.parse::<word::private>()?;
            None
        } else {
            Some(number(input)?)
        };
        input.parse::<Token![,]>()?;
        let elements = number(input)?;
        input.parse::<word::weights>()?;
        input.parse::<Token![in]>()?;
        let bytes = number(input)?;
        input.parse::<word::bytes>()?;
        let mut group = None;
        if input.parse::<Option<Token![,]>>()?.is_some() {
            input.parse::<word::groups>()?;
            input.parse::<word::of>()?;
            group = Some(number(input)?);
        }
        input.parse::<Token![;]>()?;
        let (mut fields, mut tables, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        while !input.is_empty() && !starts_declaration(input) {
            if input.peek(word::table) && input.peek2(syn::Ident) {
                tables.push(table(input)?);
            } else if input.peek2(Token![:]) {
                fields.push(field(input)?);
            } else {
                rules.push(rule(input)?);
            }
            input.parse::<Token![;]>()?;
        }
        let digest = digest(start, input.cursor(), &tables);
        Ok(Declaration { docs, digest, name, id, elements, bytes, group, fields, tables, rules })
    }
}

/// Whether another declaration starts here: its documentation, or `NAME = NUMBER ,`.
fn starts_declaration(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    input.peek(Token![#])
        || (ahead.parse::<Ident>().is_ok()
            && ahead.parse::<Token![=]>().is_ok()
            && (ahead.parse::<LitInt>().is_ok() || ahead.parse::<word::private>().is_ok())
            && ahead.peek(Token![,]))
}

/// Declarations one after the other.
pub(crate) struct Family(pub Vec<Declaration>);

impl Parse for Family {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut all = vec![input.parse()?];
        while !input.is_empty() {
            all.push(input.parse()?);
        }
        Ok(Family(all))
    }
}

fn table(input: ParseStream<'_>) -> Result<Table> {
    input.parse::<word::table>()?;
    let name = input.parse()?;
    input.parse::<Token![=]>()?;
    if input.peek(word::grid) {
        input.parse::<word::grid>()?;
        let file: LitStr = input.parse()?;
        let values: Vec<i64> = numbers(input)?.into_iter().map(|v| v.value).collect();
        let entries =
            grid(&file, &values)?.into_iter().map(|value| At { value, span: file.span() }).collect();
        return Ok(Table { name, entries, file: Some(grid_path(&file)) });
    }
    Ok(Table { name, entries: numbers(input)?, file: None })
}

/// Where a grid file lies: beside the sources of the crate that names it.
fn grid_path(file: &LitStr) -> String {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".to_string());
    format!("{folder}/{}", file.value())
}

/// The entries of a grid file.
fn grid(file: &LitStr, values: &[i64]) -> Result<Vec<i64>> {
    let path = grid_path(file);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| Error::new(file.span(), format!("the grid file {path} cannot be read: {e}")))?;
    let digits = text.lines().map(|line| line.split('#').next().unwrap_or("")).flat_map(str::chars);
    let width = if values.len() <= 4 { 2 } else { 4 };
    let mut nibbles = Vec::new();
    for c in digits.filter(|c| !c.is_whitespace()) {
        let digit = c
            .to_digit(16)
            .ok_or_else(|| Error::new(file.span(), format!("`{c}` is not a hexadecimal digit")))?;
        nibbles.push(digit as usize);
    }
    let mut entries = Vec::new();
    for byte in nibbles.chunks_exact(2) {
        let byte = byte[0] << 4 | byte[1];
        for shift in (0..8).step_by(width) {
            let index = byte >> shift & ((1 << width) - 1);
            let value = values.get(index).copied();
            entries.push(value.ok_or_else(|| {
                Error::new(
                    file.span(),
                    format!("the file has entry {index} and the list has {} values", values.len()),
                )
            })?);
        }
    }
    Ok(entries)
}

/// `[1, -2, …]`
fn numbers(input: ParseStream<'_>) -> Result<Vec<At<i64>>> {
    let list;
    bracketed!(list in input);
    let mut entries = Vec::new();
    while !list.is_empty() {
        let minus = list.parse::<Option<Token![-]>>()?.is_some();
        let entry: At<i64> = number(&list)?;
        entries.push(At { value: if minus { -entry.value } else { entry.value }, span: entry.span });
        if !list.is_empty() {
            list.parse::<Token![,]>()?;
        }
    }
    Ok(entries)
}

fn field(input: ParseStream<'_>) -> Result<Field> {
    let name = input.parse()?;
    input.parse::<Token![:]>()?;
    let (count, ty);
    if input.peek(syn::token::Bracket) {
        let array;
        bracketed!(array in input);
        ty = field_type(&array)?;
        array.parse::<Token![;]>()?;
        count = Some(number(&array)?);
    } else {
        (ty, count) = (field_type(input)?, None);
    }
    let mut derived = None;
    if input.parse::<Option<Token![=]>>()?.is_some() {
        derived = Some(Derived::Sum);
        if input.peek(word::scale) {
            input.parse::<word::scale>()?;
            input.parse::<Token![*]>()?;
            derived = Some(Derived::ScaledSum);
        }
        input.parse::<word::sum>()?;
    }
    Ok(Field { name, ty, count, derived })
}

fn field_type(input: ParseStream<'_>) -> Result<FieldType> {
    let word: Ident = input.parse()?;
    let known = FieldType::ALL.iter().find(|(name, _)| word == name);
    known.map(|(_, ty)| *ty).ok_or_else(|| {
        let names: Vec<_> = FieldType::ALL.iter().map(|(name, _)| *name).collect();
        Error::new(word.span(), format!("unknown field type `{word}`; accepted: {}", names.join(", ")))
    })
}

fn rule(input: ParseStream<'_>) -> Result<Rule> {
    let name = input.parse()?;
    let mut parameter = None;
    if input.peek(syn::token::Paren) {
        let inner;
        parenthesized!(inner in input);
        parameter = Some(inner.parse()?);
    }
    input.parse::<Token![=]>()?;
    let body = expr(&input.parse::<syn::Expr>()?)?;
    Ok(Rule { name, parameter, body })
}

/// Turns Rust's expression into ours, or says which kind is not accepted.
fn expr(e: &syn::Expr) -> Result<Expr> {
    let kind = match e {
        syn::Expr::Lit(lit) => match &lit.lit {
            syn::Lit::Int(int) => ExprKind::Int(int.base10_parse()?),
            syn::Lit::Float(float) => ExprKind::Float(float.base10_parse()?),
            other => return Err(Error::new(other.span(), "only numbers are accepted here")),
        },
        syn::Expr::Path(path) => match path.path.get_ident() {
            Some(name) => ExprKind::Name(name.to_string()),
            None => return Err(Error::new(e.span(), "only plain names are accepted here")),
        },
        syn::Expr::Paren(inner) => return expr(&inner.expr),
        syn::Expr::Group(inner) => return expr(&inner.expr),
        syn::Expr::Unary(unary) => match unary.op {
            syn::UnOp::Neg(_) => ExprKind::Negate(Box::new(expr(&unary.expr)?)),
            other => return Err(Error::new(other.span(), "only `-` is accepted before a value")),
        },
        syn::Expr::Call(call) => match (&expr(&call.func)?.kind, call.args.len()) {
            (ExprKind::Name(name), 1) => ExprKind::Call(name.clone(), Box::new(expr(&call.args[0])?)),
            _ => return Err(Error::new(e.span(), "a call is a rule's name with one argument")),
        },
        syn::Expr::Index(index) => match expr(&index.expr)?.kind {
            ExprKind::Name(name) => ExprKind::Index(name, Box::new(expr(&index.index)?)),
            _ => return Err(Error::new(index.expr.span(), "only a field or a table can be indexed")),
        },
        syn::Expr::Binary(binary) => {
            let op = operator(&binary.op)?;
            ExprKind::Binary(op, Box::new(expr(&binary.left)?), Box::new(expr(&binary.right)?))
        }
        syn::Expr::If(branch) => {
            let Some((_, otherwise)) = &branch.else_branch else {
                return Err(Error::new(e.span(), "an `if` needs its `else`"));
            };
            ExprKind::If(
                Box::new(expr(&branch.cond)?),
                Box::new(block(&branch.then_branch)?),
                Box::new(expr(otherwise)?),
            )
        }
        syn::Expr::Block(inner) => return block(&inner.block),
        other => {
            return Err(Error::new(
                other.span(),
                "not an expression of a format: accepted are numbers, names, `field[index]`, `rule(argument)`, \
                 + - * / % & | ^ << >>, comparisons and `if … { … } else { … }`",
            ));
        }
    };
    Ok(Expr { kind, span: e.span() })
}

fn block(block: &syn::Block) -> Result<Expr> {
    match block.stmts.as_slice() {
        [syn::Stmt::Expr(e, None)] => expr(e),
        _ => Err(Error::new(block.span(), "a branch is a single expression")),
    }
}

fn operator(op: &syn::BinOp) -> Result<BinaryOp> {
    Ok(match op {
        syn::BinOp::Add(_) => BinaryOp::Add,
        syn::BinOp::Sub(_) => BinaryOp::Sub,
        syn::BinOp::Mul(_) => BinaryOp::Mul,
        syn::BinOp::Div(_) => BinaryOp::Div,
        syn::BinOp::Rem(_) => BinaryOp::Rem,
        syn::BinOp::BitAnd(_) => BinaryOp::And,
        syn::BinOp::BitOr(_) => BinaryOp::Or,
        syn::BinOp::BitXor(_) => BinaryOp::Xor,
        syn::BinOp::Shl(_) => BinaryOp::Shl,
        syn::BinOp::Shr(_) => BinaryOp::Shr,
        syn::BinOp::Lt(_) => BinaryOp::Lt,
        syn::BinOp::Le(_) => BinaryOp::Le,
        syn::BinOp::Gt(_) => BinaryOp::Gt,
        syn::BinOp::Ge(_) => BinaryOp::Ge,
        syn::BinOp::Eq(_) => BinaryOp::Eq,
        syn::BinOp::Ne(_) => BinaryOp::Ne,
        other => return Err(Error::new(other.span(), "not an operator of a format")),
    })
}
