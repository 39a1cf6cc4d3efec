//! `gguf`: what is done to model files as files.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use quantsmith::files::ops::{
    Change, Diff, Edit, Severity, ShardSize, SplitOptions, diff, edit, hash, merge, split, verify,
};
use quantsmith::files::{ModelFile, OpenOptions, Value, ValueType};
use serde_json::json;

use crate::App;
use crate::failure::Failure;
use crate::interrupt::discard_on_interrupt;
use crate::output::{note, printable};
use crate::table::bytes;

/// The flags of `gguf`.
#[derive(Args)]
pub(crate) struct Gguf {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a copy with metadata set
    Set {
        /// Model file
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// GGUF file to write
        #[arg(value_name = "OUT")]
        output: PathBuf,
        /// KEY=TYPE:VALUE, or KEY=VALUE where the key is there and keeps its type; types are u8, i8, u16, i16, u32,
        /// i32, u64, i64, f32, f64, bool, str, and arr with TYPE:VALUE,VALUE
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<String>,
    },
    /// Write a copy without some metadata
    Remove {
        /// Model file
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// GGUF file to write
        #[arg(value_name = "OUT")]
        output: PathBuf,
        /// Keys to remove
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
    },
    /// Split a model into several files: PREFIX-00001-of-0000N.gguf and so on
    Split {
        /// Model file
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Path and first part of the name of the files
        #[arg(value_name = "PREFIX")]
        prefix: PathBuf,
        /// Put at most so many tensors into a file
        #[arg(long, value_name = "N", default_value_t = 128, conflicts_with = "split_max_size",
              value_parser = tensors)]
        split_max_tensors: usize,
        /// Put at most so many bytes of data into a file: a number, or one with K, M or G, which are powers of 1000
        #[arg(long, value_name = "SIZE", value_parser = size)]
        split_max_size: Option<u64>,
        /// Keep tensors out of the first file
        #[arg(long)]
        no_tensor_first_split: bool,
    },
    /// Merge the files of a model into one
    Merge {
        /// Any file of the model
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// GGUF file to write
        #[arg(value_name = "OUT")]
        output: PathBuf,
    },
    /// Print SHA-256 of each tensor, of all data, and of the file
    Hash {
        /// Model file
        #[arg(value_name = "FILE")]
        path: PathBuf,
    },
    /// Say what differs between two models; exit code 1 when anything does
    Diff {
        /// Model file
        #[arg(value_name = "A")]
        a: PathBuf,
        /// Model file
        #[arg(value_name = "B")]
        b: PathBuf,
    },
    /// Check that a file follows the rules and agrees with itself; exit code 1 when not
    Verify {
        /// Model file
        #[arg(value_name = "FILE")]
        path: PathBuf,
    },
}

impl Gguf {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        discard_on_interrupt();
        match self.command {
            Command::Set { input, output, entries } => {
                let edits = settings(&input, &entries, app)?;
                let size = edit(&input, &output, &edits, &app.registry)?;
                written(&output, size, app)
            }
            Command::Remove { input, output, keys } => {
                let edits: Vec<Edit> = keys.into_iter().map(Edit::Remove).collect();
                let size = edit(&input, &output, &edits, &app.registry)?;
                written(&output, size, app)
            }
            Command::Split { input, prefix, split_max_tensors, split_max_size, no_tensor_first_split } => {
                let size = split_max_size.map_or(ShardSize::Tensors(split_max_tensors), ShardSize::Bytes);
                let options = SplitOptions { size, first_without_tensors: no_tensor_first_split };
                let paths = split(&input, &prefix, options, &app.registry)?;
                let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                if app.global.json {
                    return app.out.json(&json!({ "files": paths }));
                }
                paths.iter().try_for_each(|path| app.out.line(&printable(path)))
            }
            Command::Merge { input, output } => {
                let size = merge(&input, &output, &app.registry)?;
                written(&output, size, app)
            }
            Command::Hash { path } => show_hashes(&path, app),
            Command::Diff { a, b } => show_diff(&a, &b, app),
            Command::Verify { path } => show_findings(&path, app),
        }
    }
}

/// Says what was written.
fn written(output: &Path, size: u64, app: &mut App) -> Result<(), Failure> {
    let name = output.display().to_string();
    if app.global.json {
        return app.out.json(&json!({ "file": name, "bytes": size }));
    }
    if !app.global.quiet {
        note(&format!("{}: {}", printable(&name), bytes(size)));
    }
    Ok(())
}

/// Reads `KEY=TYPE:VALUE` and `KEY=VALUE`. `int` and `float` keep the type of a key that is there.
pub(super) fn settings(input: &Path, entries: &[String], app: &App) -> Result<Vec<Edit>, Failure> {
    let options = OpenOptions { single_file: true, ..OpenOptions::default() };
    let mut file = None;
    let mut edits = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some((key, text)) = entry.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::usage(format!("'{entry}': accepted: KEY=TYPE:VALUE or KEY=VALUE")));
        };
        let typed =
            text.split_once(':').and_then(|(name, text)| Some((name, ValueType::from_name(name)?, text)));
        let (kind, text) = match typed {
            Some((name, kind, text)) if !matches!(name, "int" | "float") => (kind, text),
            _ => {
                let file = match &file {
                    Some(file) => file,
                    None => &*file.insert(ModelFile::open_with(input, &app.registry, &options)?),
                };
                match (file.metadata().get(key), typed) {
                    (Some(value), typed) => (value.value_type(), typed.map_or(text, |(_, _, text)| text)),
                    // What readers expect of numbers in metadata, where these fit.
                    (None, Some(("int", _, text))) if text.parse::<u32>().is_ok() => (ValueType::U32, text),
                    (None, Some(("float", _, text))) => (ValueType::F32, text),
                    (None, Some((_, kind, text))) => (kind, text),
                    (None, None) => {
                        return Err(Failure::usage(format!(
                            "'{entry}': the key is new and needs a type: KEY=TYPE:VALUE"
                        )));
                    }
                }
            }
        };
        let value = Value::parse(kind, text)
            .ok_or_else(|| Failure::usage(format!("'{entry}': '{text}' is no value of type {kind}")))?;
        edits.push(Edit::Set(key.to_owned(), value));
    }
    Ok(edits)
}

fn tensors(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "accepted: a number from 1".to_owned())
}

/// Reads a number of bytes: `4000`, `300M`, `2G`.
fn size(text: &str) -> Result<u64, String> {
    let units = [('K', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let unit = units.into_iter().find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)));
    let (digits, unit) = unit.unwrap_or((text, 1));
    let bytes = digits.parse().ok().and_then(|n: u64| n.checked_mul(unit)).filter(|n| *n > 0);
    bytes.ok_or_else(|| "accepted: a number from 1, or one with K, M or G".to_owned())
}

fn show_hashes(path: &Path, app: &mut App) -> Result<(), Failure> {
    let hashes = hash(&ModelFile::open(path, &app.registry)?);
    if app.global.json {
        return app.out.json(&hashes);
    }
    for (name, hash) in &hashes.tensors {
        app.out.line(&format!("{hash}  {}", printable(name)))?;
    }
    app.out.line(&format!("{}  (data of all tensors)", hashes.tensor_data))?;
    app.out.line(&format!("{}  (file)", hashes.file))
}

fn show_diff(a: &Path, b: &Path, app: &mut App) -> Result<(), Failure> {
    let found = diff(&ModelFile::open(a, &app.registry)?, &ModelFile::open(b, &app.registry)?);
    if app.global.json {
        app.out.json(&found)?;
    } else {
        describe(&found, app)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    // The result first: it and the error go to different places.
    app.out.flush()?;
    Err(Failure::run(format!("{} and {} differ", a.display(), b.display())))
}

fn describe(found: &Diff, app: &mut App) -> Result<(), Failure> {
    for (key, change) in &found.metadata {
        app.out.line(&one_change("key", key, change, ToString::to_string))?;
    }
    for (name, change) in &found.tensors {
        app.out.line(&one_change("tensor", name, change, |t| t.form.clone()))?;
    }
    for (name, change) in &found.data {
        let name = printable(name);
        app.out.line(&format!(
            "~ data {name}: {} bytes differ, the first at byte {}",
            change.bytes, change.first
        ))?;
    }
    if found.order {
        app.out.line("~ order: what both have comes in another order")?;
    }
    Ok(())
}

fn one_change<T>(what: &str, name: &str, change: &Change<T>, show: impl Fn(&T) -> String) -> String {
    let text = match change {
        Change::Removed(x) => format!("- {what} {name}: {}", show(x)),
        Change::Added(x) => format!("+ {what} {name}: {}", show(x)),
        Change::Changed(x, y) => format!("~ {what} {name}: {} -> {}", show(x), show(y)),
    };
    printable(&text)
}

fn show_findings(path: &Path, app: &mut App) -> Result<(), Failure> {
    let findings = verify(path, &app.registry)?;
    if app.global.json {
        app.out.json(&json!({ "findings": findings }))?;
    } else {
        for finding in &findings {
            let severity = match finding.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            app.out.line(&format!("{severity}: {}", printable(&finding.text)))?;
        }
        if findings.is_empty() {
            app.out.line("nothing is wrong")?;
        }
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    if errors == 0 {
        return Ok(());
    }
    app.out.flush()?;
    Err(Failure::run(format!("{}: contradicts itself in {errors} places", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!((size("4000"), size("3K"), size("2G")), (Ok(4000), Ok(3000), Ok(2_000_000_000)));
        for bad in ["", "0", "M", "-1", "1T", "99999999999999999999", "18446744073709551615G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(tensors("0").is_err() && tensors("1") == Ok(1));
    }
}
