//! Times kernels.
use quantsmith_kernels::*;
use std::time::Instant;
fn main() {
    let filter = std::env::args().nth(1);
    let reg = Registry::builtin();
    for f in reg.iter().filter(|f| !f.is_float()) {
        if let Some(x) = &filter {
            if !f.name.eq_ignore_ascii_case(x) {
                continue;
            }
        }
        for tier in cpu::supported() {
            let k = f.kernels(tier);
            let (rows, cols) = (2048usize, 2048usize);
            let rb = f.row_bytes(cols).unwrap();
            let bytes = vec![0x11u8; rows * rb];
            let mut packed = vec![0u8; k.packed_len(rows, cols)];
            let t = Instant::now();
            k.pack_panels(&bytes, cols, rows, 0..rows / 16, &mut packed);
            let pack = t.elapsed().as_secs_f64();
            for tokens in [1usize, 2, 4, 8, 64, 512] {
                if tier.tier() == Tier::Scalar && tokens > 8 {
                    continue;
                }
                let codes = vec![3i8; tokens * cols];
                let groups = vec![ActGroup { scale: 1e-3, ..Default::default() }; tokens * cols / 32];
                let mut out = vec![0f32; tokens * rows];
                let mut best = f64::MAX;
                for _ in 0..7 {
                    let t = Instant::now();
                    k.matmul_packed(
                        &packed,
                        rows,
                        Activations::new(&codes, &groups, cols, tokens),
                        0..rows / 16,
                        OutMut::new(&mut out, rows, tokens),
                    );
                    best = best.min(t.elapsed().as_secs_f64());
                }
                println!(
                    "{:6} {:12} T={:4} {:8.1} GOPS {:7.2} GB/s  (pack {:.0} MB/s)",
                    f.name,
                    tier.tier().name(),
                    tokens,
                    2.0 * (rows * cols * tokens) as f64 / best / 1e9,
                    packed.len() as f64 / best / 1e9,
                    bytes.len() as f64 / pack / 1e6
                );
            }
        }
    }
}
