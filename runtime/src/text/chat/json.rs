//! `tojson` as templates for Python expect it: `json.dumps` with its options.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::Formatter;

use super::engine::keyword;
use super::shield;

/// The filter: `ensure_ascii`, `indent`, `separators` and `sort_keys` as Python has them.
pub(super) fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidOperation, format!("tojson: {what}"));
    let indent = match keyword(&kwargs, "indent")?.or(indent) {
        None => None,
        Some(v) if v.is_none() || v.is_undefined() => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let width = v.as_usize().filter(|&w| w <= 64);
                " ".repeat(width.ok_or_else(|| wrong("indent is not a width up to 64"))?)
            }
        }),
    };
    let ascii = keyword(&kwargs, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let sort = keyword(&kwargs, "sort_keys")?.is_some_and(|v| v.is_true());
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(pair) = keyword(&kwargs, "separators")? {
        let mut texts = pair.try_iter()?;
        match (texts.next(), texts.next()) {
            (Some(a), Some(b)) => (item, key) = (a.to_string(), b.to_string()),
            _ => return Err(wrong("separators are not two")),
        }
    }
    kwargs.assert_all_used()?;
    let mut json = serde_json::to_value(value).map_err(|e| wrong(&e.to_string()))?;
    if sort {
        sort_keys(&mut json);
    }
    let mut out = Vec::new();
    let format = Python { item, key, indent, ascii, depth: 0, empty: true };
    json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, format))
        .map_err(|e| wrong(&e.to_string()))?;
    String::from_utf8(out).map_err(|e| wrong(&e.to_string()))
}

fn sort_keys(value: &mut Json) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(sort_keys),
        Json::Object(map) => {
            map.sort_keys();
            map.values_mut().for_each(sort_keys);
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Python's spelling.
struct Python {
    item: String,
    key: String,
    indent: Option<String>,
    ascii: bool,
    depth: usize,
    empty: bool,
}

impl Python {
    fn open(&mut self) {
        self.depth += 1;
        self.empty = true;
    }

    fn close<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(w)?;
        }
        self.empty = false;
        Ok(())
    }

    fn next<W: ?Sized + io::Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if !first {
            w.write_all(self.item.as_bytes())?;
        }
        self.empty = false;
        self.new_line(w)
    }

    fn new_line<W: ?Sized + io::Write>(&self, w: &mut W) -> io::Result<()> {
        if let Some(indent) = &self.indent {
            w.write_all(b"\n")?;
            for _ in 0..self.depth {
                w.write_all(indent.as_bytes())?;
            }
        }
        Ok(())
    }
}

impl Formatter for Python {
    fn begin_array<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.open();
        w.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.close(w)?;
        w.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.next(w, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.open();
        w.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.close(w)?;
        w.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        self.next(w, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(self.key.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, w: &mut W, text: &str) -> io::Result<()> {
        if !self.ascii {
            return w.write_all(text.as_bytes());
        }
        for c in text.chars() {
            // A stand-in is a character of the message in disguise: escaping it would write the disguise.
            if c.is_ascii() || shield::is_stand_in(c) {
                w.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(w, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}
