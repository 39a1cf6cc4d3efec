//! What a fuzzer does with bytes: reads them as a file of a kind, and uses all of what could be read.
//!
//! A reader may refuse, in one line that names a byte of the file, or hand out a model of which every tensor can be
//! read. All else is a fault, and so is memory out of proportion.

use std::path::Path;

use super::memory::peak;
use quantsmith::files::inspect::summarise;
use quantsmith::files::{FileError, ModelFile};
use quantsmith::kernels::Registry;
use quantsmith::quantise::{Importance, QuantiseOptions, Target, plan};

/// The kinds of files, by the names of their folders in the corpus, with the bytes that they start with.
pub const READERS: &[(&str, &[u8])] =
    &[("gguf", b"GGUF"), ("ggml", b"lmgg"), ("ggmf", b"fmgg"), ("ggjt", b"tjgg"), ("importance", b"")];

/// Bytes that a reader may take beyond the size of the file.
const ALLOWANCE: usize = 64 << 20;

/// Reads bytes as a file of a kind, and uses all of it.
///
/// # Errors
/// The message with which they were refused.
///
/// # Panics
/// When the reader is at fault, or took too much memory.
pub fn read(kind: &str, data: &[u8]) -> Result<(), String> {
    let (_, magic) = READERS.iter().find(|(name, _)| *name == kind).expect("a kind of file");
    within(data.len(), || read_all(kind, magic, data))
}

/// Does work for a file of a size.
///
/// # Panics
/// When it took too much memory.
pub fn within<T>(size: usize, work: impl FnOnce() -> T) -> T {
    let (done, most) = peak(work);
    assert!(most <= size + ALLOWANCE, "{most} bytes for a file of {size}");
    done
}

fn read_all(kind: &str, magic: &[u8], data: &[u8]) -> Result<(), String> {
    let mut bytes = data.to_vec();
    if let Some(start) = bytes.get_mut(..magic.len()) {
        start.copy_from_slice(magic);
    }
    let (name, size, registry) = (Path::new("m"), bytes.len() as u64, Registry::builtin());
    let taken = match kind {
        "importance" => Importance::from_bytes(name, bytes, &registry).map(drop),
        _ => ModelFile::from_bytes(name, bytes, &registry).map(|model| use_all(&model, &registry)),
    };
    taken.map_err(|error| check(&error, size))
}

fn use_all(model: &ModelFile, registry: &Registry) {
    for tensor in model.tensors() {
        assert_eq!(model.data(tensor).len() as u64, tensor.bytes, "{}", tensor.name);
    }
    assert_eq!(summarise(model).tensors.len(), model.tensors().len());
    let options = QuantiseOptions { dry_run: true, ..QuantiseOptions::new(Target::Named("Q4_K_M".into())) };
    if let Ok(plan) = plan(model, &options, registry) {
        assert_eq!(plan.tensors.len(), model.tensors().len());
    }
}

fn check(error: &FileError, size: u64) -> String {
    let message = error.to_string();
    assert!(message.len() < 2000 && !message.contains('\n'), "{message}");
    assert!(error.offset().is_none_or(|at| at <= size), "{message}");
    message
}
