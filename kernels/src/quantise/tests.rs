//! Packing is the inverse of reading: codes go into a block and the format's own kernels read them back.

use super::inverse::Codes;
use super::lanes::Set;
use super::search::Problem;
use crate::{Format, Registry, Supported, Values};

/// A small generator (xorshift) with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}

fn problem(format: &'static Format) -> Option<Problem> {
    let Values::Codes { group, .. } = format.values else { return None };
    let inverse = format.inverse.unwrap_or_else(|why| panic!("{}: {why}", format.name));
    Some(Problem::new(inverse, Set::new(Supported::SCALAR), format.elements, group))
}

/// A block whose scales are a known number each and whose offsets are zero; the scale of each group.
fn scaled(format: &'static Format, random: &mut Random) -> (Vec<u8>, Vec<f32>) {
    let inverse = format.inverse.expect("an inverse");
    let Values::Codes { group, .. } = format.values else { panic!("a format with codes") };
    let mut block = vec![0; format.bytes];
    let parts = [Some((&inverse.scale, 0.25)), inverse.offset.as_ref().map(|offset| (offset, 0.0))];
    let mut scales = Vec::new();
    for (part, float) in parts.into_iter().flatten() {
        let number = super::number::nearest(part.ty, float);
        for n in 0..part.floats.len() {
            part.put_float(&mut block, n, number.bits);
        }
        for g in 0..format.elements / group {
            // Any whole number that is not zero, since zero would hide the codes.
            let bits = loop {
                let bits = random.below(part.values.len());
                if part.values[bits] != 0 {
                    break bits;
                }
            };
            part.put_code(&mut block, g, bits);
            if float != 0.0 {
                scales.push(number.value as f32 * f32::from(part.values[bits]) * part.factor);
            }
        }
    }
    (block, scales)
}

fn read(format: &'static Format, block: &[u8]) -> Vec<f32> {
    let mut values = vec![f32::NAN; format.elements];
    format.kernels(Supported::SCALAR).dequantise(block, &mut values);
    values
}

#[test]
fn any_codes_are_read_back_as_they_were_written() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for format in Registry::builtin().iter() {
        let Some(problem) = problem(format) else { continue };
        if matches!(format.inverse.expect("an inverse").codes, Codes::Grid(_)) {
            continue;
        }
        // Blocks of sixteen weights are read in pairs elsewhere, but dequantised one by one as well.
        for round in 0..40 {
            let (mut block, scales) = scaled(format, &mut random);
            let levels = problem.values();
            let numbers: Vec<u8> = (0..format.elements)
                .map(|_| match round {
                    0 => 0,
                    1 => (levels.len() - 1) as u8,
                    _ => random.below(levels.len()) as u8,
                })
                .collect();
            problem.pack(&numbers, &mut block);
            let group = format.elements / scales.len();
            for (i, (got, number)) in read(format, &block).iter().zip(&numbers).enumerate() {
                let want = scales[i / group] * levels[usize::from(*number)] as f32;
                assert_eq!(*got, want, "{}: code {i} in round {round}", format.name);
            }
        }
    }
}

#[test]
fn rows_of_grids_are_read_back_as_they_were_written() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut seen = 0;
    for format in Registry::builtin().iter() {
        let Some(problem) = problem(format) else { continue };
        if !matches!(format.inverse.expect("an inverse").codes, Codes::Grid(_)) {
            continue;
        }
        seen += 1;
        for round in 0..10 {
            // Any bytes are rows; then the known scales in their place.
            let (scales_only, scales) = scaled(format, &mut random);
            let ones = scale_bits(format);
            let block: Vec<u8> = scales_only
                .iter()
                .zip(&ones)
                .map(|(s, mask)| s & mask | random.below(256) as u8 & !mask)
                .collect();
            let values = read(format, &block);
            let again = problem.rows_at(&values, &scales, &scales_only);
            assert_eq!(read(format, &again), values, "{} in round {round}", format.name);
        }
    }
    assert_eq!(seen, 7, "the formats with grids");
}

/// The bits of a block that are scales.
fn scale_bits(format: &'static Format) -> Vec<u8> {
    let inverse = format.inverse.expect("an inverse");
    let Values::Codes { group, .. } = format.values else { panic!("a format with codes") };
    let mut mask = vec![0; format.bytes];
    let part = &inverse.scale;
    for n in 0..part.floats.len() {
        part.put_float(&mut mask, n, u32::MAX);
    }
    for g in 0..format.elements / group {
        part.put_code(&mut mask, g, (1 << part.bits) - 1);
    }
    mask
}
