//! Magic, version, hyperparameters and vocabulary.

use std::fmt;

use crate::files::cursor::Cursor;
use crate::files::error::{FileError, Quoted};
use crate::files::legacy::records;
use crate::files::model::Container;
use crate::files::sniff::Magic;
use crate::files::types::Layout;

/// How many entries before the stated end of the vocabulary the first tensor may already stand: the first
/// converters wrote fewer entries than they said.
const LOOK_AHEAD: usize = 16;

/// The numbers of the header, in their order.
const HYPERPARAMETERS: [&str; 7] = ["n_vocab", "n_embd", "n_mult", "n_head", "n_layer", "n_rot", "ftype"];

/// Most entries of a vocabulary: twice what the largest models have.
const MAX_VOCABULARY: usize = 1 << 19;

/// What stands before the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) container: Container,
    pub(crate) n_vocab: u32,
    pub(crate) n_embd: u32,
    pub(crate) n_mult: u32,
    pub(crate) n_head: u32,
    pub(crate) n_layer: u32,
    pub(crate) n_rot: u32,
    /// Without the quantisation version.
    pub(crate) ftype: u32,
    /// The layout of the blocks in this file.
    pub(crate) layout: Layout,
}

impl Header {
    /// Elements of one head; not zero.
    pub(crate) fn head_size(&self) -> u32 {
        self.n_embd / self.n_head
    }

    /// All numbers, with their names.
    pub(crate) fn hyperparameters(&self) -> Vec<(&'static str, u32)> {
        let Self { n_vocab, n_embd, n_mult, n_head, n_layer, n_rot, ftype, .. } = *self;
        let values = [n_vocab, n_embd, n_mult, n_head, n_layer, n_rot, ftype];
        HYPERPARAMETERS.into_iter().zip(values).collect()
    }

    pub(crate) fn has_scores(&self) -> bool {
        self.container != Container::Ggml
    }

    /// Tensor data starts at multiples of this.
    pub(crate) fn alignment(&self) -> u64 {
        if matches!(self.container, Container::Ggjt { .. }) { 32 } else { 1 }
    }
}

/// One entry of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) score: Option<f32>,
}

/// Reads from the magic to the hyperparameters.
pub(crate) fn read(cursor: &mut Cursor<'_>, magic: Magic) -> Result<Header, FileError> {
    let container = read_container(cursor, magic)?;
    let mut at = [0; 7];
    let mut words = [0; 7];
    for (i, name) in HYPERPARAMETERS.iter().enumerate() {
        at[i] = cursor.pos();
        words[i] = cursor.u32(format_args!("{name}"))?;
    }
    let [n_vocab, n_embd, n_mult, n_head, n_layer, n_rot, ftype] = words;
    if n_embd == 0 {
        return Err(cursor.fault(at[1], "n_embd", n_embd, "1 or more"));
    }
    if n_head == 0 || !n_embd.is_multiple_of(n_head) {
        return Err(cursor.fault(
            at[3],
            "n_head",
            n_head,
            format_args!("a divisor of n_embd, which is {n_embd}"),
        ));
    }
    let (layout, ftype) = split_ftype(container, ftype).map_err(|accepted| {
        let what = format_args!("ftype (a quantisation version times 1000, and a type) in {container}");
        cursor.fault(at[6], what, ftype, accepted)
    })?;
    Ok(Header { container, n_vocab, n_embd, n_mult, n_head, n_layer, n_rot, ftype, layout })
}

fn read_container(cursor: &mut Cursor<'_>, magic: Magic) -> Result<Container, FileError> {
    let start = cursor.pos();
    let raw = cursor.take(4, "magic")?;
    let name = match magic {
        Magic::Ggjt => "GGJT",
        Magic::Ggmf => "GGMF",
        Magic::Ggml | Magic::Gguf => "GGML",
    };
    cursor.note(start, format_args!("magic"), format_args!("{} ({name})", Quoted(raw)));
    if magic == Magic::Ggml {
        return Ok(Container::Ggml);
    }
    let at = cursor.pos();
    let version = cursor.u32(format_args!("version"))?;
    match (magic, version) {
        (Magic::Ggjt, 1..=3) => Ok(Container::Ggjt { version }),
        (Magic::Ggjt, _) => Err(cursor.fault(at, "version of GGJT", version, "1, 2 or 3")),
        (_, 1) => Ok(Container::Ggmf),
        _ => Err(cursor.fault(at, "version of GGMF", version, "1")),
    }
}

/// Takes the quantisation version out of ftype, where some tools put it, and finds the layout of blocks: from
/// the container when it says, else from that version.
fn split_ftype(container: Container, ftype: u32) -> Result<(Layout, u32), &'static str> {
    let told = match ftype / 1000 {
        0 => None,
        1 => Some(Layout::V2),
        2 => Some(Layout::Current),
        _ => return Err("a quantisation version of 0, 1 or 2"),
    };
    let layout = match (container, told) {
        (Container::Ggjt { version: 2 }, None | Some(Layout::V2)) => Layout::V2,
        (Container::Ggjt { version: 3 }, None | Some(Layout::Current)) => Layout::Current,
        (Container::Ggjt { version: 2 }, _) => {
            return Err("a quantisation version of 1, as the container has");
        }
        (Container::Ggjt { version: 3 }, _) => {
            return Err("a quantisation version of 2, as the container has");
        }
        (_, told) => told.unwrap_or(Layout::V1),
    };
    Ok((layout, ftype % 1000))
}

/// Reads the vocabulary, which may end early.
pub(crate) fn read_vocabulary<'a>(
    cursor: &mut Cursor<'a>,
    header: &Header,
    warnings: &mut Vec<String>,
) -> Result<Vec<Token<'a>>, FileError> {
    let least = if header.has_scores() { 8 } else { 4 };
    let at = cursor.pos();
    let name = "vocabulary of n_vocab entries";
    let count = cursor.limited(header.n_vocab.into(), least, MAX_VOCABULARY, at, name)?;
    let mut vocabulary = Vec::with_capacity(count);
    for i in 0..count {
        if i + LOOK_AHEAD >= count && records::starts_model(cursor.rest()) {
            warnings.push(format!("the vocabulary has {i} entries where the header says {count}"));
            break;
        }
        let length = cursor.u32(format_args!("length of token {i}"))?;
        let at = cursor.pos();
        let text = cursor.take(length.into(), format_args!("token {i}"))?;
        if length > 0 {
            cursor.note(at, format_args!("token {i}"), format_args!("{}", Quoted(text)));
        }
        let score =
            if header.has_scores() { Some(cursor.f32(format_args!("score of token {i}"))?) } else { None };
        vocabulary.push(Token { text, score });
    }
    Ok(vocabulary)
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.hyperparameters().into_iter().enumerate() {
            write!(f, "{}{name} {value}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_follows_from_container_and_quantisation_version() {
        let ggjt = |version| Container::Ggjt { version };
        for (container, ftype, expected) in [
            (Container::Ggml, 2, Some((Layout::V1, 2))),
            (Container::Ggml, 1002, Some((Layout::V2, 2))),
            (Container::Ggml, 2002, Some((Layout::Current, 2))),
            (Container::Ggmf, 3, Some((Layout::V1, 3))),
            (ggjt(1), 8, Some((Layout::V1, 8))),
            (ggjt(1), 2008, Some((Layout::Current, 8))),
            (ggjt(2), 9, Some((Layout::V2, 9))),
            (ggjt(2), 1009, Some((Layout::V2, 9))),
            (ggjt(2), 2009, None),
            (ggjt(3), 15, Some((Layout::Current, 15))),
            (ggjt(3), 2002, Some((Layout::Current, 2))),
            (ggjt(3), 1002, None),
            (Container::Ggml, 3002, None),
        ] {
            assert_eq!(split_ftype(container, ftype).ok(), expected, "{container} {ftype}");
        }
    }
}
