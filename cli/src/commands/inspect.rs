//! `inspect`: what is in a model file. Only the header is read, however large the file.

use std::path::PathBuf;

use clap::Args;
use quantsmith::files::{Array, ByteOrder, Container, ModelFile, TensorInfo, Value};
use serde::Serialize;
use serde_json::{Map, Number, Value as Json, json};

use crate::App;
use crate::failure::Failure;
use crate::output::{Output, printable, warn};
use crate::table::{Align, Table, bytes, count, grouped};

/// The flags of `inspect`.
#[derive(Args)]
pub(crate) struct Inspect {
    /// Model file
    #[arg(value_name = "FILE", required_unless_present = "model")]
    path: Option<PathBuf>,
    /// Model file, as the other commands take it
    #[arg(short, long, value_name = "FILE", conflicts_with = "path")]
    model: Option<PathBuf>,
}

/// All that the JSON says, in this order.
#[derive(Serialize)]
struct Report {
    file: String,
    container: String,
    version: Option<u32>,
    byte_order: &'static str,
    file_size: u64,
    alignment: u64,
    data_start: u64,
    metadata: Map<String, Json>,
    tensors: Vec<Tensor>,
    types: Vec<TypeTotal>,
    totals: Totals,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    type_name: &'static str,
    dims: Vec<u64>,
    elements: u64,
    offset: u64,
    bytes: u64,
    share: f64,
}

/// The tensors of one type together.
#[derive(Serialize)]
struct TypeTotal {
    #[serde(rename = "type")]
    type_name: &'static str,
    tensors: u64,
    elements: u64,
    bytes: u64,
    bits_per_weight: f64,
    share: f64,
}

#[derive(Serialize)]
struct Totals {
    tensors: u64,
    elements: u64,
    bytes: u64,
    bits_per_weight: f64,
}

impl Inspect {
    pub(crate) fn execute(self, app: &mut App) -> Result<(), Failure> {
        let Some(path) = self.path.or(self.model) else {
            return Err(Failure::usage("no file was given"));
        };
        let file = ModelFile::open(&path, &app.registry)?;
        if app.global.json {
            return app.out.json(&report(&file));
        }
        for warning in file.warnings() {
            warn(warning);
        }
        show(&file, &mut app.out)
    }
}

fn report(file: &ModelFile) -> Report {
    let (container, version, byte_order) = header(file.container());
    let all: u64 = file.tensors().iter().map(|t| t.bytes).sum();
    Report {
        file: file.path().display().to_string(),
        container: container.to_owned(),
        version,
        byte_order,
        file_size: file.file_size(),
        alignment: file.alignment(),
        data_start: file.data_start(),
        metadata: file.metadata().iter().map(|(key, value)| (key.to_owned(), entry(value))).collect(),
        tensors: file.tensors().iter().map(|t| tensor(t, all)).collect(),
        types: totals_by_type(file.tensors()),
        totals: totals(file.tensors()),
        warnings: file.warnings().to_vec(),
    }
}

fn header(container: Container) -> (&'static str, Option<u32>, &'static str) {
    match container {
        Container::Gguf { version, order: ByteOrder::Little } => ("GGUF", Some(version), "little"),
        Container::Gguf { version, order: ByteOrder::Big } => ("GGUF", Some(version), "big"),
        Container::Ggml => ("GGML", None, "little"),
        Container::Ggmf => ("GGMF", Some(1), "little"),
        Container::Ggjt { version } => ("GGJT", Some(version), "little"),
    }
}

fn tensor(t: &TensorInfo, all: u64) -> Tensor {
    Tensor {
        name: t.name.clone(),
        type_name: t.type_name,
        dims: t.dims.clone(),
        elements: t.elements(),
        offset: t.offset,
        bytes: t.bytes,
        share: share(t.bytes, all),
    }
}

/// A metadata value with its type, in full.
fn entry(value: &Value) -> Json {
    match value {
        Value::Array(array) => {
            json!({ "type": "arr", "of": array.element_type().name(), "value": list(array) })
        }
        _ => json!({ "type": value.value_type().name(), "value": scalar(value) }),
    }
}

fn scalar(value: &Value) -> Json {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => float(*v),
        Value::F64(v) => Number::from_f64(*v).map_or(Json::Null, Json::Number),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v.to_string_lossy()),
        Value::Array(v) => list(v),
    }
}

/// A float with the digits that an f32 needs and no more; what is no number is null.
fn float(value: f32) -> Json {
    value.to_string().parse().ok().and_then(Number::from_f64).map_or(Json::Null, Json::Number)
}

fn list(array: &Array) -> Json {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => v.iter().copied().map(float).collect(),
        Array::F64(v) => json!(v),
        Array::Bool(v) => json!(v),
        Array::String(v) => v.iter().map(|s| Json::from(s.to_string_lossy())).collect(),
        Array::Array(v) => v.iter().map(list).collect(),
    }
}

fn totals_by_type(tensors: &[TensorInfo]) -> Vec<TypeTotal> {
    let all: u64 = tensors.iter().map(|t| t.bytes).sum();
    let mut types: Vec<TypeTotal> = Vec::new();
    for t in tensors {
        let at = types.iter().position(|total| total.type_name == t.type_name).unwrap_or_else(|| {
            let none = TypeTotal {
                type_name: t.type_name,
                tensors: 0,
                elements: 0,
                bytes: 0,
                bits_per_weight: 0.0,
                share: 0.0,
            };
            types.push(none);
            types.len() - 1
        });
        let total = &mut types[at];
        total.tensors += 1;
        total.elements = total.elements.saturating_add(t.elements());
        total.bytes += t.bytes;
    }
    for total in &mut types {
        total.bits_per_weight = bits_per_weight(total.bytes, total.elements);
        total.share = share(total.bytes, all);
    }
    types.sort_by_key(|total| std::cmp::Reverse(total.bytes));
    types
}

fn totals(tensors: &[TensorInfo]) -> Totals {
    let bytes = tensors.iter().map(|t| t.bytes).sum();
    let elements = tensors.iter().fold(0u64, |n, t| n.saturating_add(t.elements()));
    Totals {
        tensors: tensors.len() as u64,
        elements,
        bytes,
        bits_per_weight: bits_per_weight(bytes, elements),
    }
}

fn bits_per_weight(bytes: u64, elements: u64) -> f64 {
    if elements == 0 { 0.0 } else { bytes as f64 * 8.0 / elements as f64 }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

fn show(file: &ModelFile, out: &mut Output) -> Result<(), Failure> {
    out.line(&format!("file:       {}", printable(&file.path().display().to_string())))?;
    out.line(&format!("container:  {}", file.container()))?;
    out.line(&format!("size:       {} ({} bytes)", bytes(file.file_size()), grouped(file.file_size())))?;
    out.line(&format!(
        "data:       from byte {}, aligned to {}",
        grouped(file.data_start()),
        file.alignment()
    ))?;
    let all = totals(file.tensors());
    out.line(&format!("tensors:    {}", grouped(all.tensors)))?;
    out.line(&format!(
        "parameters: {} ({}), {:.2} bits each",
        count(all.elements),
        grouped(all.elements),
        all.bits_per_weight
    ))?;

    out.line(&format!("\nmetadata: {} entries", file.metadata().len()))?;
    let mut table = Table::new([("key", Align::Left), ("type", Align::Left), ("value", Align::Left)]);
    for (key, value) in file.metadata().iter() {
        let kind = match value {
            Value::Array(array) => format!("{} x {}", array.len(), array.element_type()),
            _ => value.value_type().to_string(),
        };
        table.row([key.to_owned(), kind, value.to_string()]);
    }
    out.text(&table.plain())?;

    out.line(&format!("\ntensors: {}", file.tensors().len()))?;
    let head =
        [("name", Align::Left), ("type", Align::Left), ("dims", Align::Left), ("offset", Align::Right)];
    let mut table = Table::new(head.into_iter().chain([("bytes", Align::Right), ("share", Align::Right)]));
    for t in file.tensors() {
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        let share = format!("{:.1} %", 100.0 * share(t.bytes, all.bytes));
        table.row([
            t.name.clone(),
            t.type_name.into(),
            dims.join(" x "),
            t.offset.to_string(),
            grouped(t.bytes),
            share,
        ]);
    }
    out.text(&table.plain())?;

    out.line("\nby type")?;
    let head = [("type", Align::Left), ("tensors", Align::Right), ("parameters", Align::Right)];
    let tail = [("bytes", Align::Right), ("bits each", Align::Right), ("share", Align::Right)];
    let mut table = Table::new(head.into_iter().chain(tail));
    for total in totals_by_type(file.tensors()) {
        table.row([
            total.type_name.into(),
            total.tensors.to_string(),
            grouped(total.elements),
            grouped(total.bytes),
            format!("{:.3}", total.bits_per_weight),
            format!("{:.1} %", 100.0 * total.share),
        ]);
    }
    out.text(&table.plain())
}
