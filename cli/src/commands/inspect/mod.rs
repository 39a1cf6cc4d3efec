//! `inspect`: what is in a model file of any container.
//!
//! Four views: the summary, for which only the header is read; the bytes field by field; the first blocks of a
//! tensor field by field; and a tensor's numbers as a NumPy file. The last three stream.

mod fields;
mod summary;
mod tensor;

use std::path::{Path, PathBuf};

use clap::Args;
use quantsmith::files::inspect::{HexOptions, hex};
use quantsmith::files::{FileError, ModelFile, OpenOptions};

use crate::App;
use crate::failure::Failure;

/// The flags of `inspect`.
#[derive(Args)]
pub(crate) struct Inspect {
    /// Model file
    #[arg(value_name = "FILE", required_unless_present = "model")]
    path: Option<PathBuf>,
    /// Model file, as the other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "path")]
    model: Option<PathBuf>,
    /// Show the bytes of the file, one line a field
    #[arg(long)]
    hex: bool,
    /// With --hex: leave out fields that end before this byte; 0x starts a hexadecimal number
    #[arg(long, value_name = "BYTE", requires = "hex", value_parser = number)]
    from: Option<u64>,
    /// With --hex: show at most so many fields
    #[arg(long, value_name = "N", requires = "hex")]
    limit: Option<u64>,
    /// The tensor to show, or to go to with --hex
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// Write the numbers of the tensor, as f32, to a NumPy file
    #[arg(long, value_name = "FILE", requires = "tensor", conflicts_with_all = ["hex", "blocks"])]
    export: Option<PathBuf>,
    /// Show the first N blocks of the tensor, field by field
    #[arg(long, value_name = "N", requires = "tensor", conflicts_with = "hex")]
    blocks: Option<u64>,
    /// Look at this one file of a model in several
    #[arg(long)]
    single_file: bool,
    /// Q4 tensors have all scales of a row before all codes: GGML files of early March 2023
    #[arg(long)]
    struct_of_arrays: bool,
}

/// Blocks that are shown of a tensor when none of the flags says how many.
const FEW: u64 = 2;

impl Inspect {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let Some(path) = self.path.as_deref().or(self.model.as_deref()) else {
            return Err(Failure::usage("no file was given"));
        };
        let open = OpenOptions {
            single_file: self.single_file,
            struct_of_arrays: self.struct_of_arrays,
            ..OpenOptions::default()
        };
        if self.hex {
            return self.show_bytes(path, &open, app);
        }
        let file = ModelFile::open_with(path, &app.registry, &open)?;
        let Some(name) = &self.tensor else {
            return if app.global.json {
                summary::json(&file, &mut app.out)
            } else {
                summary::show(&file, &mut app.out)
            };
        };
        let tensor = file.tensor(name).ok_or_else(|| no_tensor(&file, name))?;
        match &self.export {
            Some(to) => tensor::export(&file, tensor, to, app),
            None => tensor::blocks(&file, tensor, self.blocks.unwrap_or(FEW), app),
        }
    }

    fn show_bytes(&self, path: &Path, open: &OpenOptions, app: &mut App) -> Result<(), Failure> {
        let options =
            HexOptions { from: self.from.unwrap_or(0), limit: self.limit, tensor: self.tensor.clone() };
        if app.global.json {
            return fields::json(path, open, &options, app);
        }
        let App { out, registry, .. } = app;
        out.with(|to| hex(path, &*registry, open, &options, to))
    }
}

fn no_tensor(file: &ModelFile, name: &str) -> FileError {
    let what = format!("there is no tensor '{name}'");
    FileError::Refused { path: file.path().into(), what }
}

/// Reads a byte offset as people write it.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "accepted: a number, or 0x and hexadecimal digits".to_owned())
}
