//! What an expression means for one element: an exact account of which bits of the block it is made of.
//!
//! [`eval`] computes an expression with its parameter bound to a number. As long as the operations only move bits
//! about, the result is [`Symbol::Bits`]: for every bit of the value, where in the block it lies. From that the
//! planner sees how elements lie to one another. Anything else (a product of two fields, a lookup) is
//! [`Symbol::Opaque`]: a folded tree with the range of its values, which is still computed exactly, only one
//! element at a time.

use crate::ast::{BinaryOp, Expr, ExprKind, FieldType};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Error, Result};

/// Where a bit of a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bit {
    Zero,
    One,
    /// Bit `index % 8` of byte `index / 8` of the block.
    Block {
        index: usize,
        inverted: bool,
    },
}

/// A value as a function of the block's bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Symbol {
    /// The bits as an unsigned number, the lowest first, plus an offset.
    Bits { bits: Vec<Bit>, offset: i64 },
    /// A value between `low` and `high` that bits alone do not describe.
    Opaque { low: i64, high: i64, tree: Tree },
}

/// A folded expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Leaf(Vec<Bit>, i64),
    Table(String, Box<Tree>),
    Parity(Box<Tree>),
    Binary(BinaryOp, Box<Tree>, Box<Tree>),
    If(Box<Tree>, Box<Tree>, Box<Tree>),
}

/// A field's place in the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub ty: FieldType,
    pub byte: usize,
    /// `None` for a field with one value.
    pub count: Option<usize>,
}

/// What names mean.
#[derive(Default)]
pub(crate) struct Scope {
    /// Rules that others may call: parameter and body.
    pub rules: BTreeMap<String, (String, Expr)>,
    pub fields: BTreeMap<String, Place>,
    pub tables: BTreeMap<String, Vec<i64>>,
}

impl Symbol {
    /// A constant.
    pub(crate) fn constant(value: i64) -> Self {
        Symbol::Bits { bits: Vec::new(), offset: value }
    }

    /// The value, if it does not depend on the block.
    pub(crate) fn as_constant(&self) -> Option<i64> {
        match self {
            Symbol::Bits { bits, offset } if bits.iter().all(|b| !matches!(b, Bit::Block { .. })) => {
                let value = bits.iter().enumerate().map(|(k, b)| i64::from(*b == Bit::One) << k).sum::<i64>();
                Some(value + offset)
            }
            _ => None,
        }
    }

    /// The smallest and the largest value.
    pub(crate) fn range(&self) -> (i64, i64) {
        match self {
            Symbol::Bits { bits, offset } => {
                let sum = |want: fn(&Bit) -> bool| -> i64 {
                    bits.iter().enumerate().filter(|(_, b)| want(b)).map(|(k, _)| 1i64 << k).sum()
                };
                (offset + sum(|b| *b == Bit::One), offset + sum(|b| *b != Bit::Zero))
            }
            Symbol::Opaque { low, high, .. } => (*low, *high),
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        match self {
            Symbol::Bits { bits, offset } => Tree::Leaf(bits.clone(), *offset),
            Symbol::Opaque { tree, .. } => tree.clone(),
        }
    }

    /// Adds the block's bits that the value depends on.
    pub(crate) fn uses(&self, into: &mut BTreeSet<usize>) {
        self.tree().uses(into);
    }
}

impl Tree {
    /// The value for one assignment of the block's bits.
    pub(crate) fn value(&self, tables: &dyn Fn(&str, i64) -> i64, bit: &dyn Fn(usize) -> bool) -> i64 {
        let sub = |tree: &Tree| tree.value(tables, bit);
        match self {
            Tree::Leaf(bits, offset) => {
                let set = |b: &Bit| match *b {
                    Bit::Zero => false,
                    Bit::One => true,
                    Bit::Block { index, inverted } => bit(index) != inverted,
                };
                offset + bits.iter().enumerate().map(|(k, b)| i64::from(set(b)) << k).sum::<i64>()
            }
            Tree::Table(name, index) => tables(name, sub(index)),
            Tree::Parity(a) => i64::from(sub(a).count_ones() & 1),
            Tree::If(cond, a, b) => sub(if sub(cond) != 0 { a } else { b }),
            Tree::Binary(op, a, b) => operate(*op, sub(a), sub(b)).unwrap_or(0),
        }
    }

    /// The same tree with its block bits numbered as they first occur; `order` gets the bits.
    pub(crate) fn renamed(&self, order: &mut Vec<usize>) -> Tree {
        match self {
            Tree::Leaf(bits, offset) => {
                let rename = |b: &Bit| match *b {
                    Bit::Block { index, inverted } => {
                        let known = order.iter().position(|o| *o == index);
                        let index = known.unwrap_or_else(|| {
                            order.push(index);
                            order.len() - 1
                        });
                        Bit::Block { index, inverted }
                    }
                    other => other,
                };
                Tree::Leaf(bits.iter().map(rename).collect(), *offset)
            }
            Tree::Table(name, a) => Tree::Table(name.clone(), Box::new(a.renamed(order))),
            Tree::Parity(a) => Tree::Parity(Box::new(a.renamed(order))),
            Tree::Binary(op, a, b) => {
                Tree::Binary(*op, Box::new(a.renamed(order)), Box::new(b.renamed(order)))
            }
            Tree::If(c, a, b) => {
                Tree::If(Box::new(c.renamed(order)), Box::new(a.renamed(order)), Box::new(b.renamed(order)))
            }
        }
    }

    fn uses(&self, into: &mut BTreeSet<usize>) {
        match self {
            Tree::Leaf(bits, _) => into.extend(bits.iter().filter_map(|b| match b {
                Bit::Block { index, .. } => Some(*index),
                _ => None,
            })),
            Tree::Table(_, a) | Tree::Parity(a) => a.uses(into),
            Tree::Binary(_, a, b) => {
                a.uses(into);
                b.uses(into);
            }
            Tree::If(c, a, b) => {
                c.uses(into);
                a.uses(into);
                b.uses(into);
            }
        }
    }
}

/// Evaluates an integer expression with its parameter bound.
pub(crate) fn eval(e: &Expr, scope: &Scope, parameter: Option<(&str, i64)>) -> Result<Symbol> {
    let sub = |e: &Expr| eval(e, scope, parameter);
    match &e.kind {
        ExprKind::Int(value) => Ok(Symbol::constant(*value)),
        ExprKind::Float(_) => {
            Err(Error::new(e.span, "a whole number is expected here; fractions belong to scales"))
        }
        ExprKind::Name(name) => match parameter {
            Some((parameter, value)) if parameter == name => Ok(Symbol::constant(value)),
            _ => read(e, name, None, scope),
        },
        ExprKind::Index(name, index) => {
            let at = sub(index)?;
            if let Some(entries) = scope.tables.get(name) {
                return lookup(e, name, entries, &at);
            }
            let Some(at) = at.as_constant() else {
                return Err(Error::new(
                    index.span,
                    format!(
                        "the place in `{name}` must not depend on the block; only tables are looked up by code"
                    ),
                ));
            };
            read(e, name, Some(at), scope)
        }
        ExprKind::Call(name, argument) => call(e, name, &sub(argument)?, scope),
        ExprKind::Negate(inner) => binary(e, BinaryOp::Sub, Symbol::constant(0), sub(inner)?),
        ExprKind::Binary(op, a, b) => binary(e, *op, sub(a)?, sub(b)?),
        ExprKind::If(cond, then, otherwise) => {
            let cond = sub(cond)?;
            match cond.as_constant() {
                Some(0) => sub(otherwise),
                Some(_) => sub(then),
                None => {
                    let (a, b) = (sub(then)?, sub(otherwise)?);
                    let (ra, rb) = (a.range(), b.range());
                    let tree = Tree::If(Box::new(cond.tree()), Box::new(a.tree()), Box::new(b.tree()));
                    Ok(Symbol::Opaque { low: ra.0.min(rb.0), high: ra.1.max(rb.1), tree })
                }
            }
        }
    }
}

/// Calls another rule with a number, or a built-in function.
fn call(e: &Expr, name: &str, argument: &Symbol, scope: &Scope) -> Result<Symbol> {
    if name == "parity" {
        let tree = Tree::Parity(Box::new(argument.tree()));
        return Ok(Symbol::Opaque { low: 0, high: 1, tree });
    }
    let Some((parameter, body)) = scope.rules.get(name) else {
        let known: Vec<_> = scope.rules.keys().map(|n| format!("`{n}`")).collect();
        let message =
            format!("there is no rule `{name}`; there are {}, and the function `parity`", known.join(", "));
        return Err(Error::new(e.span, message));
    };
    let Some(value) = argument.as_constant() else {
        return Err(Error::new(e.span, "a rule is called with a number that does not depend on the block"));
    };
    eval(body, scope, Some((parameter, value)))
}

/// Finds a field's value in the block.
pub(crate) fn place(e: &Expr, name: &str, index: Option<i64>, scope: &Scope) -> Result<(FieldType, usize)> {
    let Some(field) = scope.fields.get(name) else {
        let known: Vec<_> =
            scope.fields.keys().chain(scope.tables.keys()).map(|n| format!("`{n}`")).collect();
        return Err(Error::new(e.span, format!("`{name}` is not declared; there are {}", known.join(", "))));
    };
    match (index, field.count) {
        (None, None) => Ok((field.ty, field.byte)),
        (Some(at), Some(count)) if (0..count as i64).contains(&at) => {
            Ok((field.ty, field.byte + at as usize * field.ty.bytes()))
        }
        (Some(at), Some(count)) => Err(Error::new(
            e.span,
            format!("`{name}` is too narrow: it has {count} values and value {at} is asked for"),
        )),
        (None, Some(_)) => Err(Error::new(e.span, format!("`{name}` is an array: an index is missing"))),
        (Some(_), None) => Err(Error::new(e.span, format!("`{name}` is a single value and takes no index"))),
    }
}

fn read(e: &Expr, name: &str, index: Option<i64>, scope: &Scope) -> Result<Symbol> {
    let (ty, byte) = place(e, name, index, scope)?;
    if ty.is_float() {
        return Err(Error::new(
            e.span,
            format!("`{name}` is {}: only a scale or a minimum can use it", ty.name()),
        ));
    }
    let width = 8 * ty.bytes();
    let mut bits: Vec<_> = (0..width).map(|k| Bit::Block { index: 8 * byte + k, inverted: false }).collect();
    let mut offset = 0;
    if matches!(ty, FieldType::I8 | FieldType::I16) {
        // Two's complement: flip the sign bit and take its weight off.
        bits[width - 1] = Bit::Block { index: 8 * byte + width - 1, inverted: true };
        offset = -(1i64 << (width - 1));
    }
    Ok(Symbol::Bits { bits, offset })
}

fn lookup(e: &Expr, name: &str, entries: &[i64], at: &Symbol) -> Result<Symbol> {
    let (low, high) = at.range();
    if low < 0 || high >= entries.len() as i64 {
        let message =
            format!("`{name}` has {} entries and entries {low} to {high} are asked for", entries.len());
        return Err(Error::new(e.span, message));
    }
    if let Some(at) = at.as_constant() {
        return Ok(Symbol::constant(entries[at as usize]));
    }
    let seen = &entries[low as usize..=high as usize];
    let (low, high) = (seen.iter().min().copied().unwrap_or(0), seen.iter().max().copied().unwrap_or(0));
    Ok(Symbol::Opaque { low, high, tree: Tree::Table(name.to_string(), Box::new(at.tree())) })
}

fn binary(e: &Expr, op: BinaryOp, a: Symbol, b: Symbol) -> Result<Symbol> {
    if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
        return constant(e, op, x, y).map(Symbol::constant);
    }
    if let Some(bits) = moved(op, &a, &b) {
        return Ok(bits);
    }
    opaque(e, op, &a, &b)
}

fn constant(e: &Expr, op: BinaryOp, x: i64, y: i64) -> Result<i64> {
    operate(op, x, y).ok_or_else(|| Error::new(e.span, format!("{x} and {y} cannot be combined here")))
}

/// The operation on two numbers, where it has a result.
fn operate(op: BinaryOp, x: i64, y: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div => x.checked_div(y),
        BinaryOp::Rem => x.checked_rem(y),
        BinaryOp::And => Some(x & y),
        BinaryOp::Or => Some(x | y),
        BinaryOp::Xor => Some(x ^ y),
        BinaryOp::Shl => u32::try_from(y).ok().filter(|y| *y < 32).and_then(|y| x.checked_mul(1 << y)),
        BinaryOp::Shr => u32::try_from(y).ok().and_then(|y| x.checked_shr(y)),
        BinaryOp::Lt => Some(i64::from(x < y)),
        BinaryOp::Le => Some(i64::from(x <= y)),
        BinaryOp::Gt => Some(i64::from(x > y)),
        BinaryOp::Ge => Some(i64::from(x >= y)),
        BinaryOp::Eq => Some(i64::from(x == y)),
        BinaryOp::Ne => Some(i64::from(x != y)),
    }
}

/// The result, if the operation only moves bits.
fn moved(op: BinaryOp, a: &Symbol, b: &Symbol) -> Option<Symbol> {
    let (Symbol::Bits { bits: x, offset: xo }, Symbol::Bits { bits: y, offset: yo }) = (a, b) else {
        return None;
    };
    let constant = b.as_constant();
    let pure = |bits: Vec<Bit>| Some(Symbol::Bits { bits, offset: 0 });
    match op {
        BinaryOp::Add | BinaryOp::Or if *xo == 0 && *yo == 0 && disjoint(x, y) => pure(merge(x, y)),
        BinaryOp::Add if y.is_empty() => Some(Symbol::Bits { bits: x.clone(), offset: xo + yo }),
        BinaryOp::Add if x.is_empty() => Some(Symbol::Bits { bits: y.clone(), offset: xo + yo }),
        BinaryOp::Add if disjoint(x, y) => Some(Symbol::Bits { bits: merge(x, y), offset: xo + yo }),
        BinaryOp::Sub if y.is_empty() => Some(Symbol::Bits { bits: x.clone(), offset: xo - yo }),
        BinaryOp::Or if *xo == 0 => {
            let mask = as_bits(constant?)?;
            pure(zip(x, &mask, |a, m| if m == Bit::One { Bit::One } else { a }))
        }
        BinaryOp::Xor if *xo == 0 => {
            let mask = as_bits(constant?)?;
            pure(zip(x, &mask, |a, m| if m == Bit::One { invert(a) } else { a }))
        }
        BinaryOp::And if *xo == 0 => {
            let mask = as_bits(constant?)?;
            pure(trim(zip(x, &mask, |a, m| if m == Bit::One { a } else { Bit::Zero })))
        }
        BinaryOp::And if x.is_empty() && *yo == 0 => moved(op, b, a),
        BinaryOp::Rem if *xo == 0 => {
            let divisor = constant.filter(|c| *c > 0 && (*c & (*c - 1)) == 0)?;
            moved(BinaryOp::And, a, &Symbol::constant(divisor - 1))
        }
        BinaryOp::Div if *xo == 0 => {
            let divisor = constant.filter(|c| *c > 0 && (*c & (*c - 1)) == 0)?;
            pure(x.iter().copied().skip(divisor.trailing_zeros() as usize).collect())
        }
        BinaryOp::Shr if *xo == 0 => pure(x.iter().copied().skip(usize::try_from(constant?).ok()?).collect()),
        BinaryOp::Shl => shifted(x, *xo, u32::try_from(constant?).ok()?),
        BinaryOp::Mul => {
            let factor = constant.filter(|c| *c > 0 && (*c & (*c - 1)) == 0);
            match (factor, a.as_constant()) {
                (Some(factor), _) => shifted(x, *xo, factor.trailing_zeros()),
                (None, Some(_)) => moved(op, b, a),
                _ => None,
            }
        }
        _ => None,
    }
}

fn shifted(bits: &[Bit], offset: i64, by: u32) -> Option<Symbol> {
    (by < 32).then(|| Symbol::Bits {
        bits: std::iter::repeat_n(Bit::Zero, by as usize).chain(bits.iter().copied()).collect(),
        offset: offset << by,
    })
}

fn as_bits(value: i64) -> Option<Vec<Bit>> {
    let value = u64::try_from(value).ok()?;
    Some(
        (0..64 - value.leading_zeros())
            .map(|k| if value >> k & 1 == 1 { Bit::One } else { Bit::Zero })
            .collect(),
    )
}

fn zip(x: &[Bit], y: &[Bit], f: impl Fn(Bit, Bit) -> Bit) -> Vec<Bit> {
    let at = |bits: &[Bit], k: usize| bits.get(k).copied().unwrap_or(Bit::Zero);
    (0..x.len().max(y.len())).map(|k| f(at(x, k), at(y, k))).collect()
}

fn disjoint(x: &[Bit], y: &[Bit]) -> bool {
    x.iter().zip(y).all(|(a, b)| *a == Bit::Zero || *b == Bit::Zero)
}

fn merge(x: &[Bit], y: &[Bit]) -> Vec<Bit> {
    zip(x, y, |a, b| if a == Bit::Zero { b } else { a })
}

fn trim(mut bits: Vec<Bit>) -> Vec<Bit> {
    while bits.last() == Some(&Bit::Zero) {
        bits.pop();
    }
    bits
}

fn invert(bit: Bit) -> Bit {
    match bit {
        Bit::Zero => Bit::One,
        Bit::One => Bit::Zero,
        Bit::Block { index, inverted } => Bit::Block { index, inverted: !inverted },
    }
}

/// An operation that bits do not describe: the tree, and the range by interval arithmetic.
fn opaque(e: &Expr, op: BinaryOp, a: &Symbol, b: &Symbol) -> Result<Symbol> {
    let ((al, ah), (bl, bh)) = (a.range(), b.range());
    let corners = |f: fn(i64, i64) -> Option<i64>| -> Option<(i64, i64)> {
        let all = [f(al, bl)?, f(al, bh)?, f(ah, bl)?, f(ah, bh)?];
        Some((all.iter().copied().min()?, all.iter().copied().max()?))
    };
    let non_negative = al >= 0 && bl >= 0;
    let full = |v: i64| (1i64 << (64 - (v.max(1) as u64).leading_zeros())) - 1;
    let range = match op {
        BinaryOp::Add => corners(i64::checked_add),
        BinaryOp::Sub => corners(i64::checked_sub),
        BinaryOp::Mul => corners(i64::checked_mul),
        BinaryOp::Div if non_negative && bl > 0 => corners(i64::checked_div),
        BinaryOp::Rem if non_negative && bl > 0 => Some((0, ah.min(bh - 1))),
        BinaryOp::And if non_negative => Some((0, ah.min(bh))),
        BinaryOp::Or | BinaryOp::Xor if non_negative => Some((0, full(ah.max(bh)))),
        BinaryOp::Shl if non_negative && bh < 32 => corners(|a, b| a.checked_mul(1 << b)),
        BinaryOp::Shr if non_negative && bh < 64 => corners(|a, b| Some(a >> b)),
        BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Eq | BinaryOp::Ne => {
            Some((0, 1))
        }
        _ => None,
    };
    let range = range.filter(|(low, high)| *low >= i64::from(i32::MIN) && *high <= i64::from(i32::MAX));
    let Some((low, high)) = range else {
        return Err(Error::new(e.span, "the value of this expression could overflow i32"));
    };
    Ok(Symbol::Opaque { low, high, tree: Tree::Binary(op, Box::new(a.tree()), Box::new(b.tree())) })
}

/// The values that a tree can take, if there are at most `most`; `None` if there may be more.
pub(crate) fn values(tree: &Tree, scope: &Scope, most: usize) -> Option<BTreeSet<i64>> {
    let all: BTreeSet<i64> = match tree {
        Tree::Leaf(bits, offset) => {
            let free: Vec<_> =
                bits.iter().enumerate().filter(|(_, b)| matches!(b, Bit::Block { .. })).collect();
            if free.len() > 11 {
                return None;
            }
            let fixed: i64 =
                bits.iter().enumerate().filter(|(_, b)| **b == Bit::One).map(|(k, _)| 1i64 << k).sum();
            (0..1u32 << free.len())
                .map(|pick| {
                    let set = free.iter().enumerate().filter(|(n, _)| pick >> n & 1 == 1);
                    offset + fixed + set.map(|(_, (k, _))| 1i64 << k).sum::<i64>()
                })
                .collect()
        }
        // Places in a table, through every index: a table's values are few even where its places are many.
        Tree::Table(name, _) => scope.tables.get(name)?.iter().copied().collect(),
        Tree::Parity(_) => [0, 1].into(),
        Tree::If(_, a, b) => values(a, scope, most)?.union(&values(b, scope, most)?).copied().collect(),
        Tree::Binary(op, a, b) => {
            let (a, b) = (values(a, scope, most)?, values(b, scope, most)?);
            let op: fn(i64, i64) -> i64 = match op {
                BinaryOp::Add => |a, b| a + b,
                BinaryOp::Sub => |a, b| a - b,
                BinaryOp::Mul => |a, b| a * b,
                _ => return None,
            };
            a.iter().flat_map(|a| b.iter().map(move |b| op(*a, *b))).collect()
        }
    };
    (all.len() <= most).then_some(all)
}
