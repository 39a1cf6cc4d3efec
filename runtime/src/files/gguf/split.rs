//! GGUF models in several files, called shards: `PREFIX-00001-of-00003.gguf` and so on.
//!
//! Any shard leads to the others. The first one has the metadata of the model; the others have their tensors
//! and say where they belong (`split.no`, from 0) and how many they are (`split.count`). A shard that is
//! missing, that is not what its name says, or that does not agree with the first, is an error: a part of a
//! model is no model.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::files::error::{FileError, Quoted};
use crate::files::metadata::Metadata;
use crate::files::model::{Contents, OpenOptions};
use crate::files::parts::{Opened, Part};
use crate::files::types::TypeTable;

/// Keys that a shard has about itself.
pub(crate) const NUMBER: &str = "split.no";
pub(crate) const COUNT: &str = "split.count";
pub(crate) const TENSORS: &str = "split.tensors.count";

/// Opens a GGUF model, with its other shards when there are any.
pub(crate) fn open(part: Part, types: &dyn TypeTable, options: &OpenOptions) -> Result<Opened, FileError> {
    let contents = super::read_part(&part, types)?;
    let count = match contents.metadata.get(COUNT) {
        None => 1,
        Some(value) => contents
            .metadata
            .u64(COUNT)
            .ok_or_else(|| part.inconsistent(COUNT, value, "a whole number, not negative"))?,
    };
    if count <= 1 || options.single_file {
        return Ok(Opened { parts: vec![part], contents });
    }
    let name = ShardName::of(&part, count)?;
    let given = name.number - 1;
    let mut set = ShardSet::default();
    let mut waiting = Some((part, contents));
    for number in 0..count {
        let (part, contents) = match waiting.take_if(|_| number == given) {
            Some(first) => first,
            None => {
                let which = format!("shard {} of {count}", number + 1);
                let part = Part::open_sibling(&name.path(number + 1), &which, "all shards in one directory")?;
                let contents = super::read_part(&part, types)?;
                (part, contents)
            }
        };
        set.add(part, contents, number, count)?;
    }
    set.finish()
}

/// The shards read so far, the first one first.
#[derive(Default)]
struct ShardSet {
    parts: Vec<Part>,
    contents: Option<Contents>,
    names: HashSet<String>,
}

impl ShardSet {
    fn add(&mut self, part: Part, mut shard: Contents, number: u64, count: u64) -> Result<(), FileError> {
        let told = shard.metadata.u64(COUNT);
        if told != Some(count) {
            let found = told.map_or("none".into(), |n| n.to_string());
            return Err(part.inconsistent(
                COUNT,
                found,
                format_args!("{count}, as the shard opened first says"),
            ));
        }
        let told = shard.metadata.u64(NUMBER);
        if told != Some(number) {
            let found = told.map_or("none".into(), |n| n.to_string());
            let accepted =
                format_args!("{number} (counted from 0), since its name says {} of {count}", number + 1);
            return Err(part.inconsistent(NUMBER, found, accepted));
        }
        for tensor in &mut shard.tensors {
            tensor.part = self.parts.len();
            if !self.names.insert(tensor.name.clone()) {
                let found = format_args!("{} which an earlier shard has", Quoted(tensor.name.as_bytes()));
                return Err(part.inconsistent("tensor name", found, "each name once"));
            }
        }
        match &mut self.contents {
            None => self.contents = Some(shard),
            Some(first) => {
                compare(&part, &first.metadata, &shard.metadata)?;
                first.tensors.append(&mut shard.tensors);
                first.warnings.append(&mut shard.warnings);
            }
        }
        self.parts.push(part);
        Ok(())
    }

    fn finish(self) -> Result<Opened, FileError> {
        let Self { parts, contents: Some(contents), .. } = self else {
            unreachable!("there are at least two")
        };
        let found = contents.tensors.len() as u64;
        match contents.metadata.u64(TENSORS) {
            Some(told) if told != found => Err(parts[0].inconsistent(
                TENSORS,
                told,
                format_args!("{found}, which is how many there are"),
            )),
            _ => Ok(Opened { parts, contents }),
        }
    }
}

/// A later shard may repeat what the first says, but not say otherwise about the model as a whole.
fn compare(part: &Part, first: &Metadata, later: &Metadata) -> Result<(), FileError> {
    for key in [TENSORS, "general.architecture"] {
        if let (Some(a), Some(b)) = (first.get(key), later.get(key))
            && a != b
        {
            return Err(part.inconsistent(key, b, format_args!("{a}, as the first shard says")));
        }
    }
    Ok(())
}

/// The parts of the name of a shard.
pub(crate) struct ShardName {
    directory: PathBuf,
    prefix: String,
    /// From 1.
    number: u64,
    count: u64,
}

impl ShardName {
    fn of(part: &Part, count: u64) -> Result<Self, FileError> {
        let name = Self::parse(&part.path).filter(|name| name.count == count);
        name.ok_or_else(|| {
            let found = part.path.file_name().unwrap_or_default().to_string_lossy();
            let accepted = format_args!("PREFIX-00001-of-{count:05}.gguf or another of its {count} shards");
            part.inconsistent("file name of a shard", Quoted(found.as_bytes()), accepted)
        })
    }

    /// Takes a name apart; `None` when it is not that of a shard.
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| -> Option<u64> {
            (text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
        };
        let (number, count) = (digits(number)?, digits(count)?);
        (1..=count).contains(&number).then(|| Self {
            directory: path.parent().unwrap_or(Path::new("")).into(),
            prefix: prefix.into(),
            number,
            count,
        })
    }

    /// The path of a shard, counted from 1.
    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(shard_name(&self.prefix, number, self.count))
    }
}

/// The name of a shard, counted from 1.
pub(crate) fn shard_name(prefix: &str, number: u64, count: u64) -> String {
    format!("{prefix}-{number:05}-of-{count:05}.gguf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_are_taken_apart() {
        let name = ShardName::parse(Path::new("/d/my-model-of-x-00002-of-00013.gguf")).expect("a shard");
        assert_eq!((name.prefix.as_str(), name.number, name.count), ("my-model-of-x", 2, 13));
        assert_eq!(name.path(13), Path::new("/d/my-model-of-x-00013-of-00013.gguf"));
        for other in
            ["m.gguf", "m-1-of-3.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-00003"]
        {
            assert!(ShardName::parse(Path::new(other)).is_none(), "{other}");
        }
    }
}
