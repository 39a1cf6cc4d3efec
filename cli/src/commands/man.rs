//! `man`: the manual page, made from the definition of the command line.

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use crate::App;
use crate::args::Cli;
use crate::failure::Failure;

/// The flags of `man`.
#[derive(Args)]
pub(crate) struct Man {
    /// The page of one command in place of the whole program's
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

impl Man {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let mut program = Cli::command();
        // Fills in what the commands inherit from the program.
        program.build();
        let command = match &self.command {
            None => program,
            Some(name) => {
                let known: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
                let Some(command) = program.find_subcommand(name) else {
                    return Err(Failure::usage(format!("no command '{name}'; known: {}", known.join(", "))));
                };
                command.clone()
            }
        };
        let mut page = Vec::new();
        Page::new(command).render(&mut page).map_err(|e| Failure::output(&e))?;
        app.out.text(&String::from_utf8_lossy(&page))
    }
}
