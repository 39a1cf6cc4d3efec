//! What `run` and `chat` have in common: a prompt, an answer, and how it is drawn.
//!
//! Nothing here waits for input that cannot come: only a terminal is asked for more.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use quantsmith::text::{ChatTemplate, Tokenizer};
use quantsmith::{Model, Session};
use serde::Serialize;

use crate::App;
use crate::args::{ModelArgs, PromptArgs};
use crate::constraint::{ConstraintArgs, Form};
use crate::conversation::Conversation;
use crate::escape::unescape;
use crate::failure::Failure;
use crate::generate::{End, Generator, Keep, Limit, Score, Timings};
use crate::output::note;
use crate::profile;
use crate::prompt;
use crate::promptcache::PromptCacheArgs;
use crate::sampling::{SamplingArgs, texts};
use crate::table::counted;
use crate::talk::{Answer, Stops, Talk};
use crate::terminal::{Interrupt, Terminal};

/// The flags of a prompt and its answer.
#[derive(Args, Debug)]
pub(crate) struct ExchangeArgs {
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Number of tokens to generate; -1 until the model ends its text, -2 until the context is full at the latest
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-2..), help_heading = "Prompt")]
    pub(crate) predict: i32,
    /// Text that ends the answer and is not part of it; may be given several times
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Prompt")]
    reverse_prompt: Vec<String>,
    /// Go on when the context is full: drop the older half of it, and evaluate the rest again
    #[arg(long, conflicts_with = "no_context_shift", help_heading = "Prompt")]
    context_shift: bool,
    /// With --context-shift: number of tokens of the prompt that always stay; -1 is all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..), help_heading = "Prompt")]
    keep: i32,
    #[command(flatten)]
    cache: PromptCacheArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    form: ConstraintArgs,
    #[command(flatten)]
    chat: ChatArgs,
}

/// What concerns conversations and what is shown.
#[derive(Args, Debug)]
#[command(next_help_heading = "Chat and output")]
struct ChatArgs {
    /// End after one answer (-st)
    #[arg(long)]
    single_turn: bool,
    /// System prompt (-sys)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "system_prompt_file")]
    system_prompt: Option<String>,
    /// File with the system prompt (-sysf)
    #[arg(long, value_name = "FILE")]
    system_prompt_file: Option<PathBuf>,
    /// Chat template in place of the model's: a name such as chatml, or the template itself
    #[arg(long, value_name = "NAME|TEXT", allow_hyphen_values = true, conflicts_with = "chat_template_file")]
    chat_template: Option<String>,
    /// File with the chat template to use in place of the model's
    #[arg(long, value_name = "FILE")]
    chat_template_file: Option<PathBuf>,
    /// With --json: note the probability of each generated token, and the N most likely ones in its place
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    /// Say afterwards what took how long, for the prompt and for generation; in the result with --json
    #[arg(long)]
    profile: bool,
    /// Show special tokens in the text, too (-sp)
    #[arg(long)]
    special: bool,
    #[arg(long, hide = true)]
    jinja: bool,
    #[arg(long, hide = true)]
    simple_io: bool,
}

/// What the command, or the flags that it has beyond these, ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// A conversation, or none; `None` leaves it to what is there.
    pub(crate) conversation: Option<bool>,
    /// Whether the conversation goes on after a prompt that was given.
    pub(crate) go_on: bool,
    /// Print the prompt before its completion.
    pub(crate) display_prompt: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    prompt_tokens: &'a [u32],
    tokens: &'a [u32],
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a [Score]>,
    timings: Speeds,
    isa: &'a str,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a profile::Report>,
}

#[derive(Serialize)]
struct Speeds {
    load_ms: f64,
    prompt_per_second: f64,
    predicted_per_second: f64,
}

/// What becomes of the prompt.
enum Mode<'m> {
    /// It is completed as it stands, for this reason.
    Raw(&'static str),
    /// It is put to the model as the template says, which is not the model's own if it was given.
    Chat { template: &'m ChatTemplate, given: bool },
}

/// A chat template that was asked for.
enum Template {
    Named(String),
    /// The template itself, and the flag or file that it comes from.
    Text {
        text: String,
        origin: String,
        from_file: bool,
    },
}

impl Template {
    fn compile(&self, tokenizer: &Tokenizer) -> Result<ChatTemplate, Failure> {
        match self {
            Self::Named(name) => Ok(ChatTemplate::builtin(name, tokenizer)?),
            Self::Text { text, origin, from_file } => ChatTemplate::new(text, tokenizer).map_err(|error| {
                let message = format!("{origin}: {error}");
                if *from_file { Failure::run(message) } else { Failure::usage(message) }
            }),
        }
    }
}

/// What the flags say, read and checked: what is wrong with them need not wait until the model is loaded.
struct Request {
    text: Option<String>,
    system: Option<String>,
    stops: Vec<String>,
    form: Option<Form>,
    template: Option<Template>,
}

impl ExchangeArgs {
    /// Does what the flags and the wish ask for.
    pub(crate) fn execute(&self, app: &mut App, model: &ModelArgs, wish: Wish) -> Result<(), Failure> {
        let at_terminal = std::io::stdin().is_terminal() && !app.global.json;
        let request = self.request(app, at_terminal && wish.conversation != Some(false))?;
        let colour = model.compat.colour();
        let model = app.load(model)?;
        let template = request.template.as_ref().map(|t| t.compile(model.tokenizer())).transpose()?;
        let mode = self.mode(&model, template.as_ref(), at_terminal, wish)?;
        let go_on = at_terminal && !self.chat.single_turn && (request.text.is_none() || wish.go_on);
        let Request { text, system, stops, form, .. } = request;
        let form = form.map(|form| form.prepare(&model)).transpose()?;
        let mut params = self.sampling.params(model.context(), !self.prompt.no_escape)?;
        self.sampling.check_vocabulary(model.vocab_size())?;
        if self.sampling.ignore_eos {
            params.rule_out(model.tokenizer().end_of_generation());
        }
        let mut generator = Generator::new(&model, &params, self.sampling.seed(), form, self.chat.logprobs)?;
        generator.set_shift(self.context_shift.then_some(Keep(self.keep)));
        if !app.global.quiet {
            announce(&mode, &generator);
        }
        let mut session = Session::new(&model)?;
        if self.chat.profile {
            session.set_profile(true);
            generator.set_profile();
        }
        let cache = self.cache.open(&mut session, app.global.quiet)?;
        let mut talk = Talk {
            model: &model,
            session,
            cache,
            generator,
            limit: Limit::from(self.predict),
            special: self.chat.special,
            stops: Stops::new(stops, model.tokenizer())?,
            // JSON comes in one piece, when all is known.
            out: (!app.global.json).then_some(&mut app.out),
            timings: Timings::default(),
        };
        let (answer, timings, profile) = match mode {
            Mode::Raw(_) => {
                let text = text.ok_or_else(no_prompt)?;
                let answer = talk.complete(&text, wish.display_prompt)?;
                talk.end()?;
                (Some(answer), talk.timings, talk.generator.take_profile())
            }
            Mode::Chat { template, .. } => {
                let mut conversation = Conversation::new(talk, template, system, self.context_shift);
                let answer = if go_on || text.is_none() {
                    let mut terminal = Terminal::new(colour)?;
                    conversation.talk.generator.set_interrupt(Interrupt::install()?);
                    conversation.interact(&mut terminal, text, go_on)?;
                    None
                } else {
                    Some(conversation.say(text.unwrap_or_default())?)
                };
                conversation.talk.end()?;
                let talk = &mut conversation.talk;
                (answer, talk.timings, talk.generator.take_profile())
            }
        };
        let profile = profile.map(|profile| profile.report(&timings, model.threads()));
        if let (true, Some(answer)) = (app.global.json, &answer) {
            let report = report(&model, answer, self.chat.logprobs.is_some(), timings);
            app.out.json(&Report { profile: profile.as_ref(), ..report })?;
        }
        app.out.flush()?;
        if let (false, Some(profile)) = (app.global.json, &profile) {
            note("");
            note(profile.text().trim_end());
        }
        if !app.global.quiet {
            note("");
            timings.report(model.load_ms());
        }
        answer.map_or(Ok(()), |answer| {
            ended(answer.end, answer.tokens.len(), self.predict.into(), model.context())
        })
    }

    fn request(&self, app: &App, can_ask: bool) -> Result<Request, Failure> {
        let text = if can_ask { self.prompt.text()? } else { Some(self.prompt.require()?) };
        let escapes = !self.prompt.no_escape;
        // The size of the context is not known yet, and only bounds what is remembered.
        self.sampling.params(0, escapes)?;
        if self.chat.logprobs.is_some() && !app.global.json {
            return Err(Failure::usage("--logprobs is shown in JSON only: add --json"));
        }
        Ok(Request {
            text,
            system: self.system_prompt()?,
            stops: texts(&self.reverse_prompt, escapes, "--reverse-prompt")?,
            form: self.form.read()?,
            template: self.template()?,
        })
    }

    fn system_prompt(&self) -> Result<Option<String>, Failure> {
        match (&self.chat.system_prompt, &self.chat.system_prompt_file) {
            (Some(text), _) if self.prompt.no_escape => Ok(Some(text.clone())),
            (Some(text), _) => prompt::utf8(unescape(text), "-sys").map(Some),
            (None, Some(path)) => prompt::read_file(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The chat template that was asked for, if any.
    fn template(&self) -> Result<Option<Template>, Failure> {
        if let Some(path) = &self.chat.chat_template_file {
            let text = prompt::read_file(path)?;
            return Ok(Some(Template::Text { text, origin: path.display().to_string(), from_file: true }));
        }
        let Some(given) = &self.chat.chat_template else { return Ok(None) };
        if ChatTemplate::builtin_names().any(|name| name == given) {
            return Ok(Some(Template::Named(given.clone())));
        }
        if !given.contains('{') {
            let names: Vec<&str> = ChatTemplate::builtin_names().collect();
            return Err(Failure::usage(format!(
                "--chat-template: found {given:?}; accepted: a template, or one of {}",
                names.join(", ")
            )));
        }
        let origin = "--chat-template".to_owned();
        Ok(Some(Template::Text { text: given.clone(), origin, from_file: false }))
    }

    /// Whether the flags ask for a conversation without saying so.
    fn implies_chat(&self) -> bool {
        self.chat.system_prompt.is_some() || self.chat.system_prompt_file.is_some()
    }

    fn mode<'m>(
        &self,
        model: &'m Arc<Model>,
        given: Option<&'m ChatTemplate>,
        at_terminal: bool,
        wish: Wish,
    ) -> Result<Mode<'m>, Failure> {
        if wish.conversation == Some(false) {
            return Ok(Mode::Raw("as asked for"));
        }
        if let Some(template) = given {
            return Ok(Mode::Chat { template, given: true });
        }
        let asked = wish.conversation == Some(true) || self.implies_chat();
        match model.chat_template() {
            Some(template) if asked || at_terminal => Ok(Mode::Chat { template, given: false }),
            Some(_) => Ok(Mode::Raw("since standard input is no terminal; -cnv chats")),
            None if asked => Err(Failure::run(
                "the model has no chat template to converse with: --chat-template gives one, and run -no-cnv \
                 completes the prompt as it stands",
            )),
            None => Ok(Mode::Raw("since the model has no chat template")),
        }
    }
}

fn no_prompt() -> Failure {
    Failure::usage("no prompt was given (-p TEXT or -f FILE), and the model has no template to chat with")
}

/// Says which mode was chosen and how to get the other.
fn announce(mode: &Mode<'_>, generator: &Generator<'_>) {
    let mode = match mode {
        Mode::Raw(why) => format!("completion of the prompt as it stands, {why}"),
        Mode::Chat { given: true, .. } => "chat with the template given".to_owned(),
        Mode::Chat { given: false, .. } => {
            "chat with the model's template; run -no-cnv completes the prompt as it stands".to_owned()
        }
    };
    note(&format!("mode:    {mode}"));
    if let Some(seed) = generator.seed() {
        note(&format!("seed:    {seed}"));
    }
    note("");
}

fn report<'a>(model: &'a Model, answer: &'a Answer, logprobs: bool, timings: Timings) -> Report<'a> {
    Report {
        prompt_tokens: &answer.prompt,
        tokens: &answer.tokens,
        text: &answer.text,
        logprobs: logprobs.then_some(&answer.scores),
        timings: Speeds {
            load_ms: model.load_ms(),
            prompt_per_second: timings.prompt_per_second(),
            predicted_per_second: timings.predicted_per_second(),
        },
        isa: model.isa().name(),
        threads: model.threads(),
        profile: None,
    }
}

/// Says when the context was full before all was said: an error where a number of tokens was asked for.
fn ended(end: End, made: usize, limit: Limit, context: usize) -> Result<(), Failure> {
    let full = || format!("the context of {} is full", counted(context, "token"));
    match (end, limit) {
        (End::Text | End::Limit | End::Interrupted, _) | (End::ContextFull, Limit::Context) => Ok(()),
        (End::ContextFull, Limit::Open) => {
            note(&format!("stopped: {} after {}", full(), counted(made, "generated token")));
            Ok(())
        }
        (End::ContextFull, Limit::Tokens(asked)) => Err(Failure::run(format!(
            "{} after {} of {asked} that were asked for: -c gives a larger context, and --context-shift drops the \
             older half of it and goes on",
            full(),
            counted(made, "generated token")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_context_is_an_error_only_where_more_was_asked_for() {
        assert_eq!(ended(End::ContextFull, 3, Limit::Open, 10), Ok(()));
        assert_eq!(ended(End::ContextFull, 3, Limit::Context, 10), Ok(()));
        assert_eq!(ended(End::Limit, 3, Limit::Tokens(3), 10), Ok(()));
        let failure = ended(End::ContextFull, 3, Limit::Tokens(5), 10).expect_err("cut short");
        assert_eq!(failure.exit_code(), 1);
        assert!(
            failure.line().is_some_and(|l| l.contains("10 tokens") && l.contains("3 generated tokens of 5"))
        );
    }
}
