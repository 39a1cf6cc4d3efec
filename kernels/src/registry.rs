//! The formats that a program knows. A registry is a value: the built-in formats, and those that a program adds.

use crate::{Format, formats};
use alloc::vec::Vec;

/// The formats that a program knows.
#[derive(Clone, Debug)]
pub struct Registry {
    formats: Vec<&'static Format>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Registry {
    /// The formats of this crate.
    pub fn builtin() -> Self {
        Registry { formats: formats::families().flatten().copied().collect() }
    }

    /// Adds a format; one of the same name or number takes the place of the earlier one.
    #[must_use]
    pub fn with(mut self, format: &'static Format) -> Self {
        self.formats
            .retain(|f| (f.id.is_none() || f.id != format.id) && !f.name.eq_ignore_ascii_case(format.name));
        self.formats.push(format);
        self
    }

    /// The format that a number in a file stands for.
    pub fn by_id(&self, number: u32) -> Option<&'static Format> {
        self.iter().find(|f| f.number() == number)
    }

    /// The format with a name, in any case.
    pub fn by_name(&self, name: &str) -> Option<&'static Format> {
        self.iter().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    /// Every format, in the order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = &'static Format> + '_ {
        self.formats.iter().copied()
    }
}
