//! Fuzzing of the readers, with a bound on the memory that each may take.

pub mod readers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a reader may take beyond the size of the file, several times over for what it copies.
const ALLOWANCE: usize = 64 << 20;

/// Bytes in use, and the most there were.
static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

impl Counting {
    fn add(bytes: usize) {
        let now = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads bytes as a file of a kind.
///
/// # Panics
/// When the reader is at fault, or took too much memory.
pub fn run(kind: &str, data: &[u8]) {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let _ = readers::read(kind, data);
    let most = MOST.load(Ordering::Relaxed) - before;
    // Twice the file is held by this harness.
    assert!(most <= 2 * data.len() + ALLOWANCE, "{most} bytes for a file of {}", data.len());
}
