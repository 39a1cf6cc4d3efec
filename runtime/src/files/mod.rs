//! Model files: containers, metadata, tensors.
//!
//! [`ModelFile::open`] maps a file, reads the whole header and checks it against the length of the file
//! before anything uses it. Lengths, counts, offsets and names are taken for hostile: every count is bounded
//! by the bytes that are left before memory is asked for, all arithmetic on them is checked, and all extents
//! are known to lie in the file, apart from one another, before the first is handed out. So memory is bounded
//! by a small multiple of the size of the header.
//!
//! One interface, several readers: what differs between containers ends at [`ModelFile`]. The formats of
//! blocks come from outside through [`TypeTable`]; this layer knows sizes, not contents.

pub mod convert;
mod cursor;
mod error;
mod experts;
mod gguf;
pub mod inspect;
mod legacy;
mod map;
mod metadata;
mod model;
pub mod ops;
mod parts;
pub mod private;
mod sniff;
mod tensor;
mod trace;
mod types;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use cursor::ByteOrder;
pub use error::FileError;
pub(crate) use error::Quoted;
pub use metadata::Metadata;
pub use model::{Container, ModelFile, OpenOptions};
pub use tensor::TensorInfo;
pub use trace::Trace;
pub use types::{BlockShape, Layout, TypeTable};
pub use value::{Array, Str, Value, ValueType};
pub use write::{GgufWriter, NewTensor, Sealed, discard_unfinished};
