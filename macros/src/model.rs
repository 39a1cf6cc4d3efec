//! What is meant: a format in which every rule holds. Only `check` makes one, and no wrong state can be written down.

use crate::ast::FieldType;
use crate::symbol::Symbol;
use proc_macro2::Ident;

/// A legal format.
pub(crate) struct Format {
    pub docs: Vec<syn::Attribute>,
    pub name: Ident,
    pub id: u32,
    /// Weights in a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    pub fields: Vec<Field>,
    /// Lookup tables by name.
    pub tables: Vec<(Ident, Vec<i64>)>,
    pub values: Values,
}

/// A field and its place.
pub(crate) struct Field {
    pub name: String,
    pub ty: FieldType,
    pub byte: usize,
    pub count: Option<usize>,
}

/// How the block gives values.
pub(crate) enum Values {
    /// The block is one floating-point number.
    Float(FieldType),
    /// Codes in groups with a scale and maybe an offset.
    Codes(Codes),
}

/// `weight = scale * (code - bias) + offset`.
pub(crate) struct Codes {
    /// Weights in a group.
    pub group: usize,
    /// The stored code of each element, from 0 up.
    pub raw: Vec<Symbol>,
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

/// The minimum, and whether it is subtracted.
pub(crate) struct Offset {
    pub part: Part,
    pub subtracted: bool,
}

/// A number for each group: a floating-point value of the block, times a whole number, times a power of two.
pub(crate) struct Part {
    /// Type and byte of the floating-point value, for each group.
    pub float: Vec<(FieldType, usize)>,
    /// The whole number of each group.
    pub code: Option<PartCode>,
    /// The constant factor.
    pub factor: f32,
}

/// The whole numbers of a part; they fit a byte.
pub(crate) struct PartCode {
    pub values: Vec<Symbol>,
    pub signed: bool,
}
