//! The bridge between the file layer, which knows sizes of blocks, and the kernels, which know what is in them.

use crate::files::{BlockShape, TypeTable};
use quantsmith_kernels::{Format, Registry};

fn shape(format: &'static Format) -> BlockShape {
    BlockShape { name: format.name, elements: format.elements as u64, bytes: format.bytes as u64 }
}

/// Plain numbers that tensors of a file can be, and that no kernel multiplies.
fn number(type_id: u32) -> Option<BlockShape> {
    let (name, bytes) = match type_id {
        24 => ("I8", 1),
        25 => ("I16", 2),
        26 => ("I32", 4),
        27 => ("I64", 8),
        28 => ("F64", 8),
        _ => return None,
    };
    Some(BlockShape { name, elements: 1, bytes })
}

impl TypeTable for Registry {
    fn shape(&self, type_id: u32) -> Option<BlockShape> {
        self.by_id(type_id).map(shape).or_else(|| number(type_id))
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|format| format.name.to_string()).collect()
    }

    fn digest(&self, type_id: u32) -> Option<String> {
        Some(self.by_id(type_id)?.digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn shape_named(&self, name: &str) -> Option<BlockShape> {
        self.by_name(name).map(shape)
    }

    fn number_named(&self, name: &str) -> Option<u32> {
        self.by_name(name).map(Format::number)
    }

    fn swap_fields(&self, type_id: u32) -> Option<Vec<(usize, usize)>> {
        let plain =
            |shape: BlockShape| (shape.bytes > 1).then_some((0, shape.bytes as usize)).into_iter().collect();
        self.by_id(type_id).map(swap_fields).or_else(|| number(type_id).map(plain))
    }
}

/// Every value of a block that is wider than a byte, as the declaration has it: (offset, width).
fn swap_fields(format: &'static Format) -> Vec<(usize, usize)> {
    let wide = format.fields.iter().filter(|field| field.ty.bytes() > 1);
    let values = wide.flat_map(|field| {
        let width = field.ty.bytes();
        (0..field.count).map(move |i| (field.offset + i * width, width))
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_wider_than_a_byte_are_swapped_one_by_one() {
        let registry = Registry::builtin();
        let fields = |name: &str| registry.swap_fields(registry.by_name(name)?.id?);
        assert_eq!(fields("F32"), Some(vec![(0, 4)]));
        assert_eq!(fields("Q4_K"), Some(vec![(0, 2), (2, 2)]));
        assert_eq!(fields("Q6_K"), Some(vec![(208, 2)]));
        assert_eq!(fields("MXFP4"), Some(vec![]));
        let q8_k: Vec<_> = [(0, 4)].into_iter().chain((0..16).map(|i| (260 + 2 * i, 2))).collect();
        assert_eq!(fields("Q8_K"), Some(q8_k));
        assert_eq!((registry.swap_fields(24), registry.swap_fields(28)), (Some(vec![]), Some(vec![(0, 8)])));
        assert_eq!(registry.swap_fields(999), None);
    }

    #[test]
    fn no_value_of_a_block_is_swapped_twice_and_none_lies_outside() {
        for format in Registry::builtin().iter() {
            let mut end = 0;
            for (offset, width) in swap_fields(format) {
                assert!(offset >= end, "{}: byte {offset}", format.name);
                end = offset + width;
            }
            assert!(end <= format.bytes, "{}", format.name);
        }
    }
}
