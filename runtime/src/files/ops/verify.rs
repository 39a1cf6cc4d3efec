//! Checks that go beyond what is needed to read a file.
//!
//! What cannot be read is an error when the file is opened. What is found here is a file that can be read,
//! but that other programs may refuse, or that says two things about itself.

use std::path::Path;

use serde::Serialize;

use crate::files::error::{FileError, Quoted};
use crate::files::inspect::checks;
use crate::files::model::{Container, ModelFile, OpenOptions};
use crate::files::types::TypeTable;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Other programs may refuse the file, or read it otherwise.
    Warning,
    /// The file contradicts itself.
    Error,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(severity: Severity, text: String) -> Self {
        Self { severity, text }
    }
}

/// Longest tensor name that llama.cpp reads.
const MAX_NAME: usize = 63;

/// Checks a model, with its other files when it is in several. The worst comes first.
///
/// # Errors
/// - the model cannot be opened
pub fn verify(path: &Path, types: &dyn TypeTable) -> Result<Vec<Finding>, FileError> {
    let options = OpenOptions { separate_experts: true, ..OpenOptions::default() };
    let model = &ModelFile::open_with(path, types, &options)?;
    let mut findings = checks::warnings(model);
    findings.extend(checks::consistency(model));
    if matches!(model.container(), Container::Gguf { .. }) {
        findings.extend(names(model));
        findings.extend(layout(model));
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    Ok(findings)
}

fn names(model: &ModelFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |severity, text| findings.push(Finding::new(severity, text));
    for (key, _) in model.metadata().iter() {
        if !key.is_ascii() {
            note(Severity::Note, format!("key {} is not ASCII", Quoted(key.as_bytes())));
        }
    }
    for tensor in model.tensors() {
        let quoted = Quoted(tensor.name.as_bytes());
        if tensor.name.is_empty() {
            note(Severity::Warning, "a tensor has an empty name".into());
        }
        if tensor.name.len() > MAX_NAME {
            let length = tensor.name.len();
            note(
                Severity::Warning,
                format!("tensor {quoted} has a name of {length} bytes, llama.cpp reads {MAX_NAME}"),
            );
        }
        if tensor.dims.contains(&0) {
            note(Severity::Note, format!("tensor {quoted} is empty"));
        }
    }
    if !model.alignment().is_power_of_two() {
        let alignment = model.alignment();
        note(
            Severity::Warning,
            format!("alignment {alignment} is no power of two, which llama.cpp asks for"),
        );
    }
    findings
}

/// Looks at how the tensors lie in each file: order, gaps, padding, what follows.
fn layout(model: &ModelFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (part, bytes) in model.raw_files().enumerate() {
        let mut extents = model.extents(part);
        if extents.is_empty() {
            continue;
        }
        if !extents.is_sorted() {
            findings.push(Finding::new(
                Severity::Warning,
                "tensors lie in another order than they are listed, which llama.cpp refuses".into(),
            ));
            extents.sort_unstable();
        }
        for pair in extents.windows(2) {
            let gap = &bytes[pair[0].1 as usize..pair[1].0 as usize];
            if gap.len() as u64 >= model.alignment() {
                let text =
                    format!("{} bytes between tensors at byte {} belong to none", gap.len(), pair[0].1);
                findings.push(Finding::new(Severity::Warning, text));
            }
            if gap.iter().any(|&b| b != 0) {
                let text = format!("the padding at byte {} is not zero", pair[0].1);
                findings.push(Finding::new(Severity::Note, text));
            }
        }
        let end = extents.last().map_or(0, |e| e.1);
        let trailer = bytes.len() as u64 - end;
        let padding = end.next_multiple_of(model.alignment()) - end;
        if trailer > padding {
            let text = format!("{} bytes follow the last tensor", trailer - padding);
            findings.push(Finding::new(Severity::Note, text));
        } else if trailer < padding {
            findings.push(Finding::new(Severity::Note, "the last tensor is not padded".into()));
        }
    }
    findings
}
