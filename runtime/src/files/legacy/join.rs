//! Models in several files: `base`, `base.1`, `base.2` and so on, each with a part of every matrix.
//!
//! Every part repeats the header and the vocabulary. Vectors are repeated as well; of matrices some are split
//! by columns and the others by rows. The number of parts follows from how wide the embedding is in the
//! first.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::files::cursor::Cursor;
use crate::files::error::{FileError, Quoted};
use crate::files::legacy::records::Record;
use crate::files::legacy::{LegacyFile, read_file, translate};
use crate::files::model::OpenOptions;
use crate::files::parts::{Opened, Part};
use crate::files::sniff::Magic;
use crate::files::tensor::Stored;
use crate::files::types::TypeTable;

const EMBEDDING: &str = "tok_embeddings.weight";

/// Opens a model of one of the old containers, with its other parts when there are any.
pub(crate) fn open(
    part: Part,
    magic: Magic,
    types: &dyn TypeTable,
    options: &OpenOptions,
) -> Result<Opened, FileError> {
    let part = first_part(part)?;
    let count = {
        let file = read_file(&mut Cursor::new(&part.path, &part.bytes), magic, types, options)?;
        let count = if options.single_file { 1 } else { part_count(&part, &file)? };
        if count == 1 {
            let stored = vec![Stored::default(); file.records.len()];
            let contents = translate::contents(&part.path, file, stored, options)?;
            return Ok(Opened { parts: vec![part], contents });
        }
        count
    };
    let mut parts = vec![part];
    for number in 1..count {
        let which = format!("part {number} of 0 to {}", count - 1);
        parts.push(Part::open_sibling(
            &numbered(&parts[0].path, number),
            &which,
            "all parts in one directory",
        )?);
    }
    let mut files = Vec::with_capacity(parts.len());
    for part in &parts {
        files.push(read_file(&mut Cursor::new(&part.path, &part.bytes), magic, types, options)?);
    }
    let mut files = files.into_iter();
    let Some(mut first) = files.next() else { unreachable!("there is a first part") };
    let others: Vec<LegacyFile<'_>> = files.collect();
    for (part, other) in parts[1..].iter().zip(&others) {
        agree(part, &first, other)?;
    }
    let stored = first.records.iter_mut().enumerate().map(|(i, record)| join(i, record, &others)).collect();
    let contents = translate::contents(&parts[0].path, first, stored, options)?;
    Ok(Opened { parts, contents })
}

/// Goes from `base.2` to `base`, when that exists.
fn first_part(part: Part) -> Result<Part, FileError> {
    let numbered = part.path.extension().and_then(|e| e.to_str()).is_some_and(|e| e.parse::<u16>().is_ok());
    let base = part.path.with_extension("");
    if numbered && base.is_file() { Part::open(&base) } else { Ok(part) }
}

fn numbered(base: &Path, number: u64) -> PathBuf {
    let mut path = OsString::from(base);
    path.push(format!(".{number}"));
    path.into()
}

fn part_count(part: &Part, file: &LegacyFile<'_>) -> Result<u64, FileError> {
    let Some(embedding) = file.records.iter().find(|r| r.name == EMBEDDING) else { return Ok(1) };
    let (columns, n_embd) = (embedding.dims[0], u64::from(file.header.n_embd));
    if columns == 0 || !n_embd.is_multiple_of(columns) {
        return Err(FileError::malformed(
            &part.path,
            embedding.dims_at as u64,
            format_args!("first dimension of tensor '{EMBEDDING}'"),
            columns,
            format_args!("n_embd, which is {n_embd}, or a divisor of it for a model in several files"),
        ));
    }
    Ok(n_embd / columns)
}

/// Checks that a part repeats what the first says.
fn agree(part: &Part, first: &LegacyFile<'_>, other: &LegacyFile<'_>) -> Result<(), FileError> {
    if other.header != first.header {
        let accepted = format_args!("{} as in the first part", first.header);
        return Err(part.inconsistent("hyperparameters", &other.header, accepted));
    }
    if other.vocabulary.len() != first.vocabulary.len()
        || other.vocabulary.iter().zip(&first.vocabulary).any(|(a, b)| a.text != b.text)
    {
        return Err(part.inconsistent("vocabulary", "another one", "that of the first part"));
    }
    if other.records.len() != first.records.len() {
        let accepted = format_args!("{} as in the first part", first.records.len());
        return Err(part.inconsistent("number of tensors", other.records.len(), accepted));
    }
    for (a, b) in first.records.iter().zip(&other.records) {
        let show = |r: &Record| format!("{} {} {:?}", Quoted(r.name.as_bytes()), r.shape.name, r.dims);
        if (&a.name, &a.dims, a.type_id) != (&b.name, &b.dims, b.type_id) {
            return Err(part.inconsistent(
                "tensor",
                show(b),
                format_args!("{} as in the first part", show(a)),
            ));
        }
    }
    Ok(())
}

/// Makes the record at a place of the first part one of the whole model; the others have its like there too.
fn join(place: usize, record: &mut Record, others: &[LegacyFile<'_>]) -> Stored {
    if record.dims.len() < 2 {
        return Stored::default();
    }
    let pieces = 1 + others.len() as u64;
    let more = others.iter().enumerate().map(|(i, other)| (i + 1, other.records[place].offset)).collect();
    let by_columns = split_by_columns(&record.name);
    let row_bytes =
        by_columns.then(|| (record.dims[0] / record.shape.elements * record.shape.bytes) as usize);
    // Neither overflows: the pieces lie in files, or are empty.
    record.dims[usize::from(!by_columns)] *= pieces;
    record.bytes *= pieces;
    Stored { more, row_bytes, ..Stored::default() }
}

fn split_by_columns(name: &str) -> bool {
    name == EMBEDDING || name.ends_with(".attention.wo.weight") || name.ends_with(".feed_forward.w2.weight")
}
