//! `run`: completes a prompt, or answers it in chat mode.
//!
//! Chat mode is for a person at a terminal: without one, or with `-no-cnv`, the prompt is completed as it stands.

use clap::Args;

use crate::App;
use crate::args::ModelArgs;
use crate::exchange::{ExchangeArgs, Wish};
use crate::failure::Failure;

/// The flags of `run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) exchange: ExchangeArgs,
    /// Chat with the model's template, terminal or not (-cnv)
    #[arg(long, conflicts_with = "no_conversation")]
    conversation: bool,
    /// Complete the prompt as it stands (-no-cnv)
    #[arg(long, conflicts_with_all = ["system_prompt", "system_prompt_file", "chat_template", "chat_template_file"])]
    no_conversation: bool,
    /// Print the prompt before its completion
    #[arg(long, conflicts_with = "no_display_prompt")]
    display_prompt: bool,
    #[arg(long, hide = true)]
    no_display_prompt: bool,
}

impl Run {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let conversation = match (self.conversation, self.no_conversation) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let wish = Wish { conversation, go_on: self.conversation, display_prompt: self.display_prompt };
        self.exchange.execute(app, &self.model, wish)
    }
}
