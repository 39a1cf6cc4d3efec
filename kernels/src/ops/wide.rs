//! Sixteen f32 lanes, whatever the width of a register: the type that the operations are written in.
//!
//! Every function is the word of the same name in `arch`, applied to the `SUBS` registers that make sixteen lanes.

use quantsmith_macros::tiered;

pub(crate) use tiers::*;

#[tiered]
mod tiers {
    /// Sixteen lanes.
    pub(crate) type V = [isa::F; isa::SUBS];

    /// The same value in each lane.
    pub(crate) fn splat(x: f32) -> V {
        [isa::splat(x); isa::SUBS]
    }

    /// Loads sixteen values.
    pub(crate) fn load(from: &[f32; 16]) -> V {
        let (parts, _) = from.as_chunks::<{ isa::LANES }>();
        let mut out = [isa::splat(0.0); isa::SUBS];
        for s in 0..isa::SUBS {
            out[s] = isa::load(&parts[s]);
        }
        out
    }

    /// Stores sixteen values.
    pub(crate) fn store(to: &mut [f32; 16], a: V) {
        let (parts, _) = to.as_chunks_mut::<{ isa::LANES }>();
        for s in 0..isa::SUBS {
            isa::store(&mut parts[s], a[s]);
        }
    }

    /// Loads at most sixteen values; the lanes after them hold `rest`.
    pub(crate) fn load_tail(from: &[f32], rest: f32) -> V {
        let mut buffer = [rest; 16];
        buffer[..from.len()].copy_from_slice(from);
        load(&buffer)
    }

    /// Stores the first lanes, at most sixteen.
    pub(crate) fn store_tail(to: &mut [f32], a: V) {
        let mut buffer = [0.0; 16];
        store(&mut buffer, a);
        let len = to.len();
        to.copy_from_slice(&buffer[..len]);
    }

    /// Loads sixteen f16 values.
    pub(crate) fn load_f16s(from: &[u16; 16]) -> V {
        let (parts, _) = from.as_chunks::<{ isa::LANES }>();
        let mut out = [isa::splat(0.0); isa::SUBS];
        for s in 0..isa::SUBS {
            out[s] = isa::load_f16s(&parts[s]);
        }
        out
    }

    /// Stores sixteen values as f16.
    pub(crate) fn store_f16s(to: &mut [u16; 16], a: V) {
        let (parts, _) = to.as_chunks_mut::<{ isa::LANES }>();
        for s in 0..isa::SUBS {
            isa::store_f16s(&mut parts[s], a[s]);
        }
    }

    /// Loads sixteen f32 values from little-endian bytes.
    pub(crate) fn load_f32(bytes: &[u8; 64]) -> V {
        let (parts, _) = bytes.as_chunks::<{ 4 * isa::LANES }>();
        let mut out = [isa::splat(0.0); isa::SUBS];
        for s in 0..isa::SUBS {
            out[s] = isa::load_f32(&parts[s]);
        }
        out
    }

    /// Loads sixteen f16 values from little-endian bytes.
    pub(crate) fn load_f16(bytes: &[u8; 32]) -> V {
        let (parts, _) = bytes.as_chunks::<{ 2 * isa::LANES }>();
        let mut out = [isa::splat(0.0); isa::SUBS];
        for s in 0..isa::SUBS {
            out[s] = isa::load_f16(&parts[s]);
        }
        out
    }

    /// Loads sixteen bf16 values from little-endian bytes.
    pub(crate) fn load_bf16(bytes: &[u8; 32]) -> V {
        let (parts, _) = bytes.as_chunks::<{ 2 * isa::LANES }>();
        let mut out = [isa::splat(0.0); isa::SUBS];
        for s in 0..isa::SUBS {
            out[s] = isa::load_bf16(&parts[s]);
        }
        out
    }

    /// `a + b`.
    pub(crate) fn add(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::add(a[s], b[s]);
        }
        out
    }

    /// `a - b`.
    pub(crate) fn sub(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::sub(a[s], b[s]);
        }
        out
    }

    /// `a * b`.
    pub(crate) fn mul(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::mul(a[s], b[s]);
        }
        out
    }

    /// `a / b`.
    pub(crate) fn div(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::div(a[s], b[s]);
        }
        out
    }

    /// `a * b + c`, rounded once.
    pub(crate) fn fma(a: V, b: V, c: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::fma(a[s], b[s], c[s]);
        }
        out
    }

    /// The value with its sign bit flipped.
    pub(crate) fn neg(a: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::neg(a[s]);
        }
        out
    }

    /// The value with its sign bit cleared.
    pub(crate) fn abs(a: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::abs(a[s]);
        }
        out
    }

    /// The magnitude of `a` with the sign of `b`.
    pub(crate) fn copy_sign(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::copy_sign(a[s], b[s]);
        }
        out
    }

    /// `a` where `a > b`, else `b`.
    pub(crate) fn max(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::max(a[s], b[s]);
        }
        out
    }

    /// `a` where `a < b`, else `b`.
    pub(crate) fn min(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::min(a[s], b[s]);
        }
        out
    }

    /// `x` where `a > b`, else `y`.
    pub(crate) fn select_greater(a: V, b: V, x: V, y: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::select_greater(a[s], b[s], x[s], y[s]);
        }
        out
    }

    /// The larger of two values without sign, by their bits.
    pub(crate) fn max_bits(a: V, b: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::max_bits(a[s], b[s]);
        }
        out
    }

    /// The lowest nine bits of the representation moved to sign and exponent.
    pub(crate) fn low_bits_to_exponent(a: V) -> V {
        let mut out = a;
        for s in 0..isa::SUBS {
            out[s] = isa::low_bits_to_exponent(a[s]);
        }
        out
    }

    /// Replaces each run of sixteen values by `f` of it. The lanes behind the end of `x` see zeros.
    pub(crate) fn map(x: &mut [f32], f: impl Fn(V) -> V) {
        let (chunks, tail) = x.as_chunks_mut::<16>();
        for chunk in chunks {
            store(chunk, f(load(chunk)));
        }
        if !tail.is_empty() {
            store_tail(tail, f(load_tail(tail, 0.0)));
        }
    }

    /// Replaces each run of sixteen values of `x` by `f` of it and of the same run of `y`, which is as long.
    pub(crate) fn zip(x: &mut [f32], y: &[f32], f: impl Fn(V, V) -> V) {
        assert_eq!(x.len(), y.len(), "rows of different lengths");
        let (chunks, tail) = x.as_chunks_mut::<16>();
        let (others, other) = y.as_chunks::<16>();
        for (chunk, other) in chunks.iter_mut().zip(others) {
            store(chunk, f(load(chunk), load(other)));
        }
        if !tail.is_empty() {
            store_tail(tail, f(load_tail(tail, 0.0), load_tail(other, 0.0)));
        }
    }

    /// Accumulates runs of sixteen values over `x` with `f(accumulator, values)`; behind the end come `rest`.
    pub(crate) fn fold(x: &[f32], start: V, rest: f32, f: impl Fn(V, V) -> V) -> V {
        let (chunks, tail) = x.as_chunks::<16>();
        let mut acc = start;
        for chunk in chunks {
            acc = f(acc, load(chunk));
        }
        if !tail.is_empty() {
            acc = f(acc, load_tail(tail, rest));
        }
        acc
    }
}
