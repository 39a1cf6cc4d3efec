//! One tensor: its first blocks field by field, as the declaration of the format has them, or all its numbers.

use std::path::Path;

use quantsmith::files::inspect::NpyWriter;
use quantsmith::files::{ModelFile, TensorInfo};
use quantsmith_kernels::{Field, FieldType, Format, KernelSet};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::summary::float;
use crate::App;
use crate::failure::Failure;
use crate::interrupt::discard_on_interrupt;
use crate::output::{note, printable};
use crate::table::{bytes, grouped};

/// Numbers that are dequantised at a time.
const CHUNK: usize = 1 << 14;

/// The format of a tensor.
fn format_of(tensor: &TensorInfo, app: &App) -> Result<&'static Format, Failure> {
    let format = app.registry.by_name(tensor.type_name);
    format.ok_or_else(|| Failure::run(format!("there is no format {}", tensor.type_name)))
}

/// Writes the numbers of a tensor to a NumPy file.
pub(super) fn export(file: &ModelFile, tensor: &TensorInfo, to: &Path, app: &mut App) -> Result<(), Failure> {
    discard_on_interrupt();
    let format = format_of(tensor, app)?;
    let kernels = format.kernels(app.tier);
    let inputs: Vec<&Path> = file.paths().collect();
    let mut writer = NpyWriter::create(to, &inputs, &tensor.dims)?;
    let blocks = (CHUNK / format.elements).max(1);
    let mut numbers = vec![0.0; blocks * format.elements];
    for data in file.pieces(tensor) {
        for some in data.chunks(blocks * format.bytes) {
            let numbers = &mut numbers[..some.len() / format.bytes * format.elements];
            kernels.dequantise(some, numbers);
            writer.write(numbers)?;
        }
    }
    let size = writer.finish()?;
    if app.global.json {
        let shape: Vec<u64> = tensor.dims.iter().rev().copied().collect();
        let name = to.display().to_string();
        return app.out.json(&json!({ "file": name, "shape": shape, "bytes": size }));
    }
    if !app.global.quiet {
        let numbers = grouped(tensor.elements());
        note(&format!("{}: {numbers} numbers, {}", printable(&to.display().to_string()), bytes(size)));
    }
    Ok(())
}

/// A block for JSON.
#[derive(Serialize)]
struct Block {
    index: u64,
    fields: Vec<Json>,
    values: Vec<Json>,
}

/// Shows the first blocks of a tensor.
pub(super) fn blocks(
    file: &ModelFile,
    tensor: &TensorInfo,
    limit: u64,
    app: &mut App,
) -> Result<(), Failure> {
    let format = format_of(tensor, app)?;
    let kernels = format.kernels(app.tier);
    let data = file.pieces(tensor).next().unwrap_or_default();
    let all = tensor.bytes / format.bytes as u64;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let shown = data.chunks_exact(format.bytes).take(limit).zip(0u64..);
    if app.global.json {
        let head = json!({
            "tensor": tensor.name, "type": format.name, "dims": tensor.dims, "offset": tensor.offset,
            "block_elements": format.elements, "block_bytes": format.bytes, "blocks_in_all": all,
        });
        // The object is left open for the blocks.
        let head = head.to_string();
        app.out.text(head.strip_suffix('}').unwrap_or(&head))?;
        app.out.text(",\"blocks\":[")?;
        for (block, index) in shown {
            app.out.text(if index > 0 { "," } else { "" })?;
            app.out.json_part(&as_json(block, index, &kernels))?;
        }
        return app.out.text("]}\n");
    }
    app.out.line(&format!("tensor: {}", printable(&tensor.name)))?;
    let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
    app.out.line(&format!("dims:   {}", dims.join(" x ")))?;
    app.out.line(&format!(
        "type:   {}, {} blocks of {} values in {} bytes",
        format.name,
        grouped(all),
        format.elements,
        format.bytes
    ))?;
    app.out.line(&format!("about:  {}", format.about))?;
    if let Some(how) = tensor.stored_as() {
        app.out.line(&format!("stored: {how}; shown as it is used"))?;
    }
    for (block, index) in shown {
        app.out.line(&format!("\nblock {index}"))?;
        for field in format.fields {
            let values: Vec<String> = decode(field, block).iter().map(ToString::to_string).collect();
            let ty = format!("{:?}", field.ty).to_lowercase();
            lines(&format!("{} ({ty})", field.name), &values, app)?;
        }
        let values: Vec<String> = dequantise(block, &kernels).iter().map(|v| format!("{v}")).collect();
        lines("values", &values, app)?;
    }
    Ok(())
}

/// Values in a line.
const PER_LINE: usize = 16;

fn lines(label: &str, values: &[String], app: &mut App) -> Result<(), Failure> {
    let mut label = label;
    for line in values.chunks(PER_LINE) {
        app.out.line(&format!("  {label:<14} {}", line.join(" ")))?;
        label = "";
    }
    Ok(())
}

fn as_json(block: &[u8], index: u64, kernels: &KernelSet) -> Block {
    let fields = kernels.format().fields.iter().map(|field| {
        let ty = format!("{:?}", field.ty).to_lowercase();
        let values: Vec<Json> = decode(field, block).into_iter().map(Decoded::json).collect();
        json!({ "name": field.name, "type": ty, "offset": field.offset, "values": values })
    });
    let values = dequantise(block, kernels).into_iter().map(float);
    Block { index, fields: fields.collect(), values: values.collect() }
}

fn dequantise(block: &[u8], kernels: &KernelSet) -> Vec<f32> {
    let mut values = vec![0.0; kernels.format().elements];
    kernels.dequantise(block, &mut values);
    values
}

/// A value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decoded {
    Whole(i64),
    Real(f32),
}

impl Decoded {
    fn json(self) -> Json {
        match self {
            Self::Whole(v) => json!(v),
            Self::Real(v) => float(v),
        }
    }
}

impl std::fmt::Display for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(v) => write!(f, "{v}"),
            Self::Real(v) => write!(f, "{v}"),
        }
    }
}

/// The values of a field of a block.
fn decode(field: &Field, block: &[u8]) -> Vec<Decoded> {
    let width = field.ty.bytes();
    let stored = &block[field.offset..][..field.count * width];
    stored.chunks_exact(width).map(|raw| value(field.ty, raw)).collect()
}

fn value(ty: FieldType, raw: &[u8]) -> Decoded {
    let bits = raw.iter().rev().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
    match ty {
        FieldType::F32 => Decoded::Real(f32::from_bits(bits)),
        FieldType::Bf16 => Decoded::Real(f32::from_bits(bits << 16)),
        FieldType::F16 => Decoded::Real(half(bits)),
        FieldType::I8 => Decoded::Whole(i64::from(bits as u8 as i8)),
        FieldType::I16 => Decoded::Whole(i64::from(bits as u16 as i16)),
        // Exponents and small floats have special codes that differ between formats: the code is shown.
        _ => Decoded::Whole(i64::from(bits)),
    }
}

/// The value of an IEEE binary16.
fn half(bits: u32) -> f32 {
    let (exponent, fraction) = (bits >> 10 & 31, (bits & 0x3ff) as f32);
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        e => (1024.0 + fraction) * 2f32.powi(e as i32 - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_exactly() {
        let cases =
            [(0x3c00, 1.0), (0xc000, -2.0), (1, 2f32.powi(-24)), (0x7bff, 65504.0), (0x3555, 0.333_251_95)];
        for (bits, value) in cases {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert_eq!(half(0xfc00), f32::NEG_INFINITY);
        assert!(half(0x7e00).is_nan() && half(0x8000).is_sign_negative());
    }

    #[test]
    fn fields_are_little_endian_and_keep_their_sign() {
        assert_eq!(value(FieldType::I8, &[0xff]), Decoded::Whole(-1));
        assert_eq!(value(FieldType::I16, &[0xfe, 0xff]), Decoded::Whole(-2));
        assert_eq!(value(FieldType::U16, &[0x34, 0x12]), Decoded::Whole(0x1234));
        assert_eq!(value(FieldType::Bf16, &[0x80, 0x3f]), Decoded::Real(1.0));
        assert_eq!(value(FieldType::F32, &1.5f32.to_le_bytes()), Decoded::Real(1.5));
    }
}
