//! Quantised activations: the one right-hand side of every quantised weight format, on every tier.
//!
//! A row of activations becomes int8 codes in groups of 32. Each group carries an f32 scale and what the kernels need
//! of its codes' sums: the integer sums of both halves (to take a weight format's constant offset back out) and the
//! same sums times the scale (for formats with a minimum).

/// Activations per group.
pub const GROUP: usize = 32;

/// What one group of 32 activations carries beside its codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActGroup {
    /// The value of one code step: the largest magnitude divided by 127.
    pub scale: f32,
    /// The sums of the codes of the first and the second 16.
    pub sums: [i16; 2],
    /// `scale` times the sum of all 32 codes.
    pub scaled_sum: f32,
    /// `scale` times the sum of the codes of each half.
    pub scaled_halves: [f32; 2],
}

/// Quantised activations of one or several tokens, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    codes: &'a [i8],
    groups: &'a [ActGroup],
    cols: usize,
    tokens: usize,
}

impl<'a> Activations<'a> {
    /// Number of codes that a row of `cols` activations takes: whole groups.
    pub const fn padded(cols: usize) -> usize {
        cols.div_ceil(GROUP) * GROUP
    }

    /// Borrows `tokens` rows of `cols` activations, one row after the other, each in whole groups.
    ///
    /// # Panics
    /// * if a slice is shorter than `tokens` rows need
    pub fn new(codes: &'a [i8], groups: &'a [ActGroup], cols: usize, tokens: usize) -> Self {
        let padded = Self::padded(cols);
        let (codes, groups) = (&codes[..tokens * padded], &groups[..tokens * (padded / GROUP)]);
        Activations { codes, groups, cols, tokens }
    }

    /// Columns of a row, as given.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The codes and groups of one token's row.
    #[inline]
    pub fn row(&self, token: usize) -> (&'a [i8], &'a [ActGroup]) {
        let padded = Self::padded(self.cols);
        let groups = padded / GROUP;
        (&self.codes[token * padded..][..padded], &self.groups[token * groups..][..groups])
    }

    /// The codes from one token's row on, and how many lie between the starts of two rows.
    pub fn codes_from(&self, token: usize) -> (&'a [i8], usize) {
        let padded = Self::padded(self.cols);
        (&self.codes[token * padded..], padded)
    }
}
