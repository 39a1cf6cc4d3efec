//! The bytes of a file, mapped into memory.
//!
//! This file holds the only unsafe lines of the file layer.

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::error::FileError;

/// All bytes of one file.
pub(crate) enum FileBytes {
    /// Mapped from a file.
    Mapped(Mmap),
    /// Held in memory: an empty file, which cannot be mapped, or bytes that never were a file.
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Maps a regular file, whatever is in it.
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        // Asked before opening, since opening a pipe waits for a writer.
        let kind = fs::metadata(path).map_err(|e| FileError::io(path, "open the file", e))?.file_type();
        if !kind.is_file() {
            let found = if kind.is_dir() { "is a directory" } else { "is not a regular file" };
            return Err(FileError::NotAModel {
                path: path.into(),
                found: found.into(),
                accepted: "a model file".into(),
            });
        }
        let file = File::open(path).map_err(|e| FileError::io(path, "open the file", e))?;
        let length = file.metadata().map_err(|e| FileError::io(path, "ask for the length", e))?.len();
        if length == 0 {
            return Ok(Self::Owned(Vec::new()));
        }
        if usize::try_from(length).is_err() {
            return Err(FileError::io(path, "map the file", io::ErrorKind::FileTooLarge.into()));
        }
        // SAFETY: the map is private and read-only, so nothing here writes through it, and it is only handed
        // out as plain bytes, for which every content is valid. What remains is that another process changes
        // or cuts the file while it is mapped. No check can rule that out and every engine that maps its
        // weights accepts it; docs/security.md says so. All lengths are checked against the length of the
        // map, not of the file.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| FileError::io(path, "map the file", e))?;
        Ok(Self::Mapped(map))
    }
}

impl FileBytes {
    /// Gives memory back to the system: that of the whole pages of `part`, if it lies in this map. What is read there
    /// later comes from the file again.
    pub(crate) fn release(&self, part: &[u8]) {
        const PAGE: usize = 4096;
        let Self::Mapped(map) = self else { return };
        let Some(at) = (part.as_ptr() as usize).checked_sub(map.as_ptr() as usize) else { return };
        if at + part.len() > map.len() {
            return;
        }
        let (start, end) = (at.next_multiple_of(PAGE), (at + part.len()) / PAGE * PAGE);
        if start < end {
            release(map, start, end - start);
        }
    }
}

/// A hint: where it fails, memory stays taken.
#[cfg(target_os = "linux")]
fn release(map: &Mmap, start: usize, len: usize) {
    // SAFETY: the map is of a file and never written, so pages that are dropped come back with the same content.
    let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len) };
}

#[cfg(not(target_os = "linux"))]
fn release(_map: &Mmap, _start: usize, _len: usize) {}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Mapped(_) => "mapped",
            Self::Owned(_) => "owned",
        };
        write!(f, "{} bytes, {kind}", self.len())
    }
}
