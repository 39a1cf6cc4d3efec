//! One number over the bits of every operation. It is the same on every architecture, which no comparison of the tiers
//! of one machine can show.

use crate::Random;
use quantsmith_kernels::cpu::{Supported, supported};
use quantsmith_kernels::ops::attention::{AttendJob, CellType, Cells, KvLayout, Queries, Visible};
use quantsmith_kernels::ops::*;
use quantsmith_kernels::{ActGroup, ActivationsMut, OutMut};

/// What every tier of every architecture gives. It changes only when the arithmetic of an operation does.
const FINGERPRINT: u64 = 0x25f9_0d2a_1776_4709;

/// FNV-1a over 32-bit words.
struct Hash(u64);

impl Hash {
    fn words(&mut self, words: impl IntoIterator<Item = u32>) {
        for byte in words.into_iter().flat_map(u32::to_le_bytes) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn row(&mut self, row: &[f32]) {
        self.words(row.iter().map(|x| x.to_bits()));
    }
}

fn fingerprint(tier: Supported) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    let mut random = Random(2026);
    let (x, y) = (random.row(333, 4.0), random.row(333, 1.0));

    let act = activation::Set::new(tier);
    type OneRow = fn(activation::Set, &mut [f32]);
    let functions: [OneRow; 8] = [
        activation::Set::exp,
        activation::Set::tanh,
        activation::Set::sigmoid,
        activation::Set::silu,
        activation::Set::gelu,
        activation::Set::gelu_quick,
        activation::Set::relu,
        activation::Set::relu_squared,
    ];
    for function in functions {
        let mut row = x.clone();
        function(act, &mut row);
        hash.row(&row);
    }
    let mut row = x.clone();
    act.silu_mul(&mut row, &y);
    act.gelu_mul(&mut row, &y);
    hash.row(&row);

    let elementwise = elementwise::Set::new(tier);
    let mut halves = vec![0; x.len()];
    elementwise.f32_to_f16(&x, &mut halves);
    hash.words(halves.iter().map(|&h| u32::from(h)));
    elementwise.softcap(&mut row, 3.0);
    elementwise.add_scaled(&mut row, &x, 0.3);
    hash.row(&row);

    let norm = norm::Set::new(tier);
    norm.rms_norm(&x, Some(&y), 1e-5, &mut row);
    hash.row(&row);
    norm.layer_norm(&x, Some(&y), Some(&x), 1e-5, &mut row);
    hash.row(&row);
    softmax::Set::new(tier).softmax(&mut row);
    hash.row(&row);
    rope::Set::new(tier).rope_norm(&mut row, 37, &x[..18], &y[..18]);
    rope::Set::new(tier).rope_neox(&mut row, 37, &x[..17], &y[..17]);
    hash.row(&row);

    let (mut codes, mut groups) = (vec![0; 352], vec![ActGroup::default(); 11]);
    let mut made = ActivationsMut::new(&mut codes, &mut groups, x.len(), 1);
    quantise::Set::new(tier).quantise(&[&x], &mut made, 0, 0);
    hash.words(codes.iter().map(|&q| q as u32));
    for group in &groups {
        hash.row(&[group.scale, group.scaled_sum, group.scaled_halves[0], group.scaled_halves[1]]);
    }

    let weights: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
    hash.row(&[float_product::Set::new(tier).dot_f16(&weights, &y)]);

    let layout = KvLayout::new(20, 36);
    let ty = CellType::F16;
    let (mut k, mut v) = (vec![0; 3 * ty.k_bytes(layout)], vec![0; 3 * ty.v_bytes(layout)]);
    let attention = attention::Set::new(tier);
    for p in 0..140 {
        attention.store_k(ty, layout, &random.row(20, 2.0), p, &mut k);
        attention.store_v(ty, layout, &random.row(36, 2.0), p, &mut v);
    }
    let visible: Vec<_> = (0..140).map(|p| Visible::causal(p, Some(90))).collect();
    let queries = Queries {
        layout,
        k: Cells { ty, bytes: &k },
        v: Cells { ty, bytes: &v },
        q: &random.row(140 * 60, 2.0),
        q_stride: 60,
        q_at: 0,
        heads: 3,
        visible: &visible,
        scale: 0.2,
        softcap: Some(20.0),
        sinks: Some(&x[..3]),
        slopes: Some(&y[..3]),
    };
    let mut out = vec![0.0; 140 * 108];
    let (to, scratch) = (OutMut::new(&mut out, 108, 140), &mut vec![0.0; layout.scratch_len()]);
    attention.attend(AttendJob { queries, tokens: 0..140, out: to, out_at: 0, scratch });
    hash.row(&out);
    hash.0
}

#[test]
fn every_operation_has_the_bits_of_every_other_architecture() {
    for tier in supported() {
        let found = fingerprint(tier);
        assert_eq!(found, FINGERPRINT, "{}: {found:#018x}", tier.tier().name());
    }
}
