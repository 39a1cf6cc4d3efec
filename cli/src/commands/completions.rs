//! `completions`: a completion script for a shell, made from the definition of the command line.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::App;
use crate::args::Cli;
use crate::failure::Failure;

/// The flags of `completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        // Into memory first: the generator panics when it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "quantsmith", &mut script);
        app.out.text(&String::from_utf8_lossy(&script))
    }
}
