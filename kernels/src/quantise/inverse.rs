//! What the generator finds out about writing a format: the places of codes and scales, as plain data.
//!
//! Lists of bits are bytes, two for each bit: the number of the block's bit as a little-endian u16, with the highest
//! bit set where the block holds the inverse. The word 0xffff is no bit.

use crate::FieldType;

/// The inverse of a format's rules.
#[derive(Debug)]
pub struct Inverse {
    /// How codes are written.
    pub codes: Codes,
    /// How scales are written.
    pub scale: Part,
    /// How offsets are written.
    pub offset: Option<Part>,
}

/// How codes are written.
#[derive(Debug)]
pub enum Codes {
    /// Each code has bits of its own.
    Each {
        /// The values of stored codes.
        levels: Levels,
        /// Bits of a code.
        bits: usize,
        /// The bits of one code after the other, each from the lowest.
        places: &'static [u8],
    },
    /// A few codes share a few bits.
    Joint {
        /// The values of codes.
        levels: Levels,
        /// Codes that are written together.
        cells: &'static [Joint],
    },
    /// Neighbouring codes are a row of a grid.
    Grid(Grid),
}

/// The values of stored codes.
#[derive(Clone, Copy, Debug)]
pub enum Levels {
    /// Whole numbers from the first to the last.
    Range(i32, i32),
    /// The value of each stored code.
    List(&'static [i16]),
}

/// Codes that are written together.
#[derive(Debug)]
pub struct Joint {
    /// Which codes, as little-endian u16.
    pub elements: &'static [u8],
    /// Their bits.
    pub bits: &'static [u8],
    /// The bits' values for each combination of codes, the first code counting least, as little-endian u16.
    pub inverse: &'static [u8],
}

/// Rows of a grid, one after the other.
#[derive(Debug)]
pub struct Grid {
    /// Codes of a row.
    pub width: usize,
    /// For each state and each index the codes of the row, without signs, as signed bytes.
    pub rows: &'static [u8],
    /// Bits of an index.
    pub index_bits: usize,
    /// The bits of each row's index.
    pub index: &'static [u8],
    /// Bits of a state.
    pub state_bits: usize,
    /// The bits of each group's state, which its rows share.
    pub state: &'static [u8],
    /// The bit of each code's sign; empty where there are no signs.
    pub signs: &'static [u8],
    /// Codes that have an even number of minus signs together; 0 where signs are free.
    pub even: usize,
}

/// How a scale or an offset is written: a float times a whole number times a constant.
#[derive(Debug)]
pub struct Part {
    /// The type of the float.
    pub ty: FieldType,
    /// Its place: one, or one for each group.
    pub floats: &'static [FloatPlace],
    /// Bits of a whole number.
    pub bits: usize,
    /// The bits of each group's whole number.
    pub places: &'static [u8],
    /// The number for each value of the bits.
    pub values: &'static [i16],
    /// The constant; negative where the offset is subtracted.
    pub factor: f32,
}

/// The place of a float.
#[derive(Debug)]
pub enum FloatPlace {
    /// From this byte.
    Byte(usize),
    /// Its bits, from the lowest.
    Bits(&'static [u8]),
}

/// Entry `n` of a list of words.
pub fn word(list: &[u8], n: usize) -> usize {
    usize::from(u16::from_le_bytes([list[2 * n], list[2 * n + 1]]))
}

/// Writes the lowest `count` bits of a value to the places from entry `first` on, in a block that was all zero.
pub fn put(block: &mut [u8], places: &[u8], first: usize, count: usize, value: usize) {
    for k in 0..count {
        let place = word(places, first + k);
        if place != 0xffff && (value >> k & 1 == 1) != (place >> 15 == 1) {
            let bit = place & 0x7fff;
            block[bit / 8] |= 1 << (bit % 8);
        }
    }
}

impl Part {
    /// Writes the float of a group.
    pub fn put_float(&self, block: &mut [u8], group: usize, bits: u32) {
        match &self.floats[if self.floats.len() == 1 { 0 } else { group }] {
            FloatPlace::Byte(byte) => {
                let width = self.ty.bytes();
                block[*byte..byte + width].copy_from_slice(&bits.to_le_bytes()[..width]);
            }
            FloatPlace::Bits(places) => put(block, places, 0, places.len() / 2, bits as usize),
        }
    }

    /// Writes the whole number of a group, given the bits that make it.
    pub fn put_code(&self, block: &mut [u8], group: usize, bits: usize) {
        put(block, self.places, group * self.bits, self.bits, bits);
    }
}
