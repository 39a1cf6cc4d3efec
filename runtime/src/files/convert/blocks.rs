//! The blocks of GGML, GGMF, GGJT v1 and v2, and how they become those of GGUF.

use half::f16;

use crate::files::types::Layout;

/// Most elements of an old block.
const MAX_ELEMENTS: usize = 32;

/// How codes lie in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Codes {
    /// Two neighbours in a byte, the first in the low half.
    Neighbours,
    /// The first half of the block in the low halves, the second in the high.
    Halves,
    /// A signed byte each.
    Bytes,
}

/// An old block: one scale or a scale and a minimum, perhaps a fifth bit of each code, then the codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OldBlock {
    elements: usize,
    /// Scale and minimum are f32; else f16.
    wide: bool,
    with_min: bool,
    fifth_bits: bool,
    codes: Codes,
}

impl OldBlock {
    /// The block that an id means in a layout, when it is not that of GGUF.
    pub(crate) fn of(layout: Layout, type_id: u32) -> Option<Self> {
        let codes = match layout {
            Layout::V1 => Codes::Neighbours,
            Layout::V2 => Codes::Halves,
            Layout::Current | Layout::K64 => return None,
        };
        let block = Self { elements: 32, wide: true, with_min: false, fifth_bits: false, codes };
        Some(match type_id {
            2 => block,
            3 => Self { with_min: true, ..block },
            4 => Self { elements: 16, wide: false, ..block },
            5 => Self { elements: 16, wide: false, with_min: true, ..block },
            6 => Self { wide: false, fifth_bits: true, ..block },
            7 => Self { wide: false, with_min: true, fifth_bits: true, ..block },
            8 => Self { codes: Codes::Bytes, ..block },
            _ => return None,
        })
    }

    /// True when GGUF has a block of these elements, so that only scales may have to be rounded.
    pub(crate) fn fits_gguf(self) -> bool {
        self.elements == 32
    }

    /// The size of a block.
    pub(crate) fn bytes(self) -> usize {
        self.codes_at() + self.code_bytes()
    }

    fn float_bytes(self) -> usize {
        if self.wide { 4 } else { 2 }
    }

    fn floats(self) -> usize {
        1 + usize::from(self.with_min)
    }

    fn fifth_at(self) -> usize {
        self.floats() * self.float_bytes()
    }

    fn codes_at(self) -> usize {
        self.fifth_at() + if self.fifth_bits { 4 } else { 0 }
    }

    fn code_bytes(self) -> usize {
        if self.codes == Codes::Bytes { self.elements } else { self.elements / 2 }
    }

    /// Scale and, if any, minimum.
    fn float(self, block: &[u8], index: usize) -> f32 {
        let at = index * self.float_bytes();
        if self.wide {
            f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        } else {
            f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
        }
    }

    /// The f32 numbers of a block, which GGUF has as f16.
    pub(crate) fn wide_scales(self, block: &[u8]) -> impl Iterator<Item = f32> {
        let count = if self.wide { self.floats() } else { 0 };
        (0..count).map(move |i| self.float(block, i))
    }

    /// The code of an element, with what is subtracted from it taken off.
    fn code(self, block: &[u8], i: usize) -> i32 {
        let codes = &block[self.codes_at()..];
        let low = match self.codes {
            Codes::Bytes => return i32::from(codes[i] as i8),
            Codes::Neighbours => codes[i / 2] >> (4 * (i % 2)) & 15,
            Codes::Halves => codes[i % (self.elements / 2)] >> (4 * (i / (self.elements / 2))) & 15,
        };
        let fifth = if self.fifth_bits { block[self.fifth_at() + i / 8] >> (i % 8) & 1 } else { 0 };
        let bias = match (self.with_min, self.fifth_bits) {
            (true, _) => 0,
            (false, true) => 16,
            (false, false) => 8,
        };
        i32::from(low) + 16 * i32::from(fifth) - bias
    }

    /// The weight of a code, in the order of operations of the time: multiply, then add.
    fn weight(self, code: i32, scale: f32, min: Option<f32>) -> f32 {
        let product = code as f32 * scale;
        min.map_or(product, |min| product + min)
    }

    /// Appends the block as GGUF has it; returns the largest change of a weight.
    pub(crate) fn to_gguf(self, block: &[u8], out: &mut Vec<u8>) -> f32 {
        let mut rounded = [0f32; 2];
        for (i, rounded) in rounded.iter_mut().enumerate().take(self.floats()) {
            let value = f16::from_f32(self.float(block, i));
            *rounded = value.to_f32();
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&block[self.fifth_at()..self.codes_at()]);
        let codes = &block[self.codes_at()..];
        if self.codes == Codes::Neighbours {
            let nibble = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
            let half = self.elements / 2;
            out.extend((0..half).map(|j| nibble(j) | nibble(j + half) << 4));
        } else {
            out.extend_from_slice(codes);
        }
        let (scale, min) = self.factors(block);
        let new_min = self.with_min.then_some(rounded[1]);
        if scale.to_bits() == rounded[0].to_bits() && min.map(f32::to_bits) == new_min.map(f32::to_bits) {
            return 0.0;
        }
        let error = |i| {
            let code = self.code(block, i);
            (self.weight(code, rounded[0], new_min) - self.weight(code, scale, min)).abs()
        };
        (0..self.elements).map(error).fold(0.0, f32::max)
    }

    fn factors(self, block: &[u8]) -> (f32, Option<f32>) {
        (self.float(block, 0), self.with_min.then(|| self.float(block, 1)))
    }

    /// Appends the weights themselves, as f16 or f32; returns the largest change of a weight.
    pub(crate) fn to_numbers(self, block: &[u8], narrow: bool, out: &mut Vec<u8>) -> f32 {
        let (scale, min) = self.factors(block);
        let mut weights = [0f32; MAX_ELEMENTS];
        let weights = &mut weights[..self.elements];
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight = self.weight(self.code(block, i), scale, min);
        }
        let mut largest = 0f32;
        for &weight in &*weights {
            if narrow {
                let rounded = f16::from_f32(weight);
                largest = largest.max((rounded.to_f32() - weight).abs());
                out.extend_from_slice(&rounded.to_le_bytes());
            } else {
                out.extend_from_slice(&weight.to_le_bytes());
            }
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_formats() {
        let size = |layout, id| OldBlock::of(layout, id).map(OldBlock::bytes);
        let v1: Vec<Option<usize>> = (2..=8).map(|id| size(Layout::V1, id)).collect();
        assert_eq!(v1, [20, 24, 10, 12, 22, 24, 36].map(Some));
        assert_eq!(
            (size(Layout::V2, 2), size(Layout::V2, 3), size(Layout::V2, 8)),
            (Some(20), Some(24), Some(36))
        );
        assert_eq!((size(Layout::Current, 2), size(Layout::V1, 0), size(Layout::V1, 12)), (None, None, None));
    }

    /// 32 codes from 0 to 31, or 0 to 15 twice.
    fn block(layout: Layout, id: u32, floats: &[u8]) -> (OldBlock, Vec<u8>) {
        let old = OldBlock::of(layout, id).expect("an old block");
        let nibble = |i: usize| (i % 16) as u8;
        let mut bytes = floats.to_vec();
        if old.fifth_bits {
            bytes.extend([0, 0, 0xff, 0xff]);
        }
        let half = old.elements / 2;
        match old.codes {
            Codes::Neighbours => bytes.extend((0..half).map(|j| nibble(2 * j) | nibble(2 * j + 1) << 4)),
            Codes::Halves => bytes.extend((0..half).map(|j| nibble(j) | nibble(j + half) << 4)),
            Codes::Bytes => bytes.extend((0..32).map(|i| (i as i8 - 16) as u8)),
        }
        assert_eq!(bytes.len(), old.bytes());
        (old, bytes)
    }

    fn weights(old: OldBlock, bytes: &[u8]) -> Vec<f32> {
        let mut out = Vec::new();
        assert_eq!(old.to_numbers(bytes, false, &mut out), 0.0);
        out.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    #[test]
    fn every_block_has_the_weights_of_its_formula() {
        let (half, two) = (0.5f32.to_le_bytes(), 2f32.to_le_bytes());
        let (half16, two16) = (f16::from_f32(0.5).to_le_bytes(), f16::from_f32(2.0).to_le_bytes());
        let both = [half, two].concat();
        let both16 = [half16, two16].concat();
        type Formula = fn(usize) -> f32;
        let cases: [(u32, &[u8], Formula); 7] = [
            (2, &half, |i| 0.5 * (i as f32 % 16.0 - 8.0)),
            (3, &both, |i| 0.5 * (i as f32 % 16.0) + 2.0),
            (4, &half16, |i| 0.5 * (i as f32 - 8.0)),
            (5, &both16, |i| 0.5 * (i as f32) + 2.0),
            (6, &half16, |i| 0.5 * (i as f32 - 16.0)),
            (7, &both16, |i| 0.5 * i as f32 + 2.0),
            (8, &half, |i| 0.5 * (i as f32 - 16.0)),
        ];
        for layout in [Layout::V1, Layout::V2] {
            for (id, floats, formula) in cases {
                if layout.format_name(id).is_none() {
                    continue;
                }
                let (old, bytes) = block(layout, id, floats);
                let expected: Vec<f32> = (0..old.elements).map(formula).collect();
                assert_eq!(weights(old, &bytes), expected, "{layout:?} {id}");
            }
        }
    }

    #[test]
    fn blocks_of_gguf_have_halves_and_f16() {
        let (old, bytes) = block(Layout::V1, 2, &0.5f32.to_le_bytes());
        let mut out = Vec::new();
        assert_eq!(old.to_gguf(&bytes, &mut out), 0.0);
        let halves: Vec<u8> = (0..16).map(|j| j | j << 4).collect();
        assert_eq!(out, [f16::from_f32(0.5).to_le_bytes().to_vec(), halves.clone()].concat());

        let (old, bytes) = block(Layout::V1, 7, &[1, 2, 3, 4]);
        out.clear();
        assert_eq!(old.to_gguf(&bytes, &mut out), 0.0);
        assert_eq!(out, [vec![1, 2, 3, 4, 0, 0, 0xff, 0xff], halves].concat());

        let (old, bytes) = block(Layout::V2, 8, &1f32.to_le_bytes());
        out.clear();
        assert_eq!(old.to_gguf(&bytes, &mut out), 0.0);
        assert_eq!(out, [&f16::ONE.to_le_bytes()[..], &bytes[4..]].concat());
    }

    #[test]
    fn the_change_of_a_weight_is_told() {
        // Between two f16 numbers that are 2^-10 apart.
        let scale = 1.0 + 0.25 / 1024.0;
        let (old, bytes) = block(Layout::V1, 2, &f32::to_le_bytes(scale));
        assert_eq!(old.to_gguf(&bytes, &mut Vec::new()), 8.0 * 0.25 / 1024.0);
        let (old, bytes) = block(Layout::V1, 4, &f16::from_f32(1.0 + 1.0 / 1024.0).to_le_bytes());
        // Six times the scale lies in the middle of two f16 numbers that are 2^-8 apart.
        assert_eq!(old.to_numbers(&bytes, true, &mut Vec::new()), 2.0 / 1024.0);
    }
}
