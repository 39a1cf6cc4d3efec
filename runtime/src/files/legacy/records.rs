//! Tensor records and data, one after another to the end of the file.

use crate::files::cursor::Cursor;
use crate::files::error::{FileError, Quoted};
use crate::files::gguf::MAX_TENSORS;
use crate::files::legacy::header::Header;
use crate::files::model::{Container, OpenOptions};
use crate::files::tensor::{FieldArrays, Order};
use crate::files::types::{BlockShape, Layout, TypeTable, type_name};

/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// Longest name that is taken for one when looking ahead.
const MAX_NAME: u32 = 256;

/// One tensor as the file has it.
#[derive(Debug)]
pub(crate) struct Record {
    /// The name as written.
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) type_id: u32,
    pub(crate) layout: Layout,
    pub(crate) shape: BlockShape,
    pub(crate) order: Order,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Where the dims stand in the file.
    pub(crate) dims_at: usize,
}

/// Reads all records to the end of the file.
pub(crate) fn read_all(
    cursor: &mut Cursor<'_>,
    header: &Header,
    types: &dyn TypeTable,
    options: &OpenOptions,
    warnings: &mut Vec<String>,
) -> Result<Vec<Record>, FileError> {
    if options.struct_of_arrays && header.container != Container::Ggml {
        return Err(cursor.refuse(format!(
            "scales and codes in separate arrays occur in unversioned GGML files only, this is {}",
            header.container
        )));
    }
    let mut reader = Reader { header, types, options, layout: None, suspicious: false };
    let mut records = Vec::new();
    while cursor.left() > 0 {
        let record = reader.read(cursor)?;
        if records.is_empty() && !is_llama(&record.name) {
            let found = Quoted(record.name.as_bytes());
            return Err(cursor.fault(
                record.dims_at,
                "name of the first tensor",
                found,
                "a tensor of a LLaMA model",
            ));
        }
        if records.len() == MAX_TENSORS {
            let accepted = format_args!("at most {MAX_TENSORS}");
            return Err(cursor.fault(record.dims_at, "number of tensors", "more", accepted));
        }
        records.push(record);
    }
    reject_duplicates(cursor, &records)?;
    if reader.suspicious {
        warnings.push(
            "the scales look as if scales and codes lay in separate arrays, as in files of March 2023: \
             there is an option for that"
                .into(),
        );
    }
    Ok(records)
}

struct Reader<'a> {
    header: &'a Header,
    types: &'a dyn TypeTable,
    options: &'a OpenOptions,
    /// Whether super-blocks have 64 elements, once the first K-quant has shown it.
    layout: Option<Layout>,
    suspicious: bool,
}

impl Reader<'_> {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<Record, FileError> {
        let start = cursor.pos();
        let n_dims = cursor.u32(format_args!("number of dimensions"))?;
        if !(1..=MAX_DIMS).contains(&n_dims) {
            let accepted = format_args!("1 to {MAX_DIMS}");
            return Err(cursor.fault(start, "number of dimensions of the next tensor", n_dims, accepted));
        }
        let length_at = cursor.pos();
        let length = cursor.u32(format_args!("length of the name"))?;
        if length == 0 {
            return Err(cursor.fault(length_at, "length of the name of the next tensor", 0, "1 or more"));
        }
        let type_at = cursor.pos();
        let type_id = cursor.code(format_args!("type"), type_name)?;
        let dims_at = cursor.pos();
        let dims = (0..n_dims)
            .map(|d| cursor.u32(format_args!("dimension {d}")).map(u64::from))
            .collect::<Result<Vec<u64>, FileError>>()?;
        let name = cursor.text(length.into(), format_args!("name of the tensor"))?.to_owned();
        self.pad(cursor)?;

        let quoted = Quoted(name.as_bytes());
        let layout = self.layout(cursor, type_id, &dims);
        let Some(shape) = layout.shape(type_id, self.types).filter(|_| self.allows(type_id)) else {
            let what = format_args!("type of tensor {quoted}");
            let found = match layout.format_name(type_id) {
                Some(name) => format!("{type_id} ({name}, which this program has not got)"),
                None => format!("{type_id}"),
            };
            return Err(cursor.fault(type_at, what, found, self.accepted()));
        };
        let bytes = shape.tensor_bytes(&dims).map_err(|accepted| {
            let what = format_args!("dimensions of tensor {quoted}");
            cursor.fault(dims_at, what, format_args!("{dims:?} of {}", shape.name), accepted)
        })?;
        let offset = cursor.pos();
        let data = cursor.take(bytes, format_args!("data of tensor {quoted}"))?;
        if bytes > 0 {
            cursor.note(
                offset,
                format_args!("data of tensor {quoted}"),
                format_args!("{}", shape.describe(bytes)),
            );
        }
        cursor.note_tensor(start as u64..cursor.pos() as u64, &name);
        let order = self.order(type_id, layout, &dims, shape, data);
        Ok(Record { name, dims, type_id, layout, shape, order, offset: offset as u64, bytes, dims_at })
    }

    /// Skips to where the data starts. What lies between has no meaning.
    fn pad(&self, cursor: &mut Cursor<'_>) -> Result<(), FileError> {
        let start = cursor.pos() as u64;
        let alignment = self.header.alignment();
        let count = start.next_multiple_of(alignment) - start;
        if count > 0 {
            cursor.take(count, "padding before data")?;
            let meaning = format_args!("{count} bytes (aligns the data to {alignment})");
            cursor.note(start as usize, format_args!("padding"), meaning);
        }
        Ok(())
    }

    /// The ids that the container can hold.
    fn allowed(&self) -> &'static [u32] {
        match self.header.layout {
            Layout::V1 => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
            Layout::V2 => &[0, 1, 2, 3, 6, 7, 8],
            Layout::Current | Layout::K64 => &[0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14],
        }
    }

    fn allows(&self, type_id: u32) -> bool {
        self.allowed().contains(&type_id)
    }

    fn accepted(&self) -> String {
        let names = self.allowed().iter().filter_map(|&id| {
            let shape = self.header.layout.shape(id, self.types)?;
            Some(format!("{id} ({})", shape.name))
        });
        names.collect::<Vec<String>>().join(", ")
    }

    /// The layout of the blocks of a tensor. For K-quants the cursor must stand at the data: which size of
    /// super-block is right shows by where the next record is.
    fn layout(&mut self, cursor: &Cursor<'_>, type_id: u32, dims: &[u64]) -> Layout {
        if Layout::K64.format_name(type_id).is_none() || self.header.layout != Layout::Current {
            return self.header.layout.of(type_id);
        }
        *self.layout.get_or_insert_with(|| {
            let columns = dims[0];
            let goes_on = |layout: Layout| {
                let bytes = layout.shape(type_id, self.types).and_then(|shape| shape.tensor_bytes(dims).ok());
                let rest = bytes.and_then(|b| cursor.rest().get(usize::try_from(b).ok()?..));
                rest.is_some_and(|rest| rest.is_empty() || starts_record(rest))
            };
            if !columns.is_multiple_of(256) || !goes_on(Layout::Current) && goes_on(Layout::K64) {
                Layout::K64
            } else {
                Layout::Current
            }
        })
    }

    /// The order of fields in the rows of a tensor.
    fn order(&mut self, type_id: u32, layout: Layout, dims: &[u64], shape: BlockShape, data: &[u8]) -> Order {
        let with_min = match (layout, type_id) {
            (Layout::V1, 2) => false,
            (Layout::V1, 3) => true,
            _ => return Order::Blocks,
        };
        // Fits, since a row lies within the file, or is empty.
        let blocks_per_row = (dims[0] / shape.elements) as usize;
        if data.is_empty() {
            return Order::Blocks;
        }
        if self.options.struct_of_arrays {
            return Order::Fields(FieldArrays { with_min, blocks_per_row });
        }
        if self.header.container == Container::Ggml {
            let row = &data[..blocks_per_row * shape.bytes as usize];
            self.suspicious |= looks_like_arrays(row, blocks_per_row, shape.bytes as usize);
        }
        Order::Blocks
    }
}

/// True when the scales of a row make sense as an array of their own, but not within blocks.
fn looks_like_arrays(row: &[u8], blocks: usize, block: usize) -> bool {
    let sensible = |at: usize| {
        let Some(raw) = row.get(at..).and_then(|rest| rest.first_chunk().copied()) else { return false };
        let d = f32::from_le_bytes(raw).abs();
        d == 0.0 || (1e-6..10.0).contains(&d)
    };
    let in_blocks = (0..blocks).all(|b| sensible(b * block));
    let in_arrays = (0..blocks).all(|b| sensible(b * 4));
    blocks > 1 && in_arrays && !in_blocks
}

fn is_llama(name: &str) -> bool {
    matches!(name, "tok_embeddings.weight" | "norm.weight" | "output.weight" | "rope.freqs")
        || name.starts_with("layers.")
}

/// True when bytes look like a tensor record: dimensions, a name of printable text, a type.
fn starts_record(bytes: &[u8]) -> bool {
    record_name(bytes).is_some()
}

/// True when bytes are the first record of a LLaMA model.
pub(crate) fn starts_model(bytes: &[u8]) -> bool {
    record_name(bytes).is_some_and(is_llama)
}

fn record_name(bytes: &[u8]) -> Option<&str> {
    let (words, rest) = bytes.split_first_chunk::<12>()?;
    let (words, _) = words.as_chunks::<4>();
    let [n_dims, length, type_id] = [words[0], words[1], words[2]].map(u32::from_le_bytes);
    if !(1..=MAX_DIMS).contains(&n_dims) || !(1..=MAX_NAME).contains(&length) || type_id > 64 {
        return None;
    }
    let name = rest.get(4 * n_dims as usize..)?.get(..length as usize)?;
    let name = std::str::from_utf8(name).ok()?;
    name.bytes().all(|b| b.is_ascii_graphic()).then_some(name)
}

fn reject_duplicates(cursor: &Cursor<'_>, records: &[Record]) -> Result<(), FileError> {
    let mut order: Vec<&Record> = records.iter().collect();
    order.sort_by(|a, b| a.name.cmp(&b.name).then(a.dims_at.cmp(&b.dims_at)));
    match order.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => {
            let found = format_args!("{} a second time", Quoted(pair[1].name.as_bytes()));
            Err(cursor.fault(pair[1].dims_at - 12, "tensor name", found, "each name once"))
        }
        None => Ok(()),
    }
}
