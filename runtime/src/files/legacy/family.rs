//! Tells the other models of that time from LLaMA, for the message: their files have the same magics and no
//! field that names the model.

use crate::files::error::FileError;
use crate::files::sniff::Magic;

/// What the first numbers after the magic suggest, when it is not LLaMA.
pub(crate) fn guess(magic: Magic, bytes: &[u8]) -> Option<&'static str> {
    let word = |i: usize| bytes.get(4 * i..).and_then(|b| b.first_chunk().copied()).map(u32::from_le_bytes);
    match (magic, word(1)?) {
        (Magic::Ggmf, 100 | 101) => Some("rwkv.cpp"),
        (Magic::Ggml, 4096 | 7168) => Some("MPT"),
        (Magic::Ggml, 50400) => Some("GPT-J"),
        (Magic::Ggml, 50257 | 49152..=49157) => Some("GPT-2 or StarCoder"),
        (Magic::Ggml, 50254 | 50277 | 50280 | 50288 | 50432 | 50688) => Some("GPT-NeoX"),
        (Magic::Ggml, 51865 | 51864) => Some("Whisper"),
        (Magic::Ggml, 65024) => Some("Falcon"),
        (Magic::Ggml, 250_880) => Some("BLOOM"),
        _ => None,
    }
}

/// Says in a refusal that the file is perhaps of another family.
pub(crate) fn explain(error: FileError, family: Option<&'static str>) -> FileError {
    match (error, family) {
        (FileError::Malformed { path, offset, what, found, accepted }, Some(family)) => {
            FileError::Malformed {
                path,
                offset,
                what,
                found,
                accepted: format!("{accepted} (this may be a {family} model, and only LLaMA is read)"),
            }
        }
        (other, _) => other,
    }
}
