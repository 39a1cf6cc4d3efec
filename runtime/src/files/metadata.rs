//! The metadata of a model: key and value, in the order of the file.
//!
//! Typed reads answer `None` both when a key is absent and when its value is of another kind or does not fit;
//! whoever needs the difference looks at [`Metadata::get`].

use std::collections::HashMap;

use super::value::{Array, Str, Value};

/// An ordered map from key to value.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// Makes an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key: in place when it exists, at the end otherwise.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        match self.index.get(&key) {
            Some(&at) => self.entries[at].1 = value,
            None => {
                self.index.insert(key.clone(), self.entries.len());
                self.entries.push((key, value));
            }
        }
    }

    /// Takes a key out; the order of the others stays.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.index.remove(key)?;
        let (_, value) = self.entries.remove(at);
        for place in self.index.values_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        Some(value)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&at| &self.entries[at].1)
    }

    /// True when the key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A string that is UTF-8.
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(s) => s.as_str(),
            _ => None,
        }
    }

    /// An integer of any width that fits `u32`.
    pub fn u32(&self, key: &str) -> Option<u32> {
        self.get(key)?.as_int()?.try_into().ok()
    }

    /// An integer of any width that fits `u64`.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_int()?.try_into().ok()
    }

    /// An integer of any width that fits `i64`.
    pub fn i64(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_int()?.try_into().ok()
    }

    /// A number: f32, f64 (rounded) or an integer (rounded).
    pub fn f32(&self, key: &str) -> Option<f32> {
        match *self.get(key)? {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            ref other => other.as_int().map(|v| v as f32),
        }
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match *self.get(key)? {
            Value::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Option<&[Str]> {
        match self.get(key)? {
            Value::Array(Array::String(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of f32.
    pub fn f32s(&self, key: &str) -> Option<&[f32]> {
        match self.get(key)? {
            Value::Array(Array::F32(v)) => Some(v),
            _ => None,
        }
    }

    /// An array of integers of any width, or of truth values (0 and 1), when all fit `i64`.
    pub fn ints(&self, key: &str) -> Option<Vec<i64>> {
        fn widen<T: Copy + TryInto<i64>>(v: &[T]) -> Option<Vec<i64>> {
            v.iter().map(|&x| x.try_into().ok()).collect()
        }
        let Value::Array(array) = self.get(key)? else { return None };
        match array {
            Array::U8(v) => widen(v),
            Array::I8(v) => widen(v),
            Array::U16(v) => widen(v),
            Array::I16(v) => widen(v),
            Array::U32(v) => widen(v),
            Array::I32(v) => widen(v),
            Array::U64(v) => widen(v),
            Array::I64(v) => widen(v),
            Array::Bool(v) => widen(v),
            Array::F32(_) | Array::F64(_) | Array::String(_) | Array::Array(_) => None,
        }
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl<K: Into<String>> FromIterator<(K, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let mut metadata = Self::new();
        for (key, value) in entries {
            metadata.insert(key, value);
        }
        metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metadata {
        Metadata::from_iter([
            ("a", Value::U8(7)),
            ("b", Value::I64(-1)),
            ("c", Value::F64(0.5)),
            ("d", Value::String("x".into())),
            ("e", Value::Array(Array::Bool(vec![true, false]))),
            ("f", Value::U64(u64::MAX)),
            ("g", Value::String(Str::from(&b"\xff"[..]))),
            ("h", Value::Array(Array::U64(vec![1, u64::MAX]))),
            ("i", Value::Bool(true)),
        ])
    }

    #[test]
    fn typed_reads_convert_what_fits_and_refuse_the_rest() {
        let m = sample();
        assert_eq!((m.u32("a"), m.u64("a"), m.f32("a"), m.bool("a")), (Some(7), Some(7), Some(7.0), None));
        assert_eq!((m.u32("b"), m.i64("b"), m.f32("b")), (None, Some(-1), Some(-1.0)));
        assert_eq!((m.f32("c"), m.u32("c")), (Some(0.5), None));
        assert_eq!((m.str("d"), m.str("g"), m.str("a")), (Some("x"), None, None));
        assert_eq!(m.ints("e"), Some(vec![1, 0]));
        assert_eq!((m.u64("f"), m.u32("f"), m.i64("f")), (Some(u64::MAX), None, None));
        assert_eq!((m.ints("h"), m.strings("e"), m.f32s("e")), (None, None, None));
        assert_eq!((m.bool("i"), m.u32("i"), m.get("missing")), (Some(true), None, None));
    }

    #[test]
    fn insert_replaces_in_place_and_remove_keeps_the_order() {
        let mut m = sample();
        m.insert("b", Value::U8(1));
        assert_eq!(m.remove("a"), Some(Value::U8(7)));
        assert_eq!(m.remove("a"), None);
        let keys: Vec<&str> = m.iter().map(|(k, _)| k).collect();
        assert_eq!(keys, ["b", "c", "d", "e", "f", "g", "h", "i"]);
        assert_eq!((m.u32("b"), m.bool("i"), m.len()), (Some(1), Some(true), 8));
    }
}
