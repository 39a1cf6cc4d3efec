//! What differs between two models.

use serde::Serialize;

use crate::files::metadata::Metadata;
use crate::files::model::ModelFile;
use crate::files::tensor::TensorInfo;
use crate::files::value::Value;
use crate::files::write::same_value;

/// A thing that one side has, or both have differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change<T> {
    /// Only the first has it.
    Removed(T),
    /// Only the second has it.
    Added(T),
    /// Both have it.
    Changed(T, T),
}

/// What differs in a tensor that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorChange {
    /// The type and the dimensions, as in `Q4_0 [32, 4]`.
    pub form: String,
    /// Bytes of data.
    pub bytes: u64,
}

/// The differences between two models; empty when they say the same, whatever their containers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// Keys with their values.
    pub metadata: Vec<(String, Change<Value>)>,
    /// Tensors that one side lacks, or whose type or dimensions differ.
    pub tensors: Vec<(String, Change<TensorChange>)>,
    /// Tensors whose data differs: in how many bytes, and where first.
    pub data: Vec<(String, DataChange)>,
    /// Metadata or tensors are in another order.
    pub order: bool,
}

/// How data of one form differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DataChange {
    /// Bytes that differ.
    pub bytes: u64,
    /// The first of them, from the start of the tensor.
    pub first: u64,
}

impl Diff {
    /// True when nothing differs but perhaps the order.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.tensors.is_empty() && self.data.is_empty()
    }
}

/// Compares two models by what they hand out.
pub fn diff(a: &ModelFile, b: &ModelFile) -> Diff {
    let mut found = Diff { metadata: diff_metadata(a.metadata(), b.metadata()), ..Diff::default() };
    let form =
        |t: &TensorInfo| TensorChange { form: format!("{} {:?}", t.type_name, t.dims), bytes: t.bytes };
    for x in a.tensors() {
        let Some(y) = b.tensor(&x.name) else {
            found.tensors.push((x.name.clone(), Change::Removed(form(x))));
            continue;
        };
        if (x.type_id, x.layout, &x.dims) != (y.type_id, y.layout, &y.dims) {
            found.tensors.push((x.name.clone(), Change::Changed(form(x), form(y))));
        } else if let Some(change) = diff_data(&a.data(x), &b.data(y)) {
            found.data.push((x.name.clone(), change));
        }
    }
    for y in b.tensors().iter().filter(|y| a.tensor(&y.name).is_none()) {
        found.tensors.push((y.name.clone(), Change::Added(form(y))));
    }
    let keys = |m: &Metadata, other: &Metadata| -> Vec<String> {
        m.iter().map(|(k, _)| k).filter(|k| other.contains(k)).map(str::to_owned).collect()
    };
    let names = |m: &ModelFile, other: &ModelFile| -> Vec<String> {
        m.tensors().iter().filter(|t| other.tensor(&t.name).is_some()).map(|t| t.name.clone()).collect()
    };
    found.order =
        keys(a.metadata(), b.metadata()) != keys(b.metadata(), a.metadata()) || names(a, b) != names(b, a);
    found
}

fn diff_metadata(a: &Metadata, b: &Metadata) -> Vec<(String, Change<Value>)> {
    let mut found = Vec::new();
    for (key, x) in a.iter() {
        match b.get(key) {
            None => found.push((key.to_owned(), Change::Removed(x.clone()))),
            Some(y) if !same_value(x, y) => {
                found.push((key.to_owned(), Change::Changed(x.clone(), y.clone())))
            }
            Some(_) => {}
        }
    }
    for (key, y) in b.iter().filter(|(key, _)| !a.contains(key)) {
        found.push((key.to_owned(), Change::Added(y.clone())));
    }
    found
}

fn diff_data(a: &[u8], b: &[u8]) -> Option<DataChange> {
    if a == b {
        return None;
    }
    let differs = |(x, y): (&u8, &u8)| x != y;
    let first = a.iter().zip(b).position(differs).unwrap_or(a.len().min(b.len()));
    let bytes = a.iter().zip(b).filter(|&pair| differs(pair)).count() + a.len().abs_diff(b.len());
    Some(DataChange { bytes: bytes as u64, first: first as u64 })
}
