//! The search: scales, offsets and codes of a block, for whatever structure the format has.
//!
//! Every format is the same problem: floats, of which there is one for a block or one for each group; whole numbers of the
//! groups, which may be just 1; and codes. It is solved from below.
//!
//! 1. Each group alone: the scale (and offset) that would be best if it could be any number. Candidates from a little
//!    above what covers the group down to where much is clipped, then least squares.
//! 2. The floats: candidates from the groups' wishes. For each, every group takes the whole numbers nearest to its wish.
//! 3. Least squares for the floats, with all numbers and codes kept; then every group takes those near its wish that give
//!    the least error with the codes that follow; and again, as long as it gets better.
//!
//! Every error is that of the numbers that the block can hold, so no rounding comes after the choice.

mod exact;
mod wish;

use super::grid::{Entries, Rows};
use super::inverse::{Codes, Inverse, Levels, Part, put, word};
use super::lanes::{MAX_LEVELS, Set, Steps, Sums};
use super::number::{Number, around, is_signed, nearest};
use crate::FieldType;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use wish::Wish;

/// Candidates for a float.
const FLOAT_CANDIDATES: usize = 16;
/// How far from the nearest ones groups look for whole numbers in the end; while candidates are tried, not at all.
const FAR: usize = 2;
/// Rounds of least squares.
const ROUNDS: usize = 8;

/// The largest weight that is told from larger ones.
const LARGEST: f32 = f32::MAX / 4.0;

/// A whole number that a group can have, times the constant, and the bits that make it.
type Whole = (f32, usize);

/// What is the same for every block of a format.
pub struct Problem {
    inverse: &'static Inverse,
    set: Set,
    elements: usize,
    /// Weights of a group.
    group: usize,
    /// Groups that share their floats.
    span: usize,
    steps: Steps,
    /// The stored code of each level, in the order of levels.
    order: Vec<u8>,
    /// The value of each level.
    values: Vec<i32>,
    /// The different magnitudes of values, in order.
    magnitudes: Vec<f32>,
    scales: Vec<Whole>,
    offsets: Vec<Whole>,
    entries: Option<Entries>,
}

/// A group's part of a solution.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    scale: f32,
    offset: f32,
    whole: [Whole; 2],
}

/// Sums of a group that do not depend on codes.
#[derive(Clone, Copy, Debug, Default)]
struct Fixed {
    w: f32,
    x: f32,
    xx: f32,
}

/// A block being solved, with the memory that takes.
pub struct Work {
    /// The weights, scaled so that the largest magnitude is from a half to one, and what that took.
    x: Vec<f32>,
    unit: f64,
    w: Vec<f32>,
    fixed: Vec<Fixed>,
    wishes: Vec<Wish>,
    chosen: Vec<Chosen>,
    trial: Vec<Chosen>,
    numbers: Vec<u8>,
    rows: Option<Rows>,
}

/// The different whole numbers of a part, in order.
fn wholes(part: &Part) -> Vec<Whole> {
    let mut all: Vec<Whole> =
        part.values.iter().enumerate().map(|(bits, v)| (f32::from(*v) * part.factor, bits)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// The levels of a code in order, the stored code of each, and its value.
fn levels(levels: Levels) -> (Steps, Vec<u8>, Vec<i32>) {
    let mut all: Vec<(i32, u8)> = match levels {
        Levels::Range(low, high) => (low..=high).enumerate().map(|(n, v)| (v, n as u8)).collect(),
        Levels::List(list) => list.iter().enumerate().map(|(n, v)| (i32::from(*v), n as u8)).collect(),
    };
    all.sort_unstable();
    all.dedup_by_key(|(v, _)| *v);
    let (low, high) = (all.first().map_or(0.0, |l| l.0 as f32), all.last().map_or(0.0, |l| l.0 as f32));
    let mut steps = Steps { low, high, count: 0, halfway: [0.0; MAX_LEVELS], jump: [0.0; MAX_LEVELS] };
    if let Levels::List(_) = levels {
        steps.count = all.len();
        for (k, pair) in all.windows(2).enumerate() {
            steps.halfway[k] = (pair[0].0 + pair[1].0) as f32 * 0.5;
            steps.jump[k] = (pair[1].0 - pair[0].0) as f32;
        }
    }
    let (values, order) = all.into_iter().unzip();
    (steps, order, values)
}

impl Problem {
    pub fn new(inverse: &'static Inverse, set: Set, elements: usize, group: usize) -> Self {
        let (steps, order, values) = levels(match &inverse.codes {
            Codes::Each { levels, .. } | Codes::Joint { levels, .. } => *levels,
            Codes::Grid(_) => Levels::List(&[]),
        });
        let entries = match &inverse.codes {
            Codes::Grid(grid) => Some(Entries::new(grid)),
            _ => None,
        };
        let mut magnitudes: Vec<f32> = values.iter().map(|v| v.abs() as f32).collect();
        magnitudes.sort_unstable_by(f32::total_cmp);
        magnitudes.dedup();
        let scales = wholes(&inverse.scale);
        let offsets = inverse.offset.as_ref().map_or(Vec::new(), wholes);
        let single = inverse.scale.floats.len() == 1;
        // Groups that have nothing of their own are one.
        let alone = single && scales.len() == 1 && offsets.len() <= 1 && entries.is_none();
        let group = if alone { elements } else { group };
        let span = if single { elements / group } else { 1 };
        Problem {
            inverse,
            set,
            elements,
            group,
            span,
            steps,
            order,
            values,
            magnitudes,
            scales,
            offsets,
            entries,
        }
    }

    /// The memory for blocks of this format.
    pub fn work(&self) -> Work {
        let groups = self.elements / self.group;
        Work {
            x: vec![0.0; self.elements],
            unit: 1.0,
            w: vec![1.0; self.elements],
            fixed: vec![Fixed::default(); groups],
            wishes: vec![Wish::default(); groups],
            chosen: vec![Chosen::default(); groups],
            trial: vec![Chosen::default(); groups],
            numbers: vec![0; self.elements],
            rows: self.entries.as_ref().map(|entries| Rows::new(entries, self.elements, self.group)),
        }
    }

    /// Solves a block and writes it, into bytes that are zero. `w` are the weights' weights.
    pub fn block(&self, x: &[f32], w: Option<&[f32]>, work: &mut Work, block: &mut [u8]) {
        work.take(x, w);
        for (g, fixed) in work.fixed.iter_mut().enumerate() {
            let range = g * self.group..(g + 1) * self.group;
            let (mut one, mut first, mut second) = (0.0f64, 0.0f64, 0.0f64);
            for (x, w) in work.x[range.clone()].iter().zip(&work.w[range]) {
                let (x, w) = (f64::from(*x), f64::from(*w));
                one += w;
                first += w * x;
                second += w * x * x;
            }
            *fixed = Fixed { w: one as f32, x: first as f32, xx: second as f32 };
        }
        if let (Some(entries), Some(rows)) = (&self.entries, &mut work.rows) {
            rows.fill(entries, self.set, &work.x, &work.w, self.group);
        }
        for first in (0..work.fixed.len()).step_by(self.span) {
            self.span(first..first + self.span, work, block);
        }
        self.write_codes(work, block);
    }

    fn error(&self, work: &Work, g: usize, scale: f32, offset: f32) -> f32 {
        match (&self.entries, &work.rows) {
            (Some(entries), Some(rows)) => work.fixed[g].xx + rows.best(entries, g, scale).error(scale),
            _ => self.set.error(work.xs(g, self.group), work.ws(g, self.group), &self.steps, scale, offset),
        }
    }

    fn sums(&self, work: &Work, g: usize, scale: f32, offset: f32) -> Sums {
        match (&self.entries, &work.rows) {
            (Some(entries), Some(rows)) => {
                let best = rows.best(entries, g, scale);
                Sums { c: 0.0, cc: best.b, xc: best.a }
            }
            _ => self.set.sums(work.xs(g, self.group), work.ws(g, self.group), &self.steps, scale, offset),
        }
    }

    /// Scale, offset and codes of groups that share their floats.
    fn span(&self, groups: Range<usize>, work: &mut Work, block: &mut [u8]) {
        let (ty, offset_ty) = (self.inverse.scale.ty, self.inverse.offset.as_ref().map(|o| o.ty));
        let turned = (groups.len() == 1 && is_signed(ty)) || self.scales[0].0 < 0.0;
        for g in groups.clone() {
            work.wishes[g] = if self.offsets.is_empty() {
                self.wish_scaled(work, g, turned)
            } else {
                self.wish_offset(work, g)
            };
        }
        // The offsets' sign is that of most, where their whole numbers have no sign.
        let one_sided = match &self.offsets[..] {
            [first, .., last] => first.0 * last.0 >= 0.0,
            _ => false,
        };
        let side = groups.clone().map(|g| work.wishes[g].offset).sum::<f32>();
        if one_sided {
            for g in groups.clone() {
                if work.wishes[g].offset * side < 0.0 && !work.wishes[g].lowered() {
                    work.wishes[g] = Wish { offset: 0.0, ..self.wish_scaled(work, g, false) };
                }
            }
        }
        let anchors = Anchors::new(&self.scales, groups.clone().map(|g| work.wishes[g].scale));
        let offset_anchors = Anchors::new(&self.offsets, groups.clone().map(|g| work.wishes[g].offset));
        let mut best = Solution { floats: [None; 2], error: f64::INFINITY };
        work.chosen[groups.clone()].fill(Chosen::default());
        self.try_exact(groups.clone(), work, &mut best);
        let first_offset = offset_ty.map(|ty| work.nearest(ty, offset_anchors.values[0]));
        for candidate in anchors.candidates() {
            let near = around(ty, f64::from(candidate) * work.unit);
            let near = if self.scales.len() == 1 { &near[..] } else { &near[..1] };
            for number in near {
                self.attempt(groups.clone(), [Some(*number), first_offset], 0, work, &mut best);
            }
        }
        if let Some(offset_ty) = offset_ty {
            for candidate in offset_anchors.candidates() {
                let number = work.nearest(offset_ty, candidate);
                self.attempt(groups.clone(), [best.floats[0], Some(number)], 0, work, &mut best);
            }
        }
        for _ in 0..ROUNDS {
            let before = best.error;
            let [scale, offset] = self.least_squares(groups.clone(), work, &best);
            let floats = [Some(nearest(ty, scale)), offset_ty.map(|ty| nearest(ty, offset))];
            self.attempt(groups.clone(), floats, FAR, work, &mut best);
            if best.error >= before {
                break;
            }
        }
        let parts = [Some(&self.inverse.scale), self.inverse.offset.as_ref()];
        for (n, part) in parts.into_iter().flatten().enumerate() {
            part.put_float(block, groups.start, best.floats[n].map_or(0, |f| f.bits));
            for g in groups.clone() {
                part.put_code(block, g, work.chosen[g].whole[n].1);
            }
        }
    }

    /// Lets every group choose with these floats, and keeps the result if it is better.
    fn attempt(
        &self,
        groups: Range<usize>,
        floats: [Option<Number>; 2],
        reach: usize,
        work: &mut Work,
        best: &mut Solution,
    ) {
        let value = |n: usize| floats[n].map_or(0.0, |f| (f.value / work.unit) as f32);
        let (scale, offset) = (value(0), value(1));
        let mut error = 0.0f64;
        for g in groups.clone() {
            let (own, chosen) = self.choose(work, g, [scale, offset], reach);
            work.trial[g] = chosen;
            error += f64::from(own);
            if error >= best.error {
                return;
            }
        }
        *best = Solution { floats, error };
        work.chosen[groups.clone()].copy_from_slice(&work.trial[groups]);
    }

    /// The whole numbers of a group that give the least error with these floats.
    fn choose(&self, work: &Work, g: usize, floats: [f32; 2], reach: usize) -> (f32, Chosen) {
        let wish = self.reachable(work.wishes[g], floats[0]);
        // A wish that is exact may be so with the other sign, too, which not every whole number has.
        let wanted = [wish.scale / floats[0], -wish.scale / floats[0]];
        let signs = if wish.exact && self.offsets.is_empty() { 2 } else { 1 };
        let mut best = (f32::INFINITY, Chosen::default());
        for wanted in &wanted[..signs] {
            for whole in near(&self.scales, *wanted, reach) {
                let scale = floats[0] * whole.0;
                let found = if self.offsets.is_empty() {
                    let error = self.error(work, g, scale, 0.0);
                    (error, Chosen { scale, offset: 0.0, whole: [*whole, (0.0, 0)] })
                } else {
                    self.choose_offset(work, g, wish, (scale, *whole), floats[1], reach.min(1))
                };
                if found.0 < best.0 {
                    best = found;
                }
            }
        }
        best
    }

    /// The whole number of a group's offset that gives the least error with a scale.
    fn choose_offset(
        &self,
        work: &Work,
        g: usize,
        wish: Wish,
        (scale, whole): (f32, Whole),
        float: f32,
        reach: usize,
    ) -> (f32, Chosen) {
        let mean = work.fixed[g].x / work.fixed[g].w;
        let mut best = (f32::INFINITY, Chosen::default());
        for more in 0..=wish.spare as u8 {
            let wanted = mean - scale * (wish.mean + f32::from(more));
            for other in near(&self.offsets, wanted / float, reach) {
                let offset = float * other.0;
                let error = self.error(work, g, scale, offset);
                if error < best.0 {
                    best = (error, Chosen { scale, offset, whole: [whole, *other] });
                }
            }
        }
        best
    }

    /// The floats that would be best with all whole numbers and codes kept.
    fn least_squares(&self, groups: Range<usize>, work: &Work, best: &Solution) -> [f64; 2] {
        let (mut cc, mut co, mut oo, mut xc, mut xo) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for g in groups {
            let own = &work.chosen[g];
            let sums = self.sums(work, g, own.scale, own.offset);
            let (k, m) = (f64::from(own.whole[0].0), f64::from(own.whole[1].0));
            cc += k * k * f64::from(sums.cc);
            co += k * m * f64::from(sums.c);
            oo += m * m * f64::from(work.fixed[g].w);
            xc += k * f64::from(sums.xc);
            xo += m * f64::from(work.fixed[g].x);
        }
        let kept = best.floats.map(|f| f.map_or(0.0, |f| f.value));
        let determinant = cc * oo - co * co;
        if self.offsets.is_empty() || oo == 0.0 {
            return if cc > 0.0 { [xc / cc * work.unit, kept[1]] } else { kept };
        }
        if determinant <= 1e-9 * cc * oo {
            return if cc > 0.0 { kept } else { [kept[0], xo / oo * work.unit] };
        }
        [(xc * oo - xo * co) / determinant * work.unit, (xo * cc - xc * co) / determinant * work.unit]
    }

    /// Writes the codes that the chosen scales and offsets give.
    fn write_codes(&self, work: &mut Work, block: &mut [u8]) {
        for g in 0..work.chosen.len() {
            let own = work.chosen[g];
            if let (Some(entries), Some(rows)) = (&self.entries, &work.rows) {
                rows.write(entries, (&work.x, &work.w), g, own.scale, block);
                continue;
            }
            let range = g * self.group..(g + 1) * self.group;
            let (x, out) = (&work.x[range.clone()], &mut work.numbers[range]);
            self.set.codes(x, &self.steps, own.scale, own.offset, out);
        }
        self.pack(&work.numbers, block);
    }

    /// Writes codes, given by the number of their level.
    pub fn pack(&self, numbers: &[u8], block: &mut [u8]) {
        match &self.inverse.codes {
            Codes::Each { bits, places, .. } => {
                for (i, number) in numbers.iter().enumerate() {
                    put(block, places, i * bits, *bits, usize::from(self.order[usize::from(*number)]));
                }
            }
            Codes::Joint { cells, .. } => {
                for cell in *cells {
                    let elements = cell.elements.len() / 2;
                    let number = |n: usize| usize::from(numbers[word(cell.elements, n)]);
                    let combination =
                        (0..elements).rev().fold(0, |all, n| all * self.order.len() + number(n));
                    put(block, cell.bits, 0, cell.bits.len() / 2, word(cell.inverse, combination));
                }
            }
            Codes::Grid(_) => {}
        }
    }

    /// The sum of some codes of the block that was solved last.
    pub fn sum(&self, work: &Work, elements: Range<usize>) -> i32 {
        work.numbers[elements].iter().map(|n| self.values[usize::from(*n)]).sum()
    }

    /// The scale of the block that was solved last, where it has one.
    pub fn scale(&self, work: &Work) -> f64 {
        f64::from(work.chosen[0].scale) * work.unit
    }

    /// The value of each level.
    #[doc(hidden)]
    pub fn values(&self) -> &[i32] {
        &self.values
    }

    /// A block with the best rows of a grid for given scales, which it has already.
    #[doc(hidden)]
    pub fn rows_at(&self, x: &[f32], scales: &[f32], block: &[u8]) -> Vec<u8> {
        let (mut work, mut block) = (self.work(), block.to_vec());
        work.take(x, None);
        if let (Some(entries), Some(rows)) = (&self.entries, &mut work.rows) {
            rows.fill(entries, self.set, &work.x, &work.w, self.group);
        }
        for (chosen, scale) in work.chosen.iter_mut().zip(scales) {
            chosen.scale = (f64::from(*scale) / work.unit) as f32;
        }
        self.write_codes(&mut work, &mut block);
        block
    }
}

/// The floats of a solution and its error.
struct Solution {
    floats: [Option<Number>; 2],
    error: f64,
}

/// What a float may be so that the largest wish can be met: by the largest whole number, or by the smallest.
#[derive(Clone, Copy)]
struct Anchors {
    values: [f32; 2],
    /// How many of the two there are.
    len: usize,
    /// Different whole numbers.
    count: usize,
}

impl Anchors {
    fn new(wholes: &[Whole], wishes: impl Iterator<Item = f32>) -> Self {
        let wish = wishes.fold(0.0f32, |a, b| if b.abs() > a.abs() { b } else { a });
        let (Some(first), Some(last)) = (wholes.first(), wholes.last()) else {
            return Anchors { values: [0.0; 2], len: 0, count: 0 };
        };
        // Of numbers of one sign only the one of the largest magnitude will do.
        let (far, other) = if first.0.abs() > last.0.abs() { (first, last) } else { (last, first) };
        let len = if far.0 * other.0 < 0.0 { 2 } else { 1 };
        Anchors { values: [wish / far.0, wish / other.0], len, count: wholes.len() }
    }

    fn candidates(self) -> impl Iterator<Item = f32> {
        let (from, to, steps) = match self.count {
            0 | 1 => (1.0, 1.0, 1),
            n => (n as f32 / (n as f32 + 8.0), 1.0 + 2.0 / n as f32, FLOAT_CANDIDATES),
        };
        let part = move |k: usize| from + (to - from) / steps.saturating_sub(1).max(1) as f32 * k as f32;
        self.values.into_iter().take(self.len).flat_map(move |v| (0..steps).map(move |k| v * part(k)))
    }
}

/// The numbers nearest to a value, and up to `reach` more on either side.
fn near(wholes: &[Whole], value: f32, reach: usize) -> &[Whole] {
    let above = wholes.partition_point(|w| w.0 < value);
    let nearest = match (above.checked_sub(1), wholes.get(above)) {
        (Some(below), Some(next)) if value - wholes[below].0 < next.0 - value => below,
        (Some(below), None) => below,
        _ => above,
    };
    &wholes[nearest.saturating_sub(reach)..(nearest + reach + 1).min(wholes.len())]
}

impl Work {
    /// Takes a block's weights, scaled by a power of two. Weights near the end of the range of f32 are made smaller, so
    /// that no code times its scale can pass it.
    fn take(&mut self, x: &[f32], w: Option<&[f32]>) {
        let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs())).min(LARGEST);
        // The power of two above it: an f32 is a normal f64, whose upper bits are sign and exponent.
        let power = f64::from_bits(f64::from(largest).to_bits() >> 52 << 52);
        self.unit = if largest > 0.0 { 2.0 * power } else { 1.0 };
        for (to, from) in self.x.iter_mut().zip(x) {
            *to = (f64::from(from.clamp(-LARGEST, LARGEST)) / self.unit) as f32;
        }
        match w {
            Some(w) => self.w.copy_from_slice(w),
            None => self.w.fill(1.0),
        }
    }

    fn xs(&self, g: usize, group: usize) -> &[f32] {
        &self.x[g * group..(g + 1) * group]
    }

    fn ws(&self, g: usize, group: usize) -> &[f32] {
        &self.w[g * group..(g + 1) * group]
    }

    fn nearest(&self, ty: FieldType, value: f32) -> Number {
        nearest(ty, f64::from(value) * self.unit)
    }
}
