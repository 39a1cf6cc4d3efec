//! A file that is there as a whole or not at all.
//!
//! It grows under a temporary name in the directory of the target. Only when it is complete and the system
//! has confirmed that it is on the disk does it take the name of the target, in one step. Whatever fails
//! before that leaves the target as it was and removes the temporary file; a program that ends by a signal
//! can do so with [`discard_unfinished`].

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::files::error::FileError;

/// Temporary files that exist now.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Bytes gathered before the system is asked to write.
const BUFFER: usize = 1 << 20;

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of everything that is being written, for a program that is about to end. What would
/// be begun or get its name now waits until `then` returns, which is where the program ends.
pub fn discard_unfinished(then: impl FnOnce()) {
    let mut unfinished = unfinished();
    for path in std::mem::take(&mut *unfinished) {
        // Nothing is left to tell anybody about a failure.
        let _ = fs::remove_file(path);
    }
    then();
}

/// The temporary file, which removes itself unless it is kept.
struct Temporary {
    path: PathBuf,
    target: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if unfinished().remove(&self.path) {
            // The error that led here is told; a second one would hide it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file being written.
pub(crate) struct OutputFile {
    temporary: Temporary,
    file: BufWriter<File>,
    written: u64,
}

impl OutputFile {
    /// Begins a file. None of the inputs may be the target, under whatever name.
    pub(crate) fn create(path: &Path, inputs: &[&Path]) -> Result<Self, FileError> {
        let target = resolve(path, inputs)?;
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let temporary = directory.join(format!(".quantsmith-{}-{number}.partial", std::process::id()));
            // Held until the file is known as unfinished, so that none can be missed.
            let mut unfinished = unfinished();
            match File::create_new(&temporary) {
                Ok(file) => {
                    unfinished.insert(temporary.clone());
                    let temporary = Temporary { path: temporary, target };
                    return Ok(Self { temporary, file: BufWriter::with_capacity(BUFFER, file), written: 0 });
                }
                // Left over from a process of the same number.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(FileError::io(path, "create a file in the directory", e)),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(|e| FileError::io(&self.temporary.target, "write the file", e))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to a multiple of the alignment.
    pub(crate) fn pad(&mut self, alignment: u64) -> Result<(), FileError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut count = self.written.next_multiple_of(alignment) - self.written;
        while count > 0 {
            let now = count.min(ZEROS.len() as u64);
            self.write(&ZEROS[..now as usize])?;
            count -= now;
        }
        Ok(())
    }

    /// An error about what is being written.
    pub(crate) fn refuse(&self, what: String) -> FileError {
        FileError::Refused { path: self.temporary.target.clone(), what }
    }

    /// Brings all bytes to the disk.
    pub(crate) fn seal(self) -> Result<Sealed, FileError> {
        let Self { temporary, file, written } = self;
        let fault = |e| FileError::io(&temporary.target, "bring the file to the disk", e);
        let file = file.into_inner().map_err(|e| fault(e.into_error()))?;
        file.sync_all().map_err(fault)?;
        Ok(Sealed { temporary, written })
    }
}

/// A file that is whole and on the disk, but has not got its name yet. Dropped, it is gone.
pub struct Sealed {
    temporary: Temporary,
    written: u64,
}

impl Sealed {
    /// Where the file is until it gets its name.
    pub fn path(&self) -> &Path {
        &self.temporary.path
    }

    /// Gives the file its name, in place of what had it. Returns the size.
    ///
    /// # Errors
    /// - the system refuses
    pub fn commit(self) -> Result<u64, FileError> {
        let Temporary { path, target } = &self.temporary;
        {
            let mut unfinished = unfinished();
            fs::rename(path, target).map_err(|e| FileError::io(target, "give the file its name", e))?;
            unfinished.remove(path);
        }
        // The name is in the directory, which is a file of its own; where that cannot be done, the name is as
        // safe as the system makes it.
        if let Some(directory) = target.parent()
            && let Ok(directory) = File::open(directory)
        {
            let _ = directory.sync_all();
        }
        Ok(self.written)
    }
}

/// Where the file will really be, if it may be there.
fn resolve(path: &Path, inputs: &[&Path]) -> Result<PathBuf, FileError> {
    let refuse = |what: &str| FileError::Refused { path: path.into(), what: what.into() };
    if path.file_name().is_none() {
        return Err(refuse("the output has no file name"));
    }
    let existing = match fs::metadata(path) {
        Ok(existing) => existing,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(path.into()),
        Err(e) => return Err(FileError::io(path, "ask for the output", e)),
    };
    if existing.is_dir() {
        return Err(refuse("the output is a directory"));
    }
    if !existing.is_file() {
        return Err(refuse("the output is not a regular file"));
    }
    if inputs.iter().any(|input| is_same(path, &existing, input)) {
        return Err(refuse("the output is the input"));
    }
    // A link keeps pointing where it does; the file behind it is replaced.
    fs::canonicalize(path).map_err(|e| FileError::io(path, "follow the links of the output", e))
}

/// True when two paths lead to one file.
#[cfg(unix)]
fn is_same(_: &Path, existing: &fs::Metadata, input: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (existing.dev(), existing.ino()))
}

/// True when two paths lead to one file.
#[cfg(not(unix))]
fn is_same(path: &Path, _: &fs::Metadata, input: &Path) -> bool {
    match (fs::canonicalize(path), fs::canonicalize(input)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
