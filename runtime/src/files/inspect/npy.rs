//! A tensor as a NumPy file of f32: format 1.0, little-endian, rows first.

use std::path::Path;

use crate::files::error::FileError;
use crate::files::write::OutputFile;

/// Where the data starts is a multiple of this.
const ALIGNMENT: usize = 64;

/// Writes numbers to a file that NumPy loads; it gets its name when it is complete.
pub struct NpyWriter {
    out: OutputFile,
    left: u64,
}

impl NpyWriter {
    /// Begins a file for a tensor of these dimensions, `ne[0]` first. In NumPy the order is the other way
    /// round.
    ///
    /// # Errors
    /// - the output cannot be written, or is one of the inputs
    pub fn create(path: &Path, inputs: &[&Path], dims: &[u64]) -> Result<Self, FileError> {
        let shape: Vec<String> = dims.iter().rev().map(|d| format!("{d},")).collect();
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})", shape.join(" "));
        header.push_str(", }");
        // Magic, version and the length before it, and a line end behind.
        let before = 10;
        let padded = (before + header.len() + 1).next_multiple_of(ALIGNMENT) - before;
        header.extend(std::iter::repeat_n(' ', padded - header.len() - 1));
        header.push('\n');
        let length = u16::try_from(header.len()).map_err(|_| FileError::Refused {
            path: path.into(),
            what: format!("{} dimensions are more than the header can hold", dims.len()),
        })?;
        let mut out = OutputFile::create(path, inputs)?;
        out.write(b"\x93NUMPY\x01\x00")?;
        out.write(&length.to_le_bytes())?;
        out.write(header.as_bytes())?;
        Ok(Self { out, left: dims.iter().product() })
    }

    /// Appends numbers.
    ///
    /// # Errors
    /// - there are more than the dimensions say, or a fault of the system
    pub fn write(&mut self, numbers: &[f32]) -> Result<(), FileError> {
        if numbers.len() as u64 > self.left {
            return Err(self.out.refuse(format!("{} numbers where {} are left", numbers.len(), self.left)));
        }
        self.left -= numbers.len() as u64;
        let bytes: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.out.write(&bytes)
    }

    /// Brings the file to the disk and gives it its name. Returns its size.
    ///
    /// # Errors
    /// - numbers are missing, or a fault of the system
    pub fn finish(self) -> Result<u64, FileError> {
        if self.left > 0 {
            return Err(self.out.refuse(format!("{} numbers are missing", self.left)));
        }
        self.out.seal()?.commit()
    }
}
