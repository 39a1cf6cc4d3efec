//! `chat`: a conversation with a model at a terminal, or one answer where there is none.

use clap::Args;

use crate::App;
use crate::args::ModelArgs;
use crate::exchange::{ExchangeArgs, Wish};
use crate::failure::Failure;

/// The flags of `chat`.
#[derive(Args, Debug)]
pub(crate) struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    exchange: ExchangeArgs,
}

impl Chat {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let wish = Wish { conversation: Some(true), go_on: true, display_prompt: false };
        self.exchange.execute(app, &self.model, wish)
    }
}
