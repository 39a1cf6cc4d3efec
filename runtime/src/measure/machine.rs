//! What the machine can do at most.

use std::hint::black_box;

use quantsmith_kernels::Supported;
use quantsmith_kernels::ops::roof::{READ_STEP, ROUND, roof};

use super::time::{Budget, repeat};

/// The limits of the machine with some number of threads.
#[derive(Clone, Debug)]
pub struct Machine {
    threads: usize,
    /// What is read to measure the memory; kernels' weights lie here too.
    memory: Vec<u8>,
    /// Bytes read in a second.
    read: f64,
}

/// Bytes of memory to read, far more than caches hold.
const MEMORY: usize = 256 << 20;

impl Machine {
    /// Measures how fast `threads` threads read memory.
    pub fn measure(threads: usize, tier: Supported) -> Self {
        // Written once, so that every page is there.
        let memory: Vec<u8> = (0..MEMORY).map(|i| (i >> 12) as u8).collect();
        let part = MEMORY / threads / READ_STEP * READ_STEP;
        let set = roof::Set::new(tier);
        let times = repeat(threads, Budget::default(), |thread| {
            black_box(set.read(&memory[thread * part..][..part]));
        });
        Machine { threads, read: (part * threads) as f64 / times.median(), memory }
    }

    /// Threads that measure.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes that all threads read in a second.
    pub fn read(&self) -> f64 {
        self.read
    }

    /// Multiplications and additions that all threads do in a second on a tier, of codes of one bit and with no scales.
    pub fn multiply(&self, tier: Supported) -> f64 {
        let set = roof::Set::new(tier);
        const ROUNDS: usize = 2000;
        let times = repeat(self.threads, Budget::default(), |_| {
            black_box(set.multiply(black_box(ROUNDS)));
        });
        (2 * ROUND * ROUNDS * self.threads) as f64 / times.median()
    }

    /// What lies in that memory.
    pub(super) fn weights(&self) -> &[u8] {
        &self.memory
    }

    /// The memory that was read, to put weights into.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}
