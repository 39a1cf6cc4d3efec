//! `fingerprint`: one number for all logits of a prompt. It is the same on every instruction set, for every number
//! of threads and every batch size, so two machines can compare by eye.

use clap::Args;
use quantsmith::{Session, Want};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::App;
use crate::args::{ModelArgs, PromptArgs};
use crate::failure::Failure;
use crate::prompt;

/// The flags of `fingerprint`.
#[derive(Args)]
pub(crate) struct Fingerprint {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    prompt: PromptArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    sha256: String,
    isa: &'a str,
    threads: usize,
}

impl Fingerprint {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let text = self.prompt.require()?;
        let model = app.load(&self.model)?;
        let tokens = prompt::encode(model.tokenizer(), &text)?;
        prompt::check_fits(tokens.len(), model.context())?;
        let mut session = Session::new(&model)?;
        let mut hash = Sha256::new();
        let mut bytes = Vec::with_capacity(4 * model.vocab_size());
        session.eval(&tokens, Want::All, &mut |_, logits| {
            bytes.clear();
            bytes.extend(logits.iter().flat_map(|x| x.to_le_bytes()));
            hash.update(&bytes);
        })?;
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let report = Report { sha256, isa: model.isa().name(), threads: model.threads() };
        if app.global.json { app.out.json(&report) } else { app.out.line(&report.sha256) }
    }
}
