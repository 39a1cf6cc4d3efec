//! From tensor records to tensors: types, sizes and extents, all checked against the length of the file.

use crate::files::cursor::{ByteOrder, Cursor};
use crate::files::error::{FileError, Quoted};
use crate::files::gguf::header::{Header, Record};
use crate::files::private;
use crate::files::tensor::{InterleavedRows, Order, Stored, TensorInfo};
use crate::files::types::{BlockShape, Foreign, Layout, TypeTable};

/// The id of Q4_0, which the interleaved types become.
const Q4_0: u32 = 2;

/// Places every tensor, or tells which one cannot be.
pub(crate) fn place(
    cursor: &Cursor<'_>,
    header: &Header,
    types: &dyn TypeTable,
) -> Result<(Vec<TensorInfo>, Vec<String>), FileError> {
    let layout = layout(cursor, header, types);
    let mut tensors = Vec::with_capacity(header.records.len());
    for record in &header.records {
        tensors.push(Placer { cursor, header, record, types }.place(layout)?);
    }
    reject_overlaps(cursor, header, &tensors)?;
    Ok((tensors, misalignments(header)))
}

/// All that is needed to place one tensor.
struct Placer<'a, 'c> {
    cursor: &'a Cursor<'c>,
    header: &'a Header,
    record: &'a Record,
    types: &'a dyn TypeTable,
}

impl Placer<'_, '_> {
    fn place(&self, layout: Layout) -> Result<TensorInfo, FileError> {
        let Self { cursor, header, record, .. } = *self;
        let quoted = Quoted(record.name.as_bytes());
        let interleaved = (31..=33).contains(&record.type_id);
        let type_id = if interleaved { Q4_0 } else { record.type_id };
        let layout = layout.of(type_id);
        if private::is_private(type_id)
            && let Some(found) = private::refusal(type_id, &header.metadata, self.types)
        {
            let what = format_args!("type of tensor {quoted}");
            return Err(cursor.fault(record.type_at, what, found, self.types.names().join(", ")));
        }
        let Some(shape) = layout.shape(type_id, self.types) else { return Err(self.foreign(layout)) };
        let bytes = shape.tensor_bytes(&record.dims).map_err(|accepted| self.bad_dims(shape, accepted))?;
        let order = if interleaved { self.interleaved(shape)? } else { self.byte_order(shape, layout)? };
        let offset =
            extent(cursor.len() as u64, header.data_start, record.offset, bytes).ok_or_else(|| {
                let room = (cursor.len() as u64).saturating_sub(header.data_start);
                cursor.fault(
                    record.offset_at,
                    format_args!("offset of tensor {quoted}"),
                    format_args!("{} with {bytes} bytes of data", record.offset),
                    format_args!(
                        "an extent within the {room} bytes of data, which start at byte {}",
                        header.data_start
                    ),
                )
            })?;
        Ok(TensorInfo {
            name: record.name.clone(),
            dims: record.dims.clone(),
            type_id,
            layout,
            type_name: shape.name,
            offset,
            bytes,
            part: 0,
            stored: Stored { order, ..Stored::default() },
        })
    }

    /// The refusal of a type that is not declared.
    fn foreign(&self, layout: Layout) -> FileError {
        let id = self.record.type_id;
        let found = match layout.format_name(id) {
            Some(name) => format!("{id} ({name}, which this program has not got)"),
            None => format!("{id} ({})", Foreign::of(id)),
        };
        let what = format_args!("type of tensor {}", Quoted(self.record.name.as_bytes()));
        self.cursor.fault(self.record.type_at, what, found, self.types.names().join(", "))
    }

    fn bad_dims(&self, shape: BlockShape, accepted: String) -> FileError {
        let what = format_args!("dimensions of tensor {}", Quoted(self.record.name.as_bytes()));
        let found = format_args!("{:?} of {}", self.record.dims, shape.name);
        self.cursor.fault(self.record.dims_at, what, found, accepted)
    }

    /// The rows of the types that were interleaved for one kind of CPU.
    fn interleaved(&self, shape: BlockShape) -> Result<Order, FileError> {
        let record = self.record;
        let columns = record.dims.first().copied().unwrap_or(1);
        let blocks_per_row = (columns / shape.elements) as usize;
        let (Some(order), ByteOrder::Little) =
            (InterleavedRows::of(record.type_id, blocks_per_row), self.cursor.order())
        else {
            return Err(self.foreign(Layout::Current));
        };
        let rows = record.dims.get(1).copied().unwrap_or(1);
        if !rows.is_multiple_of(order.rows as u64) {
            return Err(
                self.bad_dims(shape, format!("a second dimension that is a multiple of {}", order.rows))
            );
        }
        Ok(Order::Rows(order))
    }

    /// How the data has to be read: swapped when the file has the other byte order.
    fn byte_order(&self, shape: BlockShape, layout: Layout) -> Result<Order, FileError> {
        if self.cursor.order() == ByteOrder::Little {
            return Ok(Order::Blocks);
        }
        // The fields of an id are those of its current blocks.
        let fields = self.types.swap_fields(self.record.type_id).filter(|_| layout == Layout::Current);
        match fields {
            Some(fields) if fields.is_empty() => Ok(Order::Blocks),
            Some(fields) if fields.iter().all(|(at, width)| (at + width) as u64 <= shape.bytes) => {
                Ok(Order::OtherBytes { block: shape.bytes as usize, fields: fields.into() })
            }
            _ => Err(self.cursor.fault(
                self.record.type_at,
                format_args!("type of tensor {}", Quoted(self.record.name.as_bytes())),
                format_args!("{} in a big-endian file", shape.name),
                "a type whose byte order is known",
            )),
        }
    }
}

/// Tells whether the K-quants of a file have super-blocks of 64, which no field says: when a row is no
/// multiple of 256, or when all of them take the room that super-blocks of 64 need and not that of 256.
fn layout(cursor: &Cursor<'_>, header: &Header, types: &dyn TypeTable) -> Layout {
    let small = |r: &Record| Layout::K64.format_name(r.type_id).is_some();
    let k_quants: Vec<&Record> = header.records.iter().filter(|r| small(r) && !r.dims.contains(&0)).collect();
    let columns = |r: &Record| r.dims.first().copied().unwrap_or(1);
    if k_quants.is_empty() || k_quants.iter().any(|r| columns(r) % 64 != 0) {
        return Layout::Current;
    }
    if k_quants.iter().any(|r| columns(r) % 256 != 0) {
        return Layout::K64;
    }
    let mut starts: Vec<u64> = header.records.iter().map(|r| r.offset).collect();
    starts.sort_unstable();
    let end = (cursor.len() as u64).saturating_sub(header.data_start);
    let fits = |record: &Record, layout: Layout| {
        let Some(bytes) =
            layout.shape(record.type_id, types).and_then(|shape| shape.tensor_bytes(&record.dims).ok())
        else {
            return false;
        };
        let after = starts.partition_point(|&start| start <= record.offset);
        let room = starts.get(after).unwrap_or(&end).saturating_sub(record.offset);
        // The last tensor may or may not be padded.
        let padded = bytes.checked_next_multiple_of(header.alignment);
        padded == Some(room) || after == starts.len() && bytes == room
    };
    let all_fit = |layout| k_quants.iter().all(|r| fits(r, layout));
    if !all_fit(Layout::Current) && all_fit(Layout::K64) { Layout::K64 } else { Layout::Current }
}

/// Where data starts in the file, when all of it lies within.
fn extent(file: u64, data_start: u64, offset: u64, bytes: u64) -> Option<u64> {
    let start = data_start.checked_add(offset)?;
    let end = start.checked_add(bytes)?;
    (bytes == 0 || end <= file).then_some(start)
}

fn reject_overlaps(cursor: &Cursor<'_>, header: &Header, tensors: &[TensorInfo]) -> Result<(), FileError> {
    let mut order: Vec<usize> = (0..tensors.len()).filter(|&i| tensors[i].bytes > 0).collect();
    order.sort_by_key(|&i| tensors[i].offset);
    for pair in order.windows(2) {
        let (before, after) = (&tensors[pair[0]], &tensors[pair[1]]);
        let end = before.offset + before.bytes;
        if after.offset < end {
            return Err(cursor.fault(
                header.records[pair[1]].offset_at,
                format_args!("offset of tensor {}", Quoted(after.name.as_bytes())),
                format_args!("byte {} of the file", after.offset),
                format_args!("{end} or more, where tensor {} ends", Quoted(before.name.as_bytes())),
            ));
        }
    }
    Ok(())
}

fn misalignments(header: &Header) -> Vec<String> {
    let off = |r: &&Record| !r.offset.is_multiple_of(header.alignment);
    let count = header.records.iter().filter(off).count();
    match header.records.iter().find(off) {
        Some(first) => vec![format!(
            "{count} tensors lie off the alignment of {}, the first is {} at offset {}",
            header.alignment,
            Quoted(first.name.as_bytes()),
            first.offset
        )],
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_checked_without_wrapping() {
        assert_eq!(extent(100, 64, 0, 36), Some(64));
        assert_eq!(extent(100, 64, 0, 37), None);
        assert_eq!(extent(100, 64, u64::MAX - 31, 4), None);
        assert_eq!(extent(100, 64, u64::MAX - 64, 4), None);
        assert_eq!(extent(60, 64, 0, 0), Some(64));
    }
}
