//! Products by tiles: sixteen tokens with a panel's sixteen rows at once.
//!
//! A unit's codes are a tile as they are (eight quads of sixteen rows), and so are sixteen tokens' activations of the
//! same columns. The system's permission to use tiles is asked for by detection, before the tier is offered.

use super::{Lines, Products};
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

/// Tiles 0 and 1 are products. 2 is a unit's activations and 3 its codes; 4 to 7 are the same for its halves.
static CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 32, 64, 16, 64, 16, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 8, 16, 4, 16, 4, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// The thread's tiles, configured for as long as this lives, so that no thread carries their 8 KiB from one job to the
/// next.
#[derive(Debug)]
pub struct Tiles(());

impl Tiles {
    /// Configures the tiles of this thread.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub fn new() -> Self {
        // SAFETY: only the AMX tier's code comes here, so the CPU has tiles and the system has permitted them; the
        // configuration is a valid one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags)) };
        Tiles(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the value exists, so this thread's tiles were configured.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

/// Multiplies the codes of a unit with sixteen tokens' activations of the same columns. With `HALVES` each half of
/// the columns has products of its own, else only the first half of `out` is written.
///
/// `tdpbssd` adds four products of signed bytes in 32 bits: at most 32 × 128 × 128, so nothing can saturate.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub fn tile_dots<const HALVES: bool>(
    _tiles: &Tiles,
    codes: &Lines,
    y: &[[[i8; 4]; 8]; 16],
    out: &mut Products,
) {
    let (first, codes, out) = (y.as_ptr(), codes.0.as_ptr(), out.0.as_mut_ptr());
    if HALVES {
        // SAFETY: the tiles are configured, as `_tiles` proves. The loads read 16 bytes of each of the 16 tokens of `y`
        // and the 16 bytes after those, and four lines of codes each; each store writes 16 rows of 64 bytes of
        // its half of `out`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm4, [{y} + {stride}*1]",
                "tileloadd tmm5, [{codes} + {line}*1]",
                "tileloadd tmm6, [{y} + {stride}*1 + 16]",
                "tileloadd tmm7, [{codes} + {line}*1 + 256]",
                "tdpbssd tmm0, tmm4, tmm5",
                "tdpbssd tmm1, tmm6, tmm7",
                "tilestored [{out} + {line}*1], tmm0",
                "tilestored [{out} + {line}*1 + 1024], tmm1",
                y = in(reg) first,
                stride = in(reg) 32usize,
                codes = in(reg) codes,
                line = in(reg) 64usize,
                out = in(reg) out,
                options(nostack, preserves_flags),
            );
        }
    } else {
        // SAFETY: as above: all 32 bytes of each token, eight lines of codes, and the first half of `out`.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tileloadd tmm2, [{y} + {stride}*1]",
                "tileloadd tmm3, [{codes} + {line}*1]",
                "tdpbssd tmm0, tmm2, tmm3",
                "tilestored [{out} + {line}*1], tmm0",
                y = in(reg) first,
                stride = in(reg) 32usize,
                codes = in(reg) codes,
                line = in(reg) 64usize,
                out = in(reg) out,
                options(nostack, preserves_flags),
            );
        }
    }
}
