//! Quantising asks for memory once a call, not for each block.

use quantsmith_kernels::{Registry, cpu};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what is asked for.
struct Counting;

thread_local! {
    /// What this thread asked for: the one that waits for the test asks, too.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn more_blocks_ask_for_no_more_memory() {
    let best = *cpu::supported().last().expect("the scalar tier");
    for format in Registry::builtin().iter() {
        let cols = format.elements.max(32);
        let row: Vec<f32> = (0..6 * cols).map(|i| ((i * 7919) % 1000) as f32 - 480.0).collect();
        let importance: Vec<f32> = (0..cols).map(|i| 1.0 + (i % 5) as f32).collect();
        let mut out = vec![0; 6 * format.row_bytes(cols).expect("whole blocks")];
        let bytes = out.len() / 6;
        let mut asked = |rows: usize| {
            let before = COUNT.get();
            let done = format.kernels(best).quantise(
                &row[..rows * cols],
                cols,
                Some(&importance),
                &mut out[..rows * bytes],
            );
            assert_eq!(done, Ok(()), "{}", format.name);
            COUNT.get() - before
        };
        let (one, six) = (asked(1), asked(6));
        assert!(one > 0, "{}: the counter counts, if only the importance", format.name);
        assert_eq!(six, one, "{}", format.name);
    }
}
