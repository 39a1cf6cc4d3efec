//! Merging neighbours until nothing merges any more.
//!
//! Both families of pair merging work alike: symbols stand in a row, every pair of neighbours has a rank or none,
//! and the pair of the lowest rank, leftmost first, becomes one symbol. Here the row is a doubly linked list and
//! the pairs wait in a queue, so n symbols cost n log n whatever they are. Short rows, which is what a word is, are
//! scanned instead: the same order without a queue. Nothing recurses.
//!
//! The queue is a sorted run with a heap for the pairs that come up meanwhile. When the run is used up, the heap
//! is sorted and becomes the next run. In long runs of one letter the pairs come up in order, and then neither
//! costs anything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

/// One symbol of the row and the bytes that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// The rules' name for the symbol.
    pub(crate) id: u32,
    /// Where it starts in the text.
    pub(crate) start: u32,
    /// Where it ends in the text.
    pub(crate) end: u32,
}

/// What the rules answer for a pair of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Lower merges first.
    pub(crate) rank: u32,
    /// The symbol that the pair becomes.
    pub(crate) id: u32,
}

/// The pairs that merge.
pub(crate) trait MergeRules {
    /// Looks up a pair of neighbours.
    fn pair(&self, left: Symbol, right: Symbol) -> Option<Merged>;
}

/// A row of symbols with the memory that merging needs, reused from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    row: Vec<Symbol>,
    pairs: Vec<Option<Merged>>,
    links: Vec<(u32, u32)>,
    queue: Queue,
}

/// A pair that waits: its left symbol, what it becomes, and where its right symbol ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    rank: u32,
    at: u32,
    id: u32,
    end: u32,
}

/// Pairs by rank and place.
#[derive(Debug, Default)]
struct Queue {
    /// In descending order: the next is the last.
    run: Vec<Waiting>,
    fresh: BinaryHeap<Reverse<Waiting>>,
}

impl Queue {
    fn push(&mut self, pair: Waiting) {
        self.fresh.push(Reverse(pair));
    }

    fn pop(&mut self) -> Option<Waiting> {
        if self.run.is_empty() {
            let mut fresh = mem::take(&mut self.fresh).into_vec();
            self.run.extend(fresh.drain(..).map(|Reverse(pair)| pair));
            self.fresh = BinaryHeap::from(fresh);
            self.sort();
        }
        match (self.run.last(), self.fresh.peek()) {
            (Some(old), Some(Reverse(new))) if new < old => self.fresh.pop().map(|Reverse(pair)| pair),
            _ => self.run.pop(),
        }
    }

    fn sort(&mut self) {
        // Nearly always ascending already, which the sort notices.
        self.run.sort_unstable_by_key(|pair| (pair.rank, pair.at));
        self.run.reverse();
    }
}

/// Rows up to this length are scanned.
const SHORT: usize = 24;
const NONE: u32 = u32::MAX;

impl Merger {
    /// Empties the row.
    pub(crate) fn clear(&mut self) {
        self.row.clear();
    }

    /// Appends a symbol.
    pub(crate) fn push(&mut self, symbol: Symbol) {
        self.row.push(symbol);
    }

    /// Merges until no pair has a rank and returns the row.
    pub(crate) fn run(&mut self, rules: &impl MergeRules) -> &[Symbol] {
        if self.row.len() <= SHORT {
            self.run_short(rules);
        } else {
            self.run_long(rules);
        }
        &self.row
    }

    fn run_short(&mut self, rules: &impl MergeRules) {
        let row = &mut self.row;
        self.pairs.clear();
        self.pairs.extend(row.windows(2).map(|w| rules.pair(w[0], w[1])));
        loop {
            let mut best: Option<(u32, usize)> = None;
            for (i, pair) in self.pairs.iter().enumerate() {
                if let Some(m) = pair
                    && best.is_none_or(|(rank, _)| m.rank < rank)
                {
                    best = Some((m.rank, i));
                }
            }
            let Some((_, i)) = best else { return };
            let Some(merged) = self.pairs.remove(i) else { return };
            row[i] = Symbol { id: merged.id, start: row[i].start, end: row[i + 1].end };
            row.remove(i + 1);
            if i > 0 {
                self.pairs[i - 1] = rules.pair(row[i - 1], row[i]);
            }
            if i + 1 < row.len() {
                self.pairs[i] = rules.pair(row[i], row[i + 1]);
            }
        }
    }

    fn run_long(&mut self, rules: &impl MergeRules) {
        let row = &mut self.row;
        let count = row.len() as u32;
        self.links.clear();
        self.links.extend((0..count).map(|i| (i.wrapping_sub(1), if i + 1 < count { i + 1 } else { NONE })));
        self.queue.run.clear();
        self.queue.fresh.clear();
        for (i, w) in row.windows(2).enumerate() {
            if let Some(m) = rules.pair(w[0], w[1]) {
                self.queue.run.push(Waiting { rank: m.rank, at: i as u32, id: m.id, end: w[1].end });
            }
        }
        self.queue.sort();
        while let Some(Waiting { at, id, end, .. }) = self.queue.pop() {
            let left = at as usize;
            let (before, right) = self.links[left];
            // A pair is stale when either half has merged since: then its end no longer fits, because symbols
            // only grow. A symbol that was absorbed has an empty range.
            if right == NONE || row[left].start == row[left].end || row[right as usize].end != end {
                continue;
            }
            row[left] = Symbol { id, start: row[left].start, end };
            let after = self.links[right as usize].1;
            row[right as usize].end = row[right as usize].start;
            self.links[left].1 = after;
            if after != NONE {
                self.links[after as usize].0 = at;
                if let Some(m) = rules.pair(row[left], row[after as usize]) {
                    let end = row[after as usize].end;
                    self.queue.push(Waiting { rank: m.rank, at, id: m.id, end });
                }
            }
            if before != NONE
                && let Some(m) = rules.pair(row[before as usize], row[left])
            {
                self.queue.push(Waiting { rank: m.rank, at: before, id: m.id, end });
            }
        }
        row.retain(|s| s.start != s.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    struct Table(HashMap<(u32, u32), Merged>);

    impl MergeRules for Table {
        fn pair(&self, left: Symbol, right: Symbol) -> Option<Merged> {
            self.0.get(&(left.id, right.id)).copied()
        }
    }

    fn table(rules: &[(u32, u32, u32)]) -> Table {
        Table(
            rules
                .iter()
                .enumerate()
                .map(|(rank, &(a, b, id))| ((a, b), Merged { rank: rank as u32, id }))
                .collect(),
        )
    }

    /// The definition: look at every pair, merge the lowest leftmost, start again.
    fn plain(ids: &[u32], rules: &Table) -> Vec<u32> {
        let mut row = ids.to_vec();
        loop {
            let best = row
                .windows(2)
                .enumerate()
                .filter_map(|(i, w)| rules.0.get(&(w[0], w[1])).map(|m| (m.rank, i, m.id)))
                .min();
            let Some((_, i, id)) = best else { return row };
            row[i] = id;
            row.remove(i + 1);
        }
    }

    fn merged(ids: &[u32], rules: &Table, long: bool) -> Vec<u32> {
        let mut merger = Merger::default();
        for (i, &id) in ids.iter().enumerate() {
            merger.push(Symbol { id, start: i as u32, end: i as u32 + 1 });
        }
        if long {
            merger.run_long(rules);
        } else {
            merger.run_short(rules);
        }
        let mut at = 0;
        for s in &merger.row {
            assert_eq!(s.start, at, "the symbols cover the text without a gap");
            at = s.end;
        }
        assert_eq!(at as usize, ids.len());
        merger.row.iter().map(|s| s.id).collect()
    }

    #[test]
    fn both_ways_merge_the_lowest_rank_leftmost_first() {
        // 0 1 2 are letters; the rules overlap so that order matters.
        let rules =
            table(&[(0, 1, 3), (1, 0, 4), (0, 0, 5), (3, 3, 6), (5, 5, 7), (4, 2, 8), (6, 5, 9), (2, 2, 10)]);
        let mut state = 7u64;
        for length in 0..60 {
            for _ in 0..50 {
                let ids: Vec<u32> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (state >> 40) as u32 % 3
                    })
                    .collect();
                let expected = plain(&ids, &rules);
                assert_eq!(merged(&ids, &rules, true), expected, "heap, {ids:?}");
                assert_eq!(merged(&ids, &rules, false), expected, "scan, {ids:?}");
            }
        }
    }

    #[test]
    fn a_run_of_one_letter_merges_from_the_left() {
        let rules = table(&[(0, 0, 1)]);
        assert_eq!(merged(&[0; 5], &rules, true), [1, 1, 0]);
        assert_eq!(merged(&[0; 5], &rules, false), [1, 1, 0]);
    }
}
