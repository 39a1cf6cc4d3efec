//! Every sampler against a plain reading of its definition.
//!
//! The reading below is slow and obvious: probabilities in f64 with the platform's functions, whole lists, sums in
//! the order in which they are written. Nothing of the samplers' own code is used.

use super::tests::{LOGITS, assert_frequencies_after, off};
use super::*;

/// What may still be drawn: token and logit.
type List = Vec<(usize, f64)>;

fn probabilities(list: &List) -> Vec<f64> {
    let largest = list.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = list.iter().map(|c| (c.1 - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// In nats.
fn entropy(p: &[f64]) -> f64 {
    -p.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>()
}

fn likely_first(list: &mut List) {
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
}

/// The shortest head of a list that reaches `p`.
fn head(list: &List, weights: &[f64], p: f64, reached: impl Fn(f64, f64) -> bool) -> List {
    let mut sum = 0.0;
    let end = weights.iter().position(|w| {
        sum += w;
        reached(sum, p)
    });
    list[..end.map_or(list.len(), |end| end + 1)].to_vec()
}

/// The last `count` tokens; -1 are all that the context holds.
fn last(history: &[u32], count: i32, context: usize) -> &[u32] {
    let count = usize::try_from(count).unwrap_or(context);
    &history[history.len().saturating_sub(count)..]
}

/// How many tokens before `at` equal the last ones of the text.
fn repeated(text: &[u32], at: usize) -> usize {
    (1..=at).take_while(|&back| text[at - back] == text[text.len() - back]).count()
}

fn apply(kind: SamplerKind, p: &SamplingParams, history: &[u32], mut list: List) -> List {
    match kind {
        SamplerKind::Penalties => {
            let seen = last(history, p.repeat_last_n, p.context);
            for (id, logit) in &mut list {
                let count = seen.iter().filter(|&&t| t as usize == *id).count() as f64;
                if count > 0.0 {
                    let repeat = f64::from(p.repeat_penalty);
                    *logit = if *logit > 0.0 { *logit / repeat } else { *logit * repeat };
                    *logit -= count * f64::from(p.frequency_penalty) + f64::from(p.presence_penalty);
                }
            }
        }
        SamplerKind::Dry => {
            let text = last(history, p.dry_penalty_last_n, p.context);
            for (id, logit) in &mut list {
                let continued = (0..text.len()).filter(|&at| text[at] as usize == *id);
                let longest = continued.map(|at| repeated(text, at)).max().unwrap_or(0) as i32;
                if p.dry_multiplier != 0.0 && longest > 0 && longest >= p.dry_allowed_length {
                    let power = f64::from(p.dry_base).powi(longest - p.dry_allowed_length);
                    *logit -= f64::from(p.dry_multiplier) * power;
                }
            }
        }
        SamplerKind::TopNSigma if p.top_n_sigma > 0.0 => {
            let finite: Vec<f64> = list.iter().map(|c| c.1).filter(|l| l.is_finite()).collect();
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            let variance = finite.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / finite.len() as f64;
            let largest = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            list.retain(|c| c.1 >= largest - f64::from(p.top_n_sigma) * variance.sqrt());
        }
        SamplerKind::TopK if p.top_k > 0 => {
            likely_first(&mut list);
            list.truncate(p.top_k as usize);
        }
        SamplerKind::Typical if p.typical_p < 1.0 => {
            let shares = probabilities(&list);
            let mean = entropy(&shares);
            let mut order: Vec<usize> = (0..list.len()).filter(|&i| shares[i] > 0.0).collect();
            order.sort_by(|&a, &b| (-shares[a].ln() - mean).abs().total_cmp(&(-shares[b].ln() - mean).abs()));
            let weights: Vec<f64> = order.iter().map(|&i| shares[i]).collect();
            let sorted = order.iter().map(|&i| list[i]).collect();
            list = head(&sorted, &weights, p.typical_p.into(), |sum, p| sum > p);
        }
        SamplerKind::TopP if p.top_p < 1.0 => {
            likely_first(&mut list);
            let shares = probabilities(&list);
            list = head(&list, &shares, p.top_p.into(), |sum, p| sum >= p);
        }
        SamplerKind::MinP => {
            let shares = probabilities(&list);
            let most = shares.iter().copied().fold(0.0, f64::max);
            let mut shares = shares.into_iter();
            list.retain(|_| shares.next().expect("one each") >= f64::from(p.min_p) * most);
        }
        SamplerKind::Xtc if p.xtc_probability == 1.0 && p.xtc_threshold <= 0.5 => {
            likely_first(&mut list);
            let likely = probabilities(&list).iter().filter(|&&s| s >= f64::from(p.xtc_threshold)).count();
            list.drain(..likely.saturating_sub(1));
        }
        SamplerKind::Temperature if p.dynatemp_range > 0.0 => {
            let low = f64::from((p.temperature - p.dynatemp_range).max(0.0));
            let high = f64::from(p.temperature + p.dynatemp_range);
            if list.len() > 1 {
                let share = entropy(&probabilities(&list)) / (list.len() as f64).ln();
                let t = low + (high - low) * share.powf(p.dynatemp_exponent.into());
                list.iter_mut().for_each(|c| c.1 /= t);
            }
        }
        SamplerKind::Temperature => list.iter_mut().for_each(|c| c.1 /= f64::from(p.temperature)),
        _ => {}
    }
    list
}

/// Mirostat's cut at the bound that it begins with.
fn mirostat(p: &SamplingParams, mut list: List) -> List {
    likely_first(&mut list);
    let mu = 2.0 * f64::from(p.mirostat_tau);
    let shares = probabilities(&list);
    match p.mirostat {
        Mirostat::Off => {}
        Mirostat::V2 => {
            let kept = shares.iter().filter(|s| -s.log2() <= mu).count();
            list.truncate(kept.max(1));
        }
        Mirostat::V1 => {
            // Least squares of log p against log rank, over neighbours among the first hundred.
            let pairs = || (1..shares.len().min(100)).filter(|&i| shares[i] > 0.0);
            let t = |i: usize| ((i + 1) as f64 / i as f64).ln();
            let above: f64 = pairs().map(|i| t(i) * (shares[i - 1] / shares[i]).ln()).sum();
            let s = above / pairs().map(|i| t(i) * t(i)).sum::<f64>();
            let vocab = list.len() as f64;
            let k = ((s - 1.0) * mu.exp2() / (1.0 - vocab.powf(1.0 - s))).powf(1.0 / s);
            list.truncate((k as usize).max(1));
        }
    }
    list
}

/// The probability of each token.
fn distribution(p: &SamplingParams, history: &[u32], logits: &[f32]) -> Vec<f64> {
    let number = |l: f32| if l.is_nan() { f64::NEG_INFINITY } else { f64::from(l) };
    let mut list: List = logits.iter().map(|&l| number(l)).enumerate().collect();
    for &(id, bias) in &p.logit_bias {
        list.iter_mut().filter(|c| c.0 == id as usize).for_each(|c| c.1 += f64::from(bias));
    }
    let chain: &[SamplerKind] =
        if p.mirostat == Mirostat::Off { &p.samplers } else { &[SamplerKind::Temperature] };
    let list = chain.iter().fold(list, |list, &kind| apply(kind, p, history, list));
    let list = mirostat(p, list);
    let mut all = vec![0.0; logits.len()];
    list.iter().zip(probabilities(&list)).for_each(|(&(id, _), share)| all[id] = share);
    all
}

/// The probability with which the sampler draws each token next.
fn drawn(s: &mut Sampler, logits: &[f32]) -> Vec<f64> {
    s.sample(logits);
    let sum = s.candidates.weigh();
    let mut all = vec![0.0; logits.len()];
    s.candidates.listed().iter().for_each(|c| all[c.id as usize] = f64::from(c.p) / sum);
    all
}

#[test]
fn every_sampler_draws_as_often_as_its_definition_says() {
    let history = [2, 3, 1, 0, 2, 3, 5, 2, 3, 5, 2, 3];
    let mirostat = |mirostat, tau| SamplingParams {
        mirostat,
        mirostat_tau: tau,
        mirostat_eta: 0.0,
        temperature: 1.5,
        ..off()
    };
    let everything = SamplingParams {
        repeat_penalty: 1.2,
        frequency_penalty: 0.1,
        presence_penalty: -0.2,
        repeat_last_n: 6,
        dry_multiplier: 0.3,
        top_n_sigma: 1.9,
        top_k: 5,
        typical_p: 0.99,
        top_p: 0.97,
        min_p: 0.05,
        xtc_probability: 1.0,
        xtc_threshold: 0.35,
        temperature: 0.9,
        dynatemp_range: 0.4,
        logit_bias: vec![(4, 3.0)],
        ..off()
    };
    let all = [
        ("nothing", off()),
        ("logit bias", SamplingParams { logit_bias: vec![(4, 3.0), (1, f32::NEG_INFINITY)], ..off() }),
        ("repeat penalty", SamplingParams { repeat_penalty: 1.7, ..off() }),
        ("frequency penalty", SamplingParams { frequency_penalty: 0.3, repeat_last_n: 8, ..off() }),
        ("presence penalty", SamplingParams { presence_penalty: 0.9, repeat_last_n: 4, ..off() }),
        ("DRY", SamplingParams { dry_multiplier: 0.4, dry_base: 1.3, ..off() }),
        ("top-n-sigma", SamplingParams { top_n_sigma: 1.2, ..off() }),
        ("top-k", SamplingParams { top_k: 4, ..off() }),
        ("typical", SamplingParams { typical_p: 0.7, ..off() }),
        ("top-p", SamplingParams { top_p: 0.8, ..off() }),
        ("min-p", SamplingParams { min_p: 0.2, ..off() }),
        ("XTC", SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.15, ..off() }),
        ("temperature", SamplingParams { temperature: 0.6, ..off() }),
        ("dynamic temperature", SamplingParams { dynatemp_range: 0.7, dynatemp_exponent: 1.5, ..off() }),
        ("mirostat 1", mirostat(Mirostat::V1, 1.1)),
        ("mirostat 2", mirostat(Mirostat::V2, 1.2)),
        ("everything", everything),
    ];
    let plain = distribution(&off(), &history, &LOGITS);
    for (name, params) in all {
        let expected = distribution(&params, &history, &LOGITS);
        assert!(name == "nothing" || expected != plain, "{name} changes nothing here");
        let kept = expected.iter().filter(|&&p| p > 0.0).count();
        assert!(kept > 1, "{name} leaves no choice here");
        assert_frequencies_after(&params, &history, &LOGITS, &expected);
    }
}

#[test]
fn any_chain_gives_the_probabilities_of_its_definition() {
    let mut rng = Rng::new(17);
    for round in 0..3000 {
        let mut between = |low: f64, high: f64| (low + rng.unit() * (high - low)) as f32;
        let vocab = 2 + between(0.0, 90.0) as usize;
        let spread = between(0.2, 12.0);
        let logits: Vec<f32> = (0..vocab)
            .map(|_| match between(0.0, 20.0) {
                x if x < 0.3 => f32::NEG_INFINITY,
                x if x < 0.5 => f32::NAN,
                _ => between(-1.0, 1.0) * spread,
            })
            .collect();
        let history: Vec<u32> =
            (0..between(0.0, 40.0) as usize).map(|_| between(0.0, 6.0) as u32 % vocab as u32).collect();
        // Each sampler with settings that are seldom neutral, in any order, some of them left out.
        let mut samplers = SamplerKind::ORDER.to_vec();
        for i in (1..samplers.len()).rev() {
            samplers.swap(i, between(0.0, (i + 1) as f64) as usize % (i + 1));
        }
        samplers.truncate(between(1.0, 10.0) as usize);
        let params = SamplingParams {
            samplers,
            temperature: between(0.3, 2.0),
            dynatemp_range: between(-0.3, 0.3).max(0.0),
            dynatemp_exponent: between(0.5, 2.0),
            top_k: between(-10.0, 60.0) as i32,
            top_p: between(0.3, 1.2),
            min_p: between(-0.1, 0.3).max(0.0),
            typical_p: between(0.3, 1.2),
            top_n_sigma: between(-1.0, 4.0),
            xtc_probability: between(0.0, 1.99).trunc(),
            xtc_threshold: between(0.0, 0.6),
            repeat_penalty: between(0.5, 2.0),
            repeat_last_n: between(-1.99, 20.0) as i32,
            frequency_penalty: between(-0.3, 0.3),
            presence_penalty: between(-0.5, 0.5),
            dry_multiplier: between(-1.0, 1.0).max(0.0),
            dry_base: between(1.0, 2.0),
            dry_allowed_length: between(0.0, 4.0) as i32,
            dry_penalty_last_n: between(-1.99, 30.0) as i32,
            mirostat: [Mirostat::Off, Mirostat::Off, Mirostat::V1, Mirostat::V2][between(0.0, 3.99) as usize],
            mirostat_tau: between(0.5, 5.0),
            logit_bias: vec![(between(0.0, 5.0) as u32, between(-3.0, 3.0))],
            context: 25,
            ..SamplingParams::default()
        };
        if logits.iter().all(|l| !l.is_finite()) {
            continue;
        }
        let mut s = Sampler::new(&params, vocab, round).unwrap();
        history.iter().for_each(|&id| s.accept(id));
        let expected = distribution(&params, &history, &logits);
        let found = drawn(&mut s, &logits);
        for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() < 1e-4,
                "round {round}, token {id}: {found}, expected {expected}\n{params:?}\n{history:?}\n{logits:?}"
            );
        }
    }
}
