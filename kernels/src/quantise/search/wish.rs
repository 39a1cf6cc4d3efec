//! A group alone: the scale and the offset that would be best for it if they could be any numbers.

use super::{Problem, ROUNDS, Work, exact};

/// Candidates for a group's scale, in each direction.
const GROUP_CANDIDATES: usize = 48;
/// Shrinkings of a range from either end.
const RANGE_CANDIDATES: usize = 5;

/// What would be best for a group alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    pub(super) scale: f32,
    pub(super) offset: f32,
    /// The mean code.
    pub(super) mean: f32,
    /// Whether weights are a level times the scale, with the offset, and nothing else.
    pub(super) exact: bool,
    /// How much larger all codes of an exact group with an offset could be.
    pub(super) spare: f32,
}

impl Problem {
    /// Half the number of levels: how fine codes are.
    fn fineness(&self) -> f32 {
        match (&self.entries, self.steps.count) {
            (Some(entries), _) => entries.magnitudes.len() as f32,
            (None, 0) => 0.5 * (self.steps.high - self.steps.low),
            (None, count) => 0.5 * count as f32,
        }
    }

    /// The best scale for a group alone; `turned` where it may be negative.
    pub(super) fn wish_scaled(&self, work: &Work, g: usize, turned: bool) -> Wish {
        let (low, high) = match &self.entries {
            Some(entries) => (-entries.largest, entries.largest),
            None => (self.steps.low, self.steps.high),
        };
        let (least, most) = extent(work.xs(g, self.group));
        let cover = |most: f32, least: f32| {
            let up = if high > 0.0 { most.max(0.0) / high } else { 0.0 };
            let down = if low < 0.0 { least.min(0.0) / low } else { 0.0 };
            up.max(down)
        };
        let fineness = self.fineness();
        let (from, to) = (fineness / (fineness + 12.0), 1.0 + 1.0 / fineness);
        let mut best = (f32::INFINITY, Wish::default());
        self.improve(work, g, 0.0, 0.0, &mut best);
        let mut exact = false;
        if let Some(scale) = self.exact_scale(work.xs(g, self.group)) {
            for scale in [scale, -scale].into_iter().take(if turned { 2 } else { 1 }) {
                exact |= self.improve(work, g, scale, 0.0, &mut best);
            }
        }
        let symmetric = low == -high;
        let directions = [cover(most, least), -cover(-least, -most)];
        for largest in &directions[..if turned && !symmetric { 2 } else { 1 }] {
            for n in 0..GROUP_CANDIDATES {
                let t = from + (to - from) * n as f32 / (GROUP_CANDIDATES - 1) as f32;
                self.improve(work, g, largest * t, 0.0, &mut best);
            }
        }
        for _ in 0..ROUNDS {
            let sums = self.sums(work, g, best.1.scale, 0.0);
            if !self.improve(work, g, sums.xc / sums.cc, 0.0, &mut best) {
                break;
            }
        }
        Wish { mean: self.mean(work, g, best.1.scale, 0.0), exact, ..best.1 }
    }

    /// Keeps a scale and an offset if they are better.
    fn improve(&self, work: &Work, g: usize, scale: f32, offset: f32, best: &mut (f32, Wish)) -> bool {
        let error = self.error(work, g, scale, offset);
        let better = error < best.0;
        if better {
            *best = (error, Wish { scale, offset, ..Wish::default() });
        }
        better
    }

    fn mean(&self, work: &Work, g: usize, scale: f32, offset: f32) -> f32 {
        if self.offsets.is_empty() { 0.0 } else { self.sums(work, g, scale, offset).c / work.fixed[g].w }
    }

    /// The best scale and offset for a group alone.
    pub(super) fn wish_offset(&self, work: &Work, g: usize) -> Wish {
        let (least, most) = extent(work.xs(g, self.group));
        let (low, high) = (self.steps.low, self.steps.high);
        let range = most - least;
        let fixed = work.fixed[g];
        let mut best = (f32::INFINITY, Wish::default());
        let refined = |scale: f32, offset: f32| {
            let sums = self.sums(work, g, scale, offset);
            let [cc, c, xc] = [sums.cc, sums.c, sums.xc].map(f64::from);
            let [w, x] = [fixed.w, fixed.x].map(f64::from);
            let determinant = cc * w - c * c;
            if determinant <= 1e-9 * cc * w {
                return (0.0, (x / w) as f32);
            }
            (((xc * w - x * c) / determinant) as f32, ((x * cc - xc * c) / determinant) as f32)
        };
        let (mut exact, mut spare) = (false, 0.0);
        let above = work.xs(g, self.group).iter().map(|x| x - least);
        if let Some(step) = exact::step(above, high - low).filter(|_| self.whole_levels()) {
            let (scale, offset) = refined(step, least - step * low);
            exact = self.improve(work, g, scale, offset, &mut best);
            spare = if exact { high - low - exact::whole(range / step) } else { 0.0 };
        }
        let most_shrunk = 1.2 / (high - low + 2.0);
        for n in 0..RANGE_CANDIDATES * RANGE_CANDIDATES {
            let part = |n: usize| most_shrunk * n as f32 / (RANGE_CANDIDATES - 1) as f32;
            let bottom = least + range * part(n % RANGE_CANDIDATES);
            let top = most - range * part(n / RANGE_CANDIDATES);
            let scale = (top - bottom) / (high - low);
            let offset = bottom - scale * low;
            self.improve(work, g, scale, offset, &mut best);
            let (scale, offset) = refined(scale, offset);
            self.improve(work, g, scale, offset, &mut best);
        }
        for _ in 0..ROUNDS {
            let (scale, offset) = refined(best.1.scale, best.1.offset);
            if !self.improve(work, g, scale, offset, &mut best) {
                break;
            }
        }
        Wish { mean: self.mean(work, g, best.1.scale, best.1.offset), exact, spare, ..best.1 }
    }
}

fn extent(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)))
}
