//! Model to inverse: which bits of the block make a code or a scale what it should be.
//!
//! The rules of a declaration say what bits mean; quantising asks the other way round. Every code is tabulated over the
//! bits that it depends on, and what the tables show, not how the rules are written, decides:
//!
//! * a code of bits of its own is written bit by bit ([`Codes::Each`]);
//! * a few codes that share a few bits, and can have any values together, are looked up ([`Codes::Joint`]);
//! * else codes that share an index are a row of a grid ([`Codes::Grid`]). A bit that only turns codes to their negative
//!   is a sign; a code that several signs turn has their parity. A bit of several rows is a state that they share.
//!
//! What is none of these can still be run, and quantising to it says why it is not possible.

use crate::ast::FieldType;
use crate::model::{self, Format, Source};
use crate::symbol::{Bit, Symbol, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Where a bit of a value goes: a bit of the block, inverted or not; `None` where nothing is written.
pub(crate) type Place = Option<(usize, bool)>;

/// The inverse of a format's rules.
pub(crate) struct Inverse {
    pub codes: Codes,
    pub scale: Part,
    /// The offset, and whether it is subtracted.
    pub offset: Option<(Part, bool)>,
}

/// How codes are written.
pub(crate) enum Codes {
    /// The bits of each stored code, and the values that stored codes stand for.
    Each { places: Vec<Vec<Place>>, levels: Levels },
    /// Codes that are written together.
    Joint { cells: Vec<Cell>, levels: Vec<i64> },
    /// Rows of a grid.
    Grid(Grid),
}

/// The values of stored codes.
pub(crate) enum Levels {
    /// Whole numbers from the first to the last.
    Range(i64, i64),
    /// The value of each stored code.
    List(Vec<i64>),
}

/// A few codes of the same few bits.
pub(crate) struct Cell {
    pub elements: Vec<usize>,
    pub bits: Vec<usize>,
    /// The bits' values for each combination of codes, the first code counting least.
    pub inverse: Vec<u16>,
}

/// Rows of a grid, one after the other.
pub(crate) struct Grid {
    /// Codes of a row.
    pub width: usize,
    /// For each state and each index, the row's codes without signs.
    pub rows: Vec<i64>,
    /// The bits of each row's index.
    pub index: Vec<Vec<usize>>,
    /// The bits of each group's state.
    pub state: Vec<Vec<usize>>,
    /// The bit of each code's sign; empty where there are no signs.
    pub signs: Vec<Place>,
    /// Codes that must have an even number of signs together; 0 where signs are free.
    pub even: usize,
}

/// How a scale or an offset is written.
pub(crate) struct Part {
    pub ty: FieldType,
    /// The place of the float: one, or one for each group.
    pub floats: Vec<Float>,
    /// The bits of each group's whole number, and the number for every value of them.
    pub bits: Vec<Vec<usize>>,
    pub values: Vec<i64>,
    pub factor: f32,
}

/// The place of a float.
pub(crate) enum Float {
    Byte(usize),
    Bits(Vec<Place>),
}

/// Most bits that a code may depend on.
const MOST_BITS: usize = 16;
/// Most values that codes which are written together can have.
const MOST_LEVELS: usize = 16;
/// Most codes of a row of a grid.
const MOST_WIDTH: usize = 32;
/// Most bits of codes that are written together.
const JOINT_BITS: usize = 12;

/// Finds the inverse, or says why there is none.
pub(crate) fn find(format: &Format, codes: &model::Codes) -> Result<Inverse, String> {
    let mut truths = Truths { format, known: BTreeMap::new(), values: Vec::new() };
    let scale = part(&codes.scale, &mut truths)?;
    let offset = match &codes.offset {
        Some(offset) => Some((part(&offset.part, &mut truths)?, offset.subtracted)),
        None => None,
    };
    if offset.as_ref().is_some_and(|(part, _)| part.floats.len() != scale.floats.len()) {
        return Err("the floats of scale and minimum are not for the same groups".to_string());
    }
    let codes = match each(codes) {
        Some(each) => each,
        None => shared(codes, &mut truths)?,
    };
    if offset.is_some() && matches!(codes, Codes::Grid(_)) {
        return Err("a grid with a minimum has no search yet".to_string());
    }
    Ok(Inverse { codes, scale, offset })
}

/// Codes that are bits of their own.
fn each(codes: &model::Codes) -> Option<Codes> {
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    for symbol in codes.raw.iter().filter(|_| codes.bitwise) {
        let Symbol::Bits { bits, offset: 0 } = symbol else { return None };
        let own = |b: &Bit| match *b {
            Bit::Block { index, inverted } => Some(Some((index, inverted))),
            _ => None,
        };
        let own: Vec<Place> = bits.iter().map(own).collect::<Option<_>>()?;
        if own.len() != codes.bits as usize || !own.iter().flatten().all(|(index, _)| seen.insert(*index)) {
            return None;
        }
        places.push(own);
    }
    let bias = i64::from(codes.bias);
    let levels = match &codes.table {
        None => Levels::Range(-bias, i64::from(codes.max) - bias),
        Some(table) => {
            Levels::List(table[..1 << codes.bits].iter().map(|entry| i64::from(*entry) - bias).collect())
        }
    };
    (!places.is_empty()).then_some(Codes::Each { places, levels })
}

/// Tables of values by bits, one for each shape that a rule takes.
struct Truths<'a> {
    format: &'a Format,
    known: BTreeMap<String, usize>,
    values: Vec<Vec<i64>>,
}

/// A value as a table over some bits.
struct Truth {
    /// Which table.
    shape: usize,
    /// The bits, the first counting least.
    bits: Vec<usize>,
}

impl Truths<'_> {
    fn of(&mut self, symbol: &Symbol) -> Result<Truth, String> {
        let mut bits = Vec::new();
        let tree = symbol.tree().renamed(&mut bits);
        if bits.len() > MOST_BITS {
            return Err(format!(
                "a value depends on {} bits, and at most {MOST_BITS} are searched",
                bits.len()
            ));
        }
        let key = format!("{tree:?}");
        if let Some(shape) = self.known.get(&key) {
            return Ok(Truth { shape: *shape, bits });
        }
        let values = (0..1usize << bits.len()).map(|a| self.value(&tree, a)).collect();
        self.values.push(values);
        self.known.insert(key, self.values.len() - 1);
        Ok(Truth { shape: self.values.len() - 1, bits })
    }

    fn value(&self, tree: &Tree, assignment: usize) -> i64 {
        let tables = |name: &str, index: i64| {
            let table = self.format.tables.iter().find(|t| t.name == name);
            let entry = table.and_then(|t| t.entries.get(usize::try_from(index).ok()?));
            entry.copied().unwrap_or(0)
        };
        tree.value(&tables, &|bit| assignment >> bit & 1 == 1)
    }

    /// Whether a bit only turns the value to its negative.
    fn turns(&self, truth: &Truth, bit: usize) -> bool {
        let values = &self.values[truth.shape];
        let Some(at) = truth.bits.iter().position(|b| *b == bit) else { return true };
        values.iter().enumerate().all(|(a, v)| values[a ^ 1 << at] == -v) && values.iter().any(|v| *v != 0)
    }
}

fn part(part: &model::Part, truths: &mut Truths<'_>) -> Result<Part, String> {
    let one = part.float.iter().all(|f| *f == part.float[0]);
    let float = |(_, source): &(FieldType, Source)| match source {
        Source::Byte(byte) => Ok(Float::Byte(*byte)),
        Source::Bits(Symbol::Bits { bits, offset: 0 }) => Ok(Float::Bits(
            bits.iter()
                .map(|b| match *b {
                    Bit::Block { index, inverted } => Some((index, inverted)),
                    _ => None,
                })
                .collect(),
        )),
        Source::Bits(_) => Err("the bits of a float are computed".to_string()),
    };
    let floats = part.float[..if one { 1 } else { part.float.len() }].iter().map(float);
    let floats = floats.collect::<Result<_, String>>()?;
    let (mut bits, mut values) = (Vec::new(), vec![1]);
    if let Some(code) = &part.code {
        let all: Vec<Truth> = code.values.iter().map(|v| truths.of(v)).collect::<Result<_, _>>()?;
        if all.iter().any(|t| t.shape != all[0].shape || t.bits.len() > 8) {
            return Err("the groups' scales are not all written the same way, in at most 8 bits".to_string());
        }
        values = truths.values[all[0].shape].clone();
        bits = all.into_iter().map(|t| t.bits).collect();
    }
    Ok(Part { ty: part.float[0].0, floats, bits, values, factor: part.factor })
}

/// Codes that share bits.
fn shared(codes: &model::Codes, truths: &mut Truths<'_>) -> Result<Codes, String> {
    let all: Vec<Truth> = codes.raw.iter().map(|s| truths.of(s)).collect::<Result<_, _>>()?;
    // Stored codes to the values that they stand for.
    let bias = i64::from(codes.bias);
    for values in &mut truths.values {
        for value in values.iter_mut() {
            *value = match (&codes.each.values, &codes.table) {
                (Some(_), _) => *value,
                (None, Some(table)) => i64::from(table[*value as usize & 15]) - bias,
                (None, None) => *value - bias,
            };
        }
    }
    let mut users = BTreeMap::<usize, Vec<usize>>::new();
    for (i, truth) in all.iter().enumerate() {
        truth.bits.iter().for_each(|bit| users.entry(*bit).or_default().push(i));
    }
    match joint(&all, &users, truths) {
        Some(joint) => Ok(joint),
        None => grid(&all, &users, truths, codes.group).map(Codes::Grid),
    }
}

/// Small sets of codes over the same bits, in which every combination of values occurs.
fn joint(all: &[Truth], users: &BTreeMap<usize, Vec<usize>>, truths: &Truths<'_>) -> Option<Codes> {
    let levels: BTreeSet<i64> = all.iter().flat_map(|t| truths.values[t.shape].iter().copied()).collect();
    let levels: Vec<i64> = levels.into_iter().collect();
    if levels.len() > MOST_LEVELS {
        return None;
    }
    let mut taken = vec![false; all.len()];
    let mut cells = Vec::new();
    for first in 0..all.len() {
        if taken[first] {
            continue;
        }
        let (mut elements, mut bits) = (vec![first], Vec::<usize>::new());
        taken[first] = true;
        let mut next = 0;
        while next < elements.len() {
            for bit in &all[elements[next]].bits {
                if bits.contains(bit) {
                    continue;
                }
                bits.push(*bit);
                for user in &users[bit] {
                    if !std::mem::replace(&mut taken[*user], true) {
                        elements.push(*user);
                    }
                }
            }
            next += 1;
        }
        elements.sort_unstable();
        bits.sort_unstable();
        let combinations = levels.len().checked_pow(elements.len() as u32)?;
        if bits.len() > JOINT_BITS || combinations > 1 << JOINT_BITS {
            return None;
        }
        let mut inverse = vec![u16::MAX; combinations];
        for assignment in (0..1usize << bits.len()).rev() {
            let mut combination = 0;
            for element in elements.iter().rev() {
                let truth = &all[*element];
                let own = truth.bits.iter().enumerate().map(|(k, bit)| {
                    let at = bits.iter().position(|b| b == bit).unwrap_or(0);
                    (assignment >> at & 1) << k
                });
                let value = truths.values[truth.shape][own.sum::<usize>()];
                combination = combination * levels.len() + levels.binary_search(&value).ok()?;
            }
            // Going down, the lowest of several assignments stays.
            inverse[combination] = assignment as u16;
        }
        if inverse.contains(&u16::MAX) {
            return None;
        }
        cells.push(Cell { elements, bits, inverse });
    }
    Some(Codes::Joint { cells, levels })
}

/// What a bit is to a code of a grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Index(usize),
    State(usize),
    Sign,
}

/// Rows of a grid with signs and states.
fn grid(
    all: &[Truth],
    users: &BTreeMap<usize, Vec<usize>>,
    truths: &Truths<'_>,
    group: usize,
) -> Result<Grid, String> {
    let none = |why: &str| Err(format!("the codes are no rows of a grid: {why}"));
    let signs: BTreeSet<usize> = users
        .iter()
        .filter(|(bit, users)| users.iter().all(|u| truths.turns(&all[*u], **bit)))
        .map(|(bit, _)| *bit)
        .collect();
    let plain = |i: usize| all[i].bits.iter().copied().filter(|b| !signs.contains(b));
    // The bits with the fewest users are the row's own; what has more is a state.
    let fewest = |i: usize| plain(i).map(|b| users[&b].len()).min().unwrap_or(0);
    let width = fewest(0);
    if width == 0 || width > MOST_WIDTH || !all.len().is_multiple_of(width) || !group.is_multiple_of(width) {
        return none("rows do not divide groups");
    }
    let consecutive = |bit: usize, span: usize, i: usize| {
        users[&bit].len() == span && users[&bit].iter().copied().eq(i / span * span..i / span * span + span)
    };
    let (mut index, mut state, mut roles) = (Vec::new(), Vec::new(), Vec::new());
    for first in (0..all.len()).step_by(width) {
        let own: Vec<usize> = plain(first).filter(|b| consecutive(*b, width, first)).collect();
        let shared: Vec<usize> = plain(first).filter(|b| !own.contains(b)).collect();
        if shared.iter().any(|b| !consecutive(*b, group, first)) {
            return none("a state that rows share is not a group's");
        }
        for truth in &all[first..first + width] {
            let role = |bit: &usize| {
                let find = |list: &[usize]| list.iter().position(|b| b == bit);
                match (signs.contains(bit), find(&own), find(&shared)) {
                    (true, ..) => Some(Role::Sign),
                    (_, Some(k), _) => Some(Role::Index(k)),
                    (_, _, Some(k)) => Some(Role::State(k)),
                    _ => None,
                }
            };
            let Some(list) = truth.bits.iter().map(role).collect::<Option<Vec<Role>>>() else {
                return none("an index is not of neighbouring codes");
            };
            roles.push(list);
        }
        if first % group == 0 {
            state.push(shared);
        }
        index.push(own);
    }
    let (index_bits, state_bits) = (index[0].len(), state[0].len());
    let uneven = |lists: &[Vec<usize>]| lists.iter().any(|list| list.len() != lists[0].len());
    if !(4..=JOINT_BITS).contains(&index_bits) || state_bits > 2 || uneven(&index) || uneven(&state) {
        return none("an index has too few or too many bits");
    }
    // A code of every entry and state, without its sign; the same for the same table of the same roles.
    let mut unsigned = BTreeMap::<(usize, &[Role]), Vec<i64>>::new();
    for (i, roles) in roles.iter().enumerate() {
        unsigned.entry((all[i].shape, roles)).or_insert_with(|| {
            let value = |entry: usize| {
                let bit = |role: &Role| match *role {
                    Role::Index(k) => entry >> k & 1,
                    Role::State(k) => entry >> (index_bits + k) & 1,
                    Role::Sign => 0,
                };
                let own = roles.iter().enumerate().map(|(k, role)| bit(role) << k).sum::<usize>();
                truths.values[all[i].shape][own]
            };
            (0..1usize << (index_bits + state_bits)).map(value).collect()
        });
    }
    let code = |i: usize| &unsigned[&(all[i].shape, roles[i].as_slice())];
    if (0..all.len()).any(|i| code(i) != code(i % width)) {
        return none("rows differ");
    }
    let (signs, even) = grid_signs(all, &signs, width)?;
    let entries = 0..1usize << (index_bits + state_bits);
    let rows: Vec<i64> = entries.flat_map(|entry| (0..width).map(move |j| code(j)[entry])).collect();
    if rows.iter().any(|v| i8::try_from(*v).is_err() || (!signs.is_empty() && *v < 0)) {
        return none("its values do not fit a byte, or are negative beside signs");
    }
    Ok(Grid { width, rows, index, state, signs, even })
}

/// The sign of each code: a bit of its own, or what makes the number of signs even.
fn grid_signs(all: &[Truth], signs: &BTreeSet<usize>, width: usize) -> Result<(Vec<Place>, usize), String> {
    let of = |i: usize| all[i].bits.iter().copied().filter(|b| signs.contains(b)).collect::<Vec<_>>();
    let own: Vec<Vec<usize>> = (0..all.len()).map(of).collect();
    if own.iter().all(Vec::is_empty) {
        return Ok((Vec::new(), 0));
    }
    // A code that several signs turn, and they, are a set.
    let even = own.iter().map(Vec::len).max().unwrap_or(1);
    let even = if even > 1 { even + 1 } else { 0 };
    let mut places = Vec::new();
    for (i, bits) in own.iter().enumerate() {
        places.push(match bits.as_slice() {
            [bit] => Some((*bit, false)),
            several => {
                let set = i / even.max(1) * even..i / even.max(1) * even + even;
                let mut others: Vec<usize> =
                    set.filter(|o| *o != i && *o < own.len()).flat_map(|o| own[o].iter().copied()).collect();
                let mut several = several.to_vec();
                others.sort_unstable();
                several.sort_unstable();
                if several.is_empty() || others != several {
                    return Err("a sign is not the parity of its neighbours' signs".to_string());
                }
                None
            }
        });
    }
    if even % width != 0 {
        return Err("rows do not divide the codes whose signs belong together".to_string());
    }
    Ok((places, even))
}
