//! What is in a file, as tables or as JSON: all but the blocks.

use quantsmith::files::inspect::{MetadataRow, Summary, TensorRow, TypeRow, Vocabulary, summarise};
use quantsmith::files::ops::{Finding, Severity};
use quantsmith::files::{Array, ByteOrder, Container, ModelFile, Value};
use serde::Serialize;
use serde_json::{Map, Number, Value as Json, json};

use crate::failure::Failure;
use crate::output::{Output, printable, warn};
use crate::table::{Align, Table, bytes, count, grouped};

/// All that the JSON says, in this order.
#[derive(Serialize)]
struct Report {
    file: String,
    files: Vec<String>,
    container: &'static str,
    version: Option<u32>,
    byte_order: &'static str,
    file_size: u64,
    alignment: u64,
    data_start: u64,
    hyperparameters: Map<String, Json>,
    metadata: Map<String, Json>,
    vocabulary: Option<Vocabulary>,
    tensors: Vec<TensorRow>,
    types: Vec<TypeRow>,
    totals: Totals,
    warnings: Vec<String>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Totals {
    tensors: usize,
    elements: u64,
    bytes: u64,
    bits_per_weight: f64,
}

/// Writes everything as JSON.
pub(super) fn json(file: &ModelFile, out: &mut Output) -> Result<(), Failure> {
    let (container, version, byte_order) = header(file.container());
    let summary = summarise(file);
    let numbers = summary.hyperparameters.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
    out.json(&Report {
        file: file.path().display().to_string(),
        files: summary.paths,
        container,
        version,
        byte_order,
        file_size: summary.file_size,
        alignment: summary.alignment,
        data_start: summary.data_start,
        hyperparameters: numbers.collect(),
        metadata: summary.metadata.iter().map(|row| (row.key.clone(), entry(&row.value))).collect(),
        vocabulary: summary.vocabulary,
        totals: Totals {
            tensors: summary.tensors.len(),
            elements: summary.elements,
            bytes: summary.data_bytes,
            bits_per_weight: summary.bits_per_weight,
        },
        tensors: summary.tensors,
        types: summary.types,
        warnings: file.warnings().to_vec(),
        findings: summary.findings,
    })
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
pub(super) fn float(value: f32) -> Json {
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

/// Writes everything as tables; what is unusual goes to standard error.
pub(super) fn show(file: &ModelFile, out: &mut Output) -> Result<(), Failure> {
    let summary = summarise(file);
    // Warnings of the reader are among the findings.
    for finding in summary.findings.iter().filter(|f| f.severity > Severity::Note) {
        warn(&finding.text);
    }
    facts(&summary, out)?;
    if !summary.hyperparameters.is_empty() {
        out.line("\nhyperparameters")?;
        let mut table = Table::new([("name", Align::Left), ("value", Align::Right)]);
        for (name, value) in &summary.hyperparameters {
            table.row([(*name).to_owned(), value.to_string()]);
        }
        out.text(&table.plain())?;
    }
    metadata(&summary.metadata, out)?;
    if let Some(vocabulary) = &summary.vocabulary {
        show_vocabulary(vocabulary, out)?;
    }
    tensors(&summary, out)?;
    types(&summary.types, out)
}

fn facts(summary: &Summary, out: &mut Output) -> Result<(), Failure> {
    for path in &summary.paths {
        out.line(&format!("file:       {}", printable(path)))?;
    }
    out.line(&format!("container:  {}", summary.container))?;
    out.line(&format!("size:       {} ({} bytes)", bytes(summary.file_size), grouped(summary.file_size)))?;
    out.line(&format!(
        "data:       from byte {}, aligned to {}",
        grouped(summary.data_start),
        summary.alignment
    ))?;
    out.line(&format!("tensors:    {}", grouped(summary.tensors.len() as u64)))?;
    out.line(&format!(
        "parameters: {} ({}), {:.2} bits each",
        count(summary.elements),
        grouped(summary.elements),
        summary.bits_per_weight
    ))?;
    for note in summary.findings.iter().filter(|f| f.severity == Severity::Note) {
        out.line(&format!("note:       {}", printable(&note.text)))?;
    }
    Ok(())
}

fn metadata(rows: &[MetadataRow], out: &mut Output) -> Result<(), Failure> {
    out.line(&format!("\nmetadata: {} entries", rows.len()))?;
    let mut table = Table::new([("key", Align::Left), ("type", Align::Left), ("value", Align::Left)]);
    for row in rows {
        table.row([row.key.clone(), row.kind.clone(), row.value.to_string()]);
    }
    out.text(&table.plain())
}

fn show_vocabulary(vocabulary: &Vocabulary, out: &mut Output) -> Result<(), Failure> {
    let name = |name: &Option<String>| printable(name.as_deref().unwrap_or("-"));
    out.line("\nvocabulary")?;
    out.line(&format!("kind:    {}, splits text as {}", name(&vocabulary.model), name(&vocabulary.pre)))?;
    let kinds: Vec<String> = vocabulary.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    out.line(&format!("tokens:  {}{kinds}", vocabulary.tokens))?;
    out.line(&format!("merges:  {}", vocabulary.merges))?;
    for (name, id, text) in &vocabulary.special {
        out.line(&format!("special: {} {id} {}", printable(name), printable(text)))?;
    }
    Ok(())
}

fn tensors(summary: &Summary, out: &mut Output) -> Result<(), Failure> {
    out.line(&format!("\ntensors: {}", summary.tensors.len()))?;
    let several = summary.paths.len() > 1;
    let noted = summary.tensors.iter().any(|t| t.stored_as.is_some());
    let mut head = vec![("name", Align::Left), ("type", Align::Left), ("dims", Align::Left)];
    if several {
        head.push(("file", Align::Right));
    }
    head.extend([("offset", Align::Right), ("bytes", Align::Right), ("share", Align::Right)]);
    if noted {
        head.push(("stored", Align::Left));
    }
    let mut table = Table::new(head);
    for t in &summary.tensors {
        let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
        let mut row = vec![t.name.clone(), t.type_name.into(), dims.join(" x ")];
        if several {
            row.push((t.part + 1).to_string());
        }
        row.extend([t.offset.to_string(), grouped(t.bytes), percent(t.share)]);
        row.extend(t.stored_as.clone());
        table.row(row);
    }
    out.text(&table.plain())
}

fn types(rows: &[TypeRow], out: &mut Output) -> Result<(), Failure> {
    out.line("\nby type")?;
    let head = [("type", Align::Left), ("tensors", Align::Right), ("parameters", Align::Right)];
    let tail = [("bytes", Align::Right), ("bits each", Align::Right), ("share", Align::Right)];
    let mut table = Table::new(head.into_iter().chain(tail));
    for row in rows {
        table.row([
            row.type_name.into(),
            row.tensors.to_string(),
            grouped(row.elements),
            grouped(row.bytes),
            format!("{:.3}", row.bits_per_weight),
            percent(row.share),
        ]);
    }
    out.text(&table.plain())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
