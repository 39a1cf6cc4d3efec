//! Model to plan: how the codes of a block are fetched, sixteen at a time, found out from where their bits lie.
//!
//! The planner looks at sixteen neighbouring elements and splits their codes into *pieces*: bits that sit together in
//! one byte. A piece whose sixteen bytes are neighbours at one shift is a [`Fetch::Slice`] (load, shift, mask); one
//! whose fields follow each other bit by bit is a [`Fetch::Packed`] (spread). Sixteen elements with neither order are
//! computed one by one: slower, and just as right.

use crate::ast::FieldType;
use crate::model::{Codes, Format, Offset, Part, Source};
use crate::symbol::{Bit, Symbol};

/// Elements of a run.
pub(crate) const RUN: usize = 16;

/// How sixteen stored codes are fetched.
pub(crate) enum Run {
    /// Piece by piece, or-ed together.
    Pieces(Vec<Piece>),
    /// Element by element, from this one.
    Each(usize),
}

/// Bits of sixteen codes that are fetched together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub fetch: Fetch,
    /// Bits of a code that the piece gives.
    pub width: u32,
    /// The lowest of them.
    pub at: u32,
    /// Whether the block holds them inverted.
    pub inverted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Sixteen neighbouring bytes from `byte`, shifted right.
    Slice { byte: usize, shift: u32 },
    /// Sixteen fields of `width` bits one after the other, from `byte`.
    Packed { byte: usize },
}

/// Where a part's values lie in a record of sixteen rows.
pub(crate) struct RecordPart {
    /// Type of the floating-point value.
    pub float: FieldType,
    /// Its first byte for group 0, and the step from group to group.
    pub float_at: usize,
    pub float_step: usize,
    /// First byte and step of the whole numbers.
    pub code_at: usize,
    pub code_step: usize,
    pub signed: bool,
    pub has_code: bool,
    pub factor: f32,
}

/// A floating-point value that a record copies from the block.
pub(crate) struct RecordFloat {
    pub ty: FieldType,
    /// Where its bits are in the block.
    pub from: Source,
    /// Byte in the record, for row 0.
    pub to: usize,
}

/// Everything that the emitted code needs to know about a format with codes.
pub(crate) struct Plan {
    pub runs: Vec<Run>,
    /// Bytes of a unit: 32 columns of sixteen rows.
    pub unit: usize,
    /// Bytes of a record: the scale parts of sixteen rows.
    pub record: usize,
    pub floats: Vec<RecordFloat>,
    pub scale: RecordPart,
    pub offset: Option<RecordPart>,
}

/// Rows of a panel.
const ROWS: usize = 16;

pub(crate) fn plan(format: &Format, codes: &Codes) -> Plan {
    let run_of = |n: usize, symbols: &[Symbol]| match (codes.bitwise, run(symbols)) {
        (true, Some(pieces)) => Run::Pieces(pieces),
        _ => Run::Each(n * RUN),
    };
    let one: Vec<_> =
        codes.raw.chunks_exact(RUN).enumerate().map(|(n, symbols)| run_of(n, symbols)).collect();
    let runs = (0..codes.repeat).flat_map(|r| one.iter().map(move |run| run.shifted(r, format))).collect();
    let groups = codes.repeat * format.elements / codes.group;
    let parts: Vec<&Part> =
        [Some(&codes.scale), codes.offset.as_ref().map(|o: &Offset| &o.part)].into_iter().flatten().collect();
    let (mut floats, mut end) = (Vec::<RecordFloat>::new(), 0);
    for part in &parts {
        for (ty, from) in repeated(part, codes, format) {
            if !floats.iter().any(|f| f.from == from) {
                floats.push(RecordFloat { ty, from, to: end });
                end += ROWS * ty.bytes();
            }
        }
    }
    let coded = parts.iter().filter(|p| p.code.is_some()).count();
    let codes_start = end;
    let mut next_code = codes_start;
    let mut place = |part: &Part| {
        let float = repeated(part, codes, format);
        let at = |g: usize| floats.iter().find(|f| f.from == float[g].1).expect("every float has a place").to;
        let placed = RecordPart {
            float: part.float[0].0,
            float_at: at(0),
            float_step: if groups > 1 { at(1) - at(0) } else { 0 },
            code_at: next_code,
            code_step: coded * ROWS,
            signed: part.code.as_ref().is_some_and(|c| c.signed),
            has_code: part.code.is_some(),
            factor: part.factor,
        };
        next_code += if part.code.is_some() { ROWS } else { 0 };
        placed
    };
    let scale = place(&codes.scale);
    let offset = codes.offset.as_ref().map(|o| place(&o.part));
    Plan { runs, unit: 64 * codes.bits as usize, record: end + coded * groups * ROWS, floats, scale, offset }
}

/// A part's floats for the groups of all blocks that the kernels take together.
fn repeated(part: &Part, codes: &Codes, format: &Format) -> Vec<(FieldType, Source)> {
    let shift = |source: &Source, r: usize| match source {
        Source::Byte(byte) => Source::Byte(byte + r * format.bytes),
        Source::Bits(symbol) => Source::Bits(symbol.clone()),
    };
    (0..codes.repeat).flat_map(|r| part.float.iter().map(move |(ty, from)| (*ty, shift(from, r)))).collect()
}

impl Run {
    /// The same run of a later block.
    fn shifted(&self, blocks: usize, format: &Format) -> Run {
        match self {
            Run::Each(at) => Run::Each(at + blocks * format.elements),
            Run::Pieces(pieces) => Run::Pieces(
                pieces
                    .iter()
                    .map(|piece| {
                        let by = blocks * format.bytes;
                        let fetch = match piece.fetch {
                            Fetch::Slice { byte, shift } => Fetch::Slice { byte: byte + by, shift },
                            Fetch::Packed { byte } => Fetch::Packed { byte: byte + by },
                        };
                        Piece { fetch, ..piece.clone() }
                    })
                    .collect(),
            ),
        }
    }
}

/// Finds the pieces of sixteen elements, if they have an order.
fn run(symbols: &[Symbol]) -> Option<Vec<Piece>> {
    let segments: Vec<_> = symbols.iter().map(segments).collect::<Option<_>>()?;
    let first = &segments[0];
    let mut pieces = Vec::with_capacity(first.len());
    for (k, segment) in first.iter().enumerate() {
        let all: Vec<_> = segments.iter().map(|s| s.get(k).copied()).collect::<Option<_>>()?;
        let alike =
            all.iter().all(|s| (s.width, s.at, s.inverted) == (segment.width, segment.at, segment.inverted));
        if !alike || segments.iter().any(|s| s.len() != first.len()) {
            return None;
        }
        let (byte, shift) = (segment.index / 8, segment.index % 8);
        let slice = all.iter().enumerate().all(|(j, s)| s.index == 8 * (byte + j) + shift);
        let packed = matches!(segment.width, 1 | 2 | 4)
            && shift == 0
            && all.iter().enumerate().all(|(j, s)| s.index == segment.index + j * segment.width as usize);
        let fetch = match (slice, packed) {
            (true, _) => Fetch::Slice { byte, shift: shift as u32 },
            (false, true) => Fetch::Packed { byte },
            (false, false) => return None,
        };
        pieces.push(Piece { fetch, width: segment.width, at: segment.at, inverted: segment.inverted });
    }
    Some(pieces)
}

/// Neighbouring bits of one byte that are neighbours in the code too.
#[derive(Clone, Copy)]
struct Segment {
    /// The lowest bit's place in the block.
    index: usize,
    width: u32,
    at: u32,
    inverted: bool,
}

fn segments(symbol: &Symbol) -> Option<Vec<Segment>> {
    let Symbol::Bits { bits, offset: 0 } = symbol else { return None };
    let mut segments = Vec::<Segment>::new();
    for (k, bit) in bits.iter().enumerate() {
        let (index, inverted) = match *bit {
            Bit::Zero => continue,
            Bit::One => return None,
            Bit::Block { index, inverted } => (index, inverted),
        };
        match segments.last_mut() {
            Some(last)
                if last.index + last.width as usize == index
                    && index / 8 == last.index / 8
                    && last.at + last.width == k as u32
                    && last.inverted == inverted =>
            {
                last.width += 1;
            }
            _ => segments.push(Segment { index, width: 1, at: k as u32, inverted }),
        }
    }
    (!segments.is_empty()).then_some(segments)
}
