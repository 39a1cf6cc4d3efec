//! The containers before GGUF: GGML without a version, GGMF v1, GGJT v1 to v3, as LLaMA models came in them.
//!
//! ```text
//! magic  [u32 version]  7 x u32 hyperparameters
//! n_vocab x { u32 length, bytes, [f32 score] }                         no score in GGML
//! until the end x { u32 n_dims, u32 name length, u32 type, dims, name, [padding to 32], data }
//! ```
//! The padding is GGJT's. There is no count of tensors and no offset: the size of one tensor says where the
//! next begins, so the layout of blocks, which changed under the same ids, must be known to read on at all.
//!
//! The result is a [`Contents`](super::model::Contents) like that of a GGUF file: names, metadata and
//! vocabulary are translated, the blocks stay as they are. Only LLaMA models are read; others of that time
//! share the magics and are told apart by their tensors.

mod family;
mod header;
mod join;
mod records;
mod translate;

pub(crate) use join::open;
pub(crate) use translate::gguf_name;

use super::cursor::Cursor;
use super::error::FileError;
use super::model::OpenOptions;
use super::sniff::Magic;
use super::types::TypeTable;
use header::{Header, Token};
use records::Record;

/// One file as it is written, before names are translated and parts are joined.
pub(crate) struct LegacyFile<'a> {
    pub(crate) header: Header,
    pub(crate) vocabulary: Vec<Token<'a>>,
    pub(crate) records: Vec<Record>,
    /// Where the first tensor record starts.
    pub(crate) records_at: u64,
    pub(crate) warnings: Vec<String>,
}

/// Reads one file whose magic is one of the three.
pub(crate) fn read_file<'a>(
    cursor: &mut Cursor<'a>,
    magic: Magic,
    types: &dyn TypeTable,
    options: &OpenOptions,
) -> Result<LegacyFile<'a>, FileError> {
    let family = family::guess(magic, cursor.rest());
    let mut warnings = Vec::new();
    let read = || -> Result<LegacyFile<'a>, FileError> {
        let header = header::read(cursor, magic)?;
        let vocabulary = header::read_vocabulary(cursor, &header, &mut warnings)?;
        let records_at = cursor.pos() as u64;
        let records = records::read_all(cursor, &header, types, options, &mut warnings)?;
        Ok(LegacyFile { header, vocabulary, records, records_at, warnings })
    };
    read().map_err(|error| family::explain(error, family))
}
