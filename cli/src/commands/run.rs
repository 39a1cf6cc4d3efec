//! `run`: completes a prompt, or answers it in chat mode.
//!
//! Chat mode is for a person at a terminal: without one, or with `-no-cnv`, the prompt is completed as it stands.
//! Nothing here waits for input that cannot come: only a terminal is asked for more.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use quantsmith::text::{ChatTemplate, Tokenizer};
use quantsmith::{Model, Session};
use serde::Serialize;

use crate::App;
use crate::args::{ModelArgs, PromptArgs};
use crate::constraint::ConstraintArgs;
use crate::escape::unescape;
use crate::failure::Failure;
use crate::generate::{End, Generator, Limit, Score, Timings};
use crate::output::note;
use crate::prompt;
use crate::sampling::{SamplingArgs, texts};
use crate::table::counted;
use crate::talk::{Answer, Stops, Talk};

/// The flags of `run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) prompt: PromptArgs,
    /// Number of tokens to generate; -1 until the model ends its text, -2 until the context is full at the latest
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-2..), help_heading = "Prompt")]
    pub(crate) predict: i32,
    /// Text that ends the answer and is not part of it; may be given several times
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Prompt")]
    reverse_prompt: Vec<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    form: ConstraintArgs,
    #[command(flatten)]
    chat: ChatArgs,
}

/// What concerns chat mode and what is shown.
#[derive(Args, Debug)]
#[command(next_help_heading = "Chat and output")]
struct ChatArgs {
    /// Chat with the model's template, terminal or not (-cnv)
    #[arg(long, conflicts_with = "no_conversation")]
    conversation: bool,
    /// Complete the prompt as it stands (-no-cnv)
    #[arg(long)]
    no_conversation: bool,
    /// End after one answer (-st)
    #[arg(long)]
    single_turn: bool,
    /// System prompt; asks for chat mode (-sys)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true,
          conflicts_with_all = ["system_prompt_file", "no_conversation"])]
    system_prompt: Option<String>,
    /// File with the system prompt (-sysf)
    #[arg(long, value_name = "FILE", conflicts_with = "no_conversation")]
    system_prompt_file: Option<PathBuf>,
    /// Chat template in place of the model's: a name such as chatml, or the template itself; asks for chat mode
    #[arg(long, value_name = "NAME|TEXT", allow_hyphen_values = true,
          conflicts_with_all = ["chat_template_file", "no_conversation"])]
    chat_template: Option<String>,
    /// File with the chat template to use in place of the model's
    #[arg(long, value_name = "FILE", conflicts_with = "no_conversation")]
    chat_template_file: Option<PathBuf>,
    /// With --json: note the probability of each generated token, and the N most likely ones in its place
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    /// Show special tokens in the text, too (-sp)
    #[arg(long)]
    special: bool,
    /// Print the prompt before its completion
    #[arg(long, conflicts_with = "no_display_prompt")]
    display_prompt: bool,
    #[arg(long, hide = true)]
    no_display_prompt: bool,
    #[arg(long, hide = true)]
    jinja: bool,
    #[arg(long, hide = true)]
    simple_io: bool,
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

impl Run {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let at_terminal = std::io::stdin().is_terminal();
        let can_ask = at_terminal && !self.chat.no_conversation && !app.global.json;
        let text = if can_ask { self.prompt.text()? } else { Some(self.prompt.require()?) };
        let system = self.system_prompt()?;
        // What is wrong with the flags need not wait until the model is loaded.
        let escapes = !self.prompt.no_escape;
        self.sampling.params(0, escapes)?;
        let stops = texts(&self.reverse_prompt, escapes, "--reverse-prompt")?;
        let form = self.form.read()?;
        let template = self.template()?;
        if self.chat.logprobs.is_some() && !app.global.json {
            return Err(Failure::usage("--logprobs is shown in JSON only: add --json"));
        }
        let model = app.load(&self.model)?;
        let template = template.map(|template| template.compile(model.tokenizer())).transpose()?;
        let mode = self.mode(&model, template.as_ref(), at_terminal, system.is_some())?;
        self.sampling.check_vocabulary(model.vocab_size())?;
        let mut params = self.sampling.params(model.context(), escapes)?;
        if self.sampling.ignore_eos {
            params.rule_out(model.tokenizer().end_of_generation());
        }
        let form = form.map(|form| form.prepare(&model)).transpose()?;
        let generator = Generator::new(&model, &params, self.sampling.seed(), form, self.chat.logprobs)?;
        if !app.global.quiet {
            announce(&mode, &generator);
        }
        let mut talk = Talk {
            model: &model,
            session: Session::new(&model)?,
            generator,
            limit: Limit::from(self.predict),
            special: self.chat.special,
            stops: Stops::new(stops, model.tokenizer())?,
            // JSON comes in one piece, when all is known.
            out: (!app.global.json).then_some(&mut app.out),
            timings: Timings::default(),
        };
        let answer = match mode {
            Mode::Raw(_) => {
                let text =
                    text.ok_or_else(|| Failure::usage("no prompt was given (-p TEXT or -f FILE), and the model has no template to chat with"))?;
                let tokens = prompt::encode(model.tokenizer(), &text)?;
                talk.complete(&text, tokens, self.chat.display_prompt)?
            }
            Mode::Chat { template, .. } => {
                let more = can_ask && !self.chat.single_turn && (text.is_none() || self.chat.conversation);
                talk.converse(template, system, text, more)?
            }
        };
        let timings = talk.timings;
        if app.global.json {
            app.out.json(&report(&model, &answer, self.chat.logprobs.is_some(), timings))?;
        }
        app.out.flush()?;
        if !app.global.quiet {
            note("");
            timings.report(model.load_ms());
        }
        ended(answer.end, answer.tokens.len(), self.predict.into(), model.context())
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

    fn mode<'m>(
        &self,
        model: &'m Model,
        given: Option<&'m ChatTemplate>,
        at_terminal: bool,
        system: bool,
    ) -> Result<Mode<'m>, Failure> {
        if self.chat.no_conversation {
            return Ok(Mode::Raw("as asked for"));
        }
        if let Some(template) = given {
            return Ok(Mode::Chat { template, given: true });
        }
        match model.chat_template() {
            Some(template) if at_terminal || self.chat.conversation || system => {
                Ok(Mode::Chat { template, given: false })
            }
            Some(_) => Ok(Mode::Raw("since standard input is no terminal; -cnv chats")),
            None if self.chat.conversation || system => {
                let flag = if self.chat.conversation { "-cnv" } else { "-sys" };
                Err(Failure::run(format!(
                    "{flag}: the model has no chat template; --chat-template gives one, and -no-cnv completes \
                     the prompt as it stands"
                )))
            }
            None => Ok(Mode::Raw("since the model has no chat template")),
        }
    }
}

/// Says which mode was chosen and how to get the other.
fn announce(mode: &Mode<'_>, generator: &Generator<'_>) {
    let mode = match mode {
        Mode::Raw(why) => format!("completion of the prompt as it stands, {why}"),
        Mode::Chat { given: true, .. } => "chat with the template given".to_owned(),
        Mode::Chat { given: false, .. } => {
            "chat with the model's template; -no-cnv completes the prompt as it stands".to_owned()
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
    }
}

/// Says when the context was full before all was said: an error where a number of tokens was asked for.
fn ended(end: End, made: usize, limit: Limit, context: usize) -> Result<(), Failure> {
    let (room, made) = (counted(context, "token"), counted(made, "generated token"));
    let full = format!("the context of {room} is full after {made}");
    match (end, limit) {
        (End::Text | End::Limit, _) | (End::ContextFull, Limit::Context) => Ok(()),
        (End::ContextFull, Limit::Open) => {
            note(&format!("stopped: {full}"));
            Ok(())
        }
        (End::ContextFull, Limit::Tokens(asked)) => {
            Err(Failure::run(format!("{full} of {asked} that were asked for: give a larger context with -c")))
        }
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
