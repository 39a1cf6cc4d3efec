//! A context in a file, so that a long prompt need not be evaluated twice.
//!
//! The file says which model and which kind of cache it is for, and both must be the same when it is read back: then
//! the session goes on with the same bits. All numbers are little-endian:
//!
//! `QSMSTATE`, u32 version, 32 bytes of the model's identity, u32 and the text of the settings, u64 and the tokens as
//! u32, u64 positions written, then the cells of each layer and head that hold something, keys and then values; at the
//! end the SHA-256 of all before it.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use crate::model::Model;
use crate::session::Session;

const MAGIC: &[u8; 8] = b"QSMSTATE";
/// 1 had rows of a format where cells are not f16.
const VERSION: u32 = 2;
/// Bytes of a tensor that its model's identity is made from, at its begin and at its end.
const SAMPLE: usize = 4096;
/// Longest text of settings.
const SETTINGS: u32 = 1024;

/// Why a context cannot be saved or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file holds something else than was expected.
    #[error("found {found}, expected {expected}")]
    Content {
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
}

impl StateError {
    fn content(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Content { found: found.into(), expected: expected.into() }
    }
}

impl Model {
    /// What makes this model another one than all others: a hash of its metadata, of the shapes of its tensors, and of
    /// the begin and end of each.
    pub fn identity(&self) -> [u8; 32] {
        let file = self.file();
        let mut hash = Sha256::new();
        for (key, value) in file.metadata().iter() {
            hash.update(format!("{key} {value:?}\n"));
        }
        for tensor in file.tensors() {
            hash.update(format!("{} {:?} {}\n", tensor.name, tensor.dims, tensor.type_id));
            let data = file.data(tensor);
            hash.update(&data[..data.len().min(SAMPLE)]);
            hash.update(&data[data.len().saturating_sub(SAMPLE)..]);
        }
        hash.finalize().into()
    }
}

/// Hashes what passes.
struct Hashed<T> {
    inner: T,
    hash: Sha256,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new() }
    }
}

impl<T: Write> Hashed<T> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Hashed<T> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.hash.update(bytes);
        Ok(())
    }
}

impl Session {
    /// Writes the context to a file or whatever else can be written to.
    ///
    /// # Errors
    /// * if that fails
    pub fn save(&mut self, to: impl Write) -> Result<(), StateError> {
        let mut to = Hashed::new(to);
        to.put(MAGIC)?;
        to.put(&VERSION.to_le_bytes())?;
        to.put(&self.model().identity())?;
        let settings = self.model().engine.cache.settings();
        to.put(&(settings.len() as u32).to_le_bytes())?;
        to.put(settings.as_bytes())?;
        to.put(&(self.position() as u64).to_le_bytes())?;
        for token in self.tokens() {
            to.put(&token.to_le_bytes())?;
        }
        let written = self.written();
        to.put(&(written as u64).to_le_bytes())?;
        self.each_cell(written, &mut |cells| to.put(cells))?;
        let hash = to.hash.clone().finalize();
        to.inner.write_all(&hash)?;
        Ok(to.inner.flush()?)
    }

    /// Reads a context back that [`Session::save`] wrote. On an error the context is empty.
    ///
    /// # Errors
    /// * if it cannot be read, or is none
    /// * if it is one of another model, of another kind of cache, or longer than there is room for
    pub fn restore(&mut self, from: impl Read) -> Result<(), StateError> {
        let result = self.read_state(from);
        if result.is_err() {
            self.reset();
        }
        result
    }

    fn read_state(&mut self, from: impl Read) -> Result<(), StateError> {
        let mut from = Hashed::new(from);
        self.reset();
        let magic = from.take::<8>()?;
        if magic != *MAGIC {
            let found = format!("{:?} at byte 0", String::from_utf8_lossy(&magic));
            return Err(StateError::content(found, "\"QSMSTATE\" of a saved context"));
        }
        let version = u32::from_le_bytes(from.take()?);
        if version != VERSION {
            return Err(StateError::content(format!("version {version}"), format!("version {VERSION}")));
        }
        if from.take::<32>()? != self.model().identity() {
            return Err(StateError::content("the context of another model", "one of this model"));
        }
        let settings = self.model().engine.cache.settings();
        let mut text = vec![0; u32::from_le_bytes(from.take()?).min(SETTINGS) as usize];
        from.fill(&mut text)?;
        if text != settings.as_bytes() {
            let found: String =
                String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(StateError::content(format!("a cache of {found}"), settings));
        }
        let (context, vocab) = (self.model().context(), self.model().vocab_size());
        let len = u64::from_le_bytes(from.take()?);
        let fits = |n: u64| usize::try_from(n).ok().filter(|&n| n <= context);
        let Some(len) = fits(len) else {
            return Err(StateError::content(
                format!("{len} tokens"),
                format!("at most the {context} of the context (-c)"),
            ));
        };
        let mut tokens = Vec::with_capacity(len);
        for at in 0..len {
            let token = u32::from_le_bytes(from.take()?);
            if token as usize >= vocab {
                return Err(StateError::content(
                    format!("token {token} at {at}"),
                    format!("ids below {vocab}"),
                ));
            }
            tokens.push(token);
        }
        let written = u64::from_le_bytes(from.take()?);
        let Some(written) = fits(written).filter(|&written| written >= len) else {
            return Err(StateError::content(
                format!("{written} positions written"),
                format!("from {len} to the {context} of the context (-c)"),
            ));
        };
        self.each_cell(written, &mut |cells| from.fill(cells))?;
        let hash = from.hash.clone().finalize();
        if from.take::<32>()?[..] != hash[..] {
            return Err(StateError::content("another hash at the end", "the SHA-256 of what is before it"));
        }
        self.set_tokens(&tokens, written);
        Ok(())
    }
}
