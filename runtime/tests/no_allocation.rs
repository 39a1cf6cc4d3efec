//! A forward pass asks for no memory: neither for one token nor for a batch, in any thread.

mod kit;

use kit::{Draft, MIXED, Shape, tokens};
use quantsmith::model::arch::Architecture;
use quantsmith::{LoadOptions, Session, Want};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is asked for, in all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Waits for the threads that packed the weights to be gone: ending, they may still ask for memory.
fn wait_for_threads(before: usize) {
    for _ in 0..1000 {
        if threads() <= before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the threads that packed the weights do not end");
}

/// The threads of this process, where the system tells.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn decoding_and_batches_allocate_nothing_with_one_thread_and_with_several() {
    for (name, threads) in [("llama", 1), ("llama", 3), ("gemma3", 1), ("gemma3", 2)] {
        let arch = Architecture::find(name).expect("an architecture");
        let file = Draft::new(arch, Shape::default(), MIXED).write();
        let running = self::threads();
        let model = file.load(LoadOptions { threads: Some(threads), ubatch: 16, ..Default::default() });
        wait_for_threads(running);
        let mut session = Session::new(&model).expect("a session");
        session.set_profile(true);
        let tokens = tokens(150);
        let mut sum = 0.0;
        let mut sink = |_: usize, logits: &[f32]| sum += logits[0];
        session.eval(&tokens[..1], Want::Last, &mut sink).expect("a first token");
        let before = COUNT.load(Ordering::SeqCst);
        session.eval(&tokens[1..70], Want::All, &mut sink).expect("batches");
        for &token in &tokens[70..] {
            session.eval(&[token], Want::Last, &mut sink).expect("a token");
        }
        let asked = COUNT.load(Ordering::SeqCst) - before;
        assert_eq!(asked, 0, "{name}, {threads} threads: memory was asked for {asked} times");
        assert!(f32::is_finite(sum));
    }
    // The counter counts.
    let before = COUNT.load(Ordering::SeqCst);
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(COUNT.load(Ordering::SeqCst) > before);
}
