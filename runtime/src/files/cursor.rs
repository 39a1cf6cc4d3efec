//! A bounded reader over the bytes of one file.
//!
//! Nothing is read past the end, nothing is allocated for a length that the rest of the file cannot hold, and
//! every error knows its offset.

use std::fmt::{Arguments, Display};
use std::path::Path;

use super::error::{FileError, Quoted};
use super::trace::Trace;

/// The order of the bytes of a multi-byte field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Lowest byte first: nearly every file.
    Little,
    /// Highest byte first: GGUF files made on or for such machines.
    Big,
}

/// A position in a file, and the means to read on from there.
pub(crate) struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    pos: usize,
    order: ByteOrder,
    trace: Option<&'a mut dyn Trace>,
    muted: bool,
}

macro_rules! scalars {
    ($($name:ident: $type:ty;)*) => {$(
        /// Reads one number and names it to the trace.
        pub(crate) fn $name(&mut self, name: Arguments<'_>) -> Result<$type, FileError> {
            let start = self.pos;
            let raw = *self.array(name)?;
            let value = match self.order {
                ByteOrder::Little => <$type>::from_le_bytes(raw),
                ByteOrder::Big => <$type>::from_be_bytes(raw),
            };
            self.note(start, name, format_args!("{value}"));
            Ok(value)
        }
    )*};
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(path: &'a Path, bytes: &'a [u8]) -> Self {
        Self { path, bytes, pos: 0, order: ByteOrder::Little, trace: None, muted: false }
    }

    /// A cursor that tells of every field.
    pub(crate) fn traced(path: &'a Path, bytes: &'a [u8], trace: &'a mut dyn Trace) -> Self {
        Self { trace: Some(trace), ..Self::new(path, bytes) }
    }

    scalars! {
        u8: u8; i8: i8; u16: u16; i16: i16; u32: u32; i32: i32; u64: u64; i64: i64; f32: f32; f64: f64;
    }

    /// Reads a number that stands for something, which the trace is told as well.
    pub(crate) fn code(&mut self, name: Arguments<'_>, says: fn(u32) -> String) -> Result<u32, FileError> {
        let start = self.pos;
        let muted = self.mute(true);
        let value = self.u32(name);
        self.mute(muted);
        let value = value?;
        if self.trace.is_some() {
            self.note(start, name, format_args!("{value} ({})", says(value)));
        }
        Ok(value)
    }

    pub(crate) fn set_order(&mut self, order: ByteOrder) {
        self.order = order;
    }

    pub(crate) fn order(&self) -> ByteOrder {
        self.order
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Goes to a place at or before the end.
    pub(crate) fn seek(&mut self, pos: usize) {
        self.pos = pos.min(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that are still to be read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.pos..]
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// Tells the trace about the field that began at `start` and ends here.
    pub(crate) fn note(&mut self, start: usize, name: Arguments<'_>, meaning: Arguments<'_>) {
        self.note_range(start as u64..self.pos as u64, name, meaning);
    }

    /// Stops or resumes telling the trace; gives what it was before.
    pub(crate) fn mute(&mut self, muted: bool) -> bool {
        std::mem::replace(&mut self.muted, muted)
    }

    /// Tells the trace about bytes elsewhere in the file.
    pub(crate) fn note_range(
        &mut self,
        range: std::ops::Range<u64>,
        name: Arguments<'_>,
        meaning: Arguments<'_>,
    ) {
        if let (Some(trace), false) = (&mut self.trace, self.muted) {
            trace.field(range, name, meaning);
        }
    }

    /// Tells the trace which bytes belong to a tensor.
    pub(crate) fn note_tensor(&mut self, bytes: std::ops::Range<u64>, name: &str) {
        if let Some(trace) = &mut self.trace {
            trace.tensor(bytes, name);
        }
    }

    /// Takes the next `count` bytes, without telling the trace.
    pub(crate) fn take(&mut self, count: u64, name: impl Display) -> Result<&'a [u8], FileError> {
        let left = self.left();
        match usize::try_from(count) {
            Ok(count) if count <= left => {
                let taken = &self.bytes[self.pos..self.pos + count];
                self.pos += count;
                Ok(taken)
            }
            _ => Err(self.fault(
                self.pos,
                name,
                format_args!("a field of {count} bytes"),
                format_args!("at most {left} bytes, which is what is left of the file"),
            )),
        }
    }

    fn array<const N: usize>(&mut self, name: Arguments<'_>) -> Result<&'a [u8; N], FileError> {
        match self.bytes[self.pos..].first_chunk::<N>() {
            Some(raw) => {
                self.pos += N;
                Ok(raw)
            }
            None => Err(self.fault(
                self.pos,
                name,
                format_args!("the end of the file after {} bytes", self.left()),
                format_args!("{N} bytes"),
            )),
        }
    }

    /// Checks a count of things that take at least `least` bytes each against what is left of the file, and
    /// gives it as a size that is safe to allocate for. `at` is where the count stands.
    pub(crate) fn bounded(
        &self,
        count: u64,
        least: u64,
        at: usize,
        name: impl Display,
    ) -> Result<usize, FileError> {
        let most = self.left() as u64 / least.max(1);
        match usize::try_from(count) {
            Ok(fits) if count <= most => Ok(fits),
            _ => Err(self.fault(
                at,
                name,
                count,
                format_args!(
                    "at most {most}, since {} bytes are left and each takes {least} or more",
                    self.left()
                ),
            )),
        }
    }

    /// As [`Cursor::bounded`], and at most `most`: for things that take much more memory than room in the
    /// file.
    pub(crate) fn limited(
        &self,
        count: u64,
        least: u64,
        most: usize,
        at: usize,
        name: impl Display,
    ) -> Result<usize, FileError> {
        match self.bounded(count, least, at, &name)? {
            fits if fits <= most => Ok(fits),
            more => Err(self.fault(at, name, more, format_args!("at most {most}"))),
        }
    }

    /// An error about the field that starts at `at`.
    pub(crate) fn fault(
        &self,
        at: usize,
        what: impl Display,
        found: impl Display,
        accepted: impl Display,
    ) -> FileError {
        FileError::malformed(self.path, at as u64, what, found, accepted)
    }

    /// A refusal of the file as a whole.
    pub(crate) fn refuse(&self, what: String) -> FileError {
        FileError::Refused { path: self.path.into(), what }
    }

    /// Takes `count` bytes that must be UTF-8.
    pub(crate) fn text(&mut self, count: u64, name: Arguments<'_>) -> Result<&'a str, FileError> {
        let start = self.pos;
        let raw = self.take(count, name)?;
        let text = std::str::from_utf8(raw)
            .map_err(|e| self.fault(start + e.valid_up_to(), name, Quoted(raw), "UTF-8 text"))?;
        self.note(start, name, format_args!("{}", Quoted(raw)));
        Ok(text)
    }
}
