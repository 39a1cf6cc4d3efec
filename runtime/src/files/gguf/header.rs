//! The header of a GGUF file: counts, metadata, tensor records, and where the data starts.
//!
//! ```text
//! 'GGUF'  u32 version  n_tensors  n_kv
//! n_kv      x { key: string, u32 kind, value }
//! n_tensors x { name: string, u32 n_dims, n_dims x dim, u32 type, u64 offset }
//! padding to the alignment
//! ```
//! Counts, lengths and dims are u32 in version 1 and u64 since.

use crate::files::cursor::{ByteOrder, Cursor};
use crate::files::error::{FileError, Quoted};
use crate::files::gguf::value::{Widths, read_value};
use crate::files::gguf::{DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MAX_ENTRIES, MAX_KEY, MAX_TENSORS};
use crate::files::metadata::Metadata;
use crate::files::types::type_name;
use crate::files::value::{Value, ValueType};

/// What the header says, checked as far as the header alone allows.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) metadata: Metadata,
    pub(crate) records: Vec<Record>,
    pub(crate) alignment: u64,
    pub(crate) data_start: u64,
}

/// One tensor as the header describes it.
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) type_id: u32,
    /// Relative to the start of the data.
    pub(crate) offset: u64,
    /// Where dims, type and offset stand in the file.
    pub(crate) dims_at: usize,
    pub(crate) type_at: usize,
    pub(crate) offset_at: usize,
}

/// Reads from the magic to the padding before the data.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Header, FileError> {
    let start = cursor.pos();
    cursor.take(4, "magic")?;
    cursor.note(start, format_args!("magic"), format_args!("'GGUF'"));
    let version = read_version(cursor)?;
    let widths = Widths::of(version);

    let tensors_at = cursor.pos();
    let tensor_count = widths.length(cursor, format_args!("tensor count"))?;
    let entries_at = cursor.pos();
    let entry_count = widths.length(cursor, format_args!("metadata count"))?;
    // The smallest tensor record has no dims; the smallest entry is a key of one byte with a value of one.
    let least_record = widths.bytes() + 4 + 4 + 8;
    let least_entry = widths.bytes() + 1 + 4 + 1;
    let entry_count = cursor.limited(entry_count, least_entry, MAX_ENTRIES, entries_at, "metadata count")?;
    cursor.limited(tensor_count, least_record, MAX_TENSORS, tensors_at, "tensor count")?;

    let mut metadata = Metadata::new();
    let mut alignment = None;
    for entry in 0..entry_count {
        read_entry(cursor, widths, entry, &mut metadata, &mut alignment)?;
    }

    let tensor_count = cursor.limited(tensor_count, least_record, MAX_TENSORS, tensors_at, "tensor count")?;
    let mut records = Vec::with_capacity(tensor_count);
    for index in 0..tensor_count {
        records.push(read_record(cursor, widths, index)?);
    }
    reject_duplicates(cursor, &records)?;

    let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT);
    let end = cursor.pos() as u64;
    // Cannot overflow: a length in memory plus a bounded alignment.
    let data_start = end.next_multiple_of(alignment);
    let padding_end = data_start.min(cursor.len() as u64);
    if padding_end > end {
        cursor.note_range(
            end..padding_end,
            format_args!("padding"),
            format_args!("{} bytes (aligns the data to {alignment})", padding_end - end),
        );
        cursor.seek(padding_end as usize);
    }
    Ok(Header { version, metadata, records, alignment, data_start })
}

/// Reads the version, and from it the order of bytes: a version of the other order has its low half empty.
fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, FileError> {
    let at = cursor.pos();
    let raw = cursor.take(4, "version")?;
    let raw = [raw[0], raw[1], raw[2], raw[3]];
    let mut version = u32::from_le_bytes(raw);
    if version != 0 && version & 0xffff == 0 {
        cursor.set_order(ByteOrder::Big);
        version = u32::from_be_bytes(raw);
    }
    match (version, cursor.order()) {
        (1..=3, ByteOrder::Little) => cursor.note(at, format_args!("version"), format_args!("{version}")),
        (3, ByteOrder::Big) => {
            cursor.note(at, format_args!("version"), format_args!("{version} (big-endian)"))
        }
        (_, ByteOrder::Little) => return Err(cursor.fault(at, "version", version, "1, 2 or 3")),
        (_, ByteOrder::Big) => {
            return Err(cursor.fault(
                at,
                "version",
                format_args!("{version} (big-endian)"),
                "3 (big-endian)",
            ));
        }
    }
    Ok(version)
}

fn read_entry(
    cursor: &mut Cursor<'_>,
    widths: Widths,
    entry: usize,
    metadata: &mut Metadata,
    alignment: &mut Option<u64>,
) -> Result<(), FileError> {
    let length_at = cursor.pos();
    let length = widths.length(cursor, format_args!("length of key {entry}"))?;
    if length == 0 || length > MAX_KEY {
        let what = format_args!("length of key {entry}");
        return Err(cursor.fault(length_at, what, length, format_args!("1 to {MAX_KEY}")));
    }
    let key_at = cursor.pos();
    let key = cursor.text(length, format_args!("key {entry}"))?;
    if metadata.contains(key) {
        let found = format_args!("{} a second time", Quoted(key.as_bytes()));
        return Err(cursor.fault(key_at, format_args!("key {entry}"), found, "each key once"));
    }
    let quoted = Quoted(key.as_bytes());
    let kind_at = cursor.pos();
    let id = cursor.code(format_args!("kind of {quoted}"), ValueType::name_of)?;
    let Some(kind) = ValueType::from_id(id) else {
        return Err(cursor.fault(kind_at, format_args!("kind of {quoted}"), id, "0 to 12"));
    };
    let value_at = cursor.pos();
    let value = read_value(cursor, widths, kind, format_args!("value of {quoted}"))?;
    if key == "general.alignment" {
        *alignment = Some(check_alignment(cursor, value_at, &value)?);
    }
    metadata.insert(key, value);
    Ok(())
}

/// An alignment is a u32 by the specification. Both rules in use are accepted: a multiple of 8, a power of
/// two.
fn check_alignment(cursor: &Cursor<'_>, at: usize, value: &Value) -> Result<u64, FileError> {
    let usable = match value {
        Value::U32(v) => Some(u64::from(*v)),
        _ => None,
    };
    match usable {
        Some(v @ 1..=MAX_ALIGNMENT) if v.is_power_of_two() || v % 8 == 0 => Ok(v),
        _ => Err(cursor.fault(
            at,
            "value of 'general.alignment'",
            format_args!("{} {value}", value.value_type()),
            format_args!("u32, a power of two or a multiple of 8, at most {MAX_ALIGNMENT}"),
        )),
    }
}

fn read_record(cursor: &mut Cursor<'_>, widths: Widths, index: usize) -> Result<Record, FileError> {
    let start = cursor.pos();
    let length = widths.length(cursor, format_args!("length of the name of tensor {index}"))?;
    let name = cursor.text(length, format_args!("name of tensor {index}"))?;
    let quoted = Quoted(name.as_bytes());
    let count_at = cursor.pos();
    let count = cursor.u32(format_args!("number of dimensions of tensor {quoted}"))?;
    if count > MAX_DIMS {
        let what = format_args!("number of dimensions of tensor {quoted}");
        return Err(cursor.fault(count_at, what, count, format_args!("at most {MAX_DIMS}")));
    }
    let dims_at = cursor.pos();
    let dims = (0..count)
        .map(|d| widths.length(cursor, format_args!("dimension {d} of tensor {quoted}")))
        .collect::<Result<Vec<u64>, FileError>>()?;
    let type_at = cursor.pos();
    let type_id = cursor.code(format_args!("type of tensor {quoted}"), type_name)?;
    let offset_at = cursor.pos();
    let offset = cursor.u64(format_args!("offset of tensor {quoted}"))?;
    cursor.note_tensor(start as u64..cursor.pos() as u64, name);
    Ok(Record { name: name.to_owned(), dims, type_id, offset, dims_at, type_at, offset_at })
}

fn reject_duplicates(cursor: &Cursor<'_>, records: &[Record]) -> Result<(), FileError> {
    let mut order: Vec<&Record> = records.iter().collect();
    order.sort_by(|a, b| a.name.cmp(&b.name).then(a.dims_at.cmp(&b.dims_at)));
    match order.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => {
            let found = format_args!("{} a second time", Quoted(pair[1].name.as_bytes()));
            Err(cursor.fault(pair[1].dims_at - 4, "tensor name", found, "each name once"))
        }
        None => Ok(()),
    }
}
