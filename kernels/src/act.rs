//! Quantised activations: the one right-hand side of every quantised weight format, on every tier.
//!
//! A row of activations becomes int8 codes in groups of 32. Each group carries an f32 scale and what the kernels need
//! of its codes' sums: minus the integer sums (to take a weight format's constant bias back out) and the sums times
//! the scale (for formats with a minimum).
//!
//! **Tokens lie in tiles** of [`WIDE`], the last of which may be narrower. A tile has, for each group of columns, that
//! group of each of its tokens. So what a kernel multiplies at once lies together, and one token alone is a plain row.

use core::marker::PhantomData;
use core::ops::Range;

/// Activations per group.
pub const GROUP: usize = 32;

/// Tokens of a tile of activations.
pub const WIDE: usize = 16;

/// What one group of 32 activations carries beside its codes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActGroup {
    /// The value of one code step: the largest magnitude divided by 127.
    pub scale: f32,
    /// Minus the sum of all 32 codes: what a bias of one takes out of a dot product.
    pub minus: i32,
    /// Minus the sums of the codes of the first and the second 16.
    pub minus_halves: [i32; 2],
    /// `scale` times the sum of all 32 codes.
    pub scaled_sum: f32,
    /// `scale` times the sum of the codes of each half.
    pub scaled_halves: [f32; 2],
}

impl ActGroup {
    /// A group of this scale, whose codes have these sums in each half.
    #[inline]
    pub fn new(scale: f32, sums: [i32; 2]) -> Self {
        ActGroup {
            scale,
            minus: -(sums[0] + sums[1]),
            minus_halves: [-sums[0], -sums[1]],
            scaled_sum: scale * (sums[0] + sums[1]) as f32,
            scaled_halves: [scale * sums[0] as f32, scale * sums[1] as f32],
        }
    }
}

/// The codes of a group in quads of neighbouring columns, as the kernels of panels read them.
pub type Quads = [[i8; 4]; GROUP / 4];

/// A number of tokens' rows of a number of columns, and where each group of them lies.
#[derive(Clone, Copy, Debug)]
struct Layout {
    cols: usize,
    tokens: usize,
}

impl Layout {
    /// Groups of a row.
    fn groups(self) -> usize {
        self.cols.div_ceil(GROUP)
    }

    /// The place of a token's group among all groups.
    #[inline]
    fn at(self, token: usize, group: usize) -> usize {
        let first = token / WIDE * WIDE;
        first * self.groups() + group * self.width(first) + token - first
    }

    /// Tokens of the tile that starts at a token.
    #[inline]
    fn width(self, first: usize) -> usize {
        WIDE.min(self.tokens - first)
    }
}

/// Quantised activations of one or several tokens, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    codes: &'a [Quads],
    groups: &'a [ActGroup],
    layout: Layout,
}

/// The activations of some tokens that lie together: group `g` of token `t` is entry `g * width + t` of both lists.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// The codes.
    pub codes: &'a [Quads],
    /// What belongs to them.
    pub groups: &'a [ActGroup],
    /// How many tokens these are.
    pub width: usize,
}

impl<'a> Activations<'a> {
    /// Number of codes that a row of `cols` activations takes: whole groups.
    pub const fn padded(cols: usize) -> usize {
        cols.div_ceil(GROUP) * GROUP
    }

    /// Borrows the activations of `tokens` rows of `cols` columns, as [`ActivationsMut`] writes them.
    ///
    /// # Panics
    /// * if a slice is shorter than `tokens` rows need
    pub fn new(codes: &'a [i8], groups: &'a [ActGroup], cols: usize, tokens: usize) -> Self {
        let layout = Layout { cols, tokens };
        let count = tokens * layout.groups();
        let codes = codes[..count * GROUP].as_chunks::<4>().0.as_chunks().0;
        Activations { codes, groups: &groups[..count], layout }
    }

    /// Columns of a row, as given.
    pub fn cols(&self) -> usize {
        self.layout.cols
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.layout.tokens
    }

    /// The tokens of some tiles, as activations of their own.
    ///
    /// # Panics
    /// * if `tokens` neither start at a tile nor end at one or at the last token
    pub fn tiles(&self, tokens: Range<usize>) -> Activations<'a> {
        let all = self.layout.tokens;
        let whole = tokens.end == all || tokens.end.is_multiple_of(WIDE);
        assert!(
            tokens.start.is_multiple_of(WIDE) && whole && tokens.end <= all,
            "no tiles of tokens {tokens:?}"
        );
        let groups = self.layout.groups();
        let part = tokens.start * groups..tokens.end * groups;
        let layout = Layout { tokens: tokens.len(), ..self.layout };
        Activations { codes: &self.codes[part.clone()], groups: &self.groups[part], layout }
    }

    /// One group of a token.
    ///
    /// # Panics
    /// * if there is no such token or group
    #[inline]
    pub fn group(&self, token: usize, group: usize) -> (&'a Quads, &'a ActGroup) {
        assert!(
            token < self.layout.tokens && group < self.layout.groups(),
            "a group outside the activations"
        );
        let at = self.layout.at(token, group);
        (&self.codes[at], &self.groups[at])
    }

    /// The tile that starts at a token.
    ///
    /// # Panics
    /// * if no tile starts there
    pub fn tile(&self, first: usize) -> Tile<'a> {
        assert!(first.is_multiple_of(WIDE) && first < self.layout.tokens, "no tile starts at token {first}");
        let width = self.layout.width(first);
        let (at, count) = (self.layout.at(first, 0), width * self.layout.groups());
        Tile { codes: &self.codes[at..][..count], groups: &self.groups[at..][..count], width }
    }
}

/// Quantised activations that are being made, by one holder or by several at once.
#[derive(Debug)]
pub struct ActivationsMut<'a> {
    codes: *mut [i8; GROUP],
    groups: *mut ActGroup,
    layout: Layout,
    owner: PhantomData<&'a mut [ActGroup]>,
}

// SAFETY: an `ActivationsMut` is an exclusive borrow of the groups it may write, as a mutable slice is.
unsafe impl Send for ActivationsMut<'_> {}

impl<'a> ActivationsMut<'a> {
    /// The whole of two slices.
    ///
    /// # Panics
    /// * if a slice is shorter than `tokens` rows need
    pub fn new(codes: &'a mut [i8], groups: &'a mut [ActGroup], cols: usize, tokens: usize) -> Self {
        let layout = Layout { cols, tokens };
        let count = tokens * layout.groups();
        let (codes, groups) = (&mut codes[..count * GROUP], &mut groups[..count]);
        // SAFETY: the slices are as long as is asked for, and borrowed for as long as the value lives.
        unsafe { Self::from_raw(codes.as_mut_ptr(), groups.as_mut_ptr(), cols, tokens) }
    }

    /// Activations that several holders make at once.
    ///
    /// # Safety
    /// * `codes` and `groups` are valid for reads and writes of `tokens` rows for the lifetime `'a`
    /// * while this value lives, nobody else reads or writes the groups that are written through it
    pub unsafe fn from_raw(codes: *mut i8, groups: *mut ActGroup, cols: usize, tokens: usize) -> Self {
        ActivationsMut { codes: codes.cast(), groups, layout: Layout { cols, tokens }, owner: PhantomData }
    }

    /// One group of a token, to write.
    ///
    /// # Panics
    /// * if there is no such token or group
    #[inline]
    pub fn group(&mut self, token: usize, group: usize) -> (&mut [i8; GROUP], &mut ActGroup) {
        assert!(
            token < self.layout.tokens && group < self.layout.groups(),
            "a group outside the activations"
        );
        let at = self.layout.at(token, group);
        // SAFETY: the place lies within the rows (checked above), which the constructor's caller vouched for, and the
        // borrow of `self` keeps this holder from handing out another group meanwhile.
        unsafe { (&mut *self.codes.add(at), &mut *self.groups.add(at)) }
    }
}
