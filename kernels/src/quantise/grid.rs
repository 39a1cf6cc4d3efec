//! Codes that are rows of a grid: for every row of a block, which entries are best at which scale.
//!
//! At scale s an entry's error is `s² b - 2 s a` and a constant, where a and b do not depend on s. All entries are
//! looked at once, and only the few that are best at some scale are kept (a [`Hull`]); after that the error of a scale
//! costs next to nothing. Where signs belong together and come out odd, one code takes the wrong sign: the entry and the
//! code are chosen together, which again does not depend on the scale.

use super::inverse::{Grid, put};
use super::lanes::{Hull, Set};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A grid made ready.
pub struct Entries {
    grid: &'static Grid,
    /// Per state: the first value of all entries, then the second.
    values: Vec<Vec<f32>>,
    /// Entries of a state.
    count: usize,
    /// The largest magnitude of a value.
    pub largest: f32,
    /// The magnitudes that there are, in order.
    pub magnitudes: Vec<f32>,
}

/// The entries that are best at a scale, for a group: its state and the sums that make its error.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    state: usize,
    pub a: f32,
    pub b: f32,
}

impl Best {
    /// The error at a scale, less the squares of the weights themselves.
    pub fn error(&self, scale: f32) -> f32 {
        scale * (scale * self.b - 2.0 * self.a)
    }
}

impl Entries {
    pub fn new(grid: &'static Grid) -> Self {
        let (count, width) = (1usize << grid.index_bits, grid.width);
        let value = |state: usize, row: usize, j: usize| {
            f32::from(grid.rows[(state * count + row) * width + j] as i8)
        };
        let values = (0..1usize << grid.state_bits)
            .map(|s| (0..width * count).map(|n| value(s, n % count, n / count)).collect());
        let mut magnitudes: Vec<u8> = grid.rows.iter().map(|v| (*v as i8).unsigned_abs()).collect();
        magnitudes.sort_unstable();
        magnitudes.dedup();
        let magnitudes: Vec<f32> = magnitudes.into_iter().map(f32::from).collect();
        let largest = magnitudes.last().copied().unwrap_or(1.0);
        Entries { grid, values: values.collect(), count, largest, magnitudes }
    }
}

/// The rows of one block.
pub struct Rows {
    /// Rows of a group.
    per_group: usize,
    /// For each row, state, and right or wrong sign.
    hulls: Vec<Hull>,
    /// Whether the signs of a set come out odd.
    odd: Vec<bool>,
    sums: [Vec<f32>; 3],
}

impl Rows {
    pub fn new(entries: &Entries, elements: usize, group: usize) -> Self {
        let sets = elements.checked_div(entries.grid.even).unwrap_or(0);
        let hulls = vec![Hull::EMPTY; elements / entries.grid.width * entries.values.len() * 2];
        let sums = [(); 3].map(|()| vec![0.0; entries.count]);
        Rows { per_group: group / entries.grid.width, hulls, odd: vec![false; sets], sums }
    }

    fn place(entries: &Entries, cell: usize, state: usize, wrong: bool) -> usize {
        (cell * entries.values.len() + state) * 2 + usize::from(wrong)
    }

    fn hull(&self, entries: &Entries, cell: usize, state: usize, wrong: bool) -> &Hull {
        &self.hulls[Self::place(entries, cell, state, wrong)]
    }

    /// Looks at all entries for every row of a block.
    pub fn fill(&mut self, entries: &Entries, set: Set, x: &[f32], w: &[f32], group: usize) {
        let grid = entries.grid;
        for (n, odd) in self.odd.iter_mut().enumerate() {
            *odd = x[n * grid.even..][..grid.even].iter().filter(|x| **x < 0.0).count() % 2 == 1;
        }
        for cell in 0..x.len() / grid.width {
            let at = cell * grid.width;
            let (own, weights) = (&x[at..at + grid.width], &w[at..at + grid.width]);
            let extreme = x[at / group * group..][..group].iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let cover = extreme / entries.largest;
            let (start, stop) = if cover > 0.0 { (0.2 * cover, 4.0 * cover) } else { (1.0, 0.0) };
            let mut xw = [0.0f32; 32];
            for ((xw, x), w) in xw.iter_mut().zip(own).zip(weights) {
                *xw = w * if grid.signs.is_empty() { *x } else { x.abs() };
            }
            for state in 0..entries.values.len() {
                let [a, b, least] = &mut self.sums;
                set.rows(&xw[..grid.width], weights, &entries.values[state], a, b, least);
                set.hull(a, b, start, stop, &mut self.hulls[Self::place(entries, cell, state, false)]);
                if at.checked_div(grid.even).is_some_and(|n| self.odd[n]) {
                    a.iter_mut().zip(&*least).for_each(|(a, least)| *a -= 2.0 * least);
                    set.hull(a, b, start, stop, &mut self.hulls[Self::place(entries, cell, state, true)]);
                }
            }
        }
    }

    /// The rows of a group.
    fn of_group(&self, group: usize) -> Range<usize> {
        group * self.per_group..(group + 1) * self.per_group
    }

    /// The best state of a group at a scale.
    pub fn best(&self, entries: &Entries, group: usize, scale: f32) -> Best {
        let of_state = |state: usize| {
            let (mut a, mut b) = (0.0, 0.0);
            self.choose(entries, group, state, scale, &mut |hull, n, _| {
                a += hull.a[n];
                b += hull.b[n];
            });
            Best { state, a, b }
        };
        let mut best = of_state(0);
        for state in 1..entries.values.len() {
            let other = of_state(state);
            if other.error(scale) < best.error(scale) {
                best = other;
            }
        }
        best
    }

    /// Calls `take(hull, number, wrong sign)` for each row with what is best for it.
    fn choose(
        &self,
        entries: &Entries,
        group: usize,
        state: usize,
        scale: f32,
        take: &mut dyn FnMut(&Hull, usize, bool),
    ) {
        let per_set = (entries.grid.even / entries.grid.width).max(1);
        let error = |hull: &Hull, n: usize| scale * hull.b[n] - 2.0 * hull.a[n];
        for first in self.of_group(group).step_by(per_set) {
            let odd = self.odd.get(first / per_set).copied().unwrap_or(false);
            let mut wrong = (f32::INFINITY, usize::MAX);
            for cell in (first..first + per_set).filter(|_| odd) {
                let (right, other) =
                    (self.hull(entries, cell, state, false), self.hull(entries, cell, state, true));
                let more = error(other, other.at(scale)) - error(right, right.at(scale));
                if more < wrong.0 {
                    wrong = (more, cell);
                }
            }
            for cell in first..first + per_set {
                let hull = self.hull(entries, cell, state, cell == wrong.1);
                take(hull, hull.at(scale), cell == wrong.1);
            }
        }
    }

    /// Writes the rows of a group at a scale.
    pub fn write(
        &self,
        entries: &Entries,
        (x, w): (&[f32], &[f32]),
        group: usize,
        scale: f32,
        block: &mut [u8],
    ) {
        let grid = entries.grid;
        let state = self.best(entries, group, scale).state;
        put(block, grid.state, group * grid.state_bits, grid.state_bits, state);
        let mut cell = self.of_group(group).start;
        self.choose(entries, group, state, scale, &mut |hull, n, wrong| {
            let row = usize::from(hull.row[n]);
            put(block, grid.index, cell * grid.index_bits, grid.index_bits, row);
            let at = cell * grid.width;
            let values = &entries.values[state];
            let cost = |j: usize| w[at + j] * x[at + j].abs() * values[j * entries.count + row];
            let cheapest = (1..grid.width).fold(0, |best, j| if cost(j) < cost(best) { j } else { best });
            for j in (0..grid.width).filter(|_| !grid.signs.is_empty()) {
                let negative = (x[at + j] < 0.0) != (wrong && j == cheapest);
                put(block, grid.signs, at + j, 1, usize::from(negative));
            }
            cell += 1;
        });
    }
}
