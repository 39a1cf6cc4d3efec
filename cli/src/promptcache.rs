//! `--prompt-cache`: a file that keeps an evaluated prompt for the next run.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Args;
use quantsmith::{Session, StateError};

use crate::failure::Failure;
use crate::output::note;
use crate::table::counted;

/// Where the context is kept.
#[derive(Args, Debug)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptCacheArgs {
    /// File that keeps the evaluated prompt, so that another run with the same begin starts sooner
    #[arg(long, value_name = "FILE")]
    prompt_cache: Option<PathBuf>,
    /// Keep the answers, too
    #[arg(long, requires = "prompt_cache")]
    prompt_cache_all: bool,
    /// Read the file and leave it as it is
    #[arg(long, requires = "prompt_cache", conflicts_with = "prompt_cache_all")]
    prompt_cache_ro: bool,
}

/// What is still to be saved, and where.
#[derive(Debug)]
pub(crate) struct PromptCache {
    path: PathBuf,
    due: Due,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The first prompt, once it is there.
    Prompt,
    /// Everything, at the end.
    All,
    Nothing,
}

impl PromptCacheArgs {
    /// Restores what the file has, if there is one.
    pub(crate) fn open(&self, session: &mut Session, quiet: bool) -> Result<Option<PromptCache>, Failure> {
        let Some(path) = &self.prompt_cache else { return Ok(None) };
        match File::open(path) {
            Ok(file) => {
                session.restore(BufReader::with_capacity(1 << 20, file)).map_err(|e| failed(path, &e))?;
                if !quiet {
                    let tokens = counted(session.position(), "token");
                    note(&format!("cache:   {tokens} from {}", path.display()));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !self.prompt_cache_ro => {}
            Err(error) => return Err(failed(path, &error.into())),
        }
        let due = match (self.prompt_cache_ro, self.prompt_cache_all) {
            (true, _) => Due::Nothing,
            (_, true) => Due::All,
            _ => Due::Prompt,
        };
        Ok(Some(PromptCache { path: path.clone(), due }))
    }
}

impl PromptCache {
    /// Saves the context if it is the prompt that is wanted.
    pub(crate) fn prompt_is_there(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.due == Due::Prompt { self.save(session) } else { Ok(()) }
    }

    /// Saves the context if it is all of it that is wanted.
    pub(crate) fn all_is_there(&mut self, session: &mut Session) -> Result<(), Failure> {
        if self.due == Due::All { self.save(session) } else { Ok(()) }
    }

    /// Saves the context; the file is there as a whole or not at all.
    fn save(&mut self, session: &mut Session) -> Result<(), Failure> {
        self.due = Due::Nothing;
        let mut part = OsString::from(&self.path);
        part.push(".part");
        let part = PathBuf::from(part);
        let mut write = || {
            session.save(BufWriter::with_capacity(1 << 20, File::create(&part)?))?;
            Ok(std::fs::rename(&part, &self.path)?)
        };
        write().map_err(|e: StateError| {
            let _ = std::fs::remove_file(&part);
            failed(&self.path, &e)
        })
    }
}

fn failed(path: &Path, error: &StateError) -> Failure {
    Failure::run(format!("--prompt-cache: {}: {error}", path.display()))
}
