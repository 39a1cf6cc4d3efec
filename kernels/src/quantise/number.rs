//! The finite numbers of the small floating-point types, and which of them lie next to a value.

use crate::{FieldType, emitted};

/// A number of a type: its bits and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) bits: u32,
    pub(super) value: f64,
}

/// The largest finite number's bits, without a sign.
fn largest(ty: FieldType) -> u32 {
    match ty {
        FieldType::F16 => 0x7bff,
        FieldType::Bf16 => 0x7f7f,
        FieldType::F32 => 0x7f7f_ffff,
        // The last exponent is no number in the standard that defines the type, and so are the last bits of E4M3.
        FieldType::E8m0 => 0xfe,
        FieldType::E4m3 => 0x7e,
        FieldType::U8 | FieldType::I8 | FieldType::U16 | FieldType::I16 | FieldType::U32 => 0,
    }
}

/// The value of bits without a sign.
fn value(ty: FieldType, bits: u32) -> f64 {
    f64::from(match ty {
        FieldType::F16 => emitted::f16_bits(bits as u16),
        FieldType::Bf16 => f32::from_bits(bits << 16),
        FieldType::F32 => f32::from_bits(bits),
        FieldType::E8m0 => emitted::e8m0(bits as u8),
        FieldType::E4m3 => emitted::e4m3(bits as u8),
        FieldType::U8 | FieldType::I8 | FieldType::U16 | FieldType::I16 | FieldType::U32 => 0.0,
    })
}

/// The sign bit; 0 where a type has none.
fn sign(ty: FieldType) -> u32 {
    match ty {
        FieldType::F16 | FieldType::Bf16 => 0x8000,
        FieldType::F32 => 0x8000_0000,
        _ => 0,
    }
}

/// Whether the type has negative numbers.
pub(super) fn is_signed(ty: FieldType) -> bool {
    sign(ty) != 0
}

/// The largest number that is not above a magnitude, or the smallest that there is.
fn below(ty: FieldType, magnitude: f64) -> u32 {
    let most = largest(ty);
    if magnitude >= value(ty, most) {
        return most;
    }
    let near = match ty {
        FieldType::F32 => (magnitude as f32).to_bits(),
        FieldType::Bf16 => (magnitude as f32).to_bits() >> 16,
        FieldType::F16 => u32::from(half::f16::from_f32_const(magnitude as f32).to_bits()),
        _ => {
            // Few numbers, in order.
            let (mut low, mut high) = (0, most);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if value(ty, middle) <= magnitude { low = middle } else { high = middle - 1 }
            }
            low
        }
    };
    if value(ty, near) > magnitude { near.saturating_sub(1) } else { near }
}

/// The numbers on both sides of a value, the nearer one first. A sign that the type has not gives its smallest number.
pub(super) fn around(ty: FieldType, wanted: f64) -> [Number; 2] {
    let negative = wanted < 0.0;
    let magnitude = if negative && !is_signed(ty) { 0.0 } else { wanted.abs() };
    let low = below(ty, magnitude);
    let high = (low + 1).min(largest(ty));
    let number = |bits: u32| {
        let (bits, value) = (bits, value(ty, bits));
        match negative && is_signed(ty) {
            true => Number { bits: bits | sign(ty), value: -value },
            false => Number { bits, value },
        }
    };
    let (low, high) = (number(low), number(high));
    let distance = |n: &Number| (n.value.abs() - magnitude).abs();
    if distance(&high) < distance(&low) { [high, low] } else { [low, high] }
}

/// The number nearest to a value, which is the even one of two; what is too large becomes the largest.
pub(super) fn nearest(ty: FieldType, wanted: f64) -> Number {
    let [first, second] = around(ty, wanted);
    let tie = (first.value - wanted).abs() == (second.value - wanted).abs();
    if tie && first.bits & 1 == 1 { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::{around, largest, nearest, value};
    use crate::FieldType as T;

    #[test]
    fn neighbours_enclose_every_value() {
        for ty in [T::F16, T::Bf16, T::E8m0, T::E4m3] {
            let most = largest(ty);
            for bits in 0..most {
                let (low, high) = (value(ty, bits), value(ty, bits + 1));
                assert!(low < high, "{ty:?} {bits}");
                assert_eq!(nearest(ty, low).bits, bits, "{ty:?}");
                let near = around(ty, low + 0.25 * (high - low));
                assert_eq!(near.map(|n| n.value), [low, high], "{ty:?} {bits}");
            }
            for wanted in [1e300, f64::from(f32::MAX) * 2.0] {
                assert_eq!(nearest(ty, wanted).bits, most, "{ty:?}");
            }
        }
    }

    #[test]
    fn nearest_f16_is_that_of_an_independent_crate() {
        for n in -70_000..70_000 {
            let wanted = n as f32 * 0.937_5e-3;
            let theirs = half::f16::from_f32_const(wanted);
            assert_eq!(
                nearest(T::F16, f64::from(wanted)).value,
                f64::from(theirs.to_f32_const()),
                "{wanted}"
            );
        }
        assert_eq!(nearest(T::F16, -1e9).value, -65504.0);
        assert_eq!(nearest(T::E8m0, -1.0).bits, 0, "a power of two has no sign");
    }
}
