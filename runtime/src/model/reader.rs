//! Typed reads of the keys of one architecture, with errors that name file, key, what was found and what is accepted.

use crate::error::Error;
use crate::files::{Metadata, ModelFile};
use std::fmt::Display;

/// Reads keys that start with the name of the architecture.
pub(crate) struct Reader<'a> {
    file: &'a ModelFile,
    arch: &'a str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a ModelFile, arch: &'a str) -> Self {
        Reader { file, arch }
    }

    fn metadata(&self) -> &'a Metadata {
        self.file.metadata()
    }

    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// An error about a key.
    pub(crate) fn refuse(&self, key: &str, found: impl Display, accepted: impl Display) -> Error {
        Error::Metadata {
            path: self.file.path().into(),
            key: self.full(key),
            found: found.to_string(),
            accepted: accepted.to_string(),
        }
    }

    fn found(&self, key: &str) -> &'static str {
        if self.metadata().get(&self.full(key)).is_some() {
            "found a value of another kind"
        } else {
            "not there"
        }
    }

    /// A count, when the key is there.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, Error> {
        let full = self.full(key);
        match self.metadata().u32(&full) {
            Some(value) => Ok(Some(value as usize)),
            None if self.metadata().get(&full).is_none() => Ok(None),
            None => Err(self.refuse(key, self.found(key), "an integer below 2^32")),
        }
    }

    /// A count that must be there and be at least one.
    pub(crate) fn positive(&self, key: &str) -> Result<usize, Error> {
        match self.count(key)? {
            Some(0) => Err(self.refuse(key, "found 0", "at least 1")),
            Some(value) => Ok(value),
            None => Err(self.refuse(key, "not there", "an integer from 1")),
        }
    }

    /// A count per layer: one number for all, or an array with one for each.
    pub(crate) fn per_layer(
        &self,
        key: &str,
        layers: usize,
        absent: Option<&[usize]>,
    ) -> Result<Vec<usize>, Error> {
        let full = self.full(key);
        if let Some(value) = self.metadata().u32(&full) {
            return Ok(vec![value as usize; layers]);
        }
        let accepted = || format!("an integer, or an array of {layers} integers below 2^32");
        let Some(list) = self.metadata().ints(&full) else {
            return match (self.metadata().get(&full), absent) {
                (None, Some(list)) => Ok(list.to_vec()),
                _ => Err(self.refuse(key, self.found(key), accepted())),
            };
        };
        if list.len() != layers {
            return Err(self.refuse(key, format_args!("found an array of {}", list.len()), accepted()));
        }
        let fits = |&v: &i64| u32::try_from(v).map(|v| v as usize);
        list.iter()
            .map(fits)
            .collect::<Result<_, _>>()
            .map_err(|_| self.refuse(key, "found a value outside", accepted()))
    }

    /// A truth value, when the key is there.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        let full = self.full(key);
        match self.metadata().bool(&full) {
            Some(value) => Ok(Some(value)),
            None if self.metadata().get(&full).is_none() => Ok(None),
            None => Err(self.refuse(key, self.found(key), "true or false")),
        }
    }

    /// A truth value for each layer, when the key holds an array.
    pub(crate) fn flags(&self, key: &str, layers: usize) -> Result<Option<Vec<bool>>, Error> {
        let Some(list) = self.metadata().ints(&self.full(key)) else { return Ok(None) };
        if list.len() != layers {
            let accepted = format!("an integer, or an array of {layers} truth values");
            return Err(self.refuse(key, format_args!("found an array of {}", list.len()), accepted));
        }
        Ok(Some(list.iter().map(|&v| v != 0).collect()))
    }

    /// A finite number, when the key is there.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>, Error> {
        let full = self.full(key);
        match self.metadata().f32(&full) {
            Some(value) if value.is_finite() => Ok(Some(value)),
            Some(value) => Err(self.refuse(key, format_args!("found {value}"), "a finite number")),
            None if self.metadata().get(&full).is_none() => Ok(None),
            None => Err(self.refuse(key, self.found(key), "a number")),
        }
    }

    /// A text, when the key is there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        let full = self.full(key);
        match self.metadata().str(&full) {
            Some(value) => Ok(Some(value)),
            None if self.metadata().get(&full).is_none() => Ok(None),
            None => Err(self.refuse(key, self.found(key), "a text in UTF-8")),
        }
    }
}
