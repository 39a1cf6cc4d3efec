//! What products by tiles are. Only a tier that has tiles uses them (`TILES`): here stands what they mean.

/// Whether the kernels use tiles.
pub const TILES: bool = false;

/// The codes of two tiles, with their sign: quads of columns, a word for each row. Each is a unit's eight lines or, with
/// `HALVES`, four: the first eight lines are then the two halves of a unit.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Lines(pub [[u8; 64]; 16]);

/// The products of sixteen tokens and sixteen rows, of two tiles: `[tile][token][row]`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Products(pub [[[i32; 16]; 16]; 2]);

/// The activations of sixteen tokens and a unit's columns.
pub type Unit = [[[i8; 4]; 8]; 16];

/// A thread's tiles, for as long as this lives. `HALVES` says that each half of a unit is a tile of its own.
#[derive(Debug)]
pub struct Tiles<const HALVES: bool> {
    loaded: (Lines, [Unit; 2]),
    products: Products,
}

impl<const HALVES: bool> Tiles<HALVES> {
    /// Makes the tiles of this thread ready.
    #[inline]
    #[allow(clippy::new_without_default, reason = "a default would hide that it changes the thread's state")]
    pub fn new() -> Self {
        Tiles {
            loaded: (Lines([[0; 64]; 16]), [[[[0; 4]; 8]; 16]; 2]),
            products: Products([[[0; 16]; 16]; 2]),
        }
    }

    /// A step of two tiles: gives the products of what was loaded two steps ago, multiplies what was loaded in the step
    /// before, and loads codes and the activations of the same columns. So nothing waits for what it needs itself. With
    /// `HALVES` both `y` are the same unit.
    #[inline]
    pub fn step(&mut self, codes: &Lines, y: [&Unit; 2], out: &mut Products) {
        *out = self.products;
        let (lines, cols) = if HALVES { (4, 16) } else { (8, 32) };
        for (tile, products) in self.products.0.iter_mut().enumerate() {
            let codes = &self.loaded.0.0[tile * lines..][..lines];
            for (products, y) in products.iter_mut().zip(&self.loaded.1[tile]) {
                let y = &y.as_flattened()[if HALVES { tile * cols } else { 0 }..][..cols];
                for (row, product) in products.iter_mut().enumerate() {
                    let code = |c: usize| i32::from(codes[c / 4][4 * row + c % 4] as i8);
                    *product = y.iter().enumerate().map(|(c, y)| code(c) * i32::from(*y)).sum();
                }
            }
        }
        self.loaded = (*codes, [*y[0], *y[1]]);
    }
}
