//! How a step's units are cut into chunks.
//!
//! Each thread's share is handed out in rounds of shrinking size: most of it at once, the rest in small pieces, so
//! that whoever is early takes from whoever is late. The cut depends on the number of threads and units only, and no
//! result depends on the cut.

use std::ops::Range;

/// Parts of a share that the rounds hand out, by how many units a thread has.
const ROUNDS: [&[usize]; 5] = [&[1], &[3, 1], &[5, 2, 1], &[8, 4, 2, 1, 1], &[16, 8, 4, 2, 1, 1]];

/// A cut of units into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    units: usize,
    align: usize,
    threads: usize,
    rounds: &'static [usize],
}

impl Split {
    /// Cuts `units` for `threads`, at multiples of `align`.
    pub(crate) fn new(units: usize, align: usize, threads: usize) -> Self {
        let blocks = units.div_ceil(align);
        let threads = threads.min(blocks).max(1);
        let rounds = match (threads, blocks / threads) {
            (1, _) | (_, 0..4) => ROUNDS[0],
            (_, 4..12) => ROUNDS[1],
            (_, 12..32) => ROUNDS[2],
            (_, 32..128) => ROUNDS[3],
            _ => ROUNDS[4],
        };
        Split { units, align, threads, rounds }
    }

    /// The number of chunks.
    pub(crate) fn count(&self) -> usize {
        if self.units == 0 { 0 } else { self.threads * self.rounds.len() }
    }

    /// The units of a chunk; there may be none.
    pub(crate) fn range(&self, chunk: usize) -> Range<usize> {
        self.start(chunk)..self.start(chunk + 1)
    }

    fn start(&self, chunk: usize) -> usize {
        let (round, within) = (chunk / self.threads, chunk % self.threads);
        let whole: usize = self.rounds.iter().sum();
        let before: usize = self.rounds[..round].iter().sum::<usize>() * self.threads;
        let parts = before + self.rounds.get(round).map_or(0, |part| part * within);
        let blocks = self.units.div_ceil(self.align);
        (blocks * parts / (whole * self.threads) * self.align).min(self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_units_once_and_start_at_multiples() {
        for units in 0..200 {
            for align in [1, 2, 4] {
                for threads in [1, 2, 3, 7, 16] {
                    let split = Split::new(units, align, threads);
                    let mut next = 0;
                    for chunk in 0..split.count() {
                        let range = split.range(chunk);
                        assert_eq!(range.start, next);
                        assert!(range.start.is_multiple_of(align) || range.start == units);
                        next = range.end;
                    }
                    assert_eq!(next, units, "{units} units, {align}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn shares_are_even_and_end_in_small_pieces() {
        let sizes = |units: usize| {
            let split = Split::new(units, 1, 2);
            (0..split.count()).map(|chunk| split.range(chunk).len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(48), [15, 15, 6, 6, 3, 3]);
        assert_eq!(sizes(160), [40, 40, 20, 20, 10, 10, 5, 5, 5, 5]);
        assert_eq!(sizes(640), [160, 160, 80, 80, 40, 40, 20, 20, 10, 10, 10, 10]);
        assert_eq!(Split::new(160, 1, 1).count(), 1);
        assert_eq!(Split::new(3, 1, 8).count(), 3);
    }
}
