//! The tokens that went before, and the penalties for repeating them.

use super::candidates::Candidates;

/// The last tokens, with how often each occurs among them.
#[derive(Debug, Clone)]
pub(super) struct History {
    window: usize,
    /// A ring; `next` is where the next token goes once it is full.
    ring: Vec<u32>,
    next: usize,
    /// How often each token of the vocabulary occurs in the ring.
    counts: Vec<u32>,
    /// The tokens that occur, in no order.
    distinct: Vec<u32>,
    /// Where in `distinct` a token stands; meaningless for the others.
    place: Vec<u32>,
}

impl History {
    /// Remembers `window` tokens of a vocabulary; 0 remembers none.
    pub(super) fn new(window: usize, vocab: usize) -> Self {
        let kept = if window > 0 { vocab } else { 0 };
        let reserved = window.min(1 << 16);
        Self {
            window,
            ring: Vec::with_capacity(reserved),
            next: 0,
            counts: vec![0; kept],
            distinct: Vec::with_capacity(reserved.min(kept)),
            place: vec![0; kept],
        }
    }

    /// Enters a token; the oldest goes when the window is full. Ids outside the vocabulary are ignored.
    pub(super) fn push(&mut self, id: u32) {
        if self.window == 0 || id as usize >= self.counts.len() {
            return;
        }
        if self.ring.len() < self.window {
            self.ring.push(id);
        } else {
            let gone = std::mem::replace(&mut self.ring[self.next], id);
            self.next = (self.next + 1) % self.window;
            self.counts[gone as usize] -= 1;
            if self.counts[gone as usize] == 0 {
                let place = self.place[gone as usize];
                self.distinct.swap_remove(place as usize);
                if let Some(&moved) = self.distinct.get(place as usize) {
                    self.place[moved as usize] = place;
                }
            }
        }
        if self.counts[id as usize] == 0 {
            self.place[id as usize] = self.distinct.len() as u32;
            self.distinct.push(id);
        }
        self.counts[id as usize] += 1;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for id in self.distinct.drain(..) {
            self.counts[id as usize] = 0;
        }
        self.ring.clear();
        self.next = 0;
    }

    /// Lowers the logits of the tokens in the window.
    ///
    /// `repeat` divides a positive logit and multiplies another, once per token; `frequency` is subtracted once
    /// per occurrence, `presence` once.
    pub(super) fn penalise(&self, c: &mut Candidates, repeat: f32, frequency: f32, presence: f32) {
        c.adjust(&self.distinct, |id, logit| {
            let count = self.counts[id as usize];
            if count == 0 {
                return logit;
            }
            let scaled = if logit <= 0.0 { logit * repeat } else { logit / repeat };
            scaled - (count as f32 * frequency + presence)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_counts_its_tokens_and_nothing_else() {
        let mut state = 3u64;
        for window in [1, 2, 5, 64] {
            let mut history = History::new(window, 7);
            let mut all = Vec::new();
            for _ in 0..500 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let id = (state >> 33) as u32 % 9;
                history.push(id);
                if id < 7 {
                    all.push(id);
                }
                let last = &all[all.len().saturating_sub(window)..];
                for id in 0..7 {
                    let expected = last.iter().filter(|&&t| t == id).count() as u32;
                    assert_eq!(history.counts[id as usize], expected);
                    assert_eq!(history.distinct.contains(&id), expected > 0);
                }
            }
            history.clear();
            assert!(history.counts.iter().all(|&n| n == 0) && history.distinct.is_empty());
        }
    }
}
