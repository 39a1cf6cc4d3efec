//! What the file layer needs to know about block formats: how many elements and bytes a block has.
//!
//! The formats themselves are declared elsewhere; the file layer asks for them through [`TypeTable`]. It
//! keeps only what no declaration can tell: which layout an old file means by an id, and what to call an id
//! that is not supported.

use std::fmt;

/// The size of one block of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// The name of the format, as in `Q4_K`.
    pub name: &'static str,
    /// Elements in a block.
    pub elements: u64,
    /// Bytes in a block.
    pub bytes: u64,
}

impl BlockShape {
    /// Says how much data of this format some bytes are.
    pub(crate) fn describe(self, bytes: u64) -> String {
        let (size, blocks) = (grouped(bytes), grouped(bytes / self.bytes.max(1)));
        match self.elements {
            1 => format!("{}, {size} bytes, {blocks} elements", self.name),
            elements => format!("{}, {size} bytes, {blocks} blocks of {elements}", self.name),
        }
    }

    /// The bytes that a tensor takes, or what is accepted in place of its dimensions.
    ///
    /// A dimension of 0 makes an empty tensor of 0 bytes. No dimensions at all make a scalar.
    pub(crate) fn tensor_bytes(self, dims: &[u64]) -> Result<u64, String> {
        let columns = dims.first().copied().unwrap_or(1);
        if columns % self.elements.max(1) != 0 {
            return Err(format!("a first dimension that is a multiple of {}", self.elements));
        }
        // Zeros are left out of the product, so that the order of dimensions does not decide what is an
        // overflow.
        let product = dims.iter().filter(|&&d| d != 0).try_fold(1u64, |product, &d| product.checked_mul(d));
        let bytes = product
            .filter(|&p| p < 1 << 63)
            .and_then(|p| (p / self.elements.max(1)).checked_mul(self.bytes))
            .filter(|&b| b < 1 << 63)
            .ok_or("a product, in elements and in bytes, below 2^63")?;
        Ok(if dims.contains(&0) { 0 } else { bytes })
    }
}

/// Writes a number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        // Digits are ASCII.
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// The formats that the program can decode.
pub trait TypeTable {
    /// The format that has this id in current GGUF files.
    fn shape(&self, type_id: u32) -> Option<BlockShape>;

    /// The names of all formats, for error messages.
    fn names(&self) -> Vec<String>;

    /// A format by its name: the way to those that share an id with another, as the blocks of old files do
    /// (see [`Layout::format_name`]). A table that has none of them answers `None`.
    fn shape_named(&self, name: &str) -> Option<BlockShape> {
        let _ = name;
        None
    }

    /// The number of a format in GGUF files, by its name, as [`Self::shape_named`] has it.
    fn number_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// The digest of a format's declaration in hexadecimal digits; files name private formats by it
    /// (see [`super::private`]).
    fn digest(&self, type_id: u32) -> Option<String> {
        let _ = type_id;
        None
    }

    /// The multi-byte fields of one block as (offset, width) pairs, for files of the other byte order; an
    /// empty list when all fields are single bytes. `None` refuses such files.
    fn swap_fields(&self, type_id: u32) -> Option<Vec<(usize, usize)>> {
        let _ = type_id;
        None
    }
}

/// Which of the layouts that an id has had over time the blocks of a tensor have.
///
/// Ids were reused when layouts changed, so an id alone says too little. Data is always handed out in one of
/// these layouts, block after block; what differs only in the order of whole rows or whole fields within the
/// file is put in order on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The layout of GGUF and of GGJT v3.
    #[default]
    Current,
    /// Of GGML, GGMF and GGJT v1: f32 scales, nibbles of neighbouring elements in one byte.
    V1,
    /// Of GGJT v2: f32 scales, nibbles in split halves.
    V2,
    /// K-quants with super-blocks of 64 elements in place of 256.
    K64,
}

impl Layout {
    /// The name of the format that an id means in this layout, for [`TypeTable::shape_named`]. `None` means
    /// that the id has no layout of its own here: the current one holds.
    ///
    /// The names are `Q4_0_V1`, `Q4_1_V1`, `Q4_2_V1`, `Q4_3_V1`, `Q5_0_V1`, `Q5_1_V1`, `Q8_0_V1`, `Q4_0_V2`,
    /// `Q4_1_V2`, `Q2_K_64`, `Q3_K_64`, `Q4_K_64`, `Q5_K_64`, `Q6_K_64`. The blocks of `Q8_0` are the same in
    /// V1 and V2 and are called `Q8_0_V1` in both; those of `Q5_0` and `Q5_1` are the same in V2 and now.
    pub fn format_name(self, type_id: u32) -> Option<&'static str> {
        Some(match (self, type_id) {
            (Self::V1, 2) => "Q4_0_V1",
            (Self::V1, 3) => "Q4_1_V1",
            (Self::V1, 4) => "Q4_2_V1",
            (Self::V1, 5) => "Q4_3_V1",
            (Self::V1, 6) => "Q5_0_V1",
            (Self::V1, 7) => "Q5_1_V1",
            (Self::V1 | Self::V2, 8) => "Q8_0_V1",
            (Self::V2, 2) => "Q4_0_V2",
            (Self::V2, 3) => "Q4_1_V2",
            (Self::K64, 10) => "Q2_K_64",
            (Self::K64, 11) => "Q3_K_64",
            (Self::K64, 12) => "Q4_K_64",
            (Self::K64, 13) => "Q5_K_64",
            (Self::K64, 14) => "Q6_K_64",
            _ => return None,
        })
    }

    /// The layout that an id really has, where this one means no change for it.
    pub(crate) fn of(self, type_id: u32) -> Self {
        if self.format_name(type_id).is_some() { self } else { Self::Current }
    }

    /// The shape of an id in this layout.
    pub(crate) fn shape(self, type_id: u32, types: &dyn TypeTable) -> Option<BlockShape> {
        match self.format_name(type_id) {
            Some(name) => types.shape_named(name),
            None => types.shape(type_id),
        }
    }
}

/// Why an id that exists somewhere is not read.
pub(crate) enum Foreign {
    /// Once a type of GGUF or GGML, withdrawn since.
    Removed(&'static str),
    /// Never stored in files: made while a model runs.
    RunTime(&'static str),
    /// A type of ik_llama.cpp.
    Ik(&'static str),
    /// A type of GGUF that the table at hand does not declare.
    Undeclared(&'static str),
    /// No meaning known.
    Unknown,
}

impl Foreign {
    /// What is known about an id that the table of formats does not have.
    pub(crate) fn of(type_id: u32) -> Self {
        let find =
            |list: &[(u32, &'static str)]| list.iter().find(|(id, _)| *id == type_id).map(|(_, name)| *name);
        if let Some(name) = find(REMOVED) {
            Self::Removed(name)
        } else if let Some(name) = find(RUN_TIME) {
            Self::RunTime(name)
        } else if let Some(name) = find(IK) {
            Self::Ik(name)
        } else if let Some(name) = find(GGUF) {
            Self::Undeclared(name)
        } else {
            Self::Unknown
        }
    }
}

/// The name that an id has somewhere, for showing it.
pub(crate) fn type_name(type_id: u32) -> String {
    let name =
        [GGUF, REMOVED, RUN_TIME, IK].iter().find_map(|list| list.iter().find(|(id, _)| *id == type_id));
    name.map_or("no known type", |(_, name)| name).to_owned()
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed(name) => write!(f, "{name}, which has been removed from the format"),
            Self::RunTime(name) => write!(f, "{name}, which is made while a model runs and not stored"),
            Self::Ik(name) => write!(f, "{name} of ik_llama.cpp"),
            Self::Undeclared(name) => write!(f, "{name}, which this program has not got"),
            Self::Unknown => f.write_str("no known type"),
        }
    }
}

const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4 (or I2_S of BitNet and ik_llama.cpp)"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

const RUN_TIME: &[(u32, &str)] = &[(9, "Q8_1"), (15, "Q8_K")];

const GGUF: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
    (41, "Q1_0"),
    (42, "Q2_0"),
];

const IK: &[(u32, &str)] = &[
    (97, "Q8_0_X4"),
    (98, "Q8_1_X4"),
    (99, "Q8_2_X4"),
    (133, "Q6_0"),
    (134, "IQ1_BN"),
    (135, "IQ2_BN"),
    (136, "Q8_K64"),
    (137, "IQ2_K"),
    (138, "IQ3_K"),
    (139, "IQ4_K"),
    (140, "IQ5_K"),
    (141, "IQ6_K"),
    (142, "IQ2_TN"),
    (143, "IQ1_TN"),
    (144, "IQ4_KS"),
    (145, "IQ2_KS"),
    (146, "IQ4_KSS"),
    (147, "Q8_K16"),
    (148, "Q8_K32"),
    (149, "Q8_KR8"),
    (150, "Q8_K128"),
    (151, "Q8_KV"),
    (152, "IQ5_KS"),
    (153, "IQ2_KT"),
    (154, "IQ3_KT"),
    (155, "IQ4_KT"),
    (156, "IQ3_KS"),
    (157, "IQ2_KL"),
    (158, "IQ1_KT"),
    (202, "Q4_0_R8"),
    (206, "Q5_0_R4"),
    (208, "Q8_0_R8"),
    (210, "Q2_K_R4"),
    (211, "Q3_K_R4"),
    (212, "Q4_K_R4"),
    (213, "Q5_K_R4"),
    (214, "Q6_K_R4"),
    (216, "IQ2_XXS_R4"),
    (217, "IQ2_XS_R4"),
    (218, "IQ3_XXS_R4"),
    (219, "IQ1_S_R4"),
    (220, "IQ4_NL_R4"),
    (221, "IQ3_S_R4"),
    (222, "IQ2_S_R4"),
    (223, "IQ4_XS_R8"),
    (229, "IQ1_M_R4"),
    (230, "BF16_R16"),
    (233, "Q6_0_R4"),
    (335, "IQ2_BN_R4"),
    (337, "IQ2_K_R4"),
    (338, "IQ3_K_R4"),
    (339, "IQ4_K_R4"),
    (340, "IQ5_K_R4"),
    (344, "IQ4_KS_R4"),
    (352, "IQ5_KS_R4"),
    (353, "MXFP4_R8"),
    (397, "Q8_K_R16"),
    (398, "Q8_KV_R8"),
    (399, "Q8_K_R8"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 999, 1000, 73_728_000].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "73,728,000"]);
    }

    const SHAPE_Q4_0: BlockShape = BlockShape { name: "Q4_0", elements: 32, bytes: 18 };
    const SHAPE_F32: BlockShape = BlockShape { name: "F32", elements: 1, bytes: 4 };

    #[test]
    fn sizes_follow_from_dims_and_blocks() {
        assert_eq!(SHAPE_Q4_0.tensor_bytes(&[64, 3]), Ok(2 * 18 * 3));
        assert_eq!(SHAPE_F32.tensor_bytes(&[]), Ok(4));
        assert_eq!(SHAPE_Q4_0.tensor_bytes(&[32, 0, 1, 1]), Ok(0));
        assert_eq!(SHAPE_Q4_0.tensor_bytes(&[0]), Ok(0));
        assert!(SHAPE_Q4_0.tensor_bytes(&[]).is_err());
        assert!(SHAPE_Q4_0.tensor_bytes(&[33]).is_err());
    }

    #[test]
    fn sizes_that_wrap_are_refused() {
        for dims in [
            &[(1 << 42) + 1, 1 << 22][..],
            &[1 << 63, 2],
            &[1 << 32, 1 << 32],
            &[0, 1 << 63, 2],
            &[1 << 62],
            &[u64::MAX],
        ] {
            assert!(SHAPE_F32.tensor_bytes(dims).is_err(), "{dims:?}");
        }
        assert!(SHAPE_F32.tensor_bytes(&[1 << 60]).is_ok());
    }
}
