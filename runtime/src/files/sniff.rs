//! Tells from the first bytes which container a file is, or what it is instead.

use std::path::Path;

use super::error::FileError;

/// The first four bytes of each container that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Magic {
    Gguf,
    Ggml,
    Ggmf,
    Ggjt,
}

const ACCEPTED: &str = "a GGUF, GGML, GGMF or GGJT model file";

/// Beginnings of files that people mistake for a model, and what to say.
const LOOKALIKES: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "starts like a zip archive, perhaps a PyTorch checkpoint, which must be converted first"),
    (b"\x80\x02", "starts like a pickle, perhaps a PyTorch checkpoint, which must be converted first"),
    (b"\x80\x04", "starts like a pickle, perhaps a PyTorch checkpoint, which must be converted first"),
    (b"\x89HDF\r\n", "starts like an HDF5 file, which must be converted first"),
    (b"\x1f\x8b", "starts like a gzip archive, which must be unpacked first"),
    (b"\xfd7zXZ", "starts like an xz archive, which must be unpacked first"),
    (b"\x28\xb5\x2f\xfd", "starts like a zstd archive, which must be unpacked first"),
    (b"BZh", "starts like a bzip2 archive, which must be unpacked first"),
    (b"7z\xbc\xaf\x27\x1c", "starts like a 7z archive, which must be unpacked first"),
    (b"\x7fELF", "is a program"),
    (b"MZ", "is a program"),
    (b"version https://git-lfs", "is a Git LFS pointer: the model itself has not been fetched"),
    (b"<!DOCTYPE", "is a web page, perhaps left by a failed download"),
    (b"<!doctype", "is a web page, perhaps left by a failed download"),
    (b"<html", "is a web page, perhaps left by a failed download"),
    (b"FUGG", "starts with 'FUGG', the GGUF magic reversed, which no writer makes"),
    (b"algg", "is a GGLA adapter (LoRA), which is not a model by itself"),
    (b"nsgg", "is a GGSN session file, which holds a state and not a model"),
    (b"ccgg", "is a GGCC file (Falcon of ggllm.cpp), which is not supported"),
];

/// Decides which reader a file gets.
pub(crate) fn sniff(path: &Path, bytes: &[u8]) -> Result<Magic, FileError> {
    match bytes.get(..4) {
        Some(b"GGUF") => Ok(Magic::Gguf),
        Some(b"lmgg") => Ok(Magic::Ggml),
        Some(b"fmgg") => Ok(Magic::Ggmf),
        Some(b"tjgg") => Ok(Magic::Ggjt),
        _ => {
            Err(FileError::NotAModel { path: path.into(), found: describe(bytes), accepted: ACCEPTED.into() })
        }
    }
}

/// Says what a file is that is no model.
fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "is empty (0 bytes)".into();
    }
    if bytes.len() < 4 {
        return format!("has only {} bytes", bytes.len());
    }
    if let Some((_, text)) = LOOKALIKES.iter().find(|(start, _)| bytes.starts_with(start)) {
        return (*text).into();
    }
    if is_safetensors(bytes) {
        return "starts like a safetensors file, which must be converted first".into();
    }
    let head = &bytes[..bytes.len().min(512)];
    if head.iter().all(|&b| b >= 0x20 && b != 0x7f || matches!(b, b'\t' | b'\n' | b'\r')) {
        return "is a text file".into();
    }
    let shown: Vec<String> = bytes[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("starts with the bytes {}, which no known container does", shown.join(" "))
}

/// A safetensors file is a 64-bit length, then that many bytes of JSON.
fn is_safetensors(bytes: &[u8]) -> bool {
    match bytes.split_first_chunk::<8>() {
        Some((length, rest)) => {
            rest.first() == Some(&b'{') && u64::from_le_bytes(*length) <= rest.len() as u64
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        sniff(Path::new("m"), bytes).expect_err("this is no model").to_string()
    }

    #[test]
    fn the_four_magics_are_known() {
        let read = |bytes: &[u8]| sniff(Path::new("m"), bytes).expect("a known magic");
        assert_eq!(
            [read(b"GGUF"), read(b"lmgg"), read(b"fmgg"), read(b"tjgg")],
            [Magic::Gguf, Magic::Ggml, Magic::Ggmf, Magic::Ggjt]
        );
    }

    #[test]
    fn what_is_not_a_model_is_named() {
        for (bytes, text) in [
            (&b""[..], "is empty"),
            (b"GG", "has only 2 bytes"),
            (b"PK\x03\x04....", "PyTorch"),
            (b"\x80\x02}q", "pickle"),
            (b"\x02\0\0\0\0\0\0\0{}rest", "safetensors"),
            (b"Once upon a time\n", "is a text file"),
            (b"<!DOCTYPE html>", "failed download"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
            (b"algg\x01\0\0\0", "LoRA"),
            (b"nsgg\x01\0\0\0", "session"),
            (b"FUGG\0\0\0\x03", "reversed"),
            (b"\x00\x01\x02\x03\x04", "00 01 02 03"),
        ] {
            let message = refusal(bytes);
            assert!(message.contains(text) && message.contains("accepted: a GGUF"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
