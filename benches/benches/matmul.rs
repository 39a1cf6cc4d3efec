//! Matrix products of every format on every tier of this CPU, one core: one token (memory) and 64 tokens (arithmetic).
//!
//! Each kernel's result is first compared with the scalar tier. `cargo bench -- Q4_K` measures one format,
//! `-- avx2` one tier.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quantsmith::measure::{Tokens, weights};
use quantsmith_kernels::{KernelSet, OutMut, PANEL, Registry, Supported, Tier, cpu};
use std::time::Duration;

const ROWS: usize = 1024;
const COLS: usize = 2048;

fn product(kernels: KernelSet, packed: &[u8], x: &Tokens, out: &mut [f32]) {
    let tokens = out.len() / ROWS;
    kernels.matmul_packed(packed, ROWS, x.view(), 0..ROWS / PANEL, OutMut::new(out, ROWS, tokens));
}

fn matmul(c: &mut Criterion) {
    for tokens in [1, 64] {
        let mut group = c.benchmark_group(format!("{ROWS}x{COLS}, {tokens} tokens"));
        group
            .sample_size(20)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_millis(600));
        let x = Tokens::new(COLS, tokens);
        for format in Registry::builtin().iter().filter(|f| !f.is_float()) {
            let bytes = weights(format, ROWS, COLS);
            group.throughput(if tokens == 1 {
                Throughput::Bytes(bytes.len() as u64)
            } else {
                Throughput::Elements((2 * ROWS * COLS * tokens) as u64)
            });
            let mut want = vec![0.0; tokens * ROWS];
            for tier in cpu::supported() {
                let kernels = format.kernels(tier);
                let mut packed = vec![0; kernels.packed_len(ROWS, COLS)];
                kernels.pack_panels(&bytes, COLS, ROWS, 0..ROWS / PANEL, &mut packed);
                let mut out = vec![f32::NAN; tokens * ROWS];
                product(kernels, &packed, &x, &mut out);
                if tier == Supported::SCALAR {
                    want.clone_from(&out);
                }
                let same = out.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{} on {tier:?} differs from scalar", format.name);
                if tier.tier() == Tier::Scalar && tokens > 1 {
                    continue;
                }
                group.bench_function(format!("{}/{}", format.name, tier.tier().name()), |b| {
                    b.iter(|| product(kernels, &packed, &x, &mut out));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, matmul);
criterion_main!(benches);
