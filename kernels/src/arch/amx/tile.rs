//! Products by tiles: sixteen tokens with a panel's sixteen rows at once.
//!
//! A unit's codes are a tile as they are (eight quads of sixteen rows), and so are sixteen tokens' activations of the
//! same columns. The system's permission to use tiles is asked for by detection, before the tier is offered.
//!
//! A tile takes long to load, and as long to multiply, and instructions are retired in order: whatever waits for a product
//! that has just been asked for stands in the way of all that follows. Hence the steps, as those of an assembly line.

use super::{Lines, Products, Unit};
use core::arch::asm;

/// Whether the kernels use tiles.
pub const TILES: bool = true;

/// The rows and bytes per row of the eight tiles, as `ldtilecfg` reads them.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Tiles 0 and 1 are products, 2 and 3 their activations, of so many columns, and 4 and 5 their codes.
    const fn new(cols: u8) -> Self {
        let (mut bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < 2 {
            (bytes[tile], rows[tile]) = (64, 16);
            (bytes[2 + tile], rows[2 + tile]) = (cols as u16, 16);
            (bytes[4 + tile], rows[4 + tile]) = (64, cols / 4);
            tile += 1;
        }
        Config { palette: 1, start_row: 0, reserved: [0; 14], bytes, rows }
    }
}

static UNITS: Config = Config::new(32);
static HALF_UNITS: Config = Config::new(16);

/// The thread's tiles, configured for as long as this lives, so that no thread carries their 8 KiB from one job to the
/// next. `HALVES` says that each half of a unit is a tile of its own.
#[derive(Debug)]
pub struct Tiles<const HALVES: bool>(());

impl<const HALVES: bool> Tiles<HALVES> {
    /// Configures the tiles of this thread.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub fn new() -> Self {
        let config = if HALVES { &HALF_UNITS } else { &UNITS };
        // SAFETY: only the AMX tier's code comes here, so the CPU has tiles and the system has permitted them; both
        // configurations are valid ones of palette 1, which makes all tiles zero.
        unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack, preserves_flags)) };
        Tiles(())
    }

    /// A step of two tiles: gives the products of what was loaded two steps ago, multiplies what was loaded in the step
    /// before, and loads codes and the activations of the same columns. With `HALVES` both `y` are the same unit.
    ///
    /// `tdpbssd` adds four products of signed bytes in 32 bits: at most 32 × 128 × 128, so nothing can saturate.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub fn step(&mut self, codes: &Lines, y: [&Unit; 2], out: &mut Products) {
        let (lines, second) = if HALVES { (4, 16) } else { (8, 0) };
        // SAFETY: the tiles are configured, as `self` proves. The loads read 16 or 32 bytes of each of the 16 tokens of
        // both `y`, with `HALVES` the last 16 bytes of the second, and four or eight lines of codes each; each store
        // writes 16 rows of 64 bytes of its half of `out`.
        unsafe {
            asm!(
                "tilestored [{out} + {line}*1], tmm0",
                "tilestored [{out} + {line}*1 + 1024], tmm1",
                "tilezero tmm0",
                "tdpbssd tmm0, tmm2, tmm4",
                "tilezero tmm1",
                "tdpbssd tmm1, tmm3, tmm5",
                "tileloadd tmm2, [{first} + {stride}*1]",
                "tileloadd tmm4, [{codes} + {line}*1]",
                "tileloadd tmm3, [{second} + {stride}*1]",
                "tileloadd tmm5, [{more} + {line}*1]",
                first = in(reg) y[0].as_ptr(),
                second = in(reg) y[1].as_ptr().cast::<u8>().add(second),
                stride = in(reg) 32usize,
                codes = in(reg) codes.0.as_ptr(),
                more = in(reg) codes.0[lines..].as_ptr(),
                line = in(reg) 64usize,
                out = in(reg) out.0.as_mut_ptr(),
                options(nostack, preserves_flags),
            );
        }
    }
}

impl<const HALVES: bool> Drop for Tiles<HALVES> {
    fn drop(&mut self) {
        // SAFETY: the value exists, so this thread's tiles were configured.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}
