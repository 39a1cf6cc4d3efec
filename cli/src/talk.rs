//! One exchange with a model: a completion, or a conversation with the model's template.

use std::io::{BufRead, Write};
use std::ops::ControlFlow;

use quantsmith::text::{ChatTemplate, EncodeOptions, Message, StopStrings, StreamDecoder, Tokenizer};
use quantsmith::{Model, Session};

use crate::failure::Failure;
use crate::generate::{End, Generator, Limit, Score, Timings};
use crate::output::{Output, note};
use crate::prompt;

/// A model with a session, and how to draw and show its tokens.
pub(crate) struct Talk<'a> {
    pub(crate) model: &'a Model,
    pub(crate) session: Session,
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
    /// Completes a prompt.
    pub(crate) fn complete(
        &mut self,
        text: &str,
        tokens: Vec<u32>,
        display: bool,
    ) -> Result<Answer, Failure> {
        prompt::check_fits(tokens.len(), self.model.context())?;
        if let Some(out) = self.out.as_mut().filter(|_| display) {
            out.stream(text)?;
        }
        self.generator.prompt(&mut self.session, &tokens, &mut self.timings)?;
        self.answer(tokens)
    }

    /// Answers a first message, and more of them from the terminal if `more`.
    ///
    /// Returns the last answer.
    pub(crate) fn converse(
        &mut self,
        template: &ChatTemplate,
        system: Option<String>,
        first: Option<String>,
        more: bool,
    ) -> Result<Answer, Failure> {
        let mut messages: Vec<Message> =
            system.map(|text| Message::new("system", text)).into_iter().collect();
        // What the session has evaluated.
        let mut seen: Vec<u32> = Vec::new();
        let mut next = first;
        let mut last = None;
        loop {
            let text = match next.take() {
                Some(text) => text,
                None => match ask()? {
                    Some(line) => line,
                    None => break,
                },
            };
            messages.push(Message::new("user", text));
            let tokens = template.render_tokens(&messages, true, self.model.tokenizer())?;
            prompt::check_fits(tokens.len(), self.model.context())?;
            self.evaluate(&mut seen, &tokens)?;
            let answer = self.answer(tokens)?;
            seen.extend(&answer.tokens);
            seen.truncate(self.session.position());
            messages.push(Message::new("assistant", answer.text.clone()));
            let full = answer.end == End::ContextFull;
            last = Some(answer);
            if !more || full {
                break;
            }
        }
        last.ok_or_else(|| Failure::usage("nothing was said"))
    }

    /// Brings the session from the tokens it has seen to these, keeping what both begin with.
    fn evaluate(&mut self, seen: &mut Vec<u32>, tokens: &[u32]) -> Result<(), Failure> {
        let common = seen.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        // One token at least is evaluated, for its logits.
        let mut keep = common.min(tokens.len().saturating_sub(1));
        if self.session.position() > keep && self.session.truncate(keep).is_err() {
            // A cache that holds only a window cannot always go back.
            self.session.reset();
            keep = 0;
        }
        self.generator.prompt(&mut self.session, &tokens[keep..], &mut self.timings)?;
        seen.clear();
        seen.extend(tokens);
        Ok(())
    }

    /// Generates after an evaluated prompt, showing the text as it comes.
    fn answer(&mut self, prompt: Vec<u32>) -> Result<Answer, Failure> {
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

/// Asks the person at the terminal for a line; `None` when there will be no more.
fn ask() -> Result<Option<String>, Failure> {
    loop {
        let _ = std::io::stderr().write_all(b"> ");
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        match read {
            Ok(0) => {
                note("");
                return Ok(None);
            }
            Ok(_) if line.trim().is_empty() => {}
            Ok(_) => return Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned())),
            Err(e) => return Err(Failure::run(format!("standard input: cannot read: {e}"))),
        }
    }
}
