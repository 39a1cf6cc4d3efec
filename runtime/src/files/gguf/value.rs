//! Metadata values of GGUF.
//!
//! An array is bounded by the bytes that are left before memory is asked for, and by [`MAX_DEPTH`] in
//! nesting.

use std::fmt::Arguments;

use crate::files::cursor::{ByteOrder, Cursor};
use crate::files::error::{FileError, Quoted};
use crate::files::value::{Array, Str, Value, ValueType};

/// Deepest nesting of arrays. Files in use have none; the bound keeps the recursion short.
const MAX_DEPTH: u32 = 16;

/// How wide counts, lengths and dims are.
#[derive(Clone, Copy)]
pub(crate) enum Widths {
    /// u32: version 1.
    Narrow,
    /// u64: version 2 and later.
    Wide,
}

impl Widths {
    pub(crate) fn of(version: u32) -> Self {
        if version == 1 { Self::Narrow } else { Self::Wide }
    }

    /// The width in bytes.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }

    /// Reads a count, a length or a dimension.
    pub(crate) fn length(self, cursor: &mut Cursor<'_>, name: Arguments<'_>) -> Result<u64, FileError> {
        match self {
            Self::Narrow => cursor.u32(name).map(u64::from),
            Self::Wide => cursor.u64(name),
        }
    }

    /// Fewest bytes that a value of a kind takes.
    fn least(self, kind: ValueType) -> u64 {
        match kind {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 => 8,
            ValueType::String => self.bytes(),
            ValueType::Array => 4 + self.bytes(),
        }
    }
}

/// Reads a value of a kind.
pub(crate) fn read_value(
    cursor: &mut Cursor<'_>,
    widths: Widths,
    kind: ValueType,
    name: Arguments<'_>,
) -> Result<Value, FileError> {
    Ok(match kind {
        ValueType::U8 => Value::U8(cursor.u8(name)?),
        ValueType::I8 => Value::I8(cursor.i8(name)?),
        ValueType::U16 => Value::U16(cursor.u16(name)?),
        ValueType::I16 => Value::I16(cursor.i16(name)?),
        ValueType::U32 => Value::U32(cursor.u32(name)?),
        ValueType::I32 => Value::I32(cursor.i32(name)?),
        ValueType::F32 => Value::F32(cursor.f32(name)?),
        ValueType::U64 => Value::U64(cursor.u64(name)?),
        ValueType::I64 => Value::I64(cursor.i64(name)?),
        ValueType::F64 => Value::F64(cursor.f64(name)?),
        ValueType::Bool => {
            let at = cursor.pos();
            let raw = cursor.take(1, name)?;
            let value = truth(cursor, at, raw[0], name)?;
            cursor.note(at, name, format_args!("{value}"));
            Value::Bool(value)
        }
        ValueType::String => Value::String(read_string(cursor, widths, name)?),
        ValueType::Array => Value::Array(read_array(cursor, widths, name, 1)?),
    })
}

fn truth(cursor: &Cursor<'_>, at: usize, raw: u8, name: Arguments<'_>) -> Result<bool, FileError> {
    match raw {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(cursor.fault(at, name, format_args!("bool {other}"), "0 or 1")),
    }
}

fn read_string(cursor: &mut Cursor<'_>, widths: Widths, name: Arguments<'_>) -> Result<Str, FileError> {
    let length = widths.length(cursor, format_args!("length of the {name}"))?;
    let at = cursor.pos();
    let raw = cursor.take(length, name)?;
    cursor.note(at, name, format_args!("{}", Quoted(raw)));
    Ok(Str::from(raw))
}

/// Reads an array; its elements are one field to the trace.
fn read_array(
    cursor: &mut Cursor<'_>,
    widths: Widths,
    name: Arguments<'_>,
    depth: u32,
) -> Result<Array, FileError> {
    let kind_at = cursor.pos();
    if depth > MAX_DEPTH {
        return Err(cursor.fault(
            kind_at,
            name,
            "arrays in arrays beyond that",
            format_args!("{MAX_DEPTH} levels"),
        ));
    }
    let id = cursor.code(format_args!("element kind of the {name}"), ValueType::name_of)?;
    let Some(kind) = ValueType::from_id(id) else {
        return Err(cursor.fault(kind_at, format_args!("element kind of the {name}"), id, "0 to 12"));
    };
    let count_at = cursor.pos();
    let count = widths.length(cursor, format_args!("count of the {name}"))?;
    let count = cursor.bounded(count, widths.least(kind), count_at, format_args!("count of the {name}"))?;
    let start = cursor.pos();
    let muted = cursor.mute(true);
    let array = read_elements(cursor, widths, kind, count, name, depth);
    cursor.mute(muted);
    let array = array?;
    if count > 0 {
        cursor.note(start, name, format_args!("{array}"));
    }
    Ok(array)
}

fn read_elements(
    cursor: &mut Cursor<'_>,
    widths: Widths,
    kind: ValueType,
    count: usize,
    name: Arguments<'_>,
    depth: u32,
) -> Result<Array, FileError> {
    macro_rules! numbers {
        ($variant:ident, $type:ty) => {{
            const WIDTH: usize = size_of::<$type>();
            // In bounds and without overflow, as `bounded` has checked.
            let raw = cursor.take((count * WIDTH) as u64, name)?;
            let (chunks, _) = raw.as_chunks::<WIDTH>();
            Array::$variant(match cursor.order() {
                ByteOrder::Little => chunks.iter().map(|c| <$type>::from_le_bytes(*c)).collect(),
                ByteOrder::Big => chunks.iter().map(|c| <$type>::from_be_bytes(*c)).collect(),
            })
        }};
    }
    Ok(match kind {
        ValueType::U8 => Array::U8(cursor.take(count as u64, name)?.to_vec()),
        ValueType::I8 => numbers!(I8, i8),
        ValueType::U16 => numbers!(U16, u16),
        ValueType::I16 => numbers!(I16, i16),
        ValueType::U32 => numbers!(U32, u32),
        ValueType::I32 => numbers!(I32, i32),
        ValueType::F32 => numbers!(F32, f32),
        ValueType::U64 => numbers!(U64, u64),
        ValueType::I64 => numbers!(I64, i64),
        ValueType::F64 => numbers!(F64, f64),
        ValueType::Bool => {
            let at = cursor.pos();
            let raw = cursor.take(count as u64, name)?;
            let mut values = Vec::with_capacity(count);
            for (i, &byte) in raw.iter().enumerate() {
                values.push(truth(cursor, at + i, byte, name)?);
            }
            Array::Bool(values)
        }
        ValueType::String => {
            let mut values = Vec::with_capacity(count);
            for i in 0..count {
                values.push(read_string(cursor, widths, format_args!("element {i} of the {name}"))?);
            }
            Array::String(values)
        }
        ValueType::Array => {
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                values.push(read_array(cursor, widths, name, depth + 1)?);
            }
            Array::Array(values)
        }
    })
}
