//! What products by tiles are. Only a tier that has tiles uses them (`TILES`): here stands what they mean.

/// Whether the kernels use tiles.
pub const TILES: bool = false;

/// A thread's tiles, for as long as this lives.
#[derive(Debug)]
pub struct Tiles(());

impl Tiles {
    /// Makes the tiles of this thread ready.
    #[inline]
    #[allow(clippy::new_without_default, reason = "a default would hide that it changes the thread's state")]
    pub fn new() -> Self {
        Tiles(())
    }
}

/// A unit's codes, with their sign: eight quads of columns, a word for each row.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Lines(pub [[u8; 64]; 8]);

/// The products of sixteen tokens and sixteen rows: `[half][token][row]`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Products(pub [[[i32; 16]; 16]; 2]);

/// Multiplies the codes of a unit with sixteen tokens' activations of the same columns. With `HALVES` each half of the
/// columns has products of its own, else only the first half of `out` is written.
#[inline]
pub fn tile_dots<const HALVES: bool>(
    _tiles: &Tiles,
    codes: &Lines,
    y: &[[[i8; 4]; 8]; 16],
    out: &mut Products,
) {
    for token in 0..16 {
        let y = y[token].as_flattened();
        let mut sums = [[0i32; 16]; 2];
        for (c, y) in y.iter().enumerate() {
            let sums = &mut sums[if HALVES { c / 16 } else { 0 }];
            for (sum, word) in sums.iter_mut().zip(codes.0[c / 4].as_chunks::<4>().0) {
                *sum += i32::from(word[c % 4] as i8) * i32::from(*y);
            }
        }
        out.0[0][token] = sums[0];
        out.0[1][token] = sums[1];
    }
}
