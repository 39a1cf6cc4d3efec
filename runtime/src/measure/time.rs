//! Timing: several threads start together, and one clock sees them all.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a measurement may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// At least so many runs, however long they take.
    pub runs: usize,
    /// No further run starts after this time.
    pub time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { runs: 5, time: Duration::from_millis(200) }
    }
}

/// The times of equal runs, in seconds, the shortest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// Times of at least one run.
    ///
    /// # Panics
    /// * if there are none
    pub fn new(mut seconds: Vec<f64>) -> Self {
        assert!(!seconds.is_empty(), "no run was timed");
        seconds.sort_by(f64::total_cmp);
        Times(seconds)
    }

    /// How many runs there were.
    pub fn runs(&self) -> usize {
        self.0.len()
    }

    /// The time in the middle.
    pub fn median(&self) -> f64 {
        let n = self.0.len();
        (self.0[(n - 1) / 2] + self.0[n / 2]) / 2.0
    }

    /// The spread: half the distance between the first and the third quarter, as a part of the median.
    pub fn spread(&self) -> f64 {
        let at = |q: f64| {
            let place = q * (self.0.len() - 1) as f64;
            let (low, part) = (place as usize, place.fract());
            let high = (low + 1).min(self.0.len() - 1);
            self.0[low] * (1.0 - part) + self.0[high] * part
        };
        (at(0.75) - at(0.25)) / 2.0 / self.median().max(f64::MIN_POSITIVE)
    }

    /// The times of one of `parts` equal parts of a run.
    pub fn per(&self, parts: f64) -> Times {
        Times(self.0.iter().map(|t| t / parts).collect())
    }
}

/// Lets `threads` threads do `work(thread)` together, again and again, and tells how long each time took: from the moment
/// when all are ready to the moment when all are done. The first run is not counted.
pub fn repeat(threads: usize, budget: Budget, work: impl Fn(usize) + Sync) -> Times {
    let mut seconds = Vec::new();
    let done = AtomicBool::new(false);
    let (start, end) = (Barrier::new(threads), Barrier::new(threads));
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let (work, done, start, end) = (&work, &done, &start, &end);
            scope.spawn(move || {
                loop {
                    start.wait();
                    if done.load(Ordering::Acquire) {
                        return;
                    }
                    work(thread);
                    end.wait();
                }
            });
        }
        let begin = Instant::now();
        let mut first = true;
        loop {
            start.wait();
            let clock = Instant::now();
            work(0);
            end.wait();
            let time = clock.elapsed().as_secs_f64();
            if !std::mem::take(&mut first) {
                seconds.push(time);
            }
            if seconds.len() >= budget.runs && begin.elapsed() >= budget.time {
                done.store(true, Ordering::Release);
                start.wait();
                return;
            }
        }
    });
    Times::new(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn median_and_spread() {
        let times = Times::new(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((times.runs(), times.median()), (4, 2.5));
        assert!((times.spread() - 0.3).abs() < 1e-12, "{}", times.spread());
        assert_eq!(times.per(2.0).median(), 1.25);
        assert_eq!(Times::new(vec![1.0]).spread(), 0.0);
    }

    #[test]
    fn every_thread_works_in_every_run() {
        for threads in [1, 3] {
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            let budget = Budget { runs: 4, time: Duration::ZERO };
            let times = repeat(threads, budget, |thread| {
                counts[thread].fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(times.runs(), 4);
            let counts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
            assert_eq!(counts, vec![5; threads], "four runs, and the one that is not counted");
        }
    }
}
