//! Writing GGUF.
//!
//! [`GgufWriter`] takes metadata and the list of tensors first, then their data as a stream, and writes
//! version 3, little-endian, in the one canonical way: tensors in the order given, each padded with zeros to
//! the alignment. A file that was written so and is written again comes out the same to the byte.
//!
//! Everything goes to a temporary file beside the target, which takes its name only when it is whole and on
//! the disk ([`output`]).

mod encode;
mod output;

use std::collections::HashSet;
use std::path::Path;

use super::error::{FileError, Quoted};
use super::gguf::{DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMS, MAX_KEY};
use super::metadata::Metadata;
use super::private;
use super::types::{Layout, TypeTable};
use super::value::Value;

pub(crate) use output::OutputFile;
pub use output::{Sealed, discard_unfinished};

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTensor {
    /// Its name, which no other tensor of the file has.
    pub name: String,
    /// Its dimensions, `ne[0]` first.
    pub dims: Vec<u64>,
    /// The id of its type.
    pub type_id: u32,
    /// The layout of its blocks: [`Layout::Current`], or [`Layout::K64`] for all K-quants of a file alike.
    /// The others cannot be written, since nothing in a GGUF file would tell.
    pub layout: Layout,
}

/// A tensor on its way into the file.
struct Planned {
    name: String,
    bytes: u64,
}

/// Writes one GGUF file.
pub struct GgufWriter {
    out: OutputFile,
    tensors: Vec<Planned>,
    alignment: u64,
    /// The tensor that comes next, and how much of it is written.
    next: usize,
    filled: u64,
}

impl GgufWriter {
    /// Begins a file: checks everything and writes the header. `inputs` are the files that the data comes
    /// from, none of which may be the output.
    ///
    /// # Errors
    /// - the output cannot be written, or is one of the inputs
    /// - a key, name, type, dimension or the alignment cannot be stored
    pub fn create(
        path: &Path,
        inputs: &[&Path],
        metadata: &Metadata,
        tensors: &[NewTensor],
        types: &dyn TypeTable,
    ) -> Result<Self, FileError> {
        let refuse = |what: String| FileError::Refused { path: path.into(), what };
        let alignment = alignment(metadata).map_err(refuse)?;
        check_keys(metadata).map_err(refuse)?;
        let planned = plan(tensors, types).map_err(refuse)?;
        let metadata = &*private::declare(metadata, tensors.iter().map(|t| t.type_id), types);
        let sizes: Vec<u64> = planned.iter().map(|t| t.bytes).collect();
        let header = encode::header(metadata, tensors, &sizes, alignment)
            .ok_or_else(|| refuse("the tensors are larger in all than a file can be".into()))?;
        let mut out = OutputFile::create(path, inputs)?;
        out.write(&header)?;
        let mut writer = Self { out, tensors: planned, alignment, next: 0, filled: 0 };
        writer.go_on()?;
        Ok(writer)
    }

    /// Appends data: of the first tensor, then of the next, in pieces of any size.
    ///
    /// # Errors
    /// - the disk is full, or another fault of the system
    /// - there is more data than the tensors take
    pub fn write(&mut self, mut data: &[u8]) -> Result<(), FileError> {
        while !data.is_empty() {
            let Some(tensor) = self.tensors.get(self.next) else {
                return Err(self
                    .out
                    .refuse(format!("{} bytes of data are left after the last tensor", data.len())));
            };
            let room = tensor.bytes - self.filled;
            let (now, later) = data.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(data.len()));
            self.out.write(now)?;
            self.filled += now.len() as u64;
            data = later;
            self.go_on()?;
        }
        Ok(())
    }

    /// Pads and steps on after each tensor that is full, empty ones included.
    fn go_on(&mut self) -> Result<(), FileError> {
        while self.tensors.get(self.next).is_some_and(|t| self.filled == t.bytes) {
            self.out.pad(self.alignment)?;
            self.next += 1;
            self.filled = 0;
        }
        Ok(())
    }

    /// Brings the whole file to the disk under its temporary name.
    ///
    /// # Errors
    /// - a tensor is not complete
    /// - a fault of the system
    pub fn seal(self) -> Result<Sealed, FileError> {
        if let Some(tensor) = self.tensors.get(self.next) {
            return Err(self.out.refuse(format!(
                "tensor {} has {} of {} bytes",
                Quoted(tensor.name.as_bytes()),
                self.filled,
                tensor.bytes
            )));
        }
        self.out.seal()
    }

    /// Brings the file to the disk and gives it its name. Returns its size.
    ///
    /// # Errors
    /// As [`GgufWriter::seal`].
    pub fn finish(self) -> Result<u64, FileError> {
        self.seal()?.commit()
    }
}

/// True when two values are stored as the same bytes, so that a NaN is like itself.
pub(crate) fn same_value(a: &Value, b: &Value) -> bool {
    a.value_type() == b.value_type() && encode::value(a) == encode::value(b)
}

/// What the alignment may be, up to the number that follows.
const ACCEPTED_ALIGNMENT: &str = "u32, a power of two, at most";

/// The alignment that metadata asks for.
fn alignment(metadata: &Metadata) -> Result<u64, String> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(v)) if v.is_power_of_two() && u64::from(v) <= MAX_ALIGNMENT => Ok(v.into()),
        Some(other) => Err(format!(
            "value of 'general.alignment': found {} {other}, accepted: {ACCEPTED_ALIGNMENT} {MAX_ALIGNMENT}",
            other.value_type()
        )),
    }
}

fn check_keys(metadata: &Metadata) -> Result<(), String> {
    match metadata.iter().find(|(key, _)| !(1..=MAX_KEY).contains(&(key.len() as u64))) {
        Some((key, _)) => Err(format!("a key of {} bytes, accepted: 1 to {MAX_KEY}", key.len())),
        None => Ok(()),
    }
}

/// Checks the tensors and finds their sizes.
fn plan(tensors: &[NewTensor], types: &dyn TypeTable) -> Result<Vec<Planned>, String> {
    let mut names = HashSet::new();
    let k64 = |t: &&NewTensor| t.layout == Layout::K64;
    let wide = |t: &&NewTensor| t.layout == Layout::Current && Layout::K64.format_name(t.type_id).is_some();
    if let (Some(a), Some(b)) = (tensors.iter().find(k64), tensors.iter().find(wide)) {
        let (a, b) = (Quoted(a.name.as_bytes()), Quoted(b.name.as_bytes()));
        return Err(format!(
            "tensor {a} has super-blocks of 64 and tensor {b} of 256, accepted: one kind in a file"
        ));
    }
    tensors
        .iter()
        .map(|tensor| {
            let quoted = Quoted(tensor.name.as_bytes());
            if !names.insert(&tensor.name) {
                return Err(format!("two tensors are called {quoted}"));
            }
            if tensor.dims.len() > MAX_DIMS as usize {
                return Err(format!(
                    "tensor {quoted} has {} dimensions, accepted: at most {MAX_DIMS}",
                    tensor.dims.len()
                ));
            }
            if !matches!(tensor.layout, Layout::Current | Layout::K64) {
                let name = tensor.layout.format_name(tensor.type_id).unwrap_or("an old layout");
                return Err(format!("tensor {quoted} is {name}, which GGUF cannot hold: convert it"));
            }
            let Some(shape) = tensor.layout.shape(tensor.type_id, types) else {
                let accepted = types.names().join(", ");
                return Err(format!(
                    "type of tensor {quoted}: found {}, accepted: {accepted}",
                    tensor.type_id
                ));
            };
            let bytes = shape.tensor_bytes(&tensor.dims).map_err(|accepted| {
                format!(
                    "dimensions of tensor {quoted}: found {:?} of {}, accepted: {accepted}",
                    tensor.dims, shape.name
                )
            })?;
            Ok(Planned { name: tensor.name.clone(), bytes })
        })
        .collect()
}
