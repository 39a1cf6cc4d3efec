//! Measured importance of the columns of matrices ("imatrix"): read from GGUF, or from the binary form before it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::files::{FileError, ModelFile, Quoted, TypeTable, Value};

/// How much each column of each matrix weighs: the mean square of what is multiplied with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Importance {
    /// The file.
    pub path: PathBuf,
    /// The text that it was measured on, as the file names it.
    pub dataset: Option<String>,
    /// In how many pieces of text.
    pub chunks: Option<u32>,
    columns: HashMap<String, Vec<f32>>,
}

/// How a GGUF file starts.
const MAGIC: &[u8] = b"GGUF";

/// Endings of the two tensors that a GGUF file has for a matrix.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Most bytes of a file of the binary form: it is read as a whole.
const MAX_BYTES: u64 = 1 << 30;

impl Importance {
    /// Reads a file of either form.
    ///
    /// # Errors
    /// - the file cannot be read, or has neither form
    /// - a number in it is negative or not finite
    pub fn read(path: &Path, types: &dyn TypeTable) -> Result<Self, FileError> {
        let io = |e| FileError::io(path, "read the file", e);
        let mut file = fs::File::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut bytes).map_err(io)?;
        if bytes == MAGIC {
            return Self::from_gguf(path, &ModelFile::open(path, types)?);
        }
        let size = file.metadata().map_err(io)?.len();
        if size > MAX_BYTES {
            return Err(refuse(path, format!("{size} bytes of importance, accepted: at most {MAX_BYTES}")));
        }
        file.read_to_end(&mut bytes).map_err(io)?;
        Self::from_binary(path, &bytes)
    }

    /// Reads what is in memory already. `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`Importance::read`], without those of the file system.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, types: &dyn TypeTable) -> Result<Self, FileError> {
        if bytes.starts_with(MAGIC) {
            return Self::from_gguf(name, &ModelFile::from_bytes(name, bytes, types)?);
        }
        Self::from_binary(name, &bytes)
    }

    /// Takes only numbers that can weigh something.
    fn checked(self) -> Result<Self, FileError> {
        let wrong = |values: &[f32]| values.iter().copied().find(|v| !v.is_finite() || *v < 0.0);
        match self.columns.iter().find_map(|(name, values)| Some((name, wrong(values)?))) {
            Some((name, value)) => {
                let name = Quoted(name.as_bytes());
                Err(refuse(&self.path, format!("importance of {name}: found {value}, accepted: 0 or more")))
            }
            None => Ok(self),
        }
    }

    fn from_gguf(path: &Path, file: &ModelFile) -> Result<Self, FileError> {
        let metadata = file.metadata();
        let mut found = Self {
            path: path.into(),
            dataset: metadata
                .strings("imatrix.datasets")
                .and_then(|d| d.first())
                .map(|d| d.to_string_lossy().into()),
            chunks: metadata.u32("imatrix.chunk_count"),
            columns: HashMap::new(),
        };
        for sums in file.tensors().iter() {
            let Some(name) = sums.name.strip_suffix(SUMS) else { continue };
            let counts = file.tensor(&format!("{name}{COUNTS}"));
            let Some(counts) = counts.filter(|c| c.type_id == 0 && sums.type_id == 0) else {
                let name = Quoted(sums.name.as_bytes());
                return Err(refuse(path, format!("no counts of f32 for {name}")));
            };
            let (values, counts) = (floats(&file.data(sums)), floats(&file.data(counts)));
            let columns = values.len() / counts.len().max(1);
            if columns == 0 || columns * counts.len() != values.len() {
                let (values, counts) = (values.len(), counts.len());
                let name = Quoted(sums.name.as_bytes());
                return Err(refuse(
                    path,
                    format!("{values} sums and {counts} counts for {name} do not go together"),
                ));
            }
            let means = values.chunks(columns).zip(&counts).flat_map(|(sums, &count)| {
                // What was never used is worth what its neighbours are.
                sums.iter().map(move |sum| if count > 0.0 { sum / count } else { 1.0 })
            });
            found.columns.insert(name.into(), means.collect());
        }
        if found.columns.is_empty() {
            return Err(refuse(path, format!("no tensor ends in '{SUMS}': this is no file of importance")));
        }
        found.checked()
    }

    fn from_binary(path: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        let mut rest = Bytes { path, all: bytes, at: 0 };
        let mut found = Self { path: path.into(), ..Self::default() };
        let entries = rest.count("number of entries", 13)?;
        for _ in 0..entries {
            let length = rest.count("length of a name", 1)?;
            let name = String::from_utf8_lossy(rest.take(length)?).into_owned();
            let calls = rest.word()?;
            let values = rest.count("number of values", 4)?;
            let scale = if calls > 0 { calls as f32 } else { 1.0 };
            let values = floats(rest.take(4 * values)?).into_iter().map(|v| v / scale).collect();
            found.columns.insert(name, values);
        }
        // Newer files end with the number of chunks and the name of the text.
        if rest.at < bytes.len() {
            found.chunks = u32::try_from(rest.word()?).ok();
            let length = rest.count("length of the name of the text", 1)?;
            found.dataset = Some(String::from_utf8_lossy(rest.take(length)?).into_owned());
        }
        found.checked()
    }

    /// The number of matrices.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Keeps the matrices whose names hold one of these, or leaves them out.
    pub fn filter(&mut self, parts: &[String], keep: bool) {
        self.columns.retain(|name, _| parts.iter().any(|part| name.contains(part.as_str())) == keep);
    }

    /// The importance of a matrix's columns: one number for each, or one for each of each expert.
    pub(super) fn of(&self, name: &str) -> Option<&[f32]> {
        self.columns.get(name).map(Vec::as_slice)
    }

    /// What is said about it in the file that was made with it.
    pub(super) fn metadata(&self) -> Vec<(&'static str, Value)> {
        let text = |t: &str| Value::String(t.into());
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut all = vec![("quantize.imatrix.file", text(&file))];
        all.extend(self.dataset.as_deref().map(|d| ("quantize.imatrix.dataset", text(d))));
        all.push(("quantize.imatrix.entries_count", Value::U32(self.len() as u32)));
        all.extend(self.chunks.map(|c| ("quantize.imatrix.chunks_count", Value::U32(c))));
        all
    }
}

fn refuse(path: &Path, what: String) -> FileError {
    FileError::Refused { path: path.into(), what }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// What is left of a file of the binary form.
struct Bytes<'a> {
    path: &'a Path,
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FileError> {
        let left = self.all.len() - self.at;
        if count > left {
            let what = format!(
                "byte {}: {count} bytes expected, {left} left: this is no file of importance",
                self.at
            );
            return Err(refuse(self.path, what));
        }
        self.at += count;
        Ok(&self.all[self.at - count..self.at])
    }

    fn word(&mut self) -> Result<i32, FileError> {
        let b = self.take(4)?;
        Ok(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// A number of things that take so many bytes each, or more, and must fit the rest of the file.
    fn count(&mut self, what: &str, each: usize) -> Result<usize, FileError> {
        let at = self.at;
        let found = self.word()?;
        let most = (self.all.len() - self.at) / each;
        usize::try_from(found).ok().filter(|n| *n <= most).ok_or_else(|| {
            let what = format!(
                "byte {at}: {what}: found {found}, accepted: 0 to {most}: this is no file of importance"
            );
            refuse(self.path, what)
        })
    }
}
