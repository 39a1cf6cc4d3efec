//! Quantising to every format on one core: bytes of f32 a second, without importance. `cargo bench --bench quantise --
//! Q4_K` measures one format, `-- avx2` one tier.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quantsmith_kernels::{Registry, cpu};
use std::time::Duration;

const COLS: usize = 2048;

/// A row of weights that are roughly normal: sums of uniform numbers from a fixed seed.
fn row() -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..COLS).map(|_| (0..6).map(|_| uniform()).sum::<f32>() * 0.02).collect()
}

fn quantise(c: &mut Criterion) {
    let row = row();
    let mut group = c.benchmark_group("quantise");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .throughput(Throughput::Bytes(4 * COLS as u64));
    for format in Registry::builtin().iter() {
        let mut out = vec![0; format.row_bytes(COLS).expect("whole blocks")];
        for tier in cpu::supported() {
            let kernels = format.kernels(tier);
            group.bench_function(format!("{}/{}", format.name, tier.tier().name()), |b| {
                b.iter(|| kernels.quantise(&row, COLS, None, &mut out));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, quantise);
criterion_main!(benches);
