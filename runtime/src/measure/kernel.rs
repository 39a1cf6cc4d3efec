//! A kernel under the clock.
//!
//! Copies of a matrix fill the machine's measuring memory, and each thread walks its own part of their panels, so that
//! the product with one token reads memory and not a cache. What a run takes in is chosen so that it is long enough for
//! the clock and short enough for the budget, on a fast tier and on a slow one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use quantsmith_kernels::{Format, OutMut, PANEL, Supported};

use super::machine::Machine;
use super::time::{Budget, Times, repeat};
use super::work::{Tokens, weights};

/// Seconds that a run should take.
pub(super) const RUN: f64 = 0.02;

/// A format's matrix in the machine's memory, ready to be measured on any tier.
pub struct KernelBench<'m> {
    format: &'static Format,
    machine: &'m mut Machine,
    cols: usize,
    /// Bytes of sixteen rows, as the kernels read them, and how many such panels lie in the memory.
    panel: usize,
    panels: usize,
}

/// How fast a kernel is.
#[derive(Clone, Debug)]
pub struct KernelSpeed {
    /// Times of one panel with all tokens on one of the threads, or of a whole layer.
    pub times: Times,
    /// Bytes of weights read in a second, on all threads.
    pub read: f64,
    /// Multiplications and additions in a second, on all threads.
    pub operations: f64,
}

/// A kernel that does not give the bits of the scalar tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    format: &'static str,
    tier: &'static str,
    tokens: usize,
}

impl Differs {
    pub(super) fn new(format: &Format, tier: Supported, tokens: usize) -> Self {
        Differs { format: format.name, tier: tier.tier().name(), tokens }
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, tier, tokens } = self;
        write!(f, "the product of {format} with {tokens} tokens on {tier} differs from the scalar tier's")
    }
}

impl std::error::Error for Differs {}

impl fmt::Debug for KernelBench<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelBench").field("format", &self.format.name).field("cols", &self.cols).finish()
    }
}

impl<'m> KernelBench<'m> {
    /// Fills the machine's memory with a matrix of `rows` and `cols`, again and again.
    ///
    /// # Panics
    /// * if whole blocks do not make `cols` weights, or there are no rows
    pub fn new(
        format: &'static Format,
        rows: usize,
        cols: usize,
        tier: Supported,
        machine: &'m mut Machine,
    ) -> Self {
        assert!(rows > 0, "a matrix without rows");
        let rows = rows.next_multiple_of(PANEL);
        let bytes = weights(format, rows, cols);
        let packed = if format.is_float() {
            bytes
        } else {
            let kernels = format.kernels(tier);
            let mut packed = vec![0; kernels.packed_len(rows, cols)];
            kernels.pack_panels(&bytes, cols, rows, 0..rows / PANEL, &mut packed);
            packed
        };
        let panel = packed.len() / (rows / PANEL);
        let memory = machine.memory();
        let panels = (memory.len() / panel).clamp(1, 1 << 20);
        for copy in memory.chunks_mut(packed.len()) {
            let len = copy.len();
            copy.copy_from_slice(&packed[..len]);
        }
        KernelBench { format, machine, cols, panel, panels }
    }

    /// Checks the product with some tokens on a tier against the scalar tier.
    ///
    /// # Errors
    /// * if a bit differs
    pub fn check(&mut self, tier: Supported, tokens: usize) -> Result<(), Differs> {
        let x = Input::new(self.cols, tokens);
        let run = |tier| {
            let mut out = vec![f32::NAN; PANEL * tokens];
            self.product(tier, 0, &x, &mut out);
            out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        if run(tier) == run(Supported::SCALAR) {
            return Ok(());
        }
        Err(Differs::new(self.format, tier, tokens))
    }

    /// Times the product with some tokens on a tier.
    pub fn time(&mut self, tier: Supported, tokens: usize, budget: Budget) -> KernelSpeed {
        let x = Input::new(self.cols, tokens);
        let threads = self.machine.threads();
        let own = (self.panels / threads).max(1);
        let run = |thread: usize, at: &AtomicUsize, visits: usize| {
            let mut out = vec![0.0; PANEL * tokens];
            let first = at.fetch_add(visits, Ordering::Relaxed);
            for visit in 0..visits {
                let panel = (thread * own + (first + visit) % own) % self.panels;
                self.product(tier, panel, &x, &mut out);
            }
            std::hint::black_box(&out);
        };
        let places: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        // Twice as many visits until they take long enough to tell how many fill a run.
        let mut visits = 1;
        let one = loop {
            let clock = Instant::now();
            run(0, &places[0], visits);
            let time = clock.elapsed().as_secs_f64();
            if time > RUN / 8.0 || visits >= own {
                break time / visits as f64;
            }
            visits *= 2;
        };
        let visits = ((RUN / one.max(1e-9)) as usize).clamp(1, 1 << 20);
        let times = repeat(threads, budget, |thread| run(thread, &places[thread], visits)).per(visits as f64);
        let each = threads as f64 / times.median();
        KernelSpeed {
            read: each * self.panel as f64,
            operations: each * (2 * PANEL * self.cols * tokens) as f64,
            times,
        }
    }

    fn product(&self, tier: Supported, panel: usize, x: &Input, out: &mut [f32]) {
        let kernels = self.format.kernels(tier);
        let bytes = &self.machine.weights()[panel * self.panel..][..self.panel];
        let to = OutMut::new(out, PANEL, x.tokens);
        if self.format.is_float() {
            kernels.matmul_float(bytes, self.cols, 0..PANEL, &x.floats, to);
        } else {
            kernels.matmul_packed(bytes, PANEL, x.codes.view(), 0..1, to);
        }
    }
}

/// Activations in both kinds.
struct Input {
    tokens: usize,
    codes: Tokens,
    floats: Vec<f32>,
}

impl Input {
    fn new(cols: usize, tokens: usize) -> Self {
        let floats = (0..cols * tokens).map(|i| (i * 37 % 255) as f32 / 128.0 - 1.0).collect();
        Input { tokens, codes: Tokens::new(cols, tokens), floats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quantsmith_kernels::{Registry, cpu};
    use std::time::Duration;

    #[test]
    fn a_kernel_is_checked_and_timed() {
        let tier = cpu::choose(None).expect("a tier");
        let mut machine = Machine::measure(1, tier);
        assert!(machine.read() > 1e6 && machine.multiply(tier) > 1e6);
        for name in ["Q4_K", "F16"] {
            let format = Registry::builtin().by_name(name).expect("built in");
            let mut bench = KernelBench::new(format, 20, 512, tier, &mut machine);
            for tokens in [1, 17] {
                bench.check(tier, tokens).expect("the bits of the scalar tier");
                let speed = bench.time(tier, tokens, Budget { runs: 2, time: Duration::ZERO });
                assert_eq!(speed.times.runs(), 2);
                let row_bytes = format.row_bytes(512).expect("whole blocks") as f64;
                assert!(speed.read / row_bytes > 1.0 && speed.operations > 1e5, "{name}: {speed:?}");
            }
        }
    }
}
