//! The settings of the sampling chain.

use super::super::TextError;

/// A sampler of the chain, by its place in the customary order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repeat, frequency and presence penalties.
    Penalties,
    /// Penalties for continuing a repetition.
    Dry,
    /// Keeps logits within some standard deviations of the largest.
    TopNSigma,
    /// Keeps the k most likely.
    TopK,
    /// Keeps the most typical.
    Typical,
    /// Keeps the most likely that together reach p.
    TopP,
    /// Keeps what is likely enough beside the most likely.
    MinP,
    /// Sometimes drops the likeliest choices.
    Xtc,
    /// Divides the logits.
    Temperature,
}

impl SamplerKind {
    /// The customary order.
    pub const ORDER: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// The name in `--samplers` and the letter in `--sampler-seq`.
    pub fn name(self) -> (&'static str, char) {
        match self {
            Self::Penalties => ("penalties", 'e'),
            Self::Dry => ("dry", 'd'),
            Self::TopNSigma => ("top_n_sigma", 's'),
            Self::TopK => ("top_k", 'k'),
            Self::Typical => ("typ_p", 'y'),
            Self::TopP => ("top_p", 'p'),
            Self::MinP => ("min_p", 'm'),
            Self::Xtc => ("xtc", 'x'),
            Self::Temperature => ("temperature", 't'),
        }
    }

    /// Reads names separated by semicolons, as `--samplers` takes them.
    ///
    /// # Errors
    /// Names what is no sampler.
    pub fn parse_names(text: &str) -> Result<Vec<Self>, TextError> {
        let known = |name: &str| {
            let plain = name.trim().to_ascii_lowercase().replace('-', "_");
            let plain = match plain.as_str() {
                "temp" => "temperature",
                "typical" | "typical_p" => "typ_p",
                "top_nsigma" => "top_n_sigma",
                other => other,
            };
            Self::ORDER.into_iter().find(|kind| kind.name().0 == plain).ok_or_else(|| TextError::Parameter {
                name: "--samplers",
                found: format!("{name:?}"),
                accepted: "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature",
            })
        };
        text.split(';').filter(|name| !name.trim().is_empty()).map(known).collect()
    }

    /// Reads one letter for each sampler, as `--sampler-seq` takes them.
    ///
    /// # Errors
    /// Names the letter that is no sampler.
    pub fn parse_letters(text: &str) -> Result<Vec<Self>, TextError> {
        let known = |letter: char| {
            Self::ORDER.into_iter().find(|kind| kind.name().1 == letter).ok_or_else(|| TextError::Parameter {
                name: "--sampler-seq",
                found: format!("{letter:?}"),
                accepted: "letters of edskypmxt",
            })
        };
        text.chars().map(known).collect()
    }
}

/// Sampling that steers towards a surprise instead of cutting by probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mirostat {
    /// Not used.
    #[default]
    Off,
    /// `--mirostat 1`: estimates how steep the distribution is.
    V1,
    /// `--mirostat 2`: cuts at the surprise itself.
    V2,
}

/// The settings, named as llama.cpp's flags and with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// `--samplers`: which samplers, in which order. Those with neutral settings do nothing.
    pub samplers: Vec<SamplerKind>,
    /// `--temp`: 0 or less is greedy, 1 leaves the logits as they are.
    pub temperature: f32,
    /// `--dynatemp-range`: how far the temperature follows the entropy up and down; 0 is off.
    pub dynatemp_range: f32,
    /// `--dynatemp-exp`: the exponent that the entropy is raised to.
    pub dynatemp_exponent: f32,
    /// `--top-k`: keeps the k most likely; 0 or less is off.
    pub top_k: i32,
    /// `--top-p`: keeps the most likely that together reach p; 1 is off.
    pub top_p: f32,
    /// `--min-p`: keeps what is at least p times as likely as the most likely; 0 is off.
    pub min_p: f32,
    /// `--typical`: keeps those whose surprise is nearest to the mean and that together reach p; 1 is off.
    pub typical_p: f32,
    /// `--top-nsigma`: keeps logits within so many standard deviations of the largest; 0 or less is off.
    pub top_n_sigma: f32,
    /// `--xtc-probability`: how often the likeliest choices are dropped; 0 is off.
    pub xtc_probability: f32,
    /// `--xtc-threshold`: how likely a choice must be to be dropped; above 0.5 is off.
    pub xtc_threshold: f32,
    /// `--repeat-penalty`: divides positive and multiplies negative logits of tokens in the history; 1 is off.
    pub repeat_penalty: f32,
    /// `--repeat-last-n`: how much of the history counts; 0 is off, -1 is the context.
    pub repeat_last_n: i32,
    /// `--frequency-penalty`: subtracted once per occurrence; 0 is off.
    pub frequency_penalty: f32,
    /// `--presence-penalty`: subtracted once if the token occurred; 0 is off.
    pub presence_penalty: f32,
    /// `--dry-multiplier`: the penalty for continuing a repetition of the allowed length; 0 is off.
    pub dry_multiplier: f32,
    /// `--dry-base`: the penalty grows by this factor with each further token.
    pub dry_base: f32,
    /// `--dry-allowed-length`: the longest repetition that is not penalised, plus one.
    pub dry_allowed_length: i32,
    /// `--dry-penalty-last-n`: how much of the history is searched; 0 is off, -1 is the context.
    pub dry_penalty_last_n: i32,
    /// `--dry-sequence-breaker`: texts across which nothing counts as a repetition.
    pub dry_sequence_breakers: Vec<String>,
    /// `--mirostat`: replaces all samplers but the temperature.
    pub mirostat: Mirostat,
    /// `--mirostat-ent`: the surprise aimed at, in bits.
    pub mirostat_tau: f32,
    /// `--mirostat-lr`: how fast it is approached.
    pub mirostat_eta: f32,
    /// `--logit-bias`: added to the logits before everything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// How many tokens "the context" means.
    pub context: usize,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            samplers: SamplerKind::ORDER.to_vec(),
            temperature: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: -1,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            mirostat: Mirostat::Off,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: Vec::new(),
            context: 4096,
        }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Rules tokens out, as `--ignore-eos` does with those that end an answer.
    pub fn rule_out(&mut self, ids: &[u32]) {
        self.logit_bias.extend(ids.iter().map(|&id| (id, f32::NEG_INFINITY)));
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the parameter that is out of its range.
    pub fn check(&self) -> Result<(), TextError> {
        const FINITE: &str = "a finite number";
        const NOT_NEGATIVE: &str = "a finite number, 0 or more";
        let from_zero = |v: f32| v >= 0.0 && v.is_finite();
        for (name, value, good, accepted) in [
            ("--temp", self.temperature, self.temperature.is_finite(), FINITE),
            ("--dynatemp-range", self.dynatemp_range, from_zero(self.dynatemp_range), NOT_NEGATIVE),
            ("--dynatemp-exp", self.dynatemp_exponent, from_zero(self.dynatemp_exponent), NOT_NEGATIVE),
            ("--top-p", self.top_p, self.top_p >= 0.0, "0 to 1"),
            ("--min-p", self.min_p, self.min_p <= 1.0, "0 to 1"),
            ("--typical", self.typical_p, self.typical_p >= 0.0, "0 to 1"),
            ("--top-nsigma", self.top_n_sigma, self.top_n_sigma.is_finite(), FINITE),
            ("--xtc-probability", self.xtc_probability, self.xtc_probability <= 1.0, "0 to 1"),
            ("--xtc-threshold", self.xtc_threshold, self.xtc_threshold >= 0.0, "0 to 1"),
            (
                "--repeat-penalty",
                self.repeat_penalty,
                self.repeat_penalty > 0.0 && self.repeat_penalty.is_finite(),
                "a finite number above 0",
            ),
            ("--frequency-penalty", self.frequency_penalty, self.frequency_penalty.is_finite(), FINITE),
            ("--presence-penalty", self.presence_penalty, self.presence_penalty.is_finite(), FINITE),
            ("--dry-multiplier", self.dry_multiplier, from_zero(self.dry_multiplier), NOT_NEGATIVE),
            ("--dry-base", self.dry_base, self.dry_base.is_finite(), FINITE),
            ("--mirostat-ent", self.mirostat_tau, from_zero(self.mirostat_tau), NOT_NEGATIVE),
            ("--mirostat-lr", self.mirostat_eta, from_zero(self.mirostat_eta), NOT_NEGATIVE),
        ] {
            if !good {
                return Err(TextError::Parameter { name, found: value.to_string(), accepted });
            }
        }
        for (name, count) in
            [("--repeat-last-n", self.repeat_last_n), ("--dry-penalty-last-n", self.dry_penalty_last_n)]
        {
            if count < -1 {
                return Err(TextError::Parameter {
                    name,
                    found: count.to_string(),
                    accepted: "-1, 0 or a count",
                });
            }
        }
        if let Some((id, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            let found = format!("{bias} for token {id}");
            return Err(TextError::Parameter { name: "--logit-bias", found, accepted: "a number" });
        }
        Ok(())
    }

    /// What `count` tokens of history mean: -1 is the context.
    pub(super) fn window(&self, count: i32) -> usize {
        usize::try_from(count).unwrap_or(self.context)
    }
}
