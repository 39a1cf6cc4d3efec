//! A whole layer under the clock: activations are quantised, too, threads share the work as in a model, and the matrix
//! lies wherever the caches keep it. It is what a layer of another library can be compared with.

use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use quantsmith_kernels::{Format, PANEL, Supported};

use super::kernel::{Differs, KernelSpeed, RUN};
use super::time::{Budget, repeat};
use super::work::weights;
use crate::error::Error;
use crate::exec::layer::Layer;

/// A matrix of a format, for layers on any tier.
pub struct LayerBench {
    format: &'static Format,
    rows: usize,
    cols: usize,
    threads: usize,
    /// In panels, or as rows where weights are floats.
    matrix: Vec<u8>,
}

impl fmt::Debug for LayerBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBench").field("format", &self.format.name).finish_non_exhaustive()
    }
}

impl LayerBench {
    /// A matrix of `rows` and `cols`, to be multiplied by so many threads.
    ///
    /// # Panics
    /// * if whole blocks do not make `cols` weights, or there are no rows
    pub fn new(format: &'static Format, rows: usize, cols: usize, tier: Supported, threads: usize) -> Self {
        assert!(rows > 0, "a matrix without rows");
        let bytes = weights(format, rows, cols);
        let matrix = if format.is_float() {
            bytes
        } else {
            let kernels = format.kernels(tier);
            let mut packed = vec![0; kernels.packed_len(rows, cols)];
            kernels.pack_panels(&bytes, cols, rows, 0..rows.div_ceil(PANEL), &mut packed);
            packed
        };
        LayerBench { format, rows, cols, threads, matrix }
    }

    /// The layer with some tokens on a tier.
    ///
    /// # Errors
    /// * if the system gives no memory or threads
    pub fn layer(&self, tier: Supported, tokens: usize) -> Result<Layer, Error> {
        let x = (0..self.cols * tokens).map(|i| (i * 37 % 255) as f32 / 128.0 - 1.0).collect();
        let (kernels, matrix) = (self.format.kernels(tier), self.matrix.clone());
        Layer::new(kernels, tier, matrix, self.rows, self.cols, x, self.threads)
    }

    /// Checks the layer with some tokens on a tier against the scalar tier.
    ///
    /// # Errors
    /// * if a bit differs, inside
    /// * if the system gives no memory or threads
    pub fn check(&self, tier: Supported, tokens: usize) -> Result<Result<(), Differs>, Error> {
        let run = |tier| {
            let mut layer = self.layer(tier, tokens)?;
            layer.run()?;
            Ok::<_, Error>(layer.out().iter().map(|y| y.to_bits()).collect::<Vec<u32>>())
        };
        let same = run(tier)? == run(Supported::SCALAR)?;
        Ok(if same { Ok(()) } else { Err(Differs::new(self.format, tier, tokens)) })
    }

    /// Times the layer with some tokens on a tier; the times are those of the layer.
    ///
    /// # Errors
    /// * if the system gives no memory or threads
    pub fn time(&self, tier: Supported, tokens: usize, budget: Budget) -> Result<KernelSpeed, Error> {
        let mut layer = self.layer(tier, tokens)?;
        layer.run()?;
        let clock = Instant::now();
        layer.run()?;
        let one = clock.elapsed().as_secs_f64();
        let visits = ((RUN / one.max(1e-9)) as usize).clamp(1, 1 << 20);
        let layer = Mutex::new((layer, Ok(())));
        let times = repeat(1, budget, |_| {
            let mut guard = layer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (layer, result) = &mut *guard;
            *result = (0..visits).try_for_each(|_| layer.run());
        });
        let (_, result) = layer.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        result?;
        let times = times.per(visits as f64);
        let each = 1.0 / times.median();
        Ok(KernelSpeed {
            read: each * self.matrix.len() as f64,
            operations: each * (2 * self.rows * self.cols * tokens) as f64,
            times,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quantsmith_kernels::{Registry, cpu};
    use std::time::Duration;

    #[test]
    fn a_layer_gives_the_same_bits_on_every_tier_with_any_number_of_threads() {
        for name in ["Q8_0", "Q6_K", "F16"] {
            let format = Registry::builtin().by_name(name).expect("built in");
            for tokens in [1, 2, 19] {
                let outs = [1, 3].map(|threads| {
                    // A last panel that is not full.
                    let bench = LayerBench::new(format, 44, 512, Supported::SCALAR, threads);
                    for tier in cpu::supported() {
                        bench.check(tier, tokens).expect("threads").expect("the bits of the scalar tier");
                    }
                    let mut layer = bench.layer(Supported::SCALAR, tokens).expect("threads");
                    layer.run().expect("no panic");
                    layer.out().to_vec()
                });
                assert_eq!(outs[0], outs[1], "{name}, {tokens} tokens");
                assert!(outs[0].iter().all(|y| y.is_finite()) && outs[0].iter().any(|y| *y != 0.0));
                let rows: Vec<&[f32]> = outs[0].chunks(44).collect();
                assert_eq!(rows.len(), tokens);
            }
        }
    }

    #[test]
    fn a_layer_is_timed() {
        let tier = cpu::choose(None).expect("a tier");
        let format = Registry::builtin().by_name("Q8_0").expect("built in");
        let bench = LayerBench::new(format, 64, 256, tier, 2);
        let speed = bench.time(tier, 3, Budget { runs: 2, time: Duration::ZERO }).expect("threads");
        assert_eq!(speed.times.runs(), 2);
        let operations = speed.operations * speed.times.median();
        assert!((operations / (2.0 * 64.0 * 256.0 * 3.0) - 1.0).abs() < 1e-9);
        assert!(speed.read > 1e5, "{speed:?}");
    }
}
