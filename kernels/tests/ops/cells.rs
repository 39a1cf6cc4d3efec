//! All types of a cache: what they hold, and that attention over them is attention over what they hold.
//!
//! What cells of codes should hold is computed here in plain Rust, as blocks of their format, which the format's own
//! kernels dequantise.

use crate::attention::{AT, Caches, Case, Context, PLAIN, cache_bytes, poison};
use crate::{Random, assert_same, tiers};
use quantsmith_kernels::cpu::supported;
use quantsmith_kernels::formats::legacy::{Q4_0, Q8_0};
use quantsmith_kernels::ops::attention::*;
use quantsmith_kernels::{OutMut, Supported};

const POSITIONS: usize = 150;

fn best() -> Supported {
    *supported().last().unwrap()
}

/// What cells hold of a row.
fn held(ty: CellType, row: &[f32]) -> Vec<f32> {
    let format = match ty {
        CellType::F32 => return row.to_vec(),
        CellType::F16 => return row.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect(),
        CellType::Q8_0 => &Q8_0,
        CellType::Q4_0 => &Q4_0,
    };
    let mut out = vec![f32::NAN; row.len()];
    for (x, out) in row.chunks(32).zip(out.chunks_mut(32)) {
        let largest = x.iter().fold(0.0, |m: f32, &x| if x.abs() > m.abs() { x } else { m });
        let scale = if ty == CellType::Q8_0 { largest.abs() / 127.0 } else { largest / -8.0 };
        let scale = half::f16::from_f32(scale.clamp(-65504.0, 65504.0));
        let inverse = if scale.to_f32() == 0.0 { 0.0 } else { 1.0 / scale.to_f32() };
        let mut block = scale.to_le_bytes().to_vec();
        if ty == CellType::Q8_0 {
            block.extend(x.iter().map(|x| (x * inverse).round_ties_even() as i8 as u8));
        } else {
            let code = |x: f32| ((x * inverse + 8.0).round_ties_even() as u8).min(15);
            block.extend((0..16).map(|i| code(x[i]) | code(x[i + 16]) << 4));
        }
        format.kernels(Supported::SCALAR).dequantise(&block, out);
    }
    out
}

/// A context, and the same with what cells of some types hold of it, in f32.
fn contexts(case: Case, types: [CellType; 2]) -> (Context, Context) {
    let mut context = Context::new(case, POSITIONS);
    let mut exact = Context::new(case, POSITIONS);
    context.types = types;
    exact.types = [CellType::F32; 2];
    exact.keys = context.keys.iter().map(|row| held(types[0], row)).collect();
    exact.values = context.values.iter().map(|row| held(types[1], row)).collect();
    (context, exact)
}

/// Pairs of types that heads of a case can have.
fn pairs(case: Case) -> impl Iterator<Item = [CellType; 2]> {
    let pairs = CellType::ALL.into_iter().flat_map(|k| CellType::ALL.map(|v| [k, v]));
    pairs.filter(move |[k, v]| case.k_dim.is_multiple_of(k.block()) && case.v_dim.is_multiple_of(v.block()))
}

#[test]
fn a_stored_position_reads_back_as_what_its_type_holds_on_every_tier() {
    let mut random = Random(3);
    for ty in CellType::ALL {
        let dims =
            [(32, 32), (64, 96), (96, 64), (160, 256), (1, 1), (16, 16), (80, 72), (2, 130), (100, 200)];
        for (k_dim, v_dim) in dims {
            if [k_dim, v_dim].iter().any(|dim: &usize| !dim.is_multiple_of(ty.block())) {
                continue;
            }
            let layout = KvLayout::new(k_dim, v_dim);
            let mut row = |p: usize, dim: usize| match p % 5 {
                0 => random.wild(dim),
                1 => random.row(dim, 1e-6),
                2 => vec![0.0; dim],
                _ => random.row(dim, 9.0),
            };
            let rows: Vec<_> = (0..POSITIONS).map(|p| [row(p, k_dim), row(p, v_dim)]).collect();
            let mut scalar = None;
            for tier in supported() {
                let [k, v] = cache_bytes([ty; 2], layout, POSITIONS).map(poison);
                let mut caches = Caches { types: [ty; 2], k, v };
                for (p, rows) in rows.iter().enumerate() {
                    caches.store(tier, layout, &rows[0], &rows[1], p);
                }
                for (p, rows) in rows.iter().enumerate() {
                    let (mut k, mut v) = (vec![0.5; k_dim], vec![0.5; v_dim]);
                    Set::new(tier).load_k(layout, caches.k(), p, &mut k);
                    Set::new(tier).load_v(layout, caches.v(), p, &mut v);
                    assert_same(&format!("key {p} {}", ty.name()), tier, &held(ty, &rows[0]), &k);
                    assert_same(&format!("value {p} {}", ty.name()), tier, &held(ty, &rows[1]), &v);
                }
                if ty.block() > 1 {
                    let scalar = scalar.get_or_insert((caches.k.clone(), caches.v.clone()));
                    assert!(*scalar == (caches.k, caches.v), "{} of {}", ty.name(), tier.tier().name());
                }
            }
        }
    }
}

#[test]
fn attention_over_cells_is_attention_over_what_they_hold() {
    let cases = [
        PLAIN,
        Case { k_dim: 32, v_dim: 96, heads: 7, window: Some(70), ..PLAIN },
        Case { k_dim: 160, v_dim: 32, heads: 2, softcap: Some(2.0), sinks: true, ..PLAIN },
        Case { k_dim: 96, v_dim: 160, heads: 5, window: Some(65), slopes: true, ..PLAIN },
        Case { k_dim: 64, v_dim: 18, heads: 1, ..PLAIN },
        Case { k_dim: 20, v_dim: 64, heads: 6, ..PLAIN },
        Case { heads: 30, ..PLAIN },
    ];
    for (n, case) in cases.into_iter().enumerate() {
        // Keys and values do not know of each other: one case for mixed pairs is enough, and on one tier.
        let mixed = n == 0;
        for types in pairs(case).filter(|types| mixed || types[0] == types[1]) {
            let (context, exact) = contexts(case, types);
            let all =
                |context: &Context, tier| context.attend_some(tier, &context.caches(POSITIONS, 0..POSITIONS));
            let expected = all(&exact, best());
            let tiers = if types[0] == types[1] { supported() } else { vec![best()] };
            for tier in tiers {
                let names = types.map(CellType::name);
                assert_same(&format!("{case:?} {names:?}"), tier, &expected, &all(&context, tier));
            }
        }
    }
}

#[test]
fn a_ring_of_cells_and_a_split_context_give_the_same_bits() {
    for ty in CellType::ALL {
        let (context, exact) = contexts(Case { window: Some(40), ..PLAIN }, [ty; 2]);
        let expected = exact.attend_all(Supported::SCALAR);
        for tier in supported() {
            for p in (0..POSITIONS).step_by(7).chain([63, 64, 65, 127, 128]) {
                // Two chunks, with what the token sees and nothing else.
                let Visible { first, end } = context.visible(p);
                let caches = context.caches(128, first..end);
                let mut found = vec![f32::NAN; expected.len()];
                context.attend(tier, &caches, p..p + 1, &mut found);
                assert_same(ty.name(), tier, context.token(&expected, p), context.token(&found, p));

                let visible: Vec<_> = (0..POSITIONS).map(|p| context.visible(p)).collect();
                let queries = context.queries(&caches, &visible);
                let (chunks, part) = (first / CHUNK..end.div_ceil(CHUNK), context.layout.part_len(3));
                let (mut parts, mut scratch) = (vec![f32::NAN; chunks.len() * part], context.scratch());
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
}

#[test]
fn any_bytes_as_cells_give_the_bits_of_scalar() {
    let mut random = Random(8);
    for ty in CellType::ALL {
        for (heads, finite) in [(1, true), (3, false), (8, true)] {
            let case = Case { k_dim: 96, v_dim: 96, heads, ..PLAIN };
            let context = Context::new(case, POSITIONS);
            let bytes = cache_bytes([ty; 2], context.layout, POSITIONS);
            // With the sixth bit of each byte cleared no f16 or f32 is infinite or no number.
            let mask = if finite { 0xbf } else { 0xff };
            let [k, v] = bytes.map(|len| (0..len).map(|_| random.bits() as u8 & mask).collect());
            let caches = Caches { types: [ty; 2], k, v };
            let expected = context.attend_some(Supported::SCALAR, &caches);
            for tier in tiers() {
                assert_same(ty.name(), tier, &expected, &context.attend_some(tier, &caches));
            }
        }
    }
}

#[test]
fn codes_are_the_nearest_and_odd_rows_are_harmless() {
    let mut random = Random(5);
    for (ty, codes) in [(CellType::Q8_0, 254.0), (CellType::Q4_0, 15.0)] {
        let layout = KvLayout::new(64, 64);
        let mut caches =
            Caches { types: [ty; 2], k: vec![0; ty.k_bytes(layout)], v: vec![0; ty.v_bytes(layout)] };
        let mut back = |row: &[f32], position: usize| {
            caches.store(best(), layout, row, row, position);
            let (mut key, mut value) = (vec![0.5; 64], vec![0.5; 64]);
            Set::new(best()).load_k(layout, caches.k(), position, &mut key);
            Set::new(best()).load_v(layout, caches.v(), position, &mut value);
            assert_eq!(key, value);
            key
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
}

#[test]
fn cells_take_what_their_types_say() {
    let layout = KvLayout::new(64, 64);
    assert_eq!(CellType::ALL.map(|ty| ty.block()), [1, 1, 32, 32]);
    assert_eq!(CellType::ALL.map(|ty| ty.k_bytes(layout)), [64 * 256, 64 * 128, 64 * 68, 64 * 36]);
    assert_eq!(CellType::ALL.map(|ty| ty.v_bytes(layout)), [64 * 256, 64 * 128, 64 * 68, 64 * 36]);
    // Values of f16 and f32 are padded to whole runs of sixteen.
    assert_eq!(CellType::F16.v_bytes(KvLayout::new(1, 17)), 64 * 32 * 2);
    for ty in [CellType::Q8_0, CellType::Q4_0] {
        let odd = std::panic::catch_unwind(|| ty.k_bytes(KvLayout::new(48, 64)));
        assert!(odd.is_err(), "{}: keys of one block and a half", ty.name());
    }
}
