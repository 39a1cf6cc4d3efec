//! What was written: the declaration as a tree in which every number and word keeps its place.

use proc_macro2::{Ident, Span};

/// A value with the place where it was written.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub span: Span,
}

/// One declaration.
pub(crate) struct Declaration {
    /// Documentation lines.
    pub docs: Vec<syn::Attribute>,
    /// The digest of the rest.
    pub digest: [u8; 32],
    pub name: Ident,
    /// The number of the type in files; `None` for a private format, which is known by its name.
    pub id: Option<At<u32>>,
    /// Weights in a block.
    pub elements: At<usize>,
    /// Bytes of a block, as stated.
    pub bytes: At<usize>,
    /// Weights that share a scale; the whole block where nothing is said.
    pub group: Option<At<usize>>,
    pub fields: Vec<Field>,
    pub tables: Vec<Table>,
    pub rules: Vec<Rule>,
}

/// A field of the block, in file order.
pub(crate) struct Field {
    pub name: Ident,
    pub ty: FieldType,
    /// Number of values of an array.
    pub count: Option<At<usize>>,
    /// What the field follows from, if it carries nothing of its own.
    pub derived: Option<Derived>,
}

/// A field that repeats what the codes say: sums that activations carry along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derived {
    /// The sum of the codes that each value covers.
    Sum,
    /// The same times the scale.
    ScaledSum,
}

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    U8,
    I8,
    U16,
    U32,
    F16,
    Bf16,
    F32,
    /// An exponent: 2^(e - 128), half of the OCP scale, so that doubled E2M1 codes are whole numbers.
    E8m0,
    /// Unsigned E4M3: four bits of exponent (bias 7), three of mantissa; the eighth bit is ignored, but 0x7f is 0.
    E4m3,
    I16,
}

impl FieldType {
    /// Every type, with its spelling.
    pub(crate) const ALL: &'static [(&'static str, FieldType)] = &[
        ("u8", FieldType::U8),
        ("i8", FieldType::I8),
        ("u16", FieldType::U16),
        ("u32", FieldType::U32),
        ("f16", FieldType::F16),
        ("bf16", FieldType::Bf16),
        ("f32", FieldType::F32),
        ("e8m0", FieldType::E8m0),
        ("e4m3", FieldType::E4m3),
        ("i16", FieldType::I16),
    ];

    /// Bytes of one value.
    pub(crate) fn bytes(self) -> usize {
        match self {
            FieldType::U8 | FieldType::I8 | FieldType::E8m0 | FieldType::E4m3 => 1,
            FieldType::U16 | FieldType::I16 | FieldType::F16 | FieldType::Bf16 => 2,
            FieldType::U32 | FieldType::F32 => 4,
        }
    }

    /// Whether the values are floating-point numbers.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, FieldType::F16 | FieldType::Bf16 | FieldType::F32 | FieldType::E8m0 | FieldType::E4m3)
    }

    /// The spelling.
    pub(crate) fn name(self) -> &'static str {
        FieldType::ALL.iter().find(|(_, t)| *t == self).expect("every type has a spelling").0
    }
}

/// A lookup table of whole numbers.
pub(crate) struct Table {
    pub name: Ident,
    pub entries: Vec<At<i64>>,
    /// The file that the entries came from.
    pub file: Option<String>,
}

/// `name(parameter) = body;`
pub(crate) struct Rule {
    pub name: Ident,
    pub parameter: Option<Ident>,
    pub body: Expr,
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Int(i64),
    Float(f64),
    /// A parameter, a field with one value, or another rule.
    Name(String),
    /// `name[index]`: a field or a table.
    Index(String, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `name(argument)`: another rule, or a built-in function.
    Call(String, Box<Expr>),
    Negate(Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
}
