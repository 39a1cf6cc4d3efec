//! Attention against a plain reading of its definition in f64, and the promises about bits: tiers, batches, splits,
//! rings, and cells that a token does not see.

use crate::{Random, assert_same, tiers};
use core::ops::Range;
use quantsmith_kernels::OutMut;
use quantsmith_kernels::cpu::{Supported, supported};
use quantsmith_kernels::ops::attention::*;

/// What differs from case to case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) k_dim: usize,
    pub(super) v_dim: usize,
    pub(super) heads: usize,
    pub(super) window: Option<usize>,
    pub(super) softcap: Option<f32>,
    pub(super) sinks: bool,
    pub(super) slopes: bool,
}

pub(super) const PLAIN: Case =
    Case { k_dim: 64, v_dim: 64, heads: 3, window: None, softcap: None, sinks: false, slopes: false };

const CASES: [Case; 7] = [
    PLAIN,
    Case { k_dim: 16, v_dim: 16, heads: 1, ..PLAIN },
    Case { k_dim: 80, v_dim: 80, heads: 4, window: Some(40), ..PLAIN },
    Case { k_dim: 2, v_dim: 6, heads: 7, softcap: Some(0.4), ..PLAIN },
    Case { k_dim: 34, v_dim: 128, heads: 5, window: Some(70), sinks: true, ..PLAIN },
    Case { k_dim: 24, v_dim: 18, heads: 2, slopes: true, ..PLAIN },
    Case { k_dim: 66, v_dim: 130, heads: 13, window: Some(1), softcap: Some(2.0), sinks: true, slopes: true },
];

/// Bytes that are NaN and infinities in f16, in f32, and as scales: what lies in cells that nobody has written.
pub(super) fn poison(len: usize) -> Vec<u8> {
    [0x00, 0x7e, 0xff, 0x7f, 0x00, 0xfc, 0x80, 0xff].into_iter().cycle().take(len).collect()
}

/// Bytes of keys and of values for so many positions.
pub(super) fn cache_bytes([k, v]: [CellType; 2], layout: KvLayout, positions: usize) -> [usize; 2] {
    let chunks = positions.div_ceil(CHUNK);
    [chunks * k.k_bytes(layout), chunks * v.v_bytes(layout)]
}

/// Keys and values of a head as they are stored.
pub(super) struct Caches {
    pub(super) types: [CellType; 2],
    pub(super) k: Vec<u8>,
    pub(super) v: Vec<u8>,
}

impl Caches {
    pub(super) fn k(&self) -> Cells<'_> {
        Cells { ty: self.types[0], bytes: &self.k }
    }

    pub(super) fn v(&self) -> Cells<'_> {
        Cells { ty: self.types[1], bytes: &self.v }
    }

    pub(super) fn store(&mut self, tier: Supported, layout: KvLayout, key: &[f32], value: &[f32], p: usize) {
        let set = Set::new(tier);
        set.store_k(self.types[0], layout, key, p, &mut self.k);
        set.store_v(self.types[1], layout, value, p, &mut self.v);
    }
}

/// A context of random keys, values and queries.
pub(super) struct Context {
    case: Case,
    /// The types of keys and values.
    pub(super) types: [CellType; 2],
    pub(super) layout: KvLayout,
    pub(super) keys: Vec<Vec<f32>>,
    pub(super) values: Vec<Vec<f32>>,
    q: Vec<f32>,
    sinks: Vec<f32>,
    slopes: Vec<f32>,
}

/// Distance of two tokens' queries and outputs beyond what the heads take, and where they start.
const GAP: usize = 5;
pub(super) const AT: usize = 3;

impl Context {
    pub(super) fn new(case: Case, positions: usize) -> Self {
        let mut random = Random(positions as u64 ^ case.k_dim as u64);
        let layout = KvLayout::new(case.k_dim, case.v_dim);
        let mut rows = |dim| (0..positions).map(|_| random.row(dim, 1.5)).collect::<Vec<_>>();
        let (keys, values) = (rows(case.k_dim), rows(case.v_dim));
        let q = random.row(positions * (case.heads * case.k_dim + GAP), 1.5);
        let (sinks, slopes) = (random.row(case.heads, 2.0), random.row(case.heads, 0.2));
        Context { case, types: [CellType::F16; 2], layout, keys, values, q, sinks, slopes }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn visible(&self, position: usize) -> Visible {
        Visible::causal(position, self.case.window)
    }

    /// Caches for so many positions, of which those of a range are written and the others poison.
    pub(super) fn caches(&self, capacity: usize, written: Range<usize>) -> Caches {
        let [k, v] = cache_bytes(self.types, self.layout, capacity).map(poison);
        let mut caches = Caches { types: self.types, k, v };
        for p in written {
            let best = *supported().last().unwrap();
            caches.store(best, self.layout, &self.keys[p], &self.values[p], p);
        }
        caches
    }

    pub(super) fn queries<'a>(&'a self, caches: &'a Caches, visible: &'a [Visible]) -> Queries<'a> {
        Queries {
            layout: self.layout,
            k: caches.k(),
            v: caches.v(),
            q: &self.q,
            q_stride: self.case.heads * self.case.k_dim + GAP,
            q_at: AT,
            heads: self.case.heads,
            visible,
            scale: 0.1,
            softcap: self.case.softcap,
            sinks: self.case.sinks.then_some(&*self.sinks),
            slopes: self.case.slopes.then_some(&*self.slopes),
        }
    }

    pub(super) fn stride(&self) -> usize {
        self.case.heads * self.case.v_dim + GAP
    }

    /// What heads give for one token, from a whole output.
    pub(super) fn token<'a>(&self, out: &'a [f32], token: usize) -> &'a [f32] {
        &out[token * self.stride() + AT..][..self.case.heads * self.case.v_dim]
    }

    pub(super) fn scratch(&self) -> Vec<f32> {
        vec![f32::NAN; self.layout.scratch_len()]
    }

    /// Attention of some tokens with the given caches, into an output for all tokens.
    pub(super) fn attend(&self, tier: Supported, caches: &Caches, tokens: Range<usize>, out: &mut [f32]) {
        let visible: Vec<_> = (0..self.len()).map(|p| self.visible(p)).collect();
        let queries = self.queries(caches, &visible);
        let out = OutMut::new(out, self.stride(), self.len());
        Set::new(tier).attend(AttendJob { queries, tokens, out, out_at: AT, scratch: &mut self.scratch() });
    }

    pub(super) fn attend_all(&self, tier: Supported) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.len() * self.stride()];
        self.attend(tier, &self.caches(self.len(), 0..self.len()), 0..self.len(), &mut out);
        out
    }

    /// Attention of the tokens beside the ends of chunks alone, which is quicker; the others stay NaN.
    pub(super) fn attend_some(&self, tier: Supported, caches: &Caches) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.len() * self.stride()];
        for tokens in [0..3, 60..68, self.len() - 13..self.len()] {
            self.attend(tier, caches, tokens, &mut out);
        }
        out
    }

    /// The definition, with keys and values as the cache holds them.
    fn exact(&self, position: usize, head: usize) -> Vec<f64> {
        let Case { k_dim, v_dim, heads, .. } = self.case;
        let held = |x: f32| f64::from(half::f16::from_f32(x).to_f32());
        let q = &self.q[position * (heads * k_dim + GAP) + AT + head * k_dim..][..k_dim];
        let Visible { first, end } = self.visible(position);
        let scores: Vec<f64> = (first..end)
            .map(|p| {
                let dot: f64 = self.keys[p].iter().zip(q).map(|(&k, &q)| held(k) * f64::from(q)).sum();
                let s = dot * f64::from(0.1f32);
                let s = self.case.softcap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh());
                let slope = if self.case.slopes { f64::from(self.slopes[head]) } else { 0.0 };
                s + slope * (p as f64 - position as f64)
            })
            .collect();
        let sink = if self.case.sinks { f64::from(self.sinks[head]) } else { f64::NEG_INFINITY };
        let max = scores.iter().copied().fold(sink, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum::<f64>() + (sink - max).exp();
        (0..v_dim)
            .map(|d| {
                (first..end).zip(&scores).map(|(p, s)| (s - max).exp() * held(self.values[p][d])).sum::<f64>()
                    / sum
            })
            .collect()
    }
}

#[test]
fn attention_agrees_with_its_definition_in_f64() {
    let best = *supported().last().unwrap();
    for case in CASES {
        let context = Context::new(case, 200);
        let out = context.attend_all(best);
        for position in (0..200).step_by(7).chain([63, 64, 127, 128]) {
            for (head, found) in context.token(&out, position).chunks(case.v_dim).enumerate() {
                for (found, exact) in found.iter().zip(context.exact(position, head)) {
                    assert!((f64::from(*found) - exact).abs() < 1e-5, "{case:?} {position}: {found} {exact}");
                }
            }
        }
    }
}

#[test]
fn attention_equals_scalar() {
    for case in CASES {
        let context = Context::new(case, 150);
        let expected = context.attend_all(Supported::SCALAR);
        for tier in tiers() {
            assert_same(&format!("{case:?}"), tier, &expected, &context.attend_all(tier));
        }
    }
}

#[test]
fn writes_nothing_but_its_own_rows() {
    let context = Context::new(PLAIN, 20);
    let out = context.attend_all(Supported::SCALAR);
    for (i, x) in out.iter().enumerate() {
        let own = (AT..AT + 3 * 64).contains(&(i % context.stride()));
        assert_eq!(x.is_finite(), own, "{i}");
    }
}

#[test]
fn decoding_equals_a_batch_though_later_cells_are_poison() {
    for tier in supported() {
        for case in CASES {
            let len = if tier == Supported::SCALAR { 70 } else { 210 };
            let context = Context::new(case, len);
            let batch = context.attend_all(tier);
            let mut out = vec![f32::NAN; batch.len()];
            for p in (0..len).step_by(3).chain([62, 63, 64, 65]) {
                // Only what the token sees is there.
                let Visible { first, end } = context.visible(p);
                context.attend(tier, &context.caches(len, first..end), p..p + 1, &mut out);
                assert_same(&format!("{case:?}"), tier, context.token(&batch, p), context.token(&out, p));
            }
        }
    }
}

#[test]
fn any_split_of_the_tokens_gives_the_same_bits() {
    let tier = *supported().last().unwrap();
    for case in CASES {
        let context = Context::new(case, 140);
        let caches = context.caches(140, 0..140);
        let whole = context.attend_all(tier);
        for size in [1, 5, 31, 64] {
            let mut out = vec![f32::NAN; whole.len()];
            for start in (0..140).step_by(size) {
                context.attend(tier, &caches, start..140.min(start + size), &mut out);
            }
            assert_same(&format!("{case:?} by {size}"), tier, &whole, &out);
        }
    }
}

#[test]
fn parts_of_a_token_merge_to_the_same_bits() {
    for tier in supported() {
        for case in CASES {
            let len = 260;
            let context = Context::new(case, len);
            let caches = context.caches(len, 0..len);
            let visible: Vec<_> = (0..len).map(|p| context.visible(p)).collect();
            let queries = context.queries(&caches, &visible);
            for token in [0, 63, 64, 200, 259] {
                let mut expected = vec![f32::NAN; len * context.stride()];
                context.attend(tier, &caches, token..token + 1, &mut expected);
                let Visible { first, end } = visible[token];
                let chunks = first / CHUNK..end.div_ceil(CHUNK);
                let part = context.layout.part_len(case.heads);
                let mut parts = vec![f32::NAN; chunks.len() * part];
                for (chunk, parts) in chunks.zip(parts.chunks_mut(part)).rev() {
                    let (chunks, scratch) = (chunk..chunk + 1, &mut context.scratch());
                    Set::new(tier).attend_part(PartJob { queries, token, chunks, parts, scratch });
                }
                let mut found = vec![f32::NAN; len * context.stride()];
                let out = OutMut::new(&mut found, context.stride(), len);
                let scratch = &mut context.scratch();
                Set::new(tier).merge_parts(MergeJob {
                    queries,
                    token,
                    parts: &parts,
                    out,
                    out_at: AT,
                    scratch,
                });
                assert_same(&format!("{case:?}"), tier, &expected, &found);
            }
        }
    }
}

#[test]
fn a_ring_gives_the_bits_of_a_long_cache() {
    let tier = *supported().last().unwrap();
    for window in [1, 30, 64, 100] {
        let context = Context::new(Case { window: Some(window), ..PLAIN }, 400);
        let expected = context.attend_all(tier);
        let (mut ring, mut out) = (context.caches(128, 0..0), vec![f32::NAN; expected.len()]);
        for p in 0..400 {
            ring.store(tier, context.layout, &context.keys[p], &context.values[p], p);
            context.attend(tier, &ring, p..p + 1, &mut out);
            assert_same("ring", tier, context.token(&expected, p), context.token(&out, p));
        }
    }
}

#[test]
fn a_token_that_sees_nothing_gets_zeros_beside_one_that_does() {
    for tier in supported() {
        for sinks in [false, true] {
            let context = Context::new(Case { sinks, ..PLAIN }, 4);
            let caches = context.caches(4, 0..2);
            let visible = [(0, 0), (0, 2), (3, 3), (1, 2)].map(|(first, end)| Visible { first, end });
            let mut found = vec![f32::NAN; 4 * context.stride()];
            let (queries, out) =
                (context.queries(&caches, &visible), OutMut::new(&mut found, context.stride(), 4));
            let scratch = &mut context.scratch();
            Set::new(tier).attend(AttendJob { queries, tokens: 0..4, out, out_at: AT, scratch });
            for (token, empty) in [(0, true), (1, false), (2, true), (3, false)] {
                let row = context.token(&found, token);
                assert!(row.iter().all(|x| x.is_finite() && (*x == 0.0) == empty), "{token}: {row:?}");
            }
        }
    }
}

#[test]
fn a_fault_in_a_visible_cell_stays_visible() {
    let tier = *supported().last().unwrap();
    let mut context = Context::new(PLAIN, 100);
    context.keys[70][0] = f32::NAN;
    let out = context.attend_all(tier);
    for position in 0..100 {
        let row = context.token(&out, position);
        assert!(row.iter().all(|x| x.is_nan() == (position >= 70)), "{position}");
    }
}
