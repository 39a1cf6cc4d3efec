//! The flags that say how the next token is drawn: llama.cpp's names and defaults.

use clap::Args;
use quantsmith::text::{Mirostat, SamplerKind, SamplingParams};

use crate::escape::unescape;
use crate::failure::Failure;

/// How the next token is drawn.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the random numbers; -1 draws one
    #[arg(short, long, value_name = "N", default_value = "-1", allow_negative_numbers = true, value_parser = seed)]
    seed: Seed,
    /// Samplers to use, in this order, separated by semicolons [default: all, as listed by the error for a wrong one]
    #[arg(long, value_name = "NAMES", conflicts_with = "sampler_seq")]
    samplers: Option<String>,
    /// Samplers to use, in this order, one letter for each [default: edskypmxt]
    #[arg(long, visible_alias = "sampling-seq", value_name = "LETTERS")]
    sampler_seq: Option<String>,
    /// Temperature; 0 always takes the most likely token
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        default_value_t = 0.8,
        allow_negative_numbers = true
    )]
    temp: f32,
    /// How far the temperature follows the uncertainty up and down; 0 is not at all
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    dynatemp_range: f32,
    /// Exponent with which the temperature follows the uncertainty
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    dynatemp_exp: f32,
    /// Draw from the K most likely tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 40, allow_negative_numbers = true)]
    top_k: i32,
    /// Draw from the most likely tokens that together have probability P; 1 is all
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_negative_numbers = true)]
    top_p: f32,
    /// Leave out tokens less likely than P times the most likely one; 0 leaves out none
    #[arg(long, value_name = "P", default_value_t = 0.05, allow_negative_numbers = true)]
    min_p: f32,
    /// Draw from the most typical tokens that together have probability P; 1 is all
    #[arg(
        long,
        visible_alias = "typical-p",
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    typical: f32,
    /// Draw from the tokens whose logits are within N standard deviations of the largest; -1 is all
    #[arg(
        long,
        visible_alias = "top-n-sigma",
        value_name = "N",
        default_value_t = -1.0,
        allow_negative_numbers = true
    )]
    top_nsigma: f32,
    /// How often the likeliest choices but the last of them are left out (XTC); 0 is never
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    xtc_probability: f32,
    /// How likely a choice must be to be left out by XTC; above 0.5 none is
    #[arg(long, value_name = "P", default_value_t = 0.1, allow_negative_numbers = true)]
    xtc_threshold: f32,
    /// Number of last tokens that the penalties look at; 0 is none, -1 the whole context
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true)]
    repeat_last_n: i32,
    /// Penalty on tokens that occurred; 1 is none
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Penalty on tokens that occurred, once for each; 0 is none
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Penalty on tokens that occurred, times how often; 0 is none
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Penalty on going on with a repetition (DRY); 0 is none
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    dry_multiplier: f32,
    /// Factor by which the DRY penalty grows with each token of the repetition
    #[arg(long, value_name = "X", default_value_t = 1.75, allow_negative_numbers = true)]
    dry_base: f32,
    /// Length of the repetitions from which DRY applies
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(0..))]
    dry_allowed_length: i32,
    /// Number of last tokens that DRY looks at; 0 is none, -1 the whole context
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    dry_penalty_last_n: i32,
    /// Text across which DRY sees no repetition; may be given several times; none is no text
    /// [default: newline, colon, double quote, asterisk]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    dry_sequence_breaker: Vec<String>,
    /// Mirostat: 0 is off, 1 and 2 are its versions; replaces all samplers but the temperature
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u8).range(0..=2))]
    mirostat: u8,
    /// Learning rate of Mirostat
    #[arg(long, value_name = "X", default_value_t = 0.1, allow_negative_numbers = true)]
    mirostat_lr: f32,
    /// Surprise that Mirostat aims at, in bits
    #[arg(long, value_name = "X", default_value_t = 5.0, allow_negative_numbers = true)]
    mirostat_ent: f32,
    /// What to add to the logit of a token, as in 15043+1 or 15043-inf; may be given several times
    #[arg(short, long, value_name = "ID+BIAS", value_parser = bias)]
    logit_bias: Vec<Bias>,
    /// Never draw a token that ends the text
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

impl SamplingArgs {
    /// The seed that was given, if any.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed.0
    }

    /// The settings of the sampler for a context of this size. `escapes` says whether texts may have escapes.
    ///
    /// # Errors
    /// Names the flag whose value is out of its range.
    pub(crate) fn params(&self, context: usize, escapes: bool) -> Result<SamplingParams, Failure> {
        let usual = SamplingParams::default();
        let samplers = match (&self.samplers, &self.sampler_seq) {
            (Some(names), _) => SamplerKind::parse_names(names)?,
            (None, Some(letters)) => SamplerKind::parse_letters(letters)?,
            (None, None) => usual.samplers,
        };
        let dry_sequence_breakers = match &self.dry_sequence_breaker[..] {
            [] => usual.dry_sequence_breakers,
            // `none` drops what came before it, as in llama.cpp.
            given => {
                let from = given.iter().rposition(|text| text == "none").map_or(0, |at| at + 1);
                texts(&given[from..], escapes, "--dry-sequence-breaker")?
            }
        };
        let params = SamplingParams {
            samplers,
            temperature: self.temp,
            dynatemp_range: self.dynatemp_range,
            dynatemp_exponent: self.dynatemp_exp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            top_n_sigma: self.top_nsigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers,
            mirostat: match self.mirostat {
                1 => Mirostat::V1,
                2 => Mirostat::V2,
                _ => Mirostat::Off,
            },
            mirostat_tau: self.mirostat_ent,
            mirostat_eta: self.mirostat_lr,
            logit_bias: self.logit_bias.iter().map(|bias| (bias.id, bias.added)).collect(),
            context,
        };
        params.check()?;
        Ok(params)
    }

    /// Refuses a bias on a token that the vocabulary has not got.
    pub(crate) fn check_vocabulary(&self, vocab: usize) -> Result<(), Failure> {
        match self.logit_bias.iter().find(|bias| bias.id as usize >= vocab) {
            Some(Bias { id, .. }) => Err(Failure::usage(format!(
                "--logit-bias: found token {id}; accepted: ids below the {vocab} of the vocabulary"
            ))),
            None => Ok(()),
        }
    }
}

/// Texts given by a flag, with their escapes read if they may have any.
///
/// # Errors
/// Names the flag whose text is not UTF-8.
pub(crate) fn texts(given: &[String], escapes: bool, flag: &str) -> Result<Vec<String>, Failure> {
    let read = |text: &String| {
        let bytes = if escapes { unescape(text) } else { text.clone().into_bytes() };
        String::from_utf8(bytes)
            .map_err(|_| Failure::usage(format!("{flag}: found {text:?}; accepted: UTF-8 text")))
    };
    given.iter().map(read).collect()
}

/// A seed, or none for a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seed(Option<u64>);

fn seed(text: &str) -> Result<Seed, String> {
    if text == "-1" {
        return Ok(Seed(None));
    }
    text.parse()
        .map(|n| Seed(Some(n)))
        .map_err(|_| format!("accepted: 0 to {}, or -1 for a random seed", u64::MAX))
}

/// What is added to the logit of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bias {
    id: u32,
    added: f32,
}

fn bias(text: &str) -> Result<Bias, String> {
    let read = || {
        let sign = text.find(['+', '-'])?;
        let id = text[..sign].parse().ok()?;
        // A second sign would be part of the number for the parser.
        let size = text[sign + 1..].strip_prefix(['+', '-']).is_none().then(|| &text[sign..])?;
        let added: f32 = size.parse().ok()?;
        // No token can be made certain: infinity less infinity is no probability.
        (!added.is_nan() && added != f32::INFINITY).then_some(Bias { id, added })
    };
    read().ok_or_else(|| "accepted: a token id, + or -, and a number, as in 15043+1 or 15043-inf".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn line(flags: &str) -> Result<SamplingArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(flags.split_whitespace())).map(|line| line.sampling)
    }

    fn params(flags: &str) -> Result<SamplingParams, Failure> {
        line(flags).expect("the flags parse").params(4096, true)
    }

    #[test]
    fn defaults_are_those_of_the_runtime() {
        assert_eq!(params(""), Ok(SamplingParams::default()));
    }

    #[test]
    fn every_flag_reaches_its_setting() {
        let flags = "--typical 0.9 --top-nsigma 2 --xtc-probability 0.5 --xtc-threshold 0.2 --dry-multiplier 0.8 \
                     --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 9 --dynatemp-range 0.4 \
                     --dynatemp-exp 2 --mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4 -l 5+1.5 --logit-bias 6-inf";
        let want = SamplingParams {
            typical_p: 0.9,
            top_n_sigma: 2.0,
            xtc_probability: 0.5,
            xtc_threshold: 0.2,
            dry_multiplier: 0.8,
            dry_base: 2.0,
            dry_allowed_length: 3,
            dry_penalty_last_n: 9,
            dynatemp_range: 0.4,
            dynatemp_exponent: 2.0,
            mirostat: Mirostat::V2,
            mirostat_eta: 0.2,
            mirostat_tau: 4.0,
            logit_bias: vec![(5, 1.5), (6, f32::NEG_INFINITY)],
            ..SamplingParams::default()
        };
        assert_eq!(params(flags), Ok(want));
    }

    #[test]
    fn samplers_are_chosen_by_name_or_letter() {
        let want = vec![SamplerKind::TopK, SamplerKind::Temperature];
        for flags in ["--samplers top_k;temperature", "--sampler-seq kt", "--sampling-seq kt"] {
            assert_eq!(params(flags).map(|p| p.samplers), Ok(want.clone()), "{flags}");
        }
        for (flags, word) in [("--samplers top_k;topk", "topk"), ("--sampler-seq kq", "'q'")] {
            let error = params(flags).expect_err(flags);
            assert_eq!(error.exit_code(), 2, "{flags}");
            assert!(error.line().is_some_and(|l| l.contains(word)), "{error:?}");
        }
        assert!(line("--samplers top_k --sampler-seq k").is_err());
    }

    #[test]
    fn sequence_breakers_replace_the_usual_ones() {
        let breakers = |flags: &str| params(flags).map(|p| p.dry_sequence_breakers);
        let flag = "--dry-sequence-breaker";
        assert_eq!(breakers(&format!("{flag} \\n {flag} ;")), Ok(vec!["\n".into(), ";".into()]));
        assert_eq!(breakers(&format!("{flag} none")), Ok(vec![]));
        assert_eq!(breakers(&format!("{flag} a {flag} none {flag} b")), Ok(vec!["b".into()]));
        let raw = line(&format!("{flag} \\n")).expect("valid").params(1, false).expect("valid");
        assert_eq!(raw.dry_sequence_breakers, ["\\n"]);
    }

    #[test]
    fn a_bias_is_a_token_and_a_signed_number() {
        assert_eq!(bias("7-0.5"), Ok(Bias { id: 7, added: -0.5 }));
        for bad in ["", "7", "+1", "7+", "7--1", "x+1", "7+nan", "7+inf", "-1+2", "99999999999+1"] {
            assert!(bias(bad).is_err(), "{bad:?}");
        }
        let args = line("-l 10+1").expect("valid");
        assert_eq!(args.check_vocabulary(11), Ok(()));
        let error = args.check_vocabulary(10).expect_err("outside");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn wrong_values_are_refused_with_the_flag() {
        for bad in ["--mirostat 3", "--mirostat -1", "--dry-allowed-length -1", "--typical x", "-l 5"] {
            assert!(line(bad).is_err(), "{bad}");
        }
        for bad in ["--typical -1", "--xtc-probability 2", "--dynatemp-range -1", "--mirostat-lr nan"] {
            let error = params(bad).expect_err(bad);
            let flag = bad.split(' ').next().expect("a flag");
            assert!(error.exit_code() == 2 && error.line().is_some_and(|l| l.contains(flag)), "{error:?}");
        }
    }
}
