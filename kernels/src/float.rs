//! Values of plain float weights. Their products stand in `ops::float_product`.

use quantsmith_macros::tiered;

pub use tiers::*;

#[tiered]
mod tiers {
    type V = [isa::F; isa::SUBS];

    /// Values of little-endian f32.
    pub fn dequantise_f32(bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *out = f32::from_le_bytes(*bytes);
        }
    }

    /// Values of little-endian f16.
    pub fn dequantise_f16(bytes: &[u8], out: &mut [f32]) {
        for (bytes, out) in bytes.chunks(32).zip(out.chunks_mut(16)) {
            let mut whole = [0u8; 32];
            whole[..bytes.len()].copy_from_slice(bytes);
            let mut values = [0.0f32; 16];
            for (part, lane) in values.as_chunks_mut().0.iter_mut().zip(load_f16(&whole)) {
                isa::store(part, lane);
            }
            out.copy_from_slice(&values[..out.len()]);
        }
    }

    /// Values of little-endian bf16.
    pub fn dequantise_bf16(bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }

    fn load_f16(bytes: &[u8; 32]) -> V {
        let mut lanes = [isa::splat(0.0); isa::SUBS];
        for (lane, part) in lanes.iter_mut().zip(bytes.as_chunks().0) {
            *lane = isa::load_f16(part);
        }
        lanes
    }
}
