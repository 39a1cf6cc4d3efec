//! Private formats in GGUF files.
//!
//! A number says which block layout a tensor has only as long as one body hands the numbers out. A format that somebody
//! declared for herself has a number that follows from its declaration, and a file that uses it says which formats it
//! means, by name and by the digest of the declaration, under two keys. A program that has not got the format, or has
//! another one of that name, can so say what is missing, and never takes one layout for another.

use std::borrow::Cow;

use quantsmith_kernels::PRIVATE;

use super::metadata::Metadata;
use super::types::TypeTable;
use super::value::{Array, Str, Value};

/// The key of the names of the private formats of a file.
pub const NAMES: &str = "quantsmith.formats.names";

/// The key of their digests: SHA-256 of the declarations, in hexadecimal digits, in the order of the names.
pub const DIGESTS: &str = "quantsmith.formats.digests";

/// Whether a number is that of a private format.
pub(crate) fn is_private(type_id: u32) -> bool {
    type_id & PRIVATE != 0
}

/// Why a private format of a file is not one of this program, or `None` if it is.
pub(crate) fn refusal(type_id: u32, metadata: &Metadata, types: &dyn TypeTable) -> Option<String> {
    let Some((name, digest)) = named(type_id, metadata) else {
        return Some(format!("{type_id} (no known type), nor a private format that '{NAMES}' names"));
    };
    let known = types.shape(type_id).filter(|shape| shape.name.eq_ignore_ascii_case(name));
    if known.is_some() && types.digest(type_id).is_some_and(|ours| ours.eq_ignore_ascii_case(digest)) {
        return None;
    }
    let start = digest.get(..12).unwrap_or(digest);
    Some(if types.shape_named(name).is_some() {
        format!("the private format {name} of another declaration (digest {start}…) than this program's")
    } else {
        format!(
            "the private format {name} (digest of its declaration {start}…), which this program has not got"
        )
    })
}

/// What a file calls a private format.
fn named(type_id: u32, metadata: &Metadata) -> Option<(&str, &str)> {
    let (names, digests) = (metadata.strings(NAMES)?, metadata.strings(DIGESTS)?);
    let pairs =
        names.iter().zip(digests).filter_map(|(name, digest)| Some((name.as_str()?, digest.as_str()?)));
    let is_it = |digest: &str| {
        digest.get(..8).and_then(|d| u32::from_str_radix(d, 16).ok()).is_some_and(|d| d | PRIVATE == type_id)
    };
    pairs.into_iter().find(|(_, digest)| is_it(digest))
}

/// The metadata of a file with tensors of these types: with the keys that say what its private formats are, or without
/// them where there are none.
pub(crate) fn declare<'m>(
    metadata: &'m Metadata,
    type_ids: impl Iterator<Item = u32>,
    types: &dyn TypeTable,
) -> Cow<'m, Metadata> {
    let (mut names, mut digests) = (Vec::<Str>::new(), Vec::<Str>::new());
    for type_id in type_ids.filter(|id| is_private(*id)) {
        let (Some(shape), Some(digest)) = (types.shape(type_id), types.digest(type_id)) else { continue };
        if !digests.iter().any(|d| d.as_str() == Some(digest.as_str())) {
            names.push(shape.name.into());
            digests.push(digest.as_str().into());
        }
    }
    let mut metadata = Cow::Borrowed(metadata);
    for (key, values) in [(NAMES, names), (DIGESTS, digests)] {
        if !values.is_empty() {
            metadata.to_mut().insert(key, Value::Array(Array::String(values)));
        } else if metadata.get(key).is_some() {
            metadata.to_mut().remove(key);
        }
    }
    metadata
}
