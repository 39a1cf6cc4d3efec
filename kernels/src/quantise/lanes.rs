//! The inner loops of quantising, stamped for every tier: errors and sums of a group, and the rows of a grid.
//!
//! Element i goes into lane i mod 16 and lanes are added in one fixed tree, so a quantised file has the same bytes on
//! every machine.

use quantsmith_macros::tiered;

pub(super) use tiers::*;

/// Most levels of a list.
pub(super) const MAX_LEVELS: usize = 16;

/// The values that a code can have, in order.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// The smallest and the largest.
    pub(super) low: f32,
    pub(super) high: f32,
    /// How many there are in a list; 0 where they are all whole numbers from the smallest to the largest.
    pub(super) count: usize,
    /// Halfway from each to the next, and how far that is.
    pub(super) halfway: [f32; MAX_LEVELS],
    pub(super) jump: [f32; MAX_LEVELS],
}

/// Weighted sums over a group for some codes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Of the code.
    pub(super) c: f32,
    /// Of the code's square.
    pub(super) cc: f32,
    /// Of the code times the weight.
    pub(super) xc: f32,
}

/// Most rows that can be best for some scale.
pub(super) const MAX_HULL: usize = 32;

/// The rows of a grid that are best for some scale, by scale from below. A row's error is `scale² b - 2 scale a`, so
/// the best rows are the corners of a convex curve.
#[derive(Clone, Copy, Debug)]
pub struct Hull {
    pub(super) len: usize,
    /// The scale from which on a row is best.
    pub(super) from: [f32; MAX_HULL],
    pub(super) a: [f32; MAX_HULL],
    pub(super) b: [f32; MAX_HULL],
    pub(super) row: [u16; MAX_HULL],
}

impl Hull {
    pub(super) const EMPTY: Hull =
        Hull { len: 0, from: [0.0; MAX_HULL], a: [0.0; MAX_HULL], b: [0.0; MAX_HULL], row: [0; MAX_HULL] };

    /// The number of the row that is best for a scale.
    pub(super) fn at(&self, scale: f32) -> usize {
        let mut n = 0;
        while n + 1 < self.len && self.from[n + 1] <= scale {
            n += 1;
        }
        n
    }
}

#[tiered]
mod tiers {
    use crate::quantise::lanes::{Hull, MAX_HULL, Steps, Sums};
    use isa::wide;

    type V = wide::V;

    fn select(a: V, b: V, x: V, y: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::select_greater(a[s], b[s], x[s], y[s]);
        }
        out
    }

    /// The value that is nearest.
    fn nearest(y: V, steps: &Steps) -> V {
        if steps.count == 0 {
            let inside = wide::min(wide::max(y, wide::splat(steps.low)), wide::splat(steps.high));
            let mut out = inside;
            for s in 0..isa::SUBS {
                out[s] = isa::round_even(inside[s]);
            }
            return out;
        }
        let (mut c, zero) = (wide::splat(steps.low), wide::splat(0.0));
        for k in 1..steps.count {
            c = wide::add(
                c,
                select(y, wide::splat(steps.halfway[k - 1]), wide::splat(steps.jump[k - 1]), zero),
            );
        }
        c
    }

    /// The number of the value that is nearest.
    fn number(y: V, steps: &Steps) -> V {
        if steps.count == 0 {
            return wide::sub(nearest(y, steps), wide::splat(steps.low));
        }
        let (mut n, zero, one) = (wide::splat(0.0), wide::splat(0.0), wide::splat(1.0));
        for k in 1..steps.count {
            n = wide::add(n, select(y, wide::splat(steps.halfway[k - 1]), one, zero));
        }
        n
    }

    fn inverse(scale: f32) -> f32 {
        let inverse = 1.0 / scale;
        if inverse.is_finite() { inverse } else { 0.0 }
    }

    /// The weighted squared error of the nearest codes.
    pub fn error(x: &[f32], w: &[f32], steps: &Steps, scale: f32, offset: f32) -> f32 {
        let (inv, s, o) = (wide::splat(inverse(scale)), wide::splat(scale), wide::splat(offset));
        let mut sum = wide::splat(0.0);
        for (x, w) in x.as_chunks::<16>().0.iter().zip(w.as_chunks::<16>().0) {
            let x = wide::sub(wide::load(x), o);
            let e = wide::sub(x, wide::mul(s, nearest(wide::mul(x, inv), steps)));
            sum = wide::add(sum, wide::mul(wide::load(w), wide::mul(e, e)));
        }
        isa::reduce_add(sum)
    }

    /// The sums over the nearest codes.
    pub fn sums(x: &[f32], w: &[f32], steps: &Steps, scale: f32, offset: f32) -> Sums {
        let (inv, o) = (wide::splat(inverse(scale)), wide::splat(offset));
        let (mut c1, mut cc, mut xc) = (wide::splat(0.0), wide::splat(0.0), wide::splat(0.0));
        for (x, w) in x.as_chunks::<16>().0.iter().zip(w.as_chunks::<16>().0) {
            let x = wide::load(x);
            let c = nearest(wide::mul(wide::sub(x, o), inv), steps);
            let wc = wide::mul(wide::load(w), c);
            c1 = wide::add(c1, wc);
            cc = wide::add(cc, wide::mul(wc, c));
            xc = wide::add(xc, wide::mul(wc, x));
        }
        Sums { c: isa::reduce_add(c1), cc: isa::reduce_add(cc), xc: isa::reduce_add(xc) }
    }

    /// The numbers of the nearest codes.
    pub fn codes(x: &[f32], steps: &Steps, scale: f32, offset: f32, out: &mut [u8]) {
        let (inv, o) = (wide::splat(inverse(scale)), wide::splat(offset));
        for (x, out) in x.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
            let mut numbers = [0.0f32; 16];
            wide::store(&mut numbers, number(wide::mul(wide::sub(wide::load(x), o), inv), steps));
            for (out, n) in out.iter_mut().zip(numbers) {
                *out = n as u8;
            }
        }
    }

    /// For every row of a grid (`rows` has the first value of all, then the second): the sum of the weighted values
    /// times the row's, that of the weights times the row's squares, and the smallest term of the first.
    pub fn rows(xw: &[f32], w: &[f32], rows: &[f32], a: &mut [f32], b: &mut [f32], least: &mut [f32]) {
        let count = a.len();
        let (a, b, least) =
            (a.as_chunks_mut::<16>().0, b.as_chunks_mut::<16>().0, least.as_chunks_mut::<16>().0);
        for (n, ((a, b), least)) in a.iter_mut().zip(b).zip(least).enumerate() {
            let (mut sum, mut squares) = (wide::splat(0.0), wide::splat(0.0));
            let mut smallest = wide::splat(f32::MAX);
            for j in 0..w.len() {
                let v = wide::load(rows[j * count + 16 * n..].first_chunk().expect("sixteen rows"));
                let term = wide::mul(wide::splat(xw[j]), v);
                sum = wide::add(sum, term);
                smallest = wide::min(smallest, term);
                squares = wide::add(squares, wide::mul(wide::mul(wide::splat(w[j]), v), v));
            }
            wide::store(a, sum);
            wide::store(b, squares);
            wide::store(least, smallest);
        }
    }

    /// The first of the smallest: its value and place.
    fn smallest(best: V, place: V) -> (f32, usize) {
        let (mut values, mut places) = ([0.0f32; 16], [0.0f32; 16]);
        wide::store(&mut values, best);
        wide::store(&mut places, place);
        let mut at = 0;
        for l in 1..16 {
            if values[l] < values[at] || (values[l] == values[at] && places[l] < places[at]) {
                at = l;
            }
        }
        (values[at], places[at] as usize)
    }

    fn lanes() -> V {
        let mut all = [0.0f32; 16];
        for l in 0..16 {
            all[l] = l as f32;
        }
        wide::load(&all)
    }

    /// Finds the rows that are best for some scale between `start` and `stop`.
    pub fn hull(a: &[f32], b: &[f32], start: f32, stop: f32, out: &mut Hull) {
        let sixteen = wide::splat(16.0);
        let (mut best, mut place, mut here) = (wide::splat(f32::INFINITY), wide::splat(0.0), lanes());
        let (s, two) = (wide::splat(start), wide::splat(2.0));
        for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
            let error = wide::sub(wide::mul(s, wide::load(b)), wide::mul(two, wide::load(a)));
            place = select(best, error, here, place);
            best = select(best, error, error, best);
            here = wide::add(here, sixteen);
        }
        let (_, mut row) = smallest(best, place);
        let mut from = start;
        out.len = 0;
        while out.len < MAX_HULL {
            (out.from[out.len], out.a[out.len], out.b[out.len]) = (from, a[row], b[row]);
            out.row[out.len] = row as u16;
            out.len += 1;
            // The next row is the first whose line crosses this one's: less steep, at the smallest scale.
            let (a_now, b_now) = (wide::splat(a[row]), wide::splat(b[row]));
            let (mut best, mut place, mut here) = (wide::splat(f32::INFINITY), wide::splat(0.0), lanes());
            for (a, b) in a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0) {
                let b = wide::load(b);
                let rise = wide::sub(a_now, wide::load(a));
                let cross = wide::div(wide::mul(two, rise), wide::sub(b_now, b));
                let cross = select(b_now, b, cross, wide::splat(f32::INFINITY));
                place = select(best, cross, here, place);
                best = select(best, cross, cross, best);
                here = wide::add(here, sixteen);
            }
            let (cross, next) = smallest(best, place);
            if cross >= stop {
                return;
            }
            from = cross.max(from);
            row = next;
        }
    }
}
