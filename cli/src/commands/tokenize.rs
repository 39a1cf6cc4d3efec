//! `tokenize`: text to token ids, and ids back to text. Only the header of the model is read.

use clap::Args;
use quantsmith::files::ModelFile;
use quantsmith::text::{EncodeOptions, Tokenizer};
use serde::Serialize;

use std::path::{Path, PathBuf};

use crate::App;
use crate::args::PromptArgs;
use crate::failure::Failure;
use crate::output::{printable, warn};
use crate::prompt;

/// The flags of `tokenize`.
#[derive(Args)]
pub(crate) struct Tokenize {
    /// Model file
    #[arg(short, long, value_name = "FILE")]
    model: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Read the text from standard input
    #[arg(long, conflicts_with_all = ["prompt", "file", "binary_file"])]
    stdin: bool,
    /// Add no marks at the begin and the end, whatever the model asks for
    #[arg(long)]
    no_bos: bool,
    /// Take special tokens in the text as ordinary text
    #[arg(long)]
    no_parse_special: bool,
    /// Print the ids alone, as a list
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print the number of tokens, too
    #[arg(long)]
    show_count: bool,
    /// Turn ids into text instead
    #[arg(long, value_name = "IDS", value_parser = id_list, conflicts_with_all = ["prompt", "file", "binary_file", "stdin"])]
    decode: Option<Ids>,
}

/// A list of ids, with commas or blanks between them, in brackets or not: also as `--ids` prints one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ids(Vec<u32>);

fn id_list(text: &str) -> Result<Ids, String> {
    let bare = text.trim();
    let bare = bare.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(bare);
    let ids = bare.split([',', ' ', '\n', '\t']).filter(|id| !id.is_empty());
    let ids = ids
        .map(|id| id.parse().map_err(|_| format!("{id:?} is no id; accepted: numbers with commas between")));
    ids.collect::<Result<_, _>>().map(Ids)
}

#[derive(Serialize)]
struct Report {
    ids: Vec<u32>,
    pieces: Vec<String>,
}

#[derive(Serialize)]
struct Decoded {
    ids: Vec<u32>,
    text: String,
}

impl Tokenize {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let text = match (&self.decode, self.stdin) {
            (Some(_), _) => String::new(),
            (None, true) => prompt::read_file(Path::new("-"))?,
            (None, false) => self.prompt.require()?,
        };
        let file = ModelFile::open(&self.model, &app.registry)?;
        let tokenizer = Tokenizer::from_metadata(file.metadata())?;
        for warning in file.warnings().iter().chain(tokenizer.warnings()) {
            warn(warning);
        }
        if let Some(Ids(ids)) = self.decode {
            return decode(&tokenizer, ids, app);
        }
        let options = EncodeOptions { add_special: !self.no_bos, parse_special: !self.no_parse_special };
        let ids = tokenizer.encode(&text, options)?;
        let pieces = ids.iter().map(|&id| prompt::piece(&tokenizer, id)).collect();
        let report = Report { ids, pieces };
        if app.global.json {
            return app.out.json(&report);
        }
        if self.ids {
            let list: Vec<String> = report.ids.iter().map(u32::to_string).collect();
            app.out.line(&format!("[{}]", list.join(", ")))?;
        } else {
            for (id, piece) in report.ids.iter().zip(&report.pieces) {
                app.out.line(&format!("{id:>6} -> '{}'", printable(piece)))?;
            }
        }
        if self.show_count {
            app.out.line(&format!("Total number of tokens: {}", report.ids.len()))?;
        }
        Ok(())
    }
}

fn decode(tokenizer: &Tokenizer, ids: Vec<u32>, app: &mut App) -> Result<(), Failure> {
    let vocab = tokenizer.vocab_size();
    if let Some(bad) = ids.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= vocab)) {
        return Err(Failure::usage(format!(
            "--decode: the vocabulary has no token {bad}; accepted: 0 to {}",
            vocab - 1
        )));
    }
    let text = tokenizer.decode(&ids);
    if app.global.json { app.out.json(&Decoded { ids, text }) } else { app.out.line(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_people_write_them_and_as_they_are_printed() {
        for text in ["1,2,30", "[1, 2, 30]", " 1 2 30\n", "[1,2,30]", "1, 2,\t30,"] {
            assert_eq!(id_list(text), Ok(Ids(vec![1, 2, 30])), "{text:?}");
        }
        assert_eq!(id_list(""), Ok(Ids(vec![])));
        for bad in ["1,x", "-1", "[1", "4294967296", "1.5"] {
            assert!(id_list(bad).is_err_and(|e| e.contains("is no id")), "{bad:?}");
        }
    }
}
