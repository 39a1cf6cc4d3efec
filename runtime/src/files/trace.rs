//! What a reader tells about each field while it reads.
//!
//! One parser serves both opening and showing a file: every field it reads passes through a [`Trace`], if
//! there is one. So what is shown is what is read.

use std::fmt::Arguments;
use std::ops::Range;

/// Receives the fields of a file in file order, each byte at most once.
pub trait Trace {
    /// Takes one field: its bytes in the file, its name and its decoded meaning.
    fn field(&mut self, bytes: Range<u64>, name: Arguments<'_>, meaning: Arguments<'_>);

    /// Learns that fields that were just told, and any that are told of these bytes later, are those of a
    /// tensor.
    fn tensor(&mut self, bytes: Range<u64>, name: &str) {
        let _ = (bytes, name);
    }
}
