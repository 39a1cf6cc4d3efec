//! `logits`: the most likely next tokens at every position of a prompt, for comparing engines.

use clap::Args;
use quantsmith::{Session, Want};

use crate::App;
use crate::args::{ModelArgs, PromptArgs};
use crate::failure::Failure;
use crate::output::printable;
use crate::{logprob, prompt};

/// The flags of `logits`.
#[derive(Args)]
pub(crate) struct Logits {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    /// How many of the most likely tokens to give per position, up to the whole vocabulary
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

impl Logits {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let text = self.prompt.require()?;
        let model = app.load(&self.model)?;
        let tokens = prompt::encode(model.tokenizer(), &text)?;
        prompt::check_fits(tokens.len(), model.context())?;
        if self.top > model.vocab_size() {
            let vocab = model.vocab_size();
            return Err(Failure::usage(format!(
                "--top {} is more than the vocabulary has; accepted: 0 to {vocab}",
                self.top
            )));
        }
        let mut session = Session::new(&model)?;
        let json = app.global.json;
        let out = &mut app.out;
        if json {
            out.text("{\"tokens\":")?;
            out.json_part(&tokens)?;
            out.text(",\"positions\":[")?;
        }
        // Written position by position: with the whole vocabulary, all of them together would fill the memory.
        let mut result = Ok(());
        session.eval(&tokens, Want::All, &mut |at, logits| {
            let mut show = || {
                let position = logprob::top(logits, self.top).ok_or_else(|| {
                    Failure::run(format!("position {at}: the logits are not finite numbers"))
                })?;
                if json {
                    out.text(if at > 0 { "," } else { "" })?;
                    return out.json_part(&position);
                }
                let piece = printable(&prompt::piece(model.tokenizer(), tokens[at]));
                out.line(&format!("{at}: after {} '{piece}'", tokens[at]))?;
                out.text(&logprob::lines(&position, model.tokenizer()))
            };
            if result.is_ok() {
                result = show();
            }
        })?;
        result?;
        if json { out.line("]}") } else { Ok(()) }
    }
}
