//! The GGUF reader: versions 1, 2 and 3, either byte order.
//!
//! Lenient where files in the wild differ and nothing is lost by it: tensors may lie in any order, with gaps,
//! off the declared alignment (which is reported as a warning), and with anything behind the last. Strict in
//! what decides which bytes mean what: sizes, extents, kinds, names.

mod header;
mod place;
pub(crate) mod split;
mod value;

pub(crate) use split::open;

use super::cursor::Cursor;
use super::error::{FileError, Quoted};
use super::model::{Container, Contents};
use super::parts::Part;
use super::tensor::TensorInfo;
use super::types::TypeTable;

/// Most dimensions of a tensor.
pub(crate) const MAX_DIMS: u32 = 4;

/// Most tensors and most keys of a file: twice what the largest models have, which bounds the memory that the
/// lists take beyond what they take in the file.
pub(crate) const MAX_TENSORS: usize = 1 << 17;
pub(crate) const MAX_ENTRIES: usize = 1 << 16;

/// Longest key, from the specification.
pub(crate) const MAX_KEY: u64 = 65535;

/// Alignment when the metadata has none.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;

/// Largest alignment that is accepted: a huge page. Beyond it, padding alone would fill a disk.
pub(crate) const MAX_ALIGNMENT: u64 = 1 << 21;

/// Reads one file, alone.
fn read_part(part: &Part, types: &dyn TypeTable) -> Result<Contents, FileError> {
    read(&mut Cursor::new(&part.path, &part.bytes), types)
}

/// Reads a whole file whose magic is `GGUF`.
pub(crate) fn read(cursor: &mut Cursor<'_>, types: &dyn TypeTable) -> Result<Contents, FileError> {
    let header = header::read(cursor)?;
    let (tensors, warnings) = place::place(cursor, &header, types)?;
    Ok(Contents {
        container: Container::Gguf { version: header.version, order: cursor.order() },
        metadata: header.metadata,
        tensors,
        alignment: header.alignment,
        data_start: header.data_start,
        hyperparameters: Vec::new(),
        warnings,
    })
}

/// Reads one file and tells the trace of the data as well as of the header.
pub(crate) fn read_all(cursor: &mut Cursor<'_>, types: &dyn TypeTable) -> Result<(), FileError> {
    let contents = read(cursor, types)?;
    let mut tensors: Vec<&TensorInfo> = contents.tensors.iter().filter(|t| t.bytes > 0).collect();
    tensors.sort_by_key(|t| t.offset);
    let mut end = contents.data_start.min(cursor.len() as u64);
    for tensor in tensors {
        let next = tensor.offset.next_multiple_of(contents.alignment);
        if tensor.offset > end {
            let count = tensor.offset - end;
            let name = if count < contents.alignment && next == tensor.offset { "padding" } else { "gap" };
            cursor.note_range(end..tensor.offset, format_args!("{name}"), format_args!("{count} bytes"));
        }
        end = tensor.offset + tensor.bytes;
        let quoted = Quoted(tensor.name.as_bytes());
        let meaning = match tensor.layout.shape(tensor.type_id, types) {
            Some(shape) => shape.describe(tensor.bytes),
            None => format!("{} bytes", tensor.bytes),
        };
        let range = tensor.offset..end;
        cursor.note_tensor(range.clone(), &tensor.name);
        let relative = tensor.offset - contents.data_start;
        let meaning = format_args!("{meaning}, at {relative} in the data");
        cursor.note_range(range, format_args!("data of tensor {quoted}"), meaning);
    }
    let rest = cursor.len() as u64 - end;
    if rest > 0 {
        let padding = end.next_multiple_of(contents.alignment) - end == rest;
        let name = if padding { "padding" } else { "trailer" };
        cursor.note_range(end..end + rest, format_args!("{name}"), format_args!("{rest} bytes"));
    }
    Ok(())
}
