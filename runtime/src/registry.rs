//! The bridge between the file layer, which knows sizes of blocks, and the kernels, which know what is in them.

use crate::files::{BlockShape, TypeTable};
use quantsmith_kernels::{Format, Registry};

fn shape(format: &'static Format) -> BlockShape {
    BlockShape { name: format.name, elements: format.elements as u64, bytes: format.bytes as u64 }
}

impl TypeTable for Registry {
    fn shape(&self, type_id: u32) -> Option<BlockShape> {
        self.by_id(type_id).map(shape)
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
}
