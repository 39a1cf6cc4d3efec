//! The fields of a file as JSON: `{"fields": [{"start", "end", "name", "meaning"}, …]}`, written as they are read.

use std::fmt::Arguments;
use std::ops::Range;
use std::path::Path;

use quantsmith::files::inspect::{HexOptions, trace};
use quantsmith::files::{ModelFile, OpenOptions, Trace};
use serde::Serialize;

use crate::App;
use crate::failure::Failure;
use crate::output::Output;

/// One field; the end is the first byte behind it.
#[derive(Serialize)]
struct Field {
    start: u64,
    end: u64,
    name: String,
    meaning: String,
}

/// Writes the fields of a file, of those that the options leave.
pub(super) fn json(
    path: &Path,
    open: &OpenOptions,
    options: &HexOptions,
    app: &mut App,
) -> Result<(), Failure> {
    let wanted = match &options.tensor {
        None => None,
        Some(name) => Some(extents(path, open, name, app)?),
    };
    app.out.text("{\"fields\":[")?;
    let mut writer = Writer {
        out: &mut app.out,
        from: options.from,
        left: options.limit.unwrap_or(u64::MAX),
        wanted,
        first: true,
        fault: None,
    };
    let result = trace(path, &app.registry, open, &mut writer);
    if let Some(fault) = writer.fault {
        return Err(fault);
    }
    result?;
    app.out.text("]}\n")
}

/// The bytes that belong to a tensor, by its name in the file or in GGUF.
fn extents(path: &Path, open: &OpenOptions, name: &str, app: &App) -> Result<Vec<Range<u64>>, Failure> {
    let options = OpenOptions { single_file: true, ..open.clone() };
    let file = ModelFile::open_with(path, &app.registry, &options)?;
    let mut finder =
        Finder { name, offset: file.tensor(name).map(|t| t.offset), found: Vec::new(), at: None };
    trace(path, &app.registry, open, &mut finder)?;
    let Finder { found, at, .. } = finder;
    let named = at.as_deref().unwrap_or(name);
    let ranges: Vec<_> = found.into_iter().filter(|(n, _)| n == named).map(|(_, bytes)| bytes).collect();
    if ranges.is_empty() {
        return Err(super::no_tensor(&file, name).into());
    }
    Ok(ranges)
}

/// Collects what belongs to which tensor. A tensor is known by its name in the file, or by where its data is.
struct Finder<'a> {
    name: &'a str,
    offset: Option<u64>,
    found: Vec<(String, Range<u64>)>,
    at: Option<String>,
}

impl Trace for Finder<'_> {
    fn field(&mut self, _: Range<u64>, _: Arguments<'_>, _: Arguments<'_>) {}

    fn tensor(&mut self, bytes: Range<u64>, name: &str) {
        if name != self.name && self.offset.is_some_and(|offset| bytes.contains(&offset)) {
            self.at = Some(name.to_owned());
        }
        self.found.push((name.to_owned(), bytes));
    }
}

struct Writer<'a> {
    out: &'a mut Output,
    from: u64,
    left: u64,
    wanted: Option<Vec<Range<u64>>>,
    first: bool,
    fault: Option<Failure>,
}

impl Trace for Writer<'_> {
    fn field(&mut self, bytes: Range<u64>, name: Arguments<'_>, meaning: Arguments<'_>) {
        let within = |r: &Range<u64>| r.start <= bytes.start && bytes.end <= r.end;
        let wanted = self.wanted.as_ref().is_none_or(|ranges| ranges.iter().any(within));
        if !wanted || bytes.end <= self.from || self.left == 0 || self.fault.is_some() {
            return;
        }
        self.left -= 1;
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        let field = Field {
            start: bytes.start,
            end: bytes.end,
            name: name.to_string(),
            meaning: meaning.to_string(),
        };
        self.fault = self.out.text(comma).and_then(|()| self.out.json_part(&field)).err();
    }
}
