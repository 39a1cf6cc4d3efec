//! The candidates of one draw and the samplers that narrow them.
//!
//! They start as the plain logits (`dense`), because most chains begin with a few penalties and a top-k, which
//! need no list of a quarter million entries. The first sampler that needs a list makes it.
//!
//! The list is either by id or fully sorted, never in between: sums then have one order.

use std::cmp::Ordering;

/// One token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
    /// The weight, where a sampler has set it.
    pub(super) p: f32,
    /// What some samplers sort by.
    pub(super) key: f32,
}

/// The candidates of one draw.
#[derive(Debug, Clone)]
pub(super) struct Candidates {
    pub(super) dense: Vec<f32>,
    list: Vec<Candidate>,
    listed: bool,
    sorted: bool,
}

/// The most likely first; of equals the lower id.
pub(super) fn likely_first(a: &Candidate, b: &Candidate) -> Ordering {
    // No NaN gets in, and 0.0 and -0.0 must be equals here.
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

impl Candidates {
    pub(super) fn new(vocab: usize) -> Self {
        Self {
            dense: Vec::with_capacity(vocab),
            list: Vec::with_capacity(vocab),
            listed: false,
            sorted: false,
        }
    }

    /// Takes the logits of a step; NaN becomes minus infinity.
    pub(super) fn fill(&mut self, logits: &[f32]) {
        self.dense.clear();
        self.dense.extend(logits.iter().map(|&l| if l.is_nan() { f32::NEG_INFINITY } else { l }));
        self.list.clear();
        self.listed = false;
        self.sorted = false;
    }

    /// As [`fill`](Self::fill), with minus infinity for what is not allowed; says if anything is.
    pub(super) fn fill_allowed(&mut self, logits: &[f32], allowed: impl Fn(u32) -> bool) -> bool {
        self.fill(logits);
        let mut best = None;
        for (id, logit) in self.dense.iter_mut().enumerate() {
            if !allowed(id as u32) {
                *logit = f32::NEG_INFINITY;
            } else if best.is_none_or(|(_, most)| *logit > most) {
                best = Some((id, *logit));
            }
        }
        // If the model rules out all that is allowed, one of it must still be drawn, and nothing else.
        if let Some((id, f32::NEG_INFINITY)) = best {
            self.dense[id] = f32::MIN;
        }
        best.is_some()
    }

    /// Changes logits: `change` gives the new one and must leave tokens outside `ids` as they are.
    pub(super) fn adjust(&mut self, ids: &[u32], change: impl Fn(u32, f32) -> f32) {
        let guarded = |id, logit| {
            let new: f32 = change(id, logit);
            if new.is_nan() { f32::NEG_INFINITY } else { new }
        };
        if self.listed {
            for c in &mut self.list {
                c.logit = guarded(c.id, c.logit);
            }
            if self.sorted {
                self.list.sort_unstable_by(likely_first);
            }
        } else {
            for &id in ids {
                if let Some(logit) = self.dense.get_mut(id as usize) {
                    *logit = guarded(id, *logit);
                }
            }
        }
    }

    /// The list, made if there is none yet.
    pub(super) fn listed(&mut self) -> &mut Vec<Candidate> {
        if !self.listed {
            let all = self.dense.iter().enumerate();
            self.list.extend(all.map(|(id, &logit)| Candidate { id: id as u32, logit, p: 0.0, key: 0.0 }));
            self.listed = true;
        }
        &mut self.list
    }

    pub(super) fn sort(&mut self) {
        if !self.sorted {
            self.listed().sort_unstable_by(likely_first);
            self.sorted = true;
        }
    }

    pub(super) fn largest(&self) -> f32 {
        self.list.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
    }

    /// Sets the weights exp(logit - largest) and returns their sum.
    pub(super) fn weigh(&mut self) -> f64 {
        self.listed();
        let largest = self.largest();
        let mut sum = 0.0;
        for c in &mut self.list {
            // Equal infinities have a difference of NaN but a weight of one.
            c.p = if c.logit == largest { 1.0 } else { libm::expf(c.logit - largest) };
            sum += f64::from(c.p);
        }
        sum
    }

    /// Drops candidates; the order stays.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Candidate) -> bool) {
        self.listed().retain(keep);
    }

    /// Restores the order of likelihood after a sampler used another.
    pub(super) fn resort(&mut self) {
        self.list.sort_unstable_by(likely_first);
        self.sorted = true;
    }

    /// Keeps the `k` most likely.
    pub(super) fn top_k(&mut self, k: usize) {
        let k = k.max(1);
        if self.listed {
            self.sort();
            self.list.truncate(k);
            return;
        }
        if k >= self.dense.len() {
            self.sort();
            return;
        }
        // A heap whose root is the least likely of the k best so far; ids come in ascending order, so of equals
        // the first stay.
        let list = &mut self.list;
        list.extend((0..k).map(|id| Candidate { id: id as u32, logit: self.dense[id], p: 0.0, key: 0.0 }));
        for at in (0..k / 2).rev() {
            sift_down(list, at);
        }
        let least = list[0].logit;
        each_above(&self.dense, k, least, |id, logit| {
            list[0] = Candidate { id, logit, p: 0.0, key: 0.0 };
            sift_down(list, 0);
            list[0].logit
        });
        self.listed = true;
        self.sort();
    }

    /// Keeps the most likely that together reach the probability `p`.
    pub(super) fn top_p(&mut self, p: f32) {
        let target = f64::from(p) * self.weigh();
        let mut sum = 0.0;
        // Sort a growing head instead of everything: the answer is usually short.
        let mut head = if self.sorted { self.list.len() } else { 64.min(self.list.len()) };
        let mut done = 0;
        loop {
            if !self.sorted && head < self.list.len() {
                self.list[done..].select_nth_unstable_by(head - done, likely_first);
            }
            if !self.sorted {
                self.list[done..head].sort_unstable_by(likely_first);
            }
            for (i, c) in self.list.iter().enumerate().take(head).skip(done) {
                sum += f64::from(c.p);
                if sum >= target {
                    self.list.truncate(i + 1);
                    self.sorted = true;
                    return;
                }
            }
            if head == self.list.len() {
                self.sorted = true;
                return;
            }
            done = head;
            head = (head * 4).min(self.list.len());
        }
    }

    /// Keeps what is at least `p` times as likely as the most likely.
    pub(super) fn min_p(&mut self, p: f32) {
        self.listed();
        let largest = self.largest();
        let floor = largest + libm::logf(p);
        self.list.retain(|c| c.logit >= floor || c.logit == largest);
    }

    /// Divides the logits.
    pub(super) fn scale(&mut self, temperature: f32) {
        for c in self.listed() {
            c.logit /= temperature;
        }
    }

    /// The most likely candidate.
    pub(super) fn best(&self) -> u32 {
        if self.listed {
            return self.list.iter().min_by(|a, b| likely_first(a, b)).map_or(0, |c| c.id);
        }
        let mut best = 0;
        each_above(&self.dense, 0, f32::NEG_INFINITY, |id, logit| {
            best = id;
            logit
        });
        best
    }

    /// Draws by probability; `unit` is in [0, 1).
    pub(super) fn draw(&mut self, unit: f64) -> u32 {
        let target = unit * self.weigh();
        let mut sum = 0.0;
        for c in &self.list {
            sum += f64::from(c.p);
            if sum > target {
                return c.id;
            }
        }
        // Rounding can leave the sum a hair short of the target.
        self.best()
    }

    #[cfg(test)]
    pub(super) fn ids(&mut self) -> Vec<u32> {
        self.listed().iter().map(|c| c.id).collect()
    }
}

/// Visits, from the token `first` on, the logits above a limit; `found` gives the next limit.
fn each_above(logits: &[f32], first: usize, limit: f32, mut found: impl FnMut(u32, f32) -> f32) {
    const RUN: usize = 64;
    let mut limit = limit;
    for (n, run) in logits[first..].chunks(RUN).enumerate() {
        // Most runs have nothing to offer, which many comparisons at once tell.
        if !run.iter().fold(false, |any, &logit| any | (logit > limit)) {
            continue;
        }
        for (id, &logit) in (first + n * RUN..).zip(run) {
            if logit > limit {
                limit = found(id as u32, logit);
            }
        }
    }
}

/// Restores the heap below `at`: each parent is less likely than its children.
fn sift_down(heap: &mut [Candidate], mut at: usize) {
    loop {
        let mut least = at;
        for child in [2 * at + 1, 2 * at + 2] {
            if child < heap.len() && likely_first(&heap[least], &heap[child]) == Ordering::Less {
                least = child;
            }
        }
        if least == at {
            return;
        }
        heap.swap(at, least);
        at = least;
    }
}
