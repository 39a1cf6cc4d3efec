//! What is meant: a format in which every rule holds. Only `check` makes one, and no wrong state can be written down.

use crate::ast::{Derived, Expr, FieldType};
use crate::symbol::Symbol;
use proc_macro2::Ident;

/// A legal format.
pub(crate) struct Format {
    pub docs: Vec<syn::Attribute>,
    /// The digest of the declaration.
    pub digest: [u8; 32],
    pub name: Ident,
    /// `None` for a private format.
    pub id: Option<u32>,
    /// Weights in a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    pub fields: Vec<Field>,
    /// Lookup tables.
    pub tables: Vec<Table>,
    pub values: Values,
}

/// A lookup table.
pub(crate) struct Table {
    pub name: Ident,
    pub entries: Vec<i64>,
    pub file: Option<String>,
}

/// A field and its place.
pub(crate) struct Field {
    pub name: String,
    pub ty: FieldType,
    pub byte: usize,
    pub count: Option<usize>,
    pub derived: Option<Derived>,
}

/// How the block gives values.
pub(crate) enum Values {
    /// The block is one floating-point number.
    Float(FieldType),
    /// Codes in groups with a scale and maybe an offset.
    Codes(Box<Codes>),
}

/// `weight = scale * (code - bias) + offset`.
pub(crate) struct Codes {
    /// Weights in a group.
    pub group: usize,
    /// Blocks that the kernels take together: two where a block has only sixteen weights.
    pub repeat: usize,
    /// The stored code of each element, from 0 up.
    pub raw: Vec<Symbol>,
    /// How one stored code is computed, for elements whose bits have no order.
    pub each: Each,
    /// Whether stored codes are just bits of the block.
    pub bitwise: bool,
    /// Bits of a stored code.
    pub bits: u32,
    /// The code that each stored code stands for, where there is a table.
    pub table: Option<[u8; 16]>,
    /// What is subtracted from a code.
    pub bias: i32,
    /// The largest code.
    pub max: i32,
    pub scale: Part,
    pub offset: Option<Offset>,
}

/// A code computed from an element's number.
pub(crate) struct Each {
    pub parameter: String,
    pub body: Expr,
    /// Rules that the body may call: name, parameter, body.
    pub rules: Vec<(String, String, Expr)>,
    /// The values, in the order of stored codes, where those stand for a few values; else stored codes start at `low`.
    pub values: Option<Vec<i64>>,
    pub low: i64,
}

/// The minimum, and whether it is subtracted.
pub(crate) struct Offset {
    pub part: Part,
    pub subtracted: bool,
}

/// A number for each group: a floating-point value of the block, times a whole number, times a power of two.
pub(crate) struct Part {
    /// Type and place of the floating-point value, for each group.
    pub float: Vec<(FieldType, Source)>,
    /// The whole number of each group.
    pub code: Option<PartCode>,
    /// The constant factor.
    pub factor: f32,
}

/// Where a floating-point value's bits are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// At a byte of the block.
    Byte(usize),
    /// Put together from bits.
    Bits(Symbol),
}

/// The whole numbers of a part; they fit a byte.
pub(crate) struct PartCode {
    pub values: Vec<Symbol>,
    pub signed: bool,
}
