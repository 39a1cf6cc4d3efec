//! One exchange with a model: a prompt, and the answer as it comes.

use std::ops::ControlFlow;
use std::sync::Arc;

use quantsmith::text::{EncodeOptions, StopStrings, StreamDecoder, Tokenizer};
use quantsmith::{Model, Session};

use crate::failure::Failure;
use crate::generate::{End, Generator, Limit, Score, Timings};
use crate::output::Output;
use crate::prompt;
use crate::promptcache::PromptCache;

/// A model with a session, and how to draw and show its tokens.
pub(crate) struct Talk<'a> {
    pub(crate) model: &'a Arc<Model>,
    pub(crate) session: Session,
    /// Where the context is saved, if anywhere.
    pub(crate) cache: Option<PromptCache>,
    pub(crate) generator: Generator<'a>,
    pub(crate) limit: Limit,
    /// Whether special tokens are shown.
    pub(crate) special: bool,
    /// What ends an answer.
    pub(crate) stops: Stops,
    /// Where text goes as it comes, if anywhere.
    pub(crate) out: Option<&'a mut Output>,
    pub(crate) timings: Timings,
}

/// What a model made of a prompt.
pub(crate) struct Answer {
    /// The tokens of the prompt.
    pub(crate) prompt: Vec<u32>,
    /// The tokens generated, with the one that ended the text.
    pub(crate) tokens: Vec<u32>,
    /// Their text.
    pub(crate) text: String,
    /// How probable its tokens were; empty unless that was asked for.
    pub(crate) scores: Vec<Score>,
    /// What ended it.
    pub(crate) end: End,
}

/// The texts that end an answer.
pub(crate) struct Stops {
    texts: Vec<String>,
    /// Those that are special tokens, which are not part of the text.
    tokens: Vec<u32>,
}

impl Stops {
    /// Finds out which of the texts are special tokens.
    pub(crate) fn new(texts: Vec<String>, tokenizer: &Tokenizer) -> Result<Self, Failure> {
        let mut tokens = Vec::new();
        for text in &texts {
            let ids = tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true })?;
            if let [id] = ids[..]
                && tokenizer.is_control(id)
            {
                tokens.push(id);
            }
        }
        Ok(Self { texts, tokens })
    }
}

impl Talk<'_> {
    /// Completes a text.
    pub(crate) fn complete(&mut self, text: &str, display: bool) -> Result<Answer, Failure> {
        let tokens = prompt::encode(self.model.tokenizer(), text)?;
        prompt::check_fits(tokens.len(), self.model.context())?;
        if let Some(out) = self.out.as_mut().filter(|_| display) {
            out.stream(text)?;
        }
        self.respond(tokens)
    }

    /// Answers a prompt; what of it is in the context already is not evaluated again.
    pub(crate) fn respond(&mut self, prompt: Vec<u32>) -> Result<Answer, Failure> {
        if self.generator.prompt(&mut self.session, &prompt, &mut self.timings)? {
            if let Some(cache) = &mut self.cache {
                cache.prompt_is_there(&mut self.session)?;
            }
            self.generate(prompt)
        } else {
            let (tokens, text, scores) = (Vec::new(), String::new(), Vec::new());
            Ok(Answer { prompt, tokens, text, scores, end: End::Interrupted })
        }
    }

    /// Ends the exchange: saves the context if all of it was to be saved.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match &mut self.cache {
            Some(cache) => cache.all_is_there(&mut self.session),
            None => Ok(()),
        }
    }

    /// Generates after an evaluated prompt, showing the text as it comes.
    fn generate(&mut self, prompt: Vec<u32>) -> Result<Answer, Failure> {
        let tokenizer = self.model.tokenizer();
        let mut decoder = StreamDecoder::new(tokenizer);
        let (mut tokens, mut text) = (Vec::new(), String::new());
        let mut stops = StopStrings::new(self.stops.texts.clone());
        let (out, special, stop_tokens) = (&mut self.out, self.special, &self.stops.tokens);
        let mut say = |piece: String| {
            text.push_str(&piece);
            match out.as_mut() {
                Some(out) if !piece.is_empty() => out.stream(&piece),
                _ => Ok(()),
            }
        };
        let end = self.generator.generate(&mut self.session, self.limit, &mut self.timings, &mut |id| {
            tokens.push(id);
            if stop_tokens.contains(&id) {
                return Ok(ControlFlow::Break(()));
            }
            let piece = if special {
                decoder.push_special(id)
            } else if tokenizer.is_end_of_generation(id) {
                return Ok(ControlFlow::Continue(()));
            } else {
                decoder.push(id)
            };
            let step = stops.push(&piece);
            say(step.text)?;
            Ok(if step.stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        say(stops.push(&decoder.finish()).text)?;
        say(stops.finish())?;
        if let Some(out) = self.out.as_mut()
            && !text.is_empty()
            && !text.ends_with('\n')
        {
            out.stream("\n")?;
        }
        let scores = self.generator.take_scores();
        Ok(Answer { prompt, tokens, text, scores, end })
    }
}
