//! SHA-256 of tensors and of models.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::files::model::ModelFile;

/// The hashes of a model, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hashes {
    /// Of all bytes of all files.
    pub file: String,
    /// Of the data of all tensors in order, without padding: the same however a model is split or aligned.
    pub tensor_data: String,
    /// Of the data of each tensor, with its name.
    pub tensors: Vec<(String, String)>,
}

/// Hashes a model: the data as it is handed out, so that a file and its copy in the other byte order agree.
pub fn hash(model: &ModelFile) -> Hashes {
    let mut file = Sha256::new();
    for bytes in model.raw_files() {
        file.update(bytes);
    }
    let mut all = Sha256::new();
    let tensors = model.tensors().iter().map(|tensor| {
        let data = model.data(tensor);
        all.update(&data);
        (tensor.name.clone(), hex(&Sha256::digest(&data)))
    });
    let tensors = tensors.collect();
    Hashes { file: hex(&file.finalize()), tensor_data: hex(&all.finalize()), tensors }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
