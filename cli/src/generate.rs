//! Generation: draw a token, show it, evaluate it, until something ends it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use quantsmith::text::{Constraint, Sampler, SamplingParams, Tokenizer, log_probability};
use quantsmith::{Model, Session, Want};
use serde::Serialize;

use crate::failure::Failure;
use crate::logprob::{self, Position};
use crate::output::note;
use crate::profile::{self, Profile};
use crate::table::counted;
use crate::terminal::Interrupt;

/// How many tokens to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Until the model ends its text; a full context before that is worth a remark.
    Open,
    /// Until the model ends its text, or the context is full.
    Context,
    /// So many at most.
    Tokens(usize),
}

impl From<i32> for Limit {
    /// Reads llama.cpp's `-n`: -1 is open, -2 goes on until the context is full.
    fn from(n: i32) -> Self {
        match n {
            -2 => Self::Context,
            n => usize::try_from(n).map_or(Self::Open, Self::Tokens),
        }
    }
}

/// What ended a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The text is complete: the model ended it, a stop string came, or the form asked for allows no more.
    Text,
    /// As many tokens as were asked for are there.
    Limit,
    /// The context has no room for another token.
    ContextFull,
    /// The person at the terminal had enough.
    Interrupted,
}

/// How many tokens of the prompt stay when the context is shifted: llama.cpp's `--keep`, -1 is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep(pub(crate) i32);

/// How long the two phases took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timings {
    /// Tokens of the prompt that were evaluated.
    pub(crate) prompt_tokens: usize,
    /// How long that took.
    pub(crate) prompt: Duration,
    /// Generated tokens that were evaluated: all but the last one.
    pub(crate) runs: usize,
    /// How long generation took, drawing and showing included.
    pub(crate) generation: Duration,
}

impl Timings {
    /// Prompt tokens per second, 0 when there were none.
    pub(crate) fn prompt_per_second(&self) -> f64 {
        per_second(self.prompt_tokens, self.prompt)
    }

    /// Generated tokens per second, 0 when none was evaluated.
    pub(crate) fn predicted_per_second(&self) -> f64 {
        per_second(self.runs, self.generation)
    }

    /// Says how fast it was.
    pub(crate) fn report(&self, load_ms: f64) {
        for line in self.lines(load_ms) {
            note(&line);
        }
    }

    /// How fast it was, in the lines that llama.cpp prints.
    pub(crate) fn lines(&self, load_ms: f64) -> [String; 4] {
        let prompt = self.prompt.as_secs_f64() * 1e3;
        let generation = self.generation.as_secs_f64() * 1e3;
        let (total, tokens) = (load_ms + prompt + generation, self.prompt_tokens + self.runs);
        [
            format!("       load time = {load_ms:>10.2} ms"),
            phase("prompt eval", prompt, self.prompt_tokens, "tokens"),
            phase("       eval", generation, self.runs, "runs  "),
            format!("      total time = {total:>10.2} ms / {tokens:>5} tokens"),
        ]
    }
}

fn per_second(n: usize, time: Duration) -> f64 {
    if n == 0 || time.is_zero() { 0.0 } else { n as f64 / time.as_secs_f64() }
}

fn phase(name: &str, ms: f64, n: usize, unit: &str) -> String {
    let (per_token, rate) =
        if n == 0 || ms == 0.0 { (0.0, 0.0) } else { (ms / n as f64, n as f64 * 1e3 / ms) };
    format!(
        "{name} time = {ms:>10.2} ms / {n:>5} {unit} ({per_token:>8.2} ms per token, {rate:>8.2} tokens per second)"
    )
}

/// How probable a generated token was, before any sampler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Score {
    /// The token.
    id: u32,
    /// The natural logarithm of its probability.
    logp: f64,
    /// The most likely tokens in its place.
    top: Position,
}

/// Draws tokens for one model as the flags say.
pub(crate) struct Generator<'m> {
    tokenizer: &'m Tokenizer,
    sampler: Sampler,
    /// What every answer must look like; each starts from a copy.
    form: Option<Constraint>,
    /// How many of the most likely tokens are noted beside each generated one, if any are to be.
    logprobs: Option<usize>,
    scores: Vec<Score>,
    context: usize,
    /// What stays when the context is shifted, if it is to be.
    shift: Option<Keep>,
    /// Tokens of the prompt of this answer.
    prompt: usize,
    interrupt: Option<Interrupt>,
    /// What takes how long, if that is asked for.
    profile: Option<Profile>,
    /// The seed in use, unless nothing is left to chance.
    seed: Option<u64>,
}

impl<'m> Generator<'m> {
    /// Prepares drawing for a model, with a random seed if none is given.
    pub(crate) fn new(
        model: &'m Model,
        params: &SamplingParams,
        seed: Option<u64>,
        form: Option<Constraint>,
        logprobs: Option<usize>,
    ) -> Result<Self, Failure> {
        let tokenizer = model.tokenizer();
        let seed = seed.unwrap_or_else(random_seed);
        let sampler = Sampler::for_tokenizer(params, tokenizer, seed)?;
        let seed = (!sampler.is_greedy()).then_some(seed);
        Ok(Self {
            tokenizer,
            sampler,
            form,
            logprobs,
            scores: Vec::new(),
            context: model.context(),
            shift: None,
            prompt: 0,
            interrupt: None,
            profile: None,
            seed,
        })
    }

    /// Makes room in a full context, or no longer.
    pub(crate) fn set_shift(&mut self, shift: Option<Keep>) {
        self.shift = shift;
    }

    /// Lets a person interrupt.
    pub(crate) fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = Some(interrupt);
    }

    /// Notes what takes how long, of a session that does so, too.
    pub(crate) fn set_profile(&mut self) {
        self.profile = Some(Profile::default());
    }

    /// What took how long, if that was asked for.
    pub(crate) fn take_profile(&mut self) -> Option<Profile> {
        self.profile.take()
    }

    /// The seed in use, for those who want the same text again; none when nothing is left to chance.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Brings the session to a prompt, of which it may have a part already, and lets the penalties see all of it.
    ///
    /// Returns whether nobody interrupted.
    pub(crate) fn prompt(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        timings: &mut Timings,
    ) -> Result<bool, Failure> {
        self.sampler.forget();
        for &id in tokens {
            self.sampler.accept(id);
        }
        self.prompt = tokens.len();
        self.interrupted();
        let start = Instant::now();
        let rest = &tokens[session.resume(tokens)..];
        let mut whole = true;
        for part in rest.chunks(session.model().ubatch()) {
            if self.interrupted() {
                whole = false;
                break;
            }
            session.eval(part, Want::Last, &mut |_, _| {})?;
            timings.prompt_tokens += part.len();
        }
        timings.prompt += start.elapsed();
        if let Some(profile) = &mut self.profile {
            profile::add(&mut profile.prompt, session.take_profile());
        }
        Ok(whole)
    }

    fn interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::take)
    }

    /// Drops half of what may go from a full context, if that was asked for.
    fn make_room(&self, session: &mut Session) -> Result<bool, Failure> {
        let Some(Keep(keep)) = self.shift else { return Ok(false) };
        // The mark at the begin of a text stays in any case.
        let bos = usize::from(session.tokens().first().copied() == self.tokenizer.bos());
        let keep = usize::try_from(keep).map_or(self.prompt, |keep| self.prompt.min(keep + bos));
        let count = session.position().saturating_sub(keep) / 2;
        if count == 0 {
            let (context, keep) = (counted(self.context, "token"), counted(keep, "token"));
            return Err(Failure::run(format!(
                "the context of {context} is full, and nothing of it can be dropped, since {keep} of the prompt are \
                 to stay: --keep takes fewer, -c gives a larger context"
            )));
        }
        session.shift(keep, count)?;
        Ok(true)
    }

    /// How probable the tokens of the last answer were; empty unless that was asked for.
    pub(crate) fn take_scores(&mut self) -> Vec<Score> {
        std::mem::take(&mut self.scores)
    }

    /// Generates after a prompt that has been evaluated; `show` gets each token as it comes and may end the text.
    pub(crate) fn generate(
        &mut self,
        session: &mut Session,
        limit: Limit,
        timings: &mut Timings,
        show: &mut dyn FnMut(u32) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<End, Failure> {
        if limit == Limit::Tokens(0) {
            return Ok(End::Limit);
        }
        let start = Instant::now();
        let mut made = 0;
        let mut form = self.form.clone();
        self.scores.clear();
        let end = loop {
            let id = self.draw(session.logits(), form.as_mut())?;
            made += 1;
            let flow = show(id)?;
            let complete = form.as_ref().is_some_and(Constraint::is_finished);
            if flow.is_break() || complete || self.tokenizer.is_end_of_generation(id) {
                break End::Text;
            }
            if limit == Limit::Tokens(made) {
                break End::Limit;
            }
            if self.interrupted() {
                break End::Interrupted;
            }
            if session.position() >= self.context && !self.make_room(session)? {
                break End::ContextFull;
            }
            session.eval(&[id], Want::Last, &mut |_, _| {})?;
        };
        timings.runs += made - 1;
        timings.generation += start.elapsed();
        if let Some(profile) = &mut self.profile {
            profile::add(&mut profile.generation, session.take_profile());
        }
        Ok(end)
    }

    fn draw(&mut self, logits: &[f32], form: Option<&mut Constraint>) -> Result<u32, Failure> {
        let start = self.profile.as_ref().map(|_| Instant::now());
        let id = match form {
            Some(form) => form.sample(&mut self.sampler, logits)?,
            None => self.sampler.sample(logits),
        };
        self.sampler.accept(id);
        if let (Some(profile), Some(start)) = (&mut self.profile, start) {
            profile.drawn = (profile.drawn.0 + 1, profile.drawn.1 + start.elapsed());
        }
        if let Some(top) = self.logprobs {
            let top = logprob::top(logits, top)
                .ok_or_else(|| Failure::run("the model's logits are no finite numbers"))?;
            self.scores.push(Score { id, logp: log_probability(logits, id), top });
        }
        Ok(id)
    }
}

/// A seed that nobody chose: from the keys that the standard library draws from the system for its hash maps.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // As many bits as llama.cpp's seeds have, so that it is easily typed.
    RandomState::new().hash_one(std::process::id()) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_llama_cpp_reads_them() {
        assert_eq!(Limit::from(-1), Limit::Open);
        assert_eq!(Limit::from(-2), Limit::Context);
        assert_eq!(Limit::from(0), Limit::Tokens(0));
        assert_eq!(Limit::from(5), Limit::Tokens(5));
    }

    #[test]
    fn speeds_have_the_familiar_shape() {
        assert_eq!(
            phase("prompt eval", 12.5, 5, "tokens"),
            "prompt eval time =      12.50 ms /     5 tokens (    2.50 ms per token,   400.00 tokens per second)"
        );
        assert!(phase("       eval", 0.0, 0, "runs  ").contains("0.00 tokens per second"));
    }

    #[test]
    fn no_tokens_give_no_speed() {
        let none = Timings::default();
        assert_eq!((none.prompt_per_second(), none.predicted_per_second()), (0.0, 0.0));
        let some = Timings { runs: 10, generation: Duration::from_secs(2), ..none };
        assert_eq!(some.predicted_per_second(), 5.0);
    }
}
