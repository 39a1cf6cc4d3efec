//! Weights that a block can hold as they are, since they were quantised before.
//!
//! A search among rounded numbers comes near the scales of such weights and seldom meets them. They are multiples of one
//! step, which Euclid's algorithm finds for little: with weights of any other kind a remainder soon gets smaller than a step
//! may be. In the same way the floats of a block are found as steps of its groups' scales and offsets. All this gives more
//! candidates and decides nothing.

use super::super::inverse::Part;
use super::super::number::{Number, is_signed, nearest};
use super::{Problem, Solution, Whole, Wish, Work};
use core::ops::Range;

/// How far a number may be from a multiple, as a part of the smallest step.
const TOLERANCE: f32 = 1.0 / 16.0;
/// How much may be lost when a float is rounded that is said to be exact.
const ROUNDING: f64 = 1e-6;
/// A group with few different weights can wish for a scale that is so many times the one that it had.
const TIMES: f32 = 4.0;
/// The greatest factor that the whole numbers of all groups are thought to have in common.
const COMMON: u32 = 64;

/// A step of which all numbers are multiples, the largest being at most `most` steps.
pub(super) fn step(numbers: impl Iterator<Item = f32> + Clone, most: f32) -> Option<f32> {
    let largest = numbers.clone().fold(0.0f32, |m, n| m.max(n.abs()));
    let least = largest / most;
    let near = TOLERANCE * least;
    if near <= 0.0 {
        return None;
    }
    let mut step = largest;
    for number in numbers {
        let mut pair = (number.abs(), step);
        loop {
            let rest = (pair.0 - whole(pair.0 / pair.1) * pair.1).abs();
            if rest <= near {
                break;
            }
            if rest < least - near {
                return None;
            }
            pair = (pair.1, rest);
        }
        if pair.1 < step {
            step = largest / whole(largest / pair.1);
        }
    }
    Some(step)
}

/// The whole number nearest to one that is not negative.
pub(super) fn whole(x: f32) -> f32 {
    (x + 0.5) as u32 as f32
}

/// The scale with which all weights are some of these magnitudes, whole numbers in order, if there is just one.
fn scale(x: &[f32], magnitudes: &[f32]) -> Option<f32> {
    let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let is_one = |found: f32| {
        let above = magnitudes.partition_point(|m| *m < found);
        let near = &magnitudes[above.saturating_sub(1)..magnitudes.len().min(above + 1)];
        near.iter().any(|m| (m - found).abs() < TOLERANCE)
    };
    let mut scales = magnitudes
        .iter()
        .filter(|m| **m > 0.0 && largest > 0.0)
        .map(|m| largest / m)
        .filter(|scale| x.iter().all(|x| is_one(x.abs() / scale)));
    let first = scales.next()?;
    scales.next().is_none().then_some(first)
}

impl Wish {
    /// Makes an offset that is above zero negative, by codes that are larger, if there is room for them.
    pub(super) fn lowered(&mut self) -> bool {
        let above = self.offset / self.scale;
        let more = (above - 0.01).max(0.0) as u8 as f32 + 1.0;
        let can = self.exact && above > 0.0 && more <= self.spare;
        if can {
            self.offset -= more * self.scale;
            self.mean += more;
            self.spare -= more;
        }
        can
    }
}

impl Problem {
    /// The magnitude of a scale with which all weights are levels, whatever their signs.
    pub(super) fn exact_scale(&self, x: &[f32]) -> Option<f32> {
        let magnitudes = self.entries.as_ref().map_or(&self.magnitudes, |entries| &entries.magnitudes);
        let step = step(x.iter().copied(), magnitudes.last().copied()?)?;
        if self.whole_levels() { Some(step) } else { scale(x, magnitudes) }
    }

    /// Whether codes are all whole numbers of a range.
    pub(super) fn whole_levels(&self) -> bool {
        self.entries.is_none() && self.steps.count == 0
    }

    /// What a group wishes for, or a part of that scale and codes as many times larger where no whole number is large enough.
    pub(super) fn reachable(&self, mut wish: Wish, float: f32) -> Wish {
        if wish.exact {
            let times = (wish.scale / (1.001 * largest(&self.scales) * float)).abs() as u32 as f32 + 1.0;
            let (first, all) = (self.steps.low, self.steps.high - self.steps.low);
            wish.scale /= times;
            wish.mean = first + (wish.mean - first) * times;
            wish.spare = (all - (all - wish.spare) * times).max(0.0);
        }
        wish
    }

    /// Tries the floats of which the scales and offsets of exact groups are multiples.
    pub(super) fn try_exact(&self, groups: Range<usize>, work: &mut Work, best: &mut Solution) {
        let exact = work.wishes[groups.clone()].iter().filter(|wish| wish.exact);
        if exact.clone().next().is_none() {
            return;
        }
        let scales = floats(&self.inverse.scale, &self.scales, exact.clone().map(|w| w.scale), work.unit);
        let Some(part) = &self.inverse.offset else {
            for scale in scales {
                self.attempt(groups.clone(), [Some(scale), None], 0, work, best);
            }
            return;
        };
        // Offsets of groups whose codes could not be others are surer, and may be few.
        let sure = exact.clone().filter(|w| w.spare == 0.0).map(|w| w.offset);
        let sure = floats(part, &self.offsets, sure, work.unit);
        let all = floats(part, &self.offsets, exact.map(|w| w.offset), work.unit);
        for scale in scales {
            for offset in sure.into_iter().chain(all) {
                self.attempt(groups.clone(), [Some(scale), Some(offset)], 0, work, best);
            }
        }
        if groups.len() == 1 {
            let wish = work.wishes[groups.start];
            for more in 0..=wish.spare as u8 {
                let offset = (wish.offset - f32::from(more) * wish.scale) / part.factor;
                let offset = work.nearest(part.ty, offset);
                self.attempt(groups.clone(), [Some(scales[0]), Some(offset)], 0, work, best);
            }
        }
    }
}

/// The largest magnitude of whole numbers, which are in order.
fn largest(wholes: &[Whole]) -> f32 {
    let magnitude = |whole: Option<&Whole>| whole.map_or(0.0, |w| w.0.abs());
    magnitude(wholes.first()).max(magnitude(wholes.last()))
}

/// Floats of which all values are multiples: the largest, and the largest after it that loses nothing when it is rounded,
/// with either sign.
fn floats(
    part: &Part,
    wholes: &[Whole],
    values: impl Iterator<Item = f32> + Clone,
    unit: f64,
) -> [Number; 4] {
    let most = TIMES * largest(wholes) / part.factor.abs();
    let step = step(values, most).map_or(0.0, |s| f64::from(s / part.factor.abs()) * unit);
    let lost = |n: &u32| {
        let value = step / f64::from(*n);
        (nearest(part.ty, value).value - value).abs() / value
    };
    let factor = (2..=COMMON).find(|n| lost(n) < ROUNDING).unwrap_or(1);
    let sign = if is_signed(part.ty) { -1.0 } else { 1.0 };
    [1.0, sign, 1.0 / f64::from(factor), sign / f64::from(factor)].map(|times| nearest(part.ty, step * times))
}
