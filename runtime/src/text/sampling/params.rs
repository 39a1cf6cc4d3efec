//! The settings of the sampling chain.

use super::super::TextError;

/// The settings, named as llama.cpp's flags and with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// `--temp`: 0 or less is greedy, 1 leaves the logits as they are.
    pub temperature: f32,
    /// `--top-k`: keeps the k most likely; 0 or less is off.
    pub top_k: i32,
    /// `--top-p`: keeps the most likely that together reach p; 1 is off.
    pub top_p: f32,
    /// `--min-p`: keeps what is at least p times as likely as the most likely; 0 is off.
    pub min_p: f32,
    /// `--repeat-penalty`: divides positive and multiplies negative logits of tokens in the history; 1 is off.
    pub repeat_penalty: f32,
    /// `--repeat-last-n`: how much of the history counts; 0 is off, -1 is the context.
    pub repeat_last_n: i32,
    /// `--frequency-penalty`: subtracted once per occurrence; 0 is off.
    pub frequency_penalty: f32,
    /// `--presence-penalty`: subtracted once if the token occurred; 0 is off.
    pub presence_penalty: f32,
    /// How many tokens "the context" means.
    pub context: usize,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            context: 4096,
        }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Names the parameter that is out of its range.
    pub fn check(&self) -> Result<(), TextError> {
        let number = |name, value: f32, good: bool, accepted| {
            if good { Ok(()) } else { Err(TextError::Parameter { name, found: value.to_string(), accepted }) }
        };
        number("--temp", self.temperature, self.temperature.is_finite(), "a finite number")?;
        number("--top-p", self.top_p, self.top_p >= 0.0, "0 to 1")?;
        number("--min-p", self.min_p, self.min_p <= 1.0, "0 to 1")?;
        let repeat = self.repeat_penalty;
        number("--repeat-penalty", repeat, repeat > 0.0 && repeat.is_finite(), "a finite number above 0")?;
        let finite = "a finite number";
        number("--frequency-penalty", self.frequency_penalty, self.frequency_penalty.is_finite(), finite)?;
        number("--presence-penalty", self.presence_penalty, self.presence_penalty.is_finite(), finite)?;
        if self.repeat_last_n < -1 {
            let found = self.repeat_last_n.to_string();
            return Err(TextError::Parameter {
                name: "--repeat-last-n",
                found,
                accepted: "-1, 0 or a count",
            });
        }
        Ok(())
    }
}
