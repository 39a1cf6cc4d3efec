//! The bytes of a GGUF v3 header.

use crate::files::metadata::Metadata;
use crate::files::value::{Array, Str, Value};
use crate::files::write::NewTensor;

/// Encodes everything before the data, padding included. `sizes` are the bytes of the tensors. `None` when
/// offsets do not fit.
pub(crate) fn header(
    metadata: &Metadata,
    tensors: &[NewTensor],
    sizes: &[u64],
    alignment: u64,
) -> Option<Vec<u8>> {
    let mut out = b"GGUF".to_vec();
    put_u32(&mut out, 3);
    put_u64(&mut out, tensors.len() as u64);
    put_u64(&mut out, metadata.len() as u64);
    for (key, value) in metadata.iter() {
        put_bytes(&mut out, key.as_bytes());
        put_u32(&mut out, value.value_type().id());
        put_value(&mut out, value);
    }
    let mut offset = 0u64;
    for (tensor, size) in tensors.iter().zip(sizes) {
        put_bytes(&mut out, tensor.name.as_bytes());
        put_u32(&mut out, tensor.dims.len() as u32);
        for &d in &tensor.dims {
            put_u64(&mut out, d);
        }
        put_u32(&mut out, tensor.type_id);
        put_u64(&mut out, offset);
        offset = offset.checked_add(*size)?.checked_next_multiple_of(alignment)?;
    }
    out.resize(out.len().checked_next_multiple_of(usize::try_from(alignment).ok()?)?, 0);
    offset.checked_add(out.len() as u64).filter(|&end| end < 1 << 63)?;
    Some(out)
}

/// Encodes a value alone.
pub(crate) fn value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_value(&mut out, value);
    out
}

fn put_u32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_string(out: &mut Vec<u8>, text: &Str) {
    put_bytes(out, text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => out.push(*v),
        Value::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_string(out, v),
        Value::Array(v) => put_array(out, v),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    put_u32(out, array.element_type().id());
    put_u64(out, array.len() as u64);
    match array {
        Array::U8(v) => out.extend_from_slice(v),
        Array::I8(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::U16(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::I16(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::U32(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::I32(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::F32(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
        Array::String(v) => v.iter().for_each(|x| put_string(out, x)),
        Array::Array(v) => v.iter().for_each(|x| put_array(out, x)),
        Array::U64(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::I64(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
        Array::F64(v) => v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes())),
    }
}
