//! Weights to quantise, there and back, and the error of that.

use quantsmith_kernels::{Format, Supported};

/// What a comparison of errors leaves to rounding.
pub(crate) const DIGITS: f64 = 1.0 + 1e-6;

/// The numbers of an npy file of f32.
fn npy(file: &[u8]) -> Vec<f32> {
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    assert!(file.starts_with(b"\x93NUMPY\x01") && file[10..header].windows(5).any(|w| w == b"'<f4'"));
    file[header..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

pub(crate) fn weights() -> Vec<f32> {
    npy(include_bytes!("../data/weights.npy"))
}

pub(crate) fn importance() -> Vec<f32> {
    npy(include_bytes!("../data/importance.npy"))
}

/// Quantises and gives the bytes.
pub(crate) fn quantised(
    format: &'static Format,
    tier: Supported,
    weights: &[f32],
    cols: usize,
    importance: Option<&[f32]>,
) -> Vec<u8> {
    let rows = weights.len() / cols;
    let mut out = vec![0xa5; rows * format.row_bytes(cols).expect("whole blocks")];
    let done = format.kernels(tier).quantise(weights, cols, importance, &mut out);
    done.unwrap_or_else(|e| panic!("{}: {e}", format.name));
    out
}

pub(crate) fn dequantised(format: &'static Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / format.bytes * format.elements];
    format.kernels(Supported::SCALAR).dequantise(bytes, &mut out);
    out
}

/// The root mean square error, weighted by importance.
pub(crate) fn error(weights: &[f32], back: &[f32], importance: Option<&[f32]>) -> f64 {
    let (mut sum, mut all) = (0.0, 0.0);
    for (i, (a, b)) in weights.iter().zip(back).enumerate() {
        let w = importance.map_or(1.0, |w| f64::from(w[i % w.len()]));
        sum += w * (f64::from(*a) - f64::from(*b)).powi(2);
        all += w;
    }
    (sum / all).sqrt()
}
