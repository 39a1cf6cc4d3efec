//! Log-probabilities from logits: in f64, by operations that give the same bits on every machine.

use std::cmp::Ordering;

use quantsmith::text::Tokenizer;
use serde::Serialize;

use crate::output::printable;
use crate::prompt;

/// The most likely next tokens at one position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Position {
    /// The ids, the most likely first; equal ones by id.
    pub(crate) ids: Vec<u32>,
    /// The natural logarithm of the probability of each.
    pub(crate) logp: Vec<f64>,
    /// The probability of all others together.
    pub(crate) rest: f64,
}

/// The `top` most likely tokens, or `None` when a logit is not a finite number.
pub(crate) fn top(logits: &[f32], top: usize) -> Option<Position> {
    let top = top.min(logits.len());
    let most = logits.iter().copied().reduce(f32::max)?;
    if logits.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let above = |id: u32| f64::from(logits[id as usize]) - f64::from(most);
    let mut ids: Vec<u32> = (0..).take(logits.len()).collect();
    let sum: f64 = ids.iter().map(|&id| libm::exp(above(id))).sum();
    // All are finite, so they compare.
    let order = |a: &u32, b: &u32| {
        let by_logit = logits[*b as usize].partial_cmp(&logits[*a as usize]);
        by_logit.unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    if top > 0 && top < ids.len() {
        ids.select_nth_unstable_by(top - 1, order);
    }
    // In order of id again, so that the sum does not depend on how the selection went.
    let mut others = ids.split_off(top);
    others.sort_unstable();
    // Not `sum`, which gives -0.0 for none.
    let rest = others.iter().fold(0.0, |rest, &id| rest + libm::exp(above(id))) / sum;
    ids.sort_unstable_by(order);
    let log_sum = libm::log(sum);
    let logp = ids.iter().map(|&id| above(id) - log_sum).collect();
    Some(Position { ids, logp, rest })
}

/// The position as text: one line a token.
pub(crate) fn lines(position: &Position, tokenizer: &Tokenizer) -> String {
    let mut out = String::new();
    for (&id, logp) in position.ids.iter().zip(&position.logp) {
        let piece = printable(&prompt::piece(tokenizer, id));
        out.push_str(&format!("  {logp:>10.5}  {id:>7}  '{piece}'\n"));
    }
    out.push_str(&format!("  the others together: {:.6}\n", position.rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_softmax() {
        let p = top(&[0.0, f32::ln(3.0), 0.0], 3).expect("finite");
        assert_eq!(p.ids, [1, 0, 2]);
        for (logp, want) in p.logp.iter().zip([0.6f64, 0.2, 0.2]) {
            assert!((logp.exp() - want).abs() < 1e-7, "{logp} for {want}");
        }
        assert!(p.rest == 0.0 && p.rest.is_sign_positive());
    }

    #[test]
    fn ties_are_in_order_of_id_and_the_rest_is_the_rest() {
        let p = top(&[1.0; 8], 3).expect("finite");
        assert_eq!(p.ids, [0, 1, 2]);
        assert!((p.rest - 0.625).abs() < 1e-12);
        assert_eq!(top(&[-0.0, 0.0], 2).expect("finite").ids, [0, 1]);
        assert_eq!(top(&[1.0, 2.0], 0).expect("finite"), Position { ids: vec![], logp: vec![], rest: 1.0 });
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let p = top(&[3.0e38, -3.0e38, 3.0e38], 3).expect("finite");
        assert_eq!(p.ids, [0, 2, 1]);
        assert!((p.logp[0] + std::f64::consts::LN_2).abs() < 1e-12);
    }

    #[test]
    fn logits_that_are_no_numbers_have_no_probabilities() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(top(&[0.0, bad], 2), None);
        }
        assert_eq!(top(&[], 2), None);
    }

    #[test]
    fn a_selection_is_a_prefix_of_the_whole_order() {
        // A small generator with a fixed start: the same numbers in every run.
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as f32 / 16.0
        };
        let logits: Vec<f32> = (0..1000).map(|_| next()).collect();
        let whole = top(&logits, logits.len()).expect("finite");
        assert!(whole.logp.is_sorted_by(|a, b| a >= b));
        for n in [1, 2, 10, 999, 5000] {
            let some = top(&logits, n).expect("finite");
            assert_eq!(some.ids, whole.ids[..n.min(1000)]);
            assert_eq!(some.logp, whole.logp[..n.min(1000)]);
            let mass: f64 = some.logp.iter().map(|l| l.exp()).sum();
            assert!((mass + some.rest - 1.0).abs() < 1e-12);
        }
    }
}
