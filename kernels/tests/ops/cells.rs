//! Caches of other types than f16: what they hold, and that attention over them is attention over what they hold.

use core::ops::Range;

use crate::attention::{AT, Case, Context, PLAIN};
use crate::{Random, assert_same};
use quantsmith_kernels::cpu::supported;
use quantsmith_kernels::ops::attention::*;
use quantsmith_kernels::{OutMut, Supported};

const POSITIONS: usize = 150;

/// Keys or values as they are stored, in `capacity` positions of which only some are written; the others are poison.
enum Stored {
    F16(Vec<u16>),
    Rows(CellType, Vec<u8>),
}

impl Stored {
    fn cells(&self, tier: Supported) -> Cells<'_> {
        match self {
            Stored::F16(cells) => Cells::F16(cells),
            Stored::Rows(ty, bytes) => Cells::Rows { kernels: ty.kernels(tier).unwrap(), bytes },
        }
    }

    fn rows(ty: CellType, rows: &[Vec<f32>], capacity: usize, written: Range<usize>) -> Self {
        let layout = KvLayout::new(rows[0].len(), rows[0].len());
        let mut bytes = vec![0xff; capacity.div_ceil(CHUNK) * ty.k_bytes(layout)];
        let chunks = bytes.len() / ty.k_bytes(layout);
        for p in written {
            let chunk = bytes.chunks_mut(ty.k_bytes(layout)).nth(p / CHUNK % chunks).unwrap();
            ty.store(&rows[p], p, chunk);
        }
        Stored::Rows(ty, bytes)
    }

    /// The rows that are held.
    fn held(&self, dim: usize) -> Vec<Vec<f32>> {
        let Stored::Rows(ty, bytes) = self else { unreachable!("rows") };
        let kernels = ty.kernels(Supported::SCALAR).unwrap();
        let size = bytes.len() / POSITIONS.next_multiple_of(CHUNK);
        bytes
            .chunks(size)
            .map(|bytes| {
                let mut row = vec![0.0; dim];
                kernels.dequantise(bytes, &mut row);
                row
            })
            .collect()
    }
}

fn attend(context: &Context, tier: Supported, k: &Stored, v: &Stored, tokens: Range<usize>) -> Vec<f32> {
    let visible: Vec<_> = (0..context.len()).map(|p| context.visible(p)).collect();
    let queries = Queries { k: k.cells(tier), v: v.cells(tier), ..context.queries_of(&[], &[], &visible) };
    let mut out = vec![f32::NAN; context.len() * context.stride()];
    let (to, scratch) = (OutMut::new(&mut out, context.stride(), context.len()), &mut context.scratch());
    Set::new(tier).attend(AttendJob { queries, tokens, out: to, out_at: AT, scratch });
    out
}

fn cases() -> [Case; 3] {
    [PLAIN, Case { k_dim: 32, v_dim: 96, heads: 7, window: Some(70), ..PLAIN }, Case { heads: 30, ..PLAIN }]
}

#[test]
fn f32_and_f16_hold_the_same_halves() {
    for tier in supported() {
        for case in cases() {
            let mut context = Context::new(case, POSITIONS);
            for row in context.keys.iter_mut().chain(&mut context.values) {
                row.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32());
            }
            let expected = context.attend_all(tier);
            let (k16, v16) = context.caches(POSITIONS, 0..POSITIONS);
            let k = Stored::rows(CellType::F32, &context.keys, POSITIONS, 0..POSITIONS);
            let v = Stored::rows(CellType::F32, &context.values, POSITIONS, 0..POSITIONS);
            let (k16, v16) = (Stored::F16(k16), Stored::F16(v16));
            for (k, v) in [(&k, &v), (&k16, &v), (&k, &v16)] {
                let found = attend(&context, tier, k, v, 0..POSITIONS);
                assert_same(&format!("{case:?}"), tier, &expected, &found);
            }
        }
    }
}

#[test]
fn attention_over_codes_is_attention_over_what_they_stand_for() {
    for ty in [CellType::Q8_0, CellType::Q4_0] {
        for case in cases() {
            let mut context = Context::new(case, POSITIONS);
            let k = Stored::rows(ty, &context.keys, POSITIONS, 0..POSITIONS);
            let v = Stored::rows(ty, &context.values, POSITIONS, 0..POSITIONS);
            (context.keys, context.values) = (k.held(case.k_dim), v.held(case.v_dim));
            context.keys.truncate(POSITIONS);
            context.values.truncate(POSITIONS);
            let exact = |rows: &[Vec<f32>]| Stored::rows(CellType::F32, rows, POSITIONS, 0..POSITIONS);
            let (k32, v32) = (exact(&context.keys), exact(&context.values));
            let expected = attend(&context, Supported::SCALAR, &k32, &v32, 0..POSITIONS);
            for tier in supported() {
                let found = attend(&context, tier, &k, &v, 0..POSITIONS);
                assert_same(&format!("{case:?} {}", ty.name()), tier, &expected, &found);
            }
        }
    }
}

#[test]
fn a_ring_of_rows_and_a_split_context_give_the_same_bits() {
    let tier = *supported().last().unwrap();
    for ty in [CellType::F32, CellType::Q8_0, CellType::Q4_0] {
        let context = Context::new(Case { window: Some(40), ..PLAIN }, POSITIONS);
        let k = Stored::rows(ty, &context.keys, POSITIONS, 0..POSITIONS);
        let v = Stored::rows(ty, &context.values, POSITIONS, 0..POSITIONS);
        let expected = attend(&context, tier, &k, &v, 0..POSITIONS);
        for p in (0..POSITIONS).step_by(7) {
            // Two chunks, with what the token sees and nothing else.
            let Visible { first, end } = context.visible(p);
            let k = Stored::rows(ty, &context.keys, 128, first..end);
            let v = Stored::rows(ty, &context.values, 128, first..end);
            let found = attend(&context, tier, &k, &v, p..p + 1);
            assert_same(ty.name(), tier, context.token(&expected, p), context.token(&found, p));
            let visible: Vec<_> = (0..POSITIONS).map(|p| context.visible(p)).collect();
            let queries =
                Queries { k: k.cells(tier), v: v.cells(tier), ..context.queries_of(&[], &[], &visible) };
            let (chunks, part) = (first / CHUNK..end.div_ceil(CHUNK), context.layout.part_len(3));
            let mut parts = vec![f32::NAN; chunks.len() * part];
            let mut scratch = context.scratch();
            let set = Set::new(tier);
            let job = PartJob { queries, token: p, chunks, parts: &mut parts, scratch: &mut scratch };
            set.attend_part(job);
            let mut found = vec![f32::NAN; expected.len()];
            let out = OutMut::new(&mut found, context.stride(), POSITIONS);
            let (parts, scratch) = (&*parts, &mut *scratch);
            set.merge_parts(MergeJob { queries, token: p, parts, out, out_at: AT, scratch });
            assert_same(ty.name(), tier, context.token(&expected, p), context.token(&found, p));
        }
    }
}

#[test]
fn codes_are_the_nearest_and_odd_rows_are_harmless() {
    let mut random = Random(5);
    let layout = KvLayout::new(64, 64);
    for (ty, codes) in [(CellType::Q8_0, 254.0), (CellType::Q4_0, 15.0)] {
        let mut chunk = vec![0; ty.k_bytes(layout)];
        let size = chunk.len() / CHUNK;
        let kernels = ty.kernels(Supported::SCALAR).unwrap();
        let mut back = |row: &[f32], position: usize| {
            ty.store(row, position, &mut chunk);
            let mut found = vec![0.0; row.len()];
            kernels.dequantise(&chunk[position % CHUNK * size..][..size], &mut found);
            found
        };
        for position in 0..200 {
            let row = random.row(64, 3.0);
            for (x, found) in row.chunks(32).zip(back(&row, position).chunks(32)) {
                let largest = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                // Half a step, and as much where the range ends one code early; a scale is a little off itself.
                let bound = 2.0 * largest / codes * 1.01;
                for (x, found) in x.iter().zip(found) {
                    assert!((x - found).abs() <= bound, "{} {x} {found} {bound}", ty.name());
                }
            }
        }
        assert_eq!(back(&[0.0; 64], 3), [0.0; 64]);
        assert_eq!(back(&[1e-30; 64], 3), [0.0; 64], "below the smallest scale");
        let mut odd = [1.0; 64];
        (odd[3], odd[40]) = (f32::NAN, f32::INFINITY);
        assert!(back(&odd, 70).iter().all(|x| x.is_finite()), "{}", ty.name());
    }
    assert_eq!(CellType::ALL.map(|ty| ty.block()), [1, 1, 32, 32]);
    assert_eq!(CellType::ALL.map(|ty| ty.k_bytes(layout)), [64 * 256, 64 * 128, 64 * 68, 64 * 36]);
}
