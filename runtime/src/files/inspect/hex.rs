//! A file field by field: where it is, its bytes, what it means.
//!
//! ```text
//! [0x000000-0x000003] 74 6a 67 67                                      -> magic    : 'tjgg' (GGJT)
//! ```
//! The lines come from the reader itself, as it reads, so nothing is held back and a file that cannot be read
//! is shown up to the fault.

use std::fmt::{Arguments, Write as _};
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::files::cursor::Cursor;
use crate::files::error::FileError;
use crate::files::model::OpenOptions;
use crate::files::parts::Part;
use crate::files::sniff::{Magic, sniff};
use crate::files::trace::Trace;
use crate::files::types::TypeTable;
use crate::files::{gguf, legacy};

/// Bytes of a field that are shown.
const SHOWN: usize = 16;

/// Width of a name, unless it is longer.
const LABEL: usize = 9;

/// What to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HexOptions {
    /// Fields that end at or before this byte are left out.
    pub from: u64,
    /// At most so many fields.
    pub limit: Option<u64>,
    /// Only the record and the data of one tensor, by its name in the file or in GGUF.
    pub tensor: Option<String>,
}

/// Reads one file and tells of each of its fields in file order; each byte belongs to one field.
///
/// # Errors
/// - the file cannot be read; what comes before the fault has been told by then
pub fn trace(
    path: &Path,
    types: &dyn TypeTable,
    options: &OpenOptions,
    trace: &mut dyn Trace,
) -> Result<(), FileError> {
    let part = Part::open(path)?;
    trace_part(&part, types, options, trace)
}

fn trace_part(
    part: &Part,
    types: &dyn TypeTable,
    options: &OpenOptions,
    trace: &mut dyn Trace,
) -> Result<(), FileError> {
    let magic = sniff(&part.path, &part.bytes)?;
    let mut cursor = Cursor::traced(&part.path, &part.bytes, trace);
    match magic {
        Magic::Gguf => gguf::read_all(&mut cursor, types),
        Magic::Ggml | Magic::Ggmf | Magic::Ggjt => {
            legacy::read_file(&mut cursor, magic, types, options).map(|_| ())
        }
    }
}

/// Writes a file field by field, one line each.
///
/// # Errors
/// - the file cannot be read; what comes before the fault has been written by then
/// - the output cannot be written; the error then names it `output`
/// - there is no tensor of the name asked for
pub fn hex(
    path: &Path,
    types: &dyn TypeTable,
    open: &OpenOptions,
    options: &HexOptions,
    out: &mut dyn io::Write,
) -> Result<(), FileError> {
    let part = Part::open(path)?;
    let ranges = match &options.tensor {
        None => None,
        Some(name) => {
            let mut finder = Finder { name, ranges: Vec::new() };
            trace_part(&part, types, open, &mut finder)?;
            if finder.ranges.is_empty() {
                let name = crate::files::error::Quoted(name.as_bytes());
                return Err(FileError::Refused {
                    path: path.into(),
                    what: format!("there is no tensor {name}"),
                });
            }
            Some(finder.ranges)
        }
    };
    let digits = format!("{:x}", part.bytes.len()).len().max(6);
    let left = options.limit.unwrap_or(u64::MAX);
    let line = String::new();
    let mut printer =
        Printer { bytes: &part.bytes, out, from: options.from, left, ranges, digits, line, fault: None };
    let result = trace_part(&part, types, open, &mut printer);
    match printer.fault {
        Some(e) => Err(FileError::io(Path::new("output"), "write", e)),
        None => result,
    }
}

/// Finds the bytes that belong to a tensor.
struct Finder<'a> {
    name: &'a str,
    ranges: Vec<Range<u64>>,
}

impl Trace for Finder<'_> {
    fn field(&mut self, _: Range<u64>, _: Arguments<'_>, _: Arguments<'_>) {}

    fn tensor(&mut self, bytes: Range<u64>, name: &str) {
        if name == self.name || legacy::gguf_name(name).as_deref() == Some(self.name) {
            self.ranges.push(bytes);
        }
    }
}

/// Writes a line for each field.
struct Printer<'a> {
    bytes: &'a [u8],
    out: &'a mut dyn io::Write,
    from: u64,
    left: u64,
    ranges: Option<Vec<Range<u64>>>,
    digits: usize,
    line: String,
    fault: Option<io::Error>,
}

impl Trace for Printer<'_> {
    fn field(&mut self, bytes: Range<u64>, name: Arguments<'_>, meaning: Arguments<'_>) {
        let within = |r: &Range<u64>| r.start <= bytes.start && bytes.end <= r.end;
        let wanted = self.ranges.as_ref().is_none_or(|ranges| ranges.iter().any(within));
        if !wanted || bytes.end <= self.from || self.left == 0 || self.fault.is_some() {
            return;
        }
        self.left -= 1;
        let raw = &self.bytes[bytes.start as usize..bytes.end as usize];
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.line, "[{:#0w$x}-{:#0w$x}] ", bytes.start, bytes.end - 1, w = self.digits + 2);
        let begin = self.line.len();
        for byte in raw.iter().take(SHOWN) {
            let _ = write!(self.line, "{byte:02x} ");
        }
        let mut width = self.line.len() - begin;
        if raw.len() > SHOWN {
            self.line.push_str("… ");
            width += 2;
        }
        let _ = write!(self.line, "{:pad$}-> ", "", pad = 3 * SHOWN + 2 - width);
        let begin = self.line.len();
        let _ = write!(self.line, "{name}");
        let width = self.line.len() - begin;
        let _ = writeln!(self.line, "{:pad$}: {meaning}", "", pad = LABEL.saturating_sub(width));
        self.fault = self.out.write_all(self.line.as_bytes()).err();
    }
}
