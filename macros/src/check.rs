//! Tree to model: every rule of a declaration, each in a function, all errors collected.

use crate::ast::{BinaryOp, Declaration, Expr, ExprKind, FieldType, Rule};
use crate::diag::Errors;
use crate::model::{Codes, Each, Field, Format, Offset, Part, PartCode, Source, Table, Values};
use crate::symbol::{Place, Scope, Symbol, Tree, eval, place, values as tree_values};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Error, Result};

const RULES: &str = "accepted rules: code(i), scale(g), min(g), weight";

/// Checks a declaration and gives the format that it means.
pub(crate) fn check(declaration: &Declaration) -> Result<Format> {
    let mut errors = Errors::default();
    let (fields, scope) = layout(declaration, &mut errors);
    sizes(declaration, &mut errors);
    names(declaration, &mut errors);
    let mut used = BTreeSet::new();
    let values = values(declaration, &scope, &mut used, &mut errors);
    if errors.is_empty() {
        coverage(declaration, &scope, &used, &mut errors);
    }
    let format = values.map(|values| Format {
        docs: declaration.docs.clone(),
        digest: declaration.digest,
        name: declaration.name.clone(),
        id: declaration.id.as_ref().map(|id| id.value),
        elements: declaration.elements.value,
        bytes: declaration.bytes.value,
        fields,
        tables: tables(declaration),
        values,
    });
    errors.finish(format)
}

/// Names and numbers within a family must differ.
pub(crate) fn distinct(family: &[Declaration]) -> Result<()> {
    let mut errors = Errors::default();
    let (mut names, mut ids) = (BTreeSet::new(), BTreeMap::new());
    for declaration in family {
        if !names.insert(declaration.name.to_string().to_lowercase()) {
            errors.push(declaration.name.span(), format!("`{}` is declared twice", declaration.name));
        }
        if let Some(id) = &declaration.id
            && let Some(other) = ids.insert(id.value, declaration.name.to_string())
        {
            errors.push(id.span, format!("duplicate id: {} is the number of `{other}` too", id.value));
        }
    }
    errors.finish(Some(()))
}

/// Lays the fields out one after the other and compares their sum with the stated size.
fn layout(declaration: &Declaration, errors: &mut Errors) -> (Vec<Field>, Scope) {
    let mut scope = Scope::default();
    let mut fields = Vec::new();
    let mut byte = 0;
    for field in &declaration.fields {
        let count = field.count.as_ref().map(|c| c.value);
        if count == Some(0) {
            errors.push(field.name.span(), format!("`{}` has no values", field.name));
        }
        let name = field.name.to_string();
        let place = Place { ty: field.ty, byte, count };
        if scope.fields.insert(name.clone(), place).is_some() {
            errors.push(field.name.span(), format!("`{name}` is declared twice"));
        }
        fields.push(Field { name, ty: field.ty, byte, count, derived: field.derived });
        byte += field.ty.bytes() * count.unwrap_or(1);
    }
    for rule in &declaration.rules {
        if let Some(parameter) = &rule.parameter {
            scope.rules.insert(rule.name.to_string(), (parameter.to_string(), rule.body.clone()));
        }
    }
    for table in &declaration.tables {
        let name = table.name.to_string();
        if table.entries.is_empty() {
            errors.push(table.name.span(), format!("`{name}` has no entries"));
        }
        let entries = table.entries.iter().map(|e| e.value).collect();
        if scope.fields.contains_key(&name) || scope.tables.insert(name.clone(), entries).is_some() {
            errors.push(table.name.span(), format!("`{name}` is declared twice"));
        }
    }
    if byte != declaration.bytes.value {
        let stated = declaration.bytes.value;
        errors.push(declaration.bytes.span, format!("{stated} bytes are stated"));
        let last = declaration.fields.last().map_or(declaration.name.span(), |f| f.name.span());
        errors.push(last, format!("but the fields up to here sum to {byte} bytes"));
    }
    (fields, scope)
}

/// The lookup tables.
fn tables(declaration: &Declaration) -> Vec<Table> {
    let table = |t: &crate::ast::Table| Table {
        name: t.name.clone(),
        entries: t.entries.iter().map(|e| e.value).collect(),
        file: t.file.clone(),
    };
    declaration.tables.iter().map(table).collect()
}

/// The sizes of block and group.
fn sizes(declaration: &Declaration, errors: &mut Errors) {
    let elements = &declaration.elements;
    if !matches!(elements.value, 1 | 16) && (elements.value == 0 || !elements.value.is_multiple_of(32)) {
        errors.push(elements.span, "a block has 1 weight (a plain number), 16, or a multiple of 32");
    }
    if let Some(group) = &declaration.group {
        let fits = group.value == 16 || (group.value > 0 && group.value.is_multiple_of(32));
        if !fits || !elements.value.is_multiple_of(group.value) {
            let message = format!(
                "groups of {} do not divide the block of {}; accepted: 16, or a multiple of 32 that divides the block",
                group.value, elements.value
            );
            errors.push(group.span, message);
        }
    }
}

/// Names of rules and their parameters.
fn names(declaration: &Declaration, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let mut called = BTreeSet::new();
    declaration.rules.iter().for_each(|rule| calls(&rule.body, &mut called));
    for rule in &declaration.rules {
        let name = rule.name.to_string();
        match (name.as_str(), &rule.parameter) {
            ("code", None) => {
                errors.push(rule.name.span(), "the code is a function of the element: code(i) = …")
            }
            ("weight", Some(p)) => {
                errors.push(p.span(), "the weight takes no parameter: weight = scale * code")
            }
            ("code" | "scale" | "min" | "weight", _) => {}
            (_, None) => {
                errors.push(rule.name.span(), format!("unknown rule `{name}`; {RULES}, and name(parameter)"))
            }
            _ if called.contains(&name) => {}
            _ => errors.push(rule.name.span(), format!("no rule calls `{name}`; {RULES}")),
        }
        if !seen.insert(name.clone()) {
            errors.push(rule.name.span(), format!("`{name}` is given twice"));
        }
    }
}

/// The names that an expression calls.
fn calls(e: &Expr, into: &mut BTreeSet<String>) {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Name(_) => {}
        ExprKind::Call(name, a) => {
            into.insert(name.clone());
            calls(a, into);
        }
        ExprKind::Index(_, a) | ExprKind::Negate(a) => calls(a, into),
        ExprKind::Binary(_, a, b) => {
            calls(a, into);
            calls(b, into);
        }
        ExprKind::If(c, a, b) => {
            calls(c, into);
            calls(a, into);
            calls(b, into);
        }
    }
}

fn rule<'a>(declaration: &'a Declaration, name: &str) -> Option<&'a Rule> {
    declaration.rules.iter().find(|r| r.name == name)
}

/// What the block's values are.
fn values(
    declaration: &Declaration,
    scope: &Scope,
    used: &mut BTreeSet<usize>,
    errors: &mut Errors,
) -> Option<Values> {
    let Some(weight) = rule(declaration, "weight") else {
        errors.push(declaration.name.span(), "the rule `weight = …` is missing");
        return None;
    };
    if let ExprKind::Name(name) = &weight.body.kind
        && let Some(field) = scope.fields.get(name)
    {
        if !field.ty.is_float() || field.count.is_some() || declaration.elements.value != 1 {
            errors.push(
                weight.body.span,
                "a plain field is the weight only in a block of 1 weight of a float type",
            );
            return None;
        }
        used.extend(8 * field.byte..8 * (field.byte + field.ty.bytes()));
        return Some(Values::Float(field.ty));
    }
    let Some(form) = Form::of(&weight.body) else {
        errors.push(
            weight.body.span,
            "accepted: scale * code, scale * code - min, scale * code + min, or the name of a float field",
        );
        return None;
    };
    let group = declaration.group.as_ref().map_or(declaration.elements.value, |g| g.value);
    if group == 0 || !declaration.elements.value.is_multiple_of(group) || declaration.elements.value == 1 {
        if declaration.elements.value == 1 {
            errors.push(declaration.elements.span, "codes need a block of at least 32 weights");
        }
        return None;
    }
    // The kernels take 32 columns at a time, so a block of 16 goes in pairs.
    let repeat = if declaration.elements.value == 16 { 2 } else { 1 };
    let groups = declaration.elements.value / group;
    let codes = required(declaration, "code", errors).and_then(|r| code(r, declaration, scope, used, errors));
    let scale = required(declaration, "scale", errors).and_then(|r| part(r, groups, scope, used, errors));
    let offset = match form {
        Form::Scaled => {
            if let Some(min) = rule(declaration, "min") {
                errors.push(min.name.span(), "`min` is declared but the weight does not use it");
            }
            None
        }
        Form::Minus | Form::Plus => Some(
            required(declaration, "min", errors)
                .and_then(|r| part(r, groups, scope, used, errors))
                .map(|part| Offset { part, subtracted: form == Form::Minus }),
        ),
    };
    let offset = match offset {
        None => None,
        Some(offset) => Some(offset?),
    };
    let StoredCodes { raw, each, bitwise, bits, table, bias, max } = codes?;
    Some(Values::Codes(Box::new(Codes {
        group,
        repeat,
        raw,
        each,
        bitwise,
        bits,
        table,
        bias,
        max,
        scale: scale?,
        offset,
    })))
}

fn required<'a>(declaration: &'a Declaration, name: &str, errors: &mut Errors) -> Option<&'a Rule> {
    let found = rule(declaration, name);
    if found.is_none() {
        errors.push(declaration.name.span(), format!("the rule `{name}` is missing; {RULES}"));
    }
    found
}

/// The shape of the weight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Scaled,
    Minus,
    Plus,
}

impl Form {
    fn of(e: &Expr) -> Option<Self> {
        let named = |e: &Expr, name: &str| matches!(&e.kind, ExprKind::Name(n) if n == name);
        let scaled = |e: &Expr| match &e.kind {
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                (named(a, "scale") && named(b, "code")) || (named(a, "code") && named(b, "scale"))
            }
            _ => false,
        };
        match &e.kind {
            _ if scaled(e) => Some(Form::Scaled),
            ExprKind::Binary(BinaryOp::Sub, a, b) if scaled(a) && named(b, "min") => Some(Form::Minus),
            ExprKind::Binary(BinaryOp::Add, a, b) if scaled(a) && named(b, "min") => Some(Form::Plus),
            _ => None,
        }
    }
}

struct StoredCodes {
    raw: Vec<Symbol>,
    each: Each,
    bitwise: bool,
    bits: u32,
    table: Option<[u8; 16]>,
    bias: i32,
    max: i32,
}

/// Evaluates the code of every element and brings it to stored codes from 0 up.
fn code(
    rule: &Rule,
    declaration: &Declaration,
    scope: &Scope,
    used: &mut BTreeSet<usize>,
    errors: &mut Errors,
) -> Option<StoredCodes> {
    let parameter = rule.parameter.as_ref()?.to_string();
    // A lookup at the top, of up to sixteen entries, is a table of codes: the index is what is stored.
    let lookup = match &rule.body.kind {
        ExprKind::Index(name, index) => {
            scope.tables.get(name).filter(|t| t.len() <= 16).map(|t| (t, &**index))
        }
        _ => None,
    };
    let body = lookup.map_or(&rule.body, |(_, index)| index);
    let mut symbols = Vec::with_capacity(declaration.elements.value);
    for i in 0..declaration.elements.value {
        match eval(body, scope, Some((&parameter, i as i64))) {
            Ok(symbol) => symbols.push(symbol),
            Err(error) => {
                errors.add(at_element(error, &parameter, i));
                return None;
            }
        }
    }
    symbols.iter().for_each(|s| s.uses(used));
    let plain = symbols.iter().all(|s| matches!(s, Symbol::Bits { .. }));
    let each = |values: Option<Vec<i64>>, low: i64| {
        let rules = declaration.rules.iter().filter_map(|r| {
            let parameter = r.parameter.as_ref()?.to_string();
            Some((r.name.to_string(), parameter, r.body.clone()))
        });
        Each { parameter: parameter.clone(), body: body.clone(), rules: rules.collect(), values, low }
    };
    if !plain && lookup.is_none() {
        // A few values, however they are computed, are stored as their number in order.
        let few: Option<BTreeSet<i64>> = symbols.iter().try_fold(BTreeSet::new(), |all, s| {
            let all: BTreeSet<i64> = all.union(&tree_values(&s.tree(), scope, 16)?).copied().collect();
            (all.len() <= 16).then_some(all)
        });
        if let Some(few) = few {
            let few: Vec<i64> = few.into_iter().collect();
            let high = few.len() as i64 - 1;
            return table(rule, &few.clone(), symbols, high, each(Some(few), 0), errors);
        }
    }
    let low = symbols.iter().map(|s| s.range().0).min()?;
    let high = symbols.iter().map(|s| s.range().1).max()?;
    if let Some((entries, _)) = lookup {
        if low < 0 || high >= entries.len() as i64 {
            let message =
                format!("the table has {} entries and entries {low} to {high} are asked for", entries.len());
            errors.push(rule.body.span, message);
            return None;
        }
        return table(rule, entries, symbols, high, each(None, 0), errors);
    }
    let raw = stored(symbols, low);
    let bits = width(high - low);
    if bits > 8 {
        let message = format!(
            "codes from {low} to {high} take {bits} bits; kernels hold codes of at most 8 bits, beyond which a sum of \
             32 products could overflow i32"
        );
        errors.push(rule.body.span, message);
        return None;
    }
    let uniform = raw.iter().all(|s| matches!(s, Symbol::Bits { offset: 0, .. }));
    let (each, bias, max) = (each(None, low), -(low as i32), (high - low) as i32);
    Some(StoredCodes { raw, each, bitwise: uniform, bits, table: None, bias, max })
}

/// Names the element at which a rule went wrong.
fn at_element(error: Error, parameter: &str, value: usize) -> Error {
    Error::new(error.span(), format!("{error} (at {parameter} = {value})"))
}

fn width(largest: i64) -> u32 {
    (64 - (largest.max(1) as u64).leading_zeros()).max(1)
}

/// Takes the smallest code off each symbol, so that codes start at 0.
fn stored(symbols: Vec<Symbol>, low: i64) -> Vec<Symbol> {
    symbols
        .into_iter()
        .map(|symbol| match symbol {
            Symbol::Bits { bits, offset } if offset == low => Symbol::Bits { bits, offset: 0 },
            Symbol::Bits { bits, offset } => {
                let (tree, range) =
                    (Tree::Leaf(bits.clone(), offset - low), Symbol::Bits { bits, offset }.range());
                Symbol::Opaque { low: range.0 - low, high: range.1 - low, tree }
            }
            Symbol::Opaque { low: l, high, tree } => {
                let base = Box::new(Tree::Leaf(Vec::new(), low));
                let tree = Tree::Binary(BinaryOp::Sub, Box::new(tree), base);
                Symbol::Opaque { low: l - low, high: high - low, tree }
            }
        })
        .collect()
}

/// Codes through a table: the entries are shifted so that the smallest is 0.
fn table(
    rule: &Rule,
    entries: &[i64],
    raw: Vec<Symbol>,
    high: i64,
    each: Each,
    errors: &mut Errors,
) -> Option<StoredCodes> {
    let low = entries.iter().copied().min()?.min(0);
    let max = entries.iter().copied().max()? - low;
    if max > 255 {
        let message =
            format!("the table's entries span {max}; kernels hold codes of at most 8 bits (a span of 255)");
        errors.push(rule.body.span, message);
        return None;
    }
    let mut table = [0u8; 16];
    for (slot, entry) in table.iter_mut().zip(entries) {
        *slot = (entry - low) as u8;
    }
    let bitwise = each.values.is_none() && raw.iter().all(|s| matches!(s, Symbol::Bits { .. }));
    Some(StoredCodes {
        raw,
        each,
        bitwise,
        bits: width(high),
        table: Some(table),
        bias: -(low as i32),
        max: max as i32,
    })
}

/// A scale or minimum as a product for each group.
fn part(
    rule: &Rule,
    groups: usize,
    scope: &Scope,
    used: &mut BTreeSet<usize>,
    errors: &mut Errors,
) -> Option<Part> {
    let parameter = rule.parameter.as_ref().map(ToString::to_string);
    let mut products = Vec::with_capacity(groups);
    for g in 0..groups {
        let bound = parameter.as_deref().map(|p| (p, g as i64));
        match Product::of(&rule.body, scope, bound) {
            Ok(product) => products.push(product),
            Err(error) => {
                errors.add(at_element(error, parameter.as_deref().unwrap_or("group"), g));
                return None;
            }
        }
    }
    let mut float = Vec::with_capacity(groups);
    let mut values = Vec::with_capacity(groups);
    for product in &products {
        let Some(leaf) = product.float.clone() else {
            errors.push(rule.body.span, "a scale or minimum needs a float field among its factors");
            return None;
        };
        match &leaf.1 {
            Source::Byte(byte) => used.extend(8 * byte..8 * (byte + leaf.0.bytes())),
            Source::Bits(symbol) => symbol.uses(used),
        }
        float.push(leaf);
        values.extend(product.code.clone());
    }
    values.iter().for_each(|v| v.uses(used));
    let factor = products[0].factor;
    let kind = |p: &Product| p.float.as_ref().map(|f| f.0);
    let uniform = products.iter().all(|p| p.factor == factor && kind(p) == kind(&products[0]));
    if !uniform || !(values.is_empty() || values.len() == groups) {
        errors.push(rule.body.span, "all groups need the same kind of product");
        return None;
    }
    if !(factor > 0.0 && factor.is_finite() && factor.to_bits() & 0x7f_ffff == 0) {
        errors.push(
            rule.body.span,
            format!("the constant factor {factor} is not a power of two, so it would round"),
        );
        return None;
    }
    if !(float.iter().all(|f| *f == float[0]) || consecutive(&float)) {
        errors.push(
            rule.body.span,
            "the float field is one for all groups, or an array with one value a group",
        );
        return None;
    }
    let low = values.iter().map(|v| v.range().0).min().unwrap_or(0);
    let high = values.iter().map(|v| v.range().1).max().unwrap_or(0);
    if low < -128 || high > 255 || (low < 0 && high > 127) {
        let message =
            format!("whole factors from {low} to {high} do not fit a byte (0 to 255, or -128 to 127)");
        errors.push(rule.body.span, message);
        return None;
    }
    let code = (!values.is_empty()).then_some(PartCode { values, signed: low < 0 });
    Some(Part { float, code, factor })
}

/// Whether each group's value follows the one before.
fn consecutive(float: &[(FieldType, Source)]) -> bool {
    float.windows(2).all(|w| match (&w[0].1, &w[1].1) {
        (Source::Byte(a), Source::Byte(b)) => *b == a + w[0].0.bytes(),
        _ => false,
    })
}

/// A product of one floating-point field, whole numbers and constants.
#[derive(Clone)]
struct Product {
    float: Option<(FieldType, Source)>,
    code: Option<Symbol>,
    factor: f32,
}

impl Product {
    fn of(e: &Expr, scope: &Scope, bound: Option<(&str, i64)>) -> Result<Self> {
        let float_field = |name: &str| scope.fields.get(name).is_some_and(|f| f.ty.is_float());
        match &e.kind {
            ExprKind::Name(name) if float_field(name) => {
                let (ty, byte) = place(e, name, None, scope)?;
                Ok(Product { float: Some((ty, Source::Byte(byte))), code: None, factor: 1.0 })
            }
            ExprKind::Index(name, index) if float_field(name) => {
                let at = eval(index, scope, bound)?.as_constant();
                let at = at.ok_or_else(|| {
                    Error::new(index.span, "the place of a float must not depend on the block")
                })?;
                let (ty, byte) = place(e, name, Some(at), scope)?;
                Ok(Product { float: Some((ty, Source::Byte(byte))), code: None, factor: 1.0 })
            }
            ExprKind::Call(name, bits) if name == "f16" => {
                let symbol = eval(bits, scope, bound)?;
                let (low, high) = symbol.range();
                if low < 0 || high > 0xffff {
                    return Err(Error::new(
                        bits.span,
                        format!("f16 takes sixteen bits, not numbers from {low} to {high}"),
                    ));
                }
                Ok(Product { float: Some((FieldType::F16, Source::Bits(symbol))), code: None, factor: 1.0 })
            }
            ExprKind::Float(value) => Ok(Product { float: None, code: None, factor: *value as f32 }),
            ExprKind::Binary(BinaryOp::Mul, a, b)
                if Self::has_float(a, scope) || Self::has_float(b, scope) =>
            {
                let (a, b) = (Self::of(a, scope, bound)?, Self::of(b, scope, bound)?);
                if a.float.is_some() && b.float.is_some() {
                    return Err(Error::new(e.span, "only one factor may be a float field"));
                }
                if a.code.is_some() && b.code.is_some() {
                    return Err(Error::new(e.span, "put the whole factors together in parentheses"));
                }
                Ok(Product {
                    float: a.float.or(b.float),
                    code: a.code.or(b.code),
                    factor: a.factor * b.factor,
                })
            }
            _ => Ok(Product { float: None, code: Some(eval(e, scope, bound)?), factor: 1.0 }),
        }
    }

    /// Whether a float field or a fraction occurs.
    fn has_float(e: &Expr, scope: &Scope) -> bool {
        match &e.kind {
            ExprKind::Float(_) => true,
            ExprKind::Int(_) => false,
            ExprKind::Call(name, _) => name == "f16",
            ExprKind::Name(name) => scope.fields.get(name).is_some_and(|f| f.ty.is_float()),
            ExprKind::Index(name, _) => scope.fields.get(name).is_some_and(|f| f.ty.is_float()),
            ExprKind::Negate(a) => Self::has_float(a, scope),
            ExprKind::Binary(_, a, b) => Self::has_float(a, scope) || Self::has_float(b, scope),
            ExprKind::If(_, a, b) => Self::has_float(a, scope) || Self::has_float(b, scope),
        }
    }
}

/// Every bit of the block must mean something.
fn coverage(declaration: &Declaration, scope: &Scope, used: &BTreeSet<usize>, errors: &mut Errors) {
    for field in declaration.fields.iter().filter(|f| f.derived.is_none()) {
        let Some(place) = scope.fields.get(&field.name.to_string()) else { continue };
        let bits = 8 * place.byte..8 * (place.byte + place.ty.bytes() * place.count.unwrap_or(1));
        let unused: Vec<_> = bits.clone().filter(|b| !used.contains(b)).collect();
        if let Some(first) = unused.first() {
            let (byte, bit) = ((first - bits.start) / 8, first % 8);
            let message = format!(
                "{} of the {} bits of `{}` are not part of any code, scale or minimum; the first is bit {bit} of its byte {byte}",
                unused.len(),
                bits.len(),
                field.name
            );
            errors.push(field.name.span(), message);
        }
    }
}
