//! Metadata values: the thirteen kinds that a GGUF file can hold.
//!
//! A value keeps the exact kind it has in the file, so that writing it again gives the same bytes.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

use super::error::Quoted;

/// A string of a model file: bytes, nearly always UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Str(Box<[u8]>);

impl Str {
    /// The text, or `None` when the bytes are not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The bytes as they are in the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, with U+FFFD in place of what is not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(text.into_bytes().into())
    }
}

impl From<&[u8]> for Str {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<Vec<u8>> for Str {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Quoted(&self.0))
    }
}

/// The kind of a metadata value, numbered as in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned 8-bit integer.
    U8 = 0,
    /// Signed 8-bit integer.
    I8 = 1,
    /// Unsigned 16-bit integer.
    U16 = 2,
    /// Signed 16-bit integer.
    I16 = 3,
    /// Unsigned 32-bit integer.
    U32 = 4,
    /// Signed 32-bit integer.
    I32 = 5,
    /// IEEE binary32.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// Length and bytes.
    String = 8,
    /// Element kind, count and elements.
    Array = 9,
    /// Unsigned 64-bit integer.
    U64 = 10,
    /// Signed 64-bit integer.
    I64 = 11,
    /// IEEE binary64.
    F64 = 12,
}

impl ValueType {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The kind with this number in a file.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The kind of this name; `int` and `float` of llama.cpp stand for `i64` and `f64`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "int" => Some(Self::I64),
            "float" => Some(Self::F64),
            "string" => Some(Self::String),
            "array" => Some(Self::Array),
            _ => Self::ALL.into_iter().find(|kind| kind.name() == name),
        }
    }

    /// The name that goes with a number, for showing it.
    pub(crate) fn name_of(id: u32) -> String {
        Self::from_id(id).map_or("no known kind", Self::name).to_owned()
    }

    /// The number of this kind in a file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The name as tools print it: `u32`, `str`, `arr`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "str",
            Self::Array => "arr",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One metadata value, of the kind it has in the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unsigned 8-bit integer.
    U8(u8),
    /// Signed 8-bit integer.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// IEEE binary32.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// Bytes, nearly always UTF-8.
    String(Str),
    /// Elements of one kind.
    Array(Array),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// IEEE binary64.
    F64(f64),
}

/// An array of metadata values, all of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned 8-bit integers.
    U8(Vec<u8>),
    /// Signed 8-bit integers.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// IEEE binary32 numbers.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Strings.
    String(Vec<Str>),
    /// Arrays, each with a kind of its own.
    Array(Vec<Array>),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// IEEE binary64 numbers.
    F64(Vec<f64>),
}

impl Value {
    /// Reads a value of a kind from text, as on a command line: numbers in decimal, `true` or `false`, arrays
    /// as `kind:element,element`. `None` when the text is not such a value.
    pub fn parse(kind: ValueType, text: &str) -> Option<Self> {
        Some(match kind {
            ValueType::U8 => Self::U8(text.parse().ok()?),
            ValueType::I8 => Self::I8(text.parse().ok()?),
            ValueType::U16 => Self::U16(text.parse().ok()?),
            ValueType::I16 => Self::I16(text.parse().ok()?),
            ValueType::U32 => Self::U32(text.parse().ok()?),
            ValueType::I32 => Self::I32(text.parse().ok()?),
            ValueType::F32 => Self::F32(text.parse().ok()?),
            ValueType::Bool => Self::Bool(text.parse().ok()?),
            ValueType::String => Self::String(text.into()),
            ValueType::Array => Self::Array(Array::parse(text)?),
            ValueType::U64 => Self::U64(text.parse().ok()?),
            ValueType::I64 => Self::I64(text.parse().ok()?),
            ValueType::F64 => Self::F64(text.parse().ok()?),
        })
    }

    /// The kind of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The value as an integer, when it is one of any width.
    pub fn as_int(&self) -> Option<i128> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => Some(v.into()),
            Self::I64(v) => Some(v.into()),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }
}

impl Array {
    /// Reads `kind:element,element`; arrays in arrays cannot be written so.
    fn parse(text: &str) -> Option<Self> {
        fn list<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
            if text.is_empty() {
                return Some(Vec::new());
            }
            text.split(',').map(|element| element.trim().parse().ok()).collect()
        }
        let (kind, elements) = text.split_once(':')?;
        Some(match ValueType::from_name(kind.trim())? {
            ValueType::U8 => Self::U8(list(elements)?),
            ValueType::I8 => Self::I8(list(elements)?),
            ValueType::U16 => Self::U16(list(elements)?),
            ValueType::I16 => Self::I16(list(elements)?),
            ValueType::U32 => Self::U32(list(elements)?),
            ValueType::I32 => Self::I32(list(elements)?),
            ValueType::F32 => Self::F32(list(elements)?),
            ValueType::Bool => Self::Bool(list(elements)?),
            ValueType::String => Self::String(list::<String>(elements)?.into_iter().map(Str::from).collect()),
            ValueType::U64 => Self::U64(list(elements)?),
            ValueType::I64 => Self::I64(list(elements)?),
            ValueType::F64 => Self::F64(list(elements)?),
            ValueType::Array => return None,
        })
    }

    /// The kind of the elements.
    pub fn element_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Elements of an array that are shown.
const SHOWN: usize = 8;

/// Shows a value on one line: strings quoted and cut, of arrays the first elements and the count.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => write!(f, "{v}"),
            Self::I8(v) => write!(f, "{v}"),
            Self::U16(v) => write!(f, "{v}"),
            Self::I16(v) => write!(f, "{v}"),
            Self::U32(v) => write!(f, "{v}"),
            Self::I32(v) => write!(f, "{v}"),
            Self::F32(v) => write!(f, "{v}"),
            Self::Bool(v) => write!(f, "{v}"),
            Self::String(v) => write!(f, "{v:?}"),
            Self::Array(v) => write!(f, "{v}"),
            Self::U64(v) => write!(f, "{v}"),
            Self::I64(v) => write!(f, "{v}"),
            Self::F64(v) => write!(f, "{v}"),
        }
    }
}

/// Shows the first elements and, when there are more, how many in all.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T>(
            f: &mut fmt::Formatter<'_>,
            items: &[T],
            show: impl Fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
        ) -> fmt::Result {
            f.write_str("[")?;
            for (i, item) in items.iter().take(SHOWN).enumerate() {
                if i > 0 {
                    f.write_str(", ")?;
                }
                show(item, f)?;
            }
            if items.len() > SHOWN {
                write!(f, ", …] ({} elements)", items.len())
            } else {
                f.write_str("]")
            }
        }
        match self {
            Self::U8(v) => list(f, v, fmt::Display::fmt),
            Self::I8(v) => list(f, v, fmt::Display::fmt),
            Self::U16(v) => list(f, v, fmt::Display::fmt),
            Self::I16(v) => list(f, v, fmt::Display::fmt),
            Self::U32(v) => list(f, v, fmt::Display::fmt),
            Self::I32(v) => list(f, v, fmt::Display::fmt),
            Self::F32(v) => list(f, v, fmt::Display::fmt),
            Self::Bool(v) => list(f, v, fmt::Display::fmt),
            Self::String(v) => list(f, v, fmt::Debug::fmt),
            // Not recursive: what nests to the limit would grow with the power of the depth.
            Self::Array(v) => list(f, v, |a, f| write!(f, "[{} x {}]", a.len(), a.element_type())),
            Self::U64(v) => list(f, v, fmt::Display::fmt),
            Self::I64(v) => list(f, v, fmt::Display::fmt),
            Self::F64(v) => list(f, v, fmt::Display::fmt),
        }
    }
}

/// As text; what is not UTF-8 becomes U+FFFD.
impl Serialize for Str {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string_lossy())
    }
}

/// As the plain value, without its kind.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U8(v) => v.serialize(serializer),
            Self::I8(v) => v.serialize(serializer),
            Self::U16(v) => v.serialize(serializer),
            Self::I16(v) => v.serialize(serializer),
            Self::U32(v) => v.serialize(serializer),
            Self::I32(v) => v.serialize(serializer),
            Self::F32(v) => v.serialize(serializer),
            Self::Bool(v) => v.serialize(serializer),
            Self::String(v) => v.serialize(serializer),
            Self::Array(v) => v.serialize(serializer),
            Self::U64(v) => v.serialize(serializer),
            Self::I64(v) => v.serialize(serializer),
            Self::F64(v) => v.serialize(serializer),
        }
    }
}

/// As a list of plain values.
impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U8(v) => v.serialize(serializer),
            Self::I8(v) => v.serialize(serializer),
            Self::U16(v) => v.serialize(serializer),
            Self::I16(v) => v.serialize(serializer),
            Self::U32(v) => v.serialize(serializer),
            Self::I32(v) => v.serialize(serializer),
            Self::F32(v) => v.serialize(serializer),
            Self::Bool(v) => v.serialize(serializer),
            Self::String(v) => v.serialize(serializer),
            Self::Array(v) => v.serialize(serializer),
            Self::U64(v) => v.serialize(serializer),
            Self::I64(v) => v.serialize(serializer),
            Self::F64(v) => v.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_text() {
        let parse = |kind: &str, text: &str| Value::parse(ValueType::from_name(kind)?, text);
        assert_eq!(parse("u8", "255"), Some(Value::U8(255)));
        assert_eq!(parse("u8", "256"), None);
        assert_eq!(parse("int", "-5"), Some(Value::I64(-5)));
        assert_eq!(parse("float", "1e-5"), Some(Value::F64(1e-5)));
        assert_eq!(parse("bool", "true"), Some(Value::Bool(true)));
        assert_eq!(parse("bool", "1"), None);
        assert_eq!(parse("str", " a,b "), Some(Value::String(" a,b ".into())));
        assert_eq!(parse("arr", "i32:1, -2"), Some(Value::Array(Array::I32(vec![1, -2]))));
        assert_eq!(parse("arr", "str:a,b"), Some(Value::Array(Array::String(vec!["a".into(), "b".into()]))));
        assert_eq!(parse("arr", "f32:"), Some(Value::Array(Array::F32(vec![]))));
        assert_eq!((parse("arr", "1,2"), parse("arr", "arr:1"), parse("u128", "1")), (None, None, None));
    }

    #[test]
    fn kinds_have_their_numbers_and_names() {
        for (id, kind) in ValueType::ALL.into_iter().enumerate() {
            assert_eq!(ValueType::from_id(kind.id()), Some(kind));
            assert_eq!((kind.id() as usize, ValueType::from_name(kind.name())), (id, Some(kind)));
        }
        assert_eq!(ValueType::from_id(13), None);
    }
}
