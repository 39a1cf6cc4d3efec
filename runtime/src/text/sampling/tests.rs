use super::*;

/// A chain with everything off.
pub(super) fn off() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingParams::default() }
}

fn sampler(params: &SamplingParams, vocab: usize) -> Sampler {
    Sampler::new(params, vocab, 1).unwrap()
}

/// exp normalised, in f64 with the platform's functions: a plain second opinion.
fn probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|&l| f64::from(l - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Draws often and compares the frequencies with the expected probabilities: four standard deviations.
fn assert_frequencies(params: &SamplingParams, logits: &[f32], expected: &[f64]) {
    assert_frequencies_after(params, &[], logits, expected);
}

/// The same after a history.
pub(super) fn assert_frequencies_after(
    params: &SamplingParams,
    history: &[u32],
    logits: &[f32],
    expected: &[f64],
) {
    const DRAWS: u32 = 100_000;
    let mut s = sampler(params, logits.len());
    history.iter().for_each(|&id| s.accept(id));
    let mut counts = vec![0u32; logits.len()];
    for _ in 0..DRAWS {
        counts[s.sample(logits) as usize] += 1;
    }
    for (id, (&count, &p)) in counts.iter().zip(expected).enumerate() {
        let n = f64::from(DRAWS);
        let deviation = (n * p * (1.0 - p)).sqrt();
        assert!(
            (f64::from(count) - n * p).abs() <= 4.0 * deviation,
            "token {id}: {count} of {n}, expected {p}"
        );
    }
}

/// The expected distribution when only `kept` survive.
fn only(logits: &[f32], kept: &[usize]) -> Vec<f64> {
    let masked: Vec<f32> = logits
        .iter()
        .enumerate()
        .map(|(i, &l)| if kept.contains(&i) { l } else { f32::NEG_INFINITY })
        .collect();
    probabilities(&masked)
}

pub(super) const LOGITS: [f32; 6] = [1.0, 3.0, 0.5, 2.0, -1.0, 2.5];

#[test]
fn neutral_settings_draw_from_the_plain_distribution() {
    assert!(sampler(&off(), 6).chain.is_empty());
    assert_frequencies(&off(), &LOGITS, &probabilities(&LOGITS));
    assert_frequencies(&off(), &[0.0; 10], &[0.1; 10]);
}

#[test]
fn top_k_keeps_the_k_most_likely() {
    assert_frequencies(&SamplingParams { top_k: 3, ..off() }, &LOGITS, &only(&LOGITS, &[1, 3, 5]));
    assert_frequencies(&SamplingParams { top_k: 100, ..off() }, &LOGITS, &probabilities(&LOGITS));
}

#[test]
fn top_k_by_heap_equals_sorting() {
    let mut rng = Rng::new(5);
    for n in [1usize, 2, 7, 40, 41, 1000] {
        for k in [1, 2, 3, 39, 40, 41, 999] {
            // Coarse values, so that there are many ties.
            let logits: Vec<f32> = (0..n).map(|_| (rng.unit() * 20.0).floor() as f32 - 10.0).collect();
            let mut order: Vec<u32> = (0..n as u32).collect();
            order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
            order.truncate(k);
            let mut c = Candidates::new(n);
            c.fill(&logits);
            assert_eq!(c.best(), order[0], "of {n}");
            c.top_k(k);
            assert_eq!(c.ids(), order, "{k} of {n}");
        }
    }
}

#[test]
fn top_p_keeps_the_shortest_head_that_reaches_p() {
    let p = probabilities(&LOGITS);
    // In order of likelihood: 1, 5, 3, 0, 2, 4.
    let two = (p[1] + p[5]) as f32;
    assert_frequencies(&SamplingParams { top_p: two - 0.01, ..off() }, &LOGITS, &only(&LOGITS, &[1, 5]));
    assert_frequencies(&SamplingParams { top_p: two + 0.01, ..off() }, &LOGITS, &only(&LOGITS, &[1, 5, 3]));
    assert_frequencies(&SamplingParams { top_p: 0.0, ..off() }, &LOGITS, &only(&LOGITS, &[1]));
}

#[test]
fn top_p_by_growing_heads_equals_sorting() {
    let mut rng = Rng::new(6);
    for n in [1usize, 63, 64, 65, 5000] {
        let logits: Vec<f32> = (0..n).map(|_| (rng.unit() * 8.0) as f32).collect();
        let p = probabilities(&logits);
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
        for target in [0.01, 0.5, 0.9, 0.999] {
            let mut sum = 0.0;
            let head = order.iter().position(|&id| {
                sum += p[id as usize];
                sum >= target
            });
            let mut c = Candidates::new(n);
            c.fill(&logits);
            c.top_p(target as f32);
            let got = c.ids();
            let expected = head.unwrap() + 1;
            assert!(got.len().abs_diff(expected) <= 1, "{} against {expected}", got.len());
            assert_eq!(got, order[..got.len()]);
        }
    }
}

#[test]
fn min_p_keeps_what_is_likely_enough_beside_the_best() {
    let min_p = SamplingParams { min_p: 0.3, ..off() };
    // exp(2.5 - 3) = 0.61, exp(2 - 3) = 0.37, exp(1 - 3) = 0.14.
    assert_frequencies(&min_p, &LOGITS, &only(&LOGITS, &[1, 5, 3]));
    assert_frequencies(&SamplingParams { min_p: 1.0, ..off() }, &LOGITS, &only(&LOGITS, &[1]));
}

#[test]
fn temperature_divides_the_logits() {
    for t in [0.5f32, 2.0] {
        let scaled: Vec<f32> = LOGITS.iter().map(|l| l / t).collect();
        assert_frequencies(&SamplingParams { temperature: t, ..off() }, &LOGITS, &probabilities(&scaled));
    }
}

#[test]
fn filters_look_at_the_logits_before_temperature() {
    let p = probabilities(&LOGITS);
    let params = SamplingParams { top_p: (p[1] + p[5]) as f32 - 0.01, temperature: 50.0, ..off() };
    let hot: Vec<f32> = LOGITS.iter().map(|l| l / 50.0).collect();
    assert_frequencies(&params, &LOGITS, &only(&hot, &[1, 5]));
}

#[test]
fn greedy_takes_the_most_likely_and_of_equals_the_first() {
    for temperature in [0.0, -1.0] {
        let mut s = sampler(&SamplingParams { temperature, ..SamplingParams::default() }, 6);
        assert_eq!(s.sample(&LOGITS), 1);
        assert_eq!(s.sample(&[2.0, 5.0, 5.0, 1.0]), 1);
    }
}

#[test]
fn penalties_count_the_history_that_the_window_holds() {
    let logits = [1.0f32, -1.0, 2.0, 0.5];
    let after = |last_n: i32, history: &[u32], repeat: f32, frequency: f32, presence: f32| {
        let params = SamplingParams {
            repeat_penalty: repeat,
            frequency_penalty: frequency,
            presence_penalty: presence,
            repeat_last_n: last_n,
            context: 8,
            ..off()
        };
        let mut s = sampler(&params, 4);
        for &id in history {
            s.accept(id);
        }
        s.sample(&logits);
        s.candidates.dense.clone()
    };
    // Positive logits are divided, negative ones multiplied, once however often a token occurs.
    assert_eq!(after(64, &[1, 1, 2], 2.0, 0.0, 0.0), [1.0, -2.0, 1.0, 0.5]);
    // -1 is the context, 0 is off, 1 is the last token only, more than there is counts all.
    let history = [2, 2, 2, 0];
    assert_eq!(after(-1, &history, 2.0, 0.0, 0.0), [0.5, -1.0, 1.0, 0.5]);
    assert_eq!(after(0, &history, 2.0, 0.0, 0.0), logits);
    assert_eq!(after(1, &history, 2.0, 0.0, 0.0), [0.5, -1.0, 2.0, 0.5]);
    assert_eq!(after(1000, &history, 2.0, 0.0, 0.0), [0.5, -1.0, 1.0, 0.5]);
    // Frequency counts occurrences, presence does not.
    assert_eq!(after(-1, &history, 1.0, 0.25, 0.0), [0.75, -1.0, 1.25, 0.5]);
    assert_eq!(after(-1, &history, 1.0, 0.0, 0.25), [0.75, -1.0, 1.75, 0.5]);
}

#[test]
fn nan_and_infinite_logits_are_handled() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for params in [off(), SamplingParams::default(), SamplingParams::greedy()] {
        let mut s = sampler(&params, 4);
        for _ in 0..100 {
            assert_eq!(s.sample(&[nan, 1.0, nan, -inf]), 1);
            assert_eq!(s.sample(&[nan, 1.0, inf, 3.0]), 2);
            assert!(s.sample(&[nan; 4]) < 4);
            assert!(s.sample(&[-inf; 4]) < 4);
            assert!([1, 3].contains(&s.sample(&[0.0, inf, 0.0, inf])));
        }
    }
    assert_frequencies(&off(), &[inf, 0.0, inf, nan], &[0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn something_survives_every_setting() {
    let hard = SamplingParams {
        top_k: 1,
        top_p: 0.0,
        min_p: 1.0,
        temperature: 1e-30,
        repeat_penalty: 1e30,
        presence_penalty: 1e30,
        ..SamplingParams::default()
    };
    let mut s = sampler(&hard, 6);
    for _ in 0..50 {
        let id = s.sample(&LOGITS);
        assert!(id < 6);
        s.accept(id);
    }
}

#[test]
fn a_seed_repeats_and_reset_starts_again() {
    let draws = |s: &mut Sampler| (0..200).map(|_| s.sample(&LOGITS)).collect::<Vec<_>>();
    let mut a = Sampler::new(&off(), 6, 7).unwrap();
    let first = draws(&mut a);
    assert_eq!(first, draws(&mut Sampler::new(&off(), 6, 7).unwrap()));
    assert_ne!(first, draws(&mut Sampler::new(&off(), 6, 8).unwrap()));
    a.reset();
    assert_eq!(first, draws(&mut a));
    // From an implementation in another language. A change here breaks every recorded seed.
    assert_eq!(first[..12], [0, 1, 4, 1, 5, 1, 4, 1, 5, 1, 1, 1]);
}

#[test]
fn parameters_out_of_range_are_named() {
    let fails = |params: SamplingParams, name: &str| {
        let error = Sampler::new(&params, 4, 0).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    };
    fails(SamplingParams { temperature: f32::NAN, ..off() }, "--temp");
    fails(SamplingParams { top_p: f32::NAN, ..off() }, "--top-p");
    fails(SamplingParams { min_p: 2.0, ..off() }, "--min-p");
    fails(SamplingParams { repeat_penalty: 0.0, ..off() }, "--repeat-penalty");
    fails(SamplingParams { repeat_last_n: -2, ..off() }, "--repeat-last-n");
    fails(SamplingParams { presence_penalty: f32::INFINITY, ..off() }, "--presence-penalty");
}

#[test]
fn top_n_sigma_keeps_logits_near_the_largest() {
    // Mean 4/3, variance 1.89, deviation 1.37.
    let keeps = |n: f32, kept: &[usize]| {
        assert_frequencies(&SamplingParams { top_n_sigma: n, ..off() }, &LOGITS, &only(&LOGITS, kept));
    };
    keeps(0.5, &[1, 5]);
    keeps(1.0, &[1, 5, 3]);
    keeps(100.0, &[0, 1, 2, 3, 4, 5]);
    // Impossible tokens do not widen the deviation.
    let with_holes = [1.0, 3.0, 0.5, 2.0, -1.0, 2.5, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let params = SamplingParams { top_n_sigma: 1.0, ..off() };
    assert_frequencies(&params, &with_holes, &only(&with_holes, &[1, 5, 3]));
}

#[test]
fn typical_keeps_what_is_as_surprising_as_expected() {
    let p = probabilities(&LOGITS);
    let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
    let mut order: Vec<usize> = (0..6).collect();
    order.sort_by(|&a, &b| (-p[a].ln() - entropy).abs().total_cmp(&(-p[b].ln() - entropy).abs()));
    for count in 1..=5 {
        let reached: f64 = order[..count].iter().map(|&i| p[i]).sum();
        let params = SamplingParams { typical_p: reached as f32 - 0.01, ..off() };
        assert_frequencies(&params, &LOGITS, &only(&LOGITS, &order[..count]));
    }
}

#[test]
fn xtc_drops_all_likely_choices_but_the_last() {
    // Probabilities: 0.45, 0.27, 0.17, 0.06, ... for tokens 1, 5, 3, 0.
    let always = SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.2, ..off() };
    assert_frequencies(&always, &LOGITS, &only(&LOGITS, &[5, 3, 0, 2, 4]));
    let lower = SamplingParams { xtc_threshold: 0.1, ..always.clone() };
    assert_frequencies(&lower, &LOGITS, &only(&LOGITS, &[3, 0, 2, 4]));
    // One choice above the threshold is no choice to drop.
    let high = SamplingParams { xtc_threshold: 0.4, ..always.clone() };
    assert_frequencies(&high, &LOGITS, &probabilities(&LOGITS));
    let half = SamplingParams { xtc_probability: 0.5, ..always };
    let (with, without) = (only(&LOGITS, &[5, 3, 0, 2, 4]), probabilities(&LOGITS));
    let mixed: Vec<f64> = with.iter().zip(&without).map(|(a, b)| (a + b) / 2.0).collect();
    assert_frequencies(&half, &LOGITS, &mixed);
}

#[test]
fn the_dynamic_temperature_follows_the_entropy() {
    let p = probabilities(&LOGITS);
    let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
    let share = entropy / 6f64.ln();
    for exponent in [1.0f32, 2.0] {
        let params =
            SamplingParams { temperature: 1.0, dynatemp_range: 0.5, dynatemp_exponent: exponent, ..off() };
        let t = 0.5 + share.powf(exponent.into());
        let scaled: Vec<f32> = LOGITS.iter().map(|l| l / t as f32).collect();
        assert_frequencies(&params, &LOGITS, &probabilities(&scaled));
    }
    // Equal logits: the entropy is the largest there is, so the temperature is the upper bound.
    let params = SamplingParams { temperature: 1.0, dynatemp_range: 1.0, ..off() };
    assert_frequencies(&params, &[0.0; 4], &[0.25; 4]);
}

#[test]
fn mirostat_2_cuts_at_its_bound_and_learns() {
    let params = SamplingParams { mirostat: Mirostat::V2, mirostat_tau: 1.0, mirostat_eta: 0.0, ..off() };
    // The bound is 2 bits and stays: a quarter and more survives.
    assert_frequencies(&params, &LOGITS, &only(&LOGITS, &[1, 5]));
    let p = only(&LOGITS, &[1, 5]);
    let learning = SamplingParams { mirostat_eta: 0.5, ..params };
    let mut s = sampler(&learning, 6);
    let id = s.sample(&LOGITS);
    let expected = 2.0 - 0.5 * (-p[id as usize].log2() - 1.0);
    assert!((s.mirostat.as_ref().unwrap().mu() - expected).abs() < 1e-6);
    s.reset();
    assert_eq!(s.mirostat.as_ref().unwrap().mu(), 2.0);
}

#[test]
fn mirostat_reaches_the_surprise_it_aims_at() {
    // A distribution as Zipf has it, of 2000 words.
    let logits: Vec<f32> = (1..=2000).map(|rank| -(rank as f32).ln()).collect();
    for mirostat in [Mirostat::V1, Mirostat::V2] {
        for tau in [2.0f32, 4.0] {
            let params = SamplingParams { mirostat, mirostat_tau: tau, ..off() };
            let mut s = sampler(&params, logits.len());
            let p = probabilities(&logits);
            // The surprise is measured where it is controlled: among the survivors.
            let mut total = 0.0;
            for round in 0..4000 {
                let before = s.mirostat.as_ref().unwrap().mu();
                s.sample(&logits);
                let after = s.mirostat.as_ref().unwrap().mu();
                if round >= 2000 {
                    total += (before - after) / 0.1 + f64::from(tau);
                }
            }
            let mean = total / 2000.0;
            assert!((mean - f64::from(tau)).abs() < 0.15, "{mirostat:?} {tau}: {mean} {}", p.len());
        }
    }
}

#[test]
fn logit_bias_is_added_first() {
    let params = SamplingParams { logit_bias: vec![(4, 4.0), (1, f32::NEG_INFINITY), (99, 1.0)], ..off() };
    let biased = [1.0, f32::NEG_INFINITY, 0.5, 2.0, 3.0, 2.5];
    assert_frequencies(&params, &LOGITS, &probabilities(&biased));
    let greedy = SamplingParams { temperature: 0.0, ..params };
    assert_eq!(sampler(&greedy, 6).sample(&LOGITS), 4);
}

#[test]
fn dry_lowers_what_would_continue_a_repetition() {
    let params = SamplingParams {
        dry_multiplier: 100.0,
        dry_allowed_length: 2,
        temperature: 0.0,
        ..SamplingParams::default()
    };
    let mut s = sampler(&params, 6);
    for id in [2, 3, 1, 0, 2, 3] {
        s.accept(id);
    }
    // 1 followed "2 3" and is out; 5 is the next best.
    assert_eq!(s.sample(&LOGITS), 5);
    s.reset();
    assert_eq!(s.sample(&LOGITS), 1);
}

#[test]
fn the_order_of_the_chain_is_the_one_asked_for() {
    let p = probabilities(&LOGITS);
    let target = (p[1] + p[5]) as f32 - 0.01;
    let late = SamplingParams { top_p: target, temperature: 50.0, ..off() };
    let early =
        SamplingParams { samplers: vec![SamplerKind::Temperature, SamplerKind::TopP], ..late.clone() };
    let hot: Vec<f32> = LOGITS.iter().map(|l| l / 50.0).collect();
    assert_frequencies(&late, &LOGITS, &only(&hot, &[1, 5]));
    // Heated first, the head that reaches the target is longer: all are nearly alike.
    assert_frequencies(&early, &LOGITS, &only(&hot, &[1, 5, 3, 0, 2]));
    let none = SamplingParams { samplers: vec![], top_k: 1, ..off() };
    assert_frequencies(&none, &LOGITS, &p);
    // Penalties after a cut work on the list that is left.
    let after = SamplingParams {
        samplers: vec![SamplerKind::TopK, SamplerKind::Penalties],
        top_k: 2,
        presence_penalty: 100.0,
        ..off()
    };
    let mut s = sampler(&after, 6);
    s.accept(1);
    assert!((0..100).all(|_| s.sample(&LOGITS) == 5));
}

#[test]
fn names_and_letters_of_samplers() {
    use SamplerKind as K;
    let all: Vec<&str> = K::ORDER.iter().map(|k| k.name().0).collect();
    assert_eq!(K::parse_names(&all.join(";")).unwrap(), K::ORDER);
    assert_eq!(K::parse_letters("edskypmxt").unwrap(), K::ORDER);
    assert_eq!(K::parse_names("top-k;temp; Typical ").unwrap(), [K::TopK, K::Temperature, K::Typical]);
    assert!(K::parse_names("").unwrap().is_empty());
    assert!(K::parse_names("top_k;nonsense").unwrap_err().to_string().contains("nonsense"));
    assert!(K::parse_letters("kz").unwrap_err().to_string().contains('z'));
}

#[test]
fn only_allowed_tokens_are_drawn() {
    for params in [off(), SamplingParams::default(), SamplingParams::greedy()] {
        let mut s = sampler(&params, 6);
        for _ in 0..50 {
            assert!([2, 4].contains(&s.sample_allowed(&LOGITS, |id| id == 2 || id == 4).unwrap()));
        }
        assert_eq!(s.sample_allowed(&LOGITS, |_| false), None);
        assert_eq!(s.sample_allowed(&[f32::NEG_INFINITY; 6], |id| id == 3), Some(3));
    }
}

#[test]
fn a_long_history_costs_no_more_memory() {
    let params = SamplingParams { repeat_penalty: 1.1, dry_multiplier: 0.8, context: 100, ..off() };
    let mut s = sampler(&params, 6);
    for i in 0..10_000u32 {
        s.accept(i % 6);
    }
    let id = s.sample(&LOGITS);
    assert!(id < 6);
}
