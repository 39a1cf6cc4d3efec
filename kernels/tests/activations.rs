//! Where activations of several tokens lie, and that it changes no product.

use quantsmith_kernels::act::{GROUP, WIDE};
use quantsmith_kernels::ops::quantise;
use quantsmith_kernels::{ActGroup, Activations, ActivationsMut, OutMut, PANEL, Registry, Supported, cpu};

/// Quantised activations of some tokens, made as the executor makes them: the columns of a token in two parts.
fn made(x: &[f32], cols: usize, tokens: usize) -> (Vec<i8>, Vec<ActGroup>) {
    let padded = Activations::padded(cols);
    let (mut codes, mut groups) =
        (vec![99; tokens * padded], vec![ActGroup::default(); tokens * padded / GROUP]);
    let mut out = ActivationsMut::new(&mut codes, &mut groups, cols, tokens);
    let operation = quantise::Set::new(Supported::SCALAR);
    for (token, x) in x.chunks_exact(cols).enumerate() {
        let (left, right) = x.split_at(GROUP.min(cols));
        operation.quantise(&[right], &mut out, token, 1);
        operation.quantise(&[left], &mut out, token, 0);
    }
    (codes, groups)
}

#[test]
fn several_tokens_at_once_are_the_same() {
    for cols in [1, 32, 70] {
        let x = values(cols * 5);
        let rows: Vec<_> = x.chunks_exact(cols).collect();
        let (mut codes, mut groups) = (vec![0; 5 * 96], vec![ActGroup::default(); 5 * 3]);
        let mut out = ActivationsMut::new(&mut codes, &mut groups, cols, 5);
        quantise::Set::new(Supported::SCALAR).quantise(&rows[..3], &mut out, 0, 0);
        quantise::Set::new(Supported::SCALAR).quantise(&rows[3..], &mut out, 3, 0);
        let (expected, expected_groups) = made(&x, cols, 5);
        assert_eq!(
            (&codes[..expected.len()], &groups[..expected_groups.len()]),
            (&expected[..], &expected_groups[..])
        );
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 100.0).collect()
}

#[test]
fn every_group_has_a_place_of_its_own() {
    for cols in [1, 31, 32, 33, 96, 100] {
        for tokens in 1..=2 * WIDE + 3 {
            let x = values(cols * tokens);
            let (codes, groups) = made(&x, cols, tokens);
            let all = Activations::new(&codes, &groups, cols, tokens);
            for token in 0..tokens {
                let (codes, groups) = made(&x[token * cols..][..cols], cols, 1);
                let one = Activations::new(&codes, &groups, cols, 1);
                let first = token / WIDE * WIDE;
                let tile = all.tile(first);
                assert_eq!(tile.width, WIDE.min(tokens - first));
                for group in 0..cols.div_ceil(GROUP) {
                    let at = group * tile.width + token - first;
                    assert_eq!(
                        all.group(token, group),
                        one.group(0, group),
                        "{cols} {tokens} {token} {group}"
                    );
                    assert_eq!(all.group(token, group), (&tile.codes[at], &tile.groups[at]));
                }
            }
        }
    }
}

#[test]
fn some_tiles_are_activations_of_their_own() {
    let cols = 70;
    for tokens in [1, WIDE, WIDE + 1, 3 * WIDE, 3 * WIDE + 5] {
        let (codes, groups) = made(&values(cols * tokens), cols, tokens);
        let all = Activations::new(&codes, &groups, cols, tokens);
        for first in (0..tokens).step_by(WIDE) {
            for end in (first + WIDE..tokens).step_by(WIDE).chain([tokens]) {
                let some = all.tiles(first..end);
                assert_eq!((some.cols(), some.tokens()), (cols, end - first));
                for (token, group) in (first..end).flat_map(|token| (0..3).map(move |group| (token, group))) {
                    assert_eq!(some.group(token - first, group), all.group(token, group), "{first}..{end}");
                }
            }
        }
    }
}

#[test]
fn a_part_of_a_tile_is_refused() {
    let (codes, groups) = made(&values(32 * 40), 32, 40);
    let refused = |tokens| {
        let all = Activations::new(&codes, &groups, 32, 40);
        std::panic::catch_unwind(|| all.tiles(tokens)).is_err()
    };
    assert!(refused(1..16) && refused(0..15) && refused(16..41) && refused(32..39));
    assert!(!refused(32..40) && !refused(0..0) && !refused(16..32));
}

#[test]
fn a_batch_gives_what_its_tokens_give_alone() {
    let (rows, cols) = (PANEL + 3, 256);
    for name in ["Q4_0", "Q5_1", "Q6_K", "IQ2_S"] {
        let format = Registry::builtin().by_name(name).expect("built in");
        let mut weights = vec![0; rows * format.row_bytes(cols).expect("whole blocks")];
        let done = format.kernels(Supported::SCALAR).quantise(&values(rows * cols), cols, None, &mut weights);
        done.expect("finite weights");
        for tier in cpu::supported() {
            let kernels = format.kernels(tier);
            let mut packed = vec![0; kernels.packed_len(rows, cols)];
            kernels.pack_panels(&weights, cols, rows, 0..2, &mut packed);
            let product = |x: &[f32], tokens: usize| {
                let (codes, groups) = made(x, cols, tokens);
                let x = Activations::new(&codes, &groups, cols, tokens);
                let mut out = vec![f32::NAN; rows * tokens];
                kernels.matmul_packed(&packed, rows, x, 0..2, OutMut::new(&mut out, rows, tokens));
                out
            };
            for tokens in [2, 3, 7, WIDE, WIDE + 1, 2 * WIDE + 5] {
                let x = values(cols * tokens);
                let together = product(&x, tokens);
                for (x, expected) in x.chunks_exact(cols).zip(together.chunks_exact(rows)) {
                    assert_eq!(product(x, 1), expected, "{name} {} {tokens} tokens", tier.tier().name());
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a group outside the activations")]
fn a_token_that_is_not_there_is_refused() {
    let (codes, groups) = made(&values(64), 32, 2);
    let _ = Activations::new(&codes, &groups, 32, 2).group(2, 0);
}
