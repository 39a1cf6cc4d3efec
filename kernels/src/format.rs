//! A format as data: its facts, its rows of kernels, and the handle that may call them.
//!
//! [`Format`] is what a declaration turns into: plain data in a static. [`KernelSet`] is a format's row for a tier
//! that this CPU has; only [`Format::kernels`] makes one, from a [`Supported`] proof, so its methods are safe: they
//! check every length and then make the one call through the row's pointers.

use crate::panel::{PANEL, PackJob, PanelJob, RowJob, UNIT_COLS, panel_bytes};
use crate::quantise::{self, QuantiseError, inverse::Inverse};
use crate::{Activations, OutMut, Supported, Tier};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Numbers of private formats have this bit.
pub const PRIVATE: u32 = 1 << 31;

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldType {
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE binary16.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE binary32.
    F32,
    /// Signed 16-bit integer.
    I16,
    /// An exponent: 2^(e - 128).
    E8m0,
    /// Unsigned E4M3.
    E4m3,
}

impl FieldType {
    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            FieldType::U8 | FieldType::I8 | FieldType::E8m0 | FieldType::E4m3 => 1,
            FieldType::U16 | FieldType::I16 | FieldType::F16 | FieldType::Bf16 => 2,
            FieldType::U32 | FieldType::F32 => 4,
        }
    }
}

/// A field of a block, in file order. Values are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the declaration.
    pub name: &'static str,
    /// Type of its values.
    pub ty: FieldType,
    /// First byte in the block.
    pub offset: usize,
    /// Number of values.
    pub count: usize,
    /// What the field follows from, if it carries nothing of its own.
    pub derived: Option<Derived>,
}

/// A field that repeats what the codes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derived {
    /// The sum of the codes that each value covers.
    Sum,
    /// The same times the scale.
    ScaledSum,
}

/// How a block gives values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// The block is one floating-point number.
    Float(FieldType),
    /// `weight = scale * (code - bias) + offset`, in groups.
    Codes {
        /// Weights that share a scale.
        group: usize,
        /// Bits of a stored code.
        bits: u32,
        /// What is subtracted from a code.
        bias: i32,
        /// The largest code before the bias is subtracted.
        max: i32,
        /// Whether stored codes go through a table.
        table: bool,
        /// Whether groups have an offset (a minimum).
        offset: bool,
    },
}

/// The kernels of one format on one tier.
#[derive(Clone, Copy, Debug)]
pub struct TierKernels {
    /// The tier.
    pub tier: Tier,
    /// The values of whole blocks.
    pub dequantise: unsafe fn(&[u8], &mut [f32]),
    /// The products.
    pub product: Product,
}

/// The matrix kernels of one format on one tier.
#[derive(Clone, Copy, Debug)]
pub enum Product {
    /// Codes against quantised activations.
    Codes {
        /// Over packed panels.
        matmul: unsafe fn(PanelJob<'_>),
        /// Over rows in the file's layout.
        matmul_rows: unsafe fn(RowJob<'_>),
        /// Rows into panels.
        pack: unsafe fn(PackJob<'_>),
        /// Bytes of a unit: 32 columns of a panel.
        unit: usize,
        /// Bytes of a record: the scale parts of a block of a panel.
        record: usize,
        /// Units of a block.
        units: usize,
    },
    /// Floats against float activations.
    Float {
        /// `(weights, columns, rows to compute, activations, output)`.
        matmul: unsafe fn(&[u8], usize, Range<usize>, &[f32], OutMut<'_>),
    },
}

/// A quantisation format: the facts of its declaration and its kernels.
#[derive(Debug)]
pub struct Format {
    /// The name, as in GGUF tools.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// The number of the type in files; `None` for a private format, which is known by its name.
    pub id: Option<u32>,
    /// SHA-256 of the declaration, without its documentation and layout.
    pub digest: [u8; 32],
    /// Weights in a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// The fields of a block, in file order.
    pub fields: &'static [Field],
    /// How a block gives values.
    pub values: Values,
    /// The tiers of all architectures that the declaration was made into, the lowest first.
    pub tiers: &'static [Tier],
    /// The kernels of this architecture, the lowest tier first.
    pub rows: &'static [TierKernels],
    /// How blocks are written, or why they cannot be.
    #[doc(hidden)]
    pub inverse: Result<&'static Inverse, &'static str>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Format {
    /// What a declaration with errors turns into; never part of a program that compiles.
    #[doc(hidden)]
    pub const fn invalid() -> Self {
        let values = Values::Float(FieldType::F32);
        Format {
            name: "",
            about: "",
            id: None,
            digest: [0; 32],
            elements: 1,
            bytes: 4,
            fields: &[],
            values,
            tiers: &[],
            rows: &[],
            inverse: Err("the declaration has errors"),
        }
    }

    /// The number that stands for the format in a file: its own, or for a private format one above 2^31 that follows from
    /// the declaration. Such a number says too little by itself; files say name and digest too.
    pub const fn number(&self) -> u32 {
        match self.id {
            Some(id) => id,
            None => {
                let d = self.digest;
                PRIVATE | u32::from_be_bytes([d[0], d[1], d[2], d[3]])
            }
        }
    }

    /// Bits per weight.
    pub fn bits_per_weight(&self) -> f64 {
        8.0 * self.bytes as f64 / self.elements as f64
    }

    /// Bytes of a row, or `None` if whole blocks do not make `cols` weights.
    pub fn row_bytes(&self, cols: usize) -> Option<usize> {
        // Activations come in groups of 32, so a row of codes is a whole number of those.
        let step = if self.is_float() { 1 } else { self.elements.max(UNIT_COLS) };
        if !cols.is_multiple_of(step) {
            return None;
        }
        (cols / self.elements).checked_mul(self.bytes)
    }

    /// The tiers that have kernels, of all architectures, the lowest first.
    pub fn tiers(&self) -> Vec<Tier> {
        self.tiers.to_vec()
    }

    /// Whether a weight is a floating-point number.
    pub fn is_float(&self) -> bool {
        matches!(self.values, Values::Float(_))
    }

    /// Whether weights can be quantised to the format, or why not.
    ///
    /// # Errors
    /// * if its rules cannot be turned round
    pub fn can_quantise(&self) -> Result<(), QuantiseError> {
        match self.inverse {
            Err(reason) if !self.is_float() => Err(QuantiseError::NoInverse { format: self.name, reason }),
            _ => Ok(()),
        }
    }

    /// The best kernels that are not above a tier that this CPU has.
    pub fn kernels(&'static self, tier: Supported) -> KernelSet {
        let row = self.rows.iter().rev().find(|row| row.tier <= tier.tier()).unwrap_or(&self.rows[0]);
        KernelSet { format: self, row, proof: tier }
    }
}

/// The kernels of a format on a tier that this CPU has. Holding it is the proof that they may run.
#[derive(Clone, Copy)]
pub struct KernelSet {
    format: &'static Format,
    row: &'static TierKernels,
    proof: Supported,
}

impl fmt::Debug for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.format.name, self.row.tier.name())
    }
}

impl KernelSet {
    /// The format.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// The tier.
    pub fn tier(&self) -> Tier {
        self.row.tier
    }

    /// Writes the values of whole blocks.
    ///
    /// # Panics
    /// * if `bytes` is not a whole number of blocks, or `out` has not exactly their values
    pub fn dequantise(&self, bytes: &[u8], out: &mut [f32]) {
        let blocks = bytes.len() / self.format.bytes;
        assert!(bytes.len().is_multiple_of(self.format.bytes), "{} bytes are not whole blocks", bytes.len());
        assert!(
            out.len() == blocks * self.format.elements,
            "{blocks} blocks do not have {} values",
            out.len()
        );
        // SAFETY: the row's tier is one that this CPU has: `Format::kernels` took the proof.
        unsafe { (self.row.dequantise)(bytes, out) }
    }

    /// Quantises whole rows of `cols` weights, in order. With `importance`, one number a column, the squared error of a
    /// weight counts that much. The result is the same bytes on every tier.
    ///
    /// ```
    /// use quantsmith_kernels::{Registry, Supported};
    /// let kernels = Registry::builtin().by_name("Q8_0").expect("built in").kernels(Supported::SCALAR);
    /// let weights: Vec<f32> = (-16..16).map(|w| w as f32).collect();
    /// let (mut block, mut again) = ([0; 34], [0.0; 32]);
    /// kernels.quantise(&weights, 32, None, &mut block)?;
    /// kernels.dequantise(&block, &mut again);
    /// assert!(weights.iter().zip(again).all(|(w, a)| (w - a).abs() < 0.07));
    /// # Ok::<(), quantsmith_kernels::QuantiseError>(())
    /// ```
    ///
    /// # Errors
    /// * if a weight or an importance is not finite, or an importance is negative
    /// * if the rules of the format cannot be turned round
    ///
    /// # Panics
    /// * if `weights` is not whole rows of whole blocks, `importance` is not of `cols` entries, or `out` has not exactly
    ///   the rows' bytes
    pub fn quantise(
        &self,
        weights: &[f32],
        cols: usize,
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), QuantiseError> {
        let row_bytes = self.blocks(cols) * self.format.bytes;
        let whole = if cols == 0 { weights.is_empty() } else { weights.len().is_multiple_of(cols) };
        assert!(whole, "{} weights are not whole rows of {cols}", weights.len());
        let rows = weights.len().checked_div(cols).unwrap_or(0);
        assert!(
            out.len() == rows * row_bytes,
            "output of {} bytes for {rows} rows of {row_bytes}",
            out.len()
        );
        let entries = importance.map_or(cols, <[f32]>::len);
        assert!(entries == cols, "{entries} importances for {cols} columns");
        if rows == 0 {
            return Ok(());
        }
        quantise::rows(self.format, self.proof, weights, cols, importance, out)
    }

    /// The dot product of one row of the file's layout with one row of quantised activations.
    ///
    /// # Panics
    /// * if the format is a float format, or the lengths do not match, or there are several rows of activations
    pub fn dot(&self, row: &[u8], x: Activations<'_>) -> f32 {
        let mut out = [0.0];
        assert!(x.tokens() == 1, "{} rows of activations instead of one", x.tokens());
        self.matmul_rows(row, 1, x, 0..1, OutMut::new(&mut out, 1, 1));
        out[0]
    }

    /// Bytes of a matrix in packed panels; 0 for a float format, which is not packed.
    ///
    /// # Panics
    /// * if rows are not whole blocks
    pub fn packed_len(&self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(PANEL) * self.panel_len(cols)
    }

    /// [`KernelSet::packed_len`] of a matrix of any size, `None` if that is more than can be counted or if rows are not
    /// whole blocks.
    pub fn checked_packed_len(&self, rows: usize, cols: usize) -> Option<usize> {
        let row = self.format.row_bytes(cols)?;
        // A packed row is at most eight times as long as a row of blocks.
        row.checked_mul(8 * PANEL)?.checked_mul(rows.div_ceil(PANEL))?;
        Some(self.packed_len(rows, cols))
    }

    /// Bytes of one packed panel.
    fn panel_len(&self, cols: usize) -> usize {
        self.blocks(cols);
        match self.row.product {
            Product::Codes { unit, record, units, .. } => {
                panel_bytes(unit, record, units, cols / UNIT_COLS / units)
            }
            Product::Float { .. } => 0,
        }
    }

    fn blocks(&self, cols: usize) -> usize {
        let whole = self.format.row_bytes(cols).is_some();
        assert!(whole, "{cols} columns are not whole blocks of {}", self.format.name);
        cols / self.format.elements
    }

    /// Packs some panels of a matrix in the file's layout.
    ///
    /// # Panics
    /// * if the format is a float format, or a length does not match
    pub fn pack_panels(&self, bytes: &[u8], cols: usize, rows: usize, panels: Range<usize>, out: &mut [u8]) {
        let Product::Codes { pack, .. } = self.row.product else {
            panic!("{} is not packed", self.format.name);
        };
        let row_bytes = self.blocks(cols) * self.format.bytes;
        assert!(bytes.len() >= rows * row_bytes, "{} bytes for {rows} rows of {row_bytes}", bytes.len());
        assert!(
            panels.start <= panels.end && panels.end <= rows.div_ceil(PANEL),
            "panels outside the matrix"
        );
        assert!(
            out.len() == panels.len() * self.panel_len(cols),
            "output of {} bytes for {panels:?}",
            out.len()
        );
        // SAFETY: as in `dequantise`.
        unsafe { pack(PackJob { bytes, row_bytes, rows, panels, out }) }
    }

    /// Matrix product over packed panels: `out[token][row] = Σ w[row][col] · x[token][col]`.
    ///
    /// # Panics
    /// * if the format is a float format, or a length does not match
    pub fn matmul_packed(
        &self,
        packed: &[u8],
        rows: usize,
        x: Activations<'_>,
        panels: Range<usize>,
        out: OutMut<'_>,
    ) {
        let Product::Codes { matmul, .. } = self.row.product else {
            panic!("{} has no packed product", self.format.name);
        };
        assert!(
            packed.len() >= self.packed_len(rows, x.cols()),
            "{} packed bytes for {rows} rows",
            packed.len()
        );
        assert!(
            panels.start <= panels.end && panels.end <= rows.div_ceil(PANEL),
            "panels outside the matrix"
        );
        // SAFETY: as in `dequantise`.
        unsafe { matmul(PanelJob { packed, rows, x, panels, out }) }
    }

    /// Matrix product over rows of the file's layout; the same bits as over packed panels.
    ///
    /// # Panics
    /// * if the format is a float format, or a length does not match
    pub fn matmul_rows(
        &self,
        bytes: &[u8],
        rows: usize,
        x: Activations<'_>,
        range: Range<usize>,
        out: OutMut<'_>,
    ) {
        let Product::Codes { matmul_rows, .. } = self.row.product else {
            panic!("{} takes float activations", self.format.name);
        };
        let row_bytes = self.blocks(x.cols()) * self.format.bytes;
        assert!(bytes.len() >= rows * row_bytes, "{} bytes for {rows} rows of {row_bytes}", bytes.len());
        assert!(range.start <= range.end && range.end <= rows, "rows outside the matrix");
        // SAFETY: as in `dequantise`.
        unsafe { matmul_rows(RowJob { bytes, row_bytes, x, rows: range, out }) }
    }

    /// Matrix product of float weights with float activations (`tokens` rows of `cols`).
    ///
    /// # Panics
    /// * if the format is not a float format, or a length does not match
    pub fn matmul_float(&self, bytes: &[u8], cols: usize, rows: Range<usize>, x: &[f32], out: OutMut<'_>) {
        let Product::Float { matmul } = self.row.product else {
            panic!("{} takes quantised activations", self.format.name);
        };
        assert!(
            bytes.len() >= rows.end * cols * self.format.bytes,
            "{} bytes for {rows:?} of {cols}",
            bytes.len()
        );
        assert!(
            rows.start <= rows.end && cols > 0 && x.len().is_multiple_of(cols),
            "activations are not whole rows"
        );
        // SAFETY: as in `dequantise`.
        unsafe { matmul(bytes, cols, rows, x, out) }
    }
}
