//! What is measured: matrices of each format with harmless scales, and quantised activations.

use quantsmith_kernels::act::GROUP;
use quantsmith_kernels::{ActGroup, Activations, ActivationsMut, FieldType, Format};

/// Rows of blocks of a format: arbitrary codes, scales near one hundredth.
pub fn weights(format: &Format, rows: usize, cols: usize) -> Vec<u8> {
    let bytes = rows * format.row_bytes(cols).expect("whole blocks");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let mut all: Vec<u8> = (0..bytes).map(|_| next()).collect();
    for block in all.chunks_exact_mut(format.bytes) {
        for field in format.fields {
            let one: &[u8] = match field.ty {
                FieldType::F16 => &[0x1f, 0x21],
                FieldType::Bf16 => &[0x24, 0x3c],
                FieldType::F32 => &[0x0a, 0xd7, 0x23, 0x3c],
                FieldType::E8m0 => &[121],
                FieldType::E4m3 => &[0x10],
                _ => continue,
            };
            for value in block[field.offset..][..field.count * one.len()].chunks_exact_mut(one.len()) {
                value.copy_from_slice(one);
            }
        }
    }
    all
}

/// Quantised activations of some tokens.
#[derive(Debug)]
pub struct Tokens {
    codes: Vec<i8>,
    groups: Vec<ActGroup>,
    cols: usize,
    tokens: usize,
}

impl Tokens {
    /// Codes that run through -127 to 127.
    pub fn new(cols: usize, tokens: usize) -> Self {
        let mut codes = vec![0; tokens * Activations::padded(cols)];
        let mut groups = vec![ActGroup::default(); codes.len() / GROUP];
        let mut made = ActivationsMut::new(&mut codes, &mut groups, cols, tokens);
        for token in 0..tokens {
            for at in 0..cols.div_ceil(GROUP) {
                let (codes, group) = made.group(token, at);
                let first = token * Activations::padded(cols) + at * GROUP;
                *codes = core::array::from_fn(|i| (((first + i) * 37 % 255) as i32 - 127) as i8);
                let sum = |half: &[i8]| half.iter().map(|c| i32::from(*c)).sum::<i32>();
                *group = ActGroup::new(0.01, [sum(&codes[..16]), sum(&codes[16..])]);
            }
        }
        Tokens { codes, groups, cols, tokens }
    }

    /// As the kernels take them.
    pub fn view(&self) -> Activations<'_> {
        Activations::new(&self.codes, &self.groups, self.cols, self.tokens)
    }
}
