//! The thread team: runs the steps of a forward pass, each cut into chunks.
//!
//! ```text
//! word:  serial number of the step | chunks of the step | chunks claimed
//!
//! claim a chunk (compare-and-swap) -> run it -> count it as done -> the last one opens the next step
//! ```
//! The caller is thread 0 and works like the others. There is no barrier at which all threads meet: a step is over
//! when all of its chunks are done, whoever did them, and a thread that the system does not run holds nobody up
//! unless it holds a chunk. So more threads than cores, or another busy process, cost little, and fast cores take
//! chunks from slow ones. A thread that finds no chunk spins briefly and then sleeps; it is woken only when fewer
//! threads are awake than there are cores, so of too many threads some sleep on. While more are awake than there are
//! cores, none spins.
//!
//! A chunk's claim is the permission to look at the job: as long as a chunk is not done, the pass cannot end, so the
//! caller cannot leave [`Team::run`] and what it lent stays valid. Nothing is read through the job without a claim.
//!
//! Nothing here allocates after [`Team::new`].

use crate::error::Error;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread without a chunk spins before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

const COUNT_BITS: u32 = 14;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// Serial numbers start again at zero, after years.
const SERIAL_MASK: u64 = u64::MAX >> (2 * COUNT_BITS);

/// The most chunks that a step may have.
pub(crate) const MAX_CHUNKS: usize = COUNT_MASK as usize;

/// A chunk that a thread has claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// The step.
    pub step: usize,
    /// Which of its chunks.
    pub chunk: usize,
    /// The thread that claimed it.
    pub thread: usize,
    /// It is the thread's first chunk of this step.
    pub first: bool,
}

/// What a team can run: numbered steps, one after the other, each cut into chunks that are independent.
pub(crate) trait Work: Sync {
    /// The number of chunks of a step, at most [`MAX_CHUNKS`]; `None` after the last step. Asked once, at the moment
    /// when the step before is over.
    fn chunks(&self, step: usize) -> Option<usize>;
    /// Runs a chunk.
    fn run(&self, claim: Claim);
}

/// The work of a pass with its type taken off, so that one team serves any.
#[derive(Clone, Copy)]
struct Job {
    work: *const (),
    base: u64,
    chunks: unsafe fn(*const (), usize) -> Option<usize>,
    run: unsafe fn(*const (), Claim),
}

/// State that threads write, apart from its neighbours in memory.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    word: Apart<AtomicU64>,
    done: Apart<AtomicU32>,
    /// Threads that sleep and have not been called yet. Written under the lock.
    asleep: Apart<AtomicU32>,
    stop: AtomicBool,
    failed: AtomicBool,
    job: UnsafeCell<Job>,
    /// Whether the caller is among those that sleep.
    caller_asleep: Mutex<bool>,
    wake_caller: Condvar,
    wake_worker: Condvar,
    threads: u32,
    cores: u32,
    spins: u32,
}

// SAFETY: `job` is written by the caller of `run` only while no step is open, and read only by threads that hold a
// chunk; opening a step releases and claiming acquires, so no read overlaps a write. What it points to is `Sync`.
// Everything else in it is `Sync` by itself.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointers of the job are not tied to a thread.
unsafe impl Send for Shared {}

/// A fixed number of threads, the caller's among them.
pub(crate) struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

fn parts(word: u64) -> (u64, u64, u64) {
    (word >> (2 * COUNT_BITS), word >> COUNT_BITS & COUNT_MASK, word & COUNT_MASK)
}

fn word(serial: u64, chunks: u64) -> u64 {
    serial << (2 * COUNT_BITS) | chunks << COUNT_BITS
}

impl Team {
    /// Starts `threads - 1` workers.
    pub(crate) fn new(threads: usize) -> Result<Team, Error> {
        // Less than the affinity mask where there is a quota: what spins would use it up.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(threads, cores, SPIN)
    }

    /// A team on so many cores, whose threads spin so long before they sleep.
    fn with(threads: usize, cores: usize, spin: Duration) -> Result<Team, Error> {
        let shared = Arc::new(Shared {
            word: Apart(AtomicU64::new(word(0, 0))),
            done: Apart(AtomicU32::new(0)),
            asleep: Apart(AtomicU32::new(0)),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            job: UnsafeCell::new(Job {
                work: std::ptr::null(),
                base: 0,
                chunks: no_chunks,
                run: run_nothing,
            }),
            caller_asleep: Mutex::new(false),
            wake_caller: Condvar::new(),
            wake_worker: Condvar::new(),
            threads: threads as u32,
            cores: cores as u32,
            spins: spins(spin),
        });
        let mut team = Team { shared, workers: Vec::with_capacity(threads.saturating_sub(1)) };
        let (started, all) = std::sync::mpsc::channel();
        for index in 1..threads {
            let (shared, started) = (team.shared.clone(), started.clone());
            let worker = std::thread::Builder::new().name(format!("quantsmith-{index}"));
            let worker = worker.spawn(move || {
                drop(started);
                shared.work(index);
            });
            team.workers.push(worker.map_err(|source| Error::Thread { index, count: threads, source })?);
        }
        drop(started);
        // Nothing is ever sent: the channel closes when the last worker runs, and has all the memory it needs.
        let _: Result<(), _> = all.recv();
        Ok(team)
    }

    /// Runs all steps from `first` on; returns when the last is done.
    ///
    /// # Errors
    /// * if a chunk panics, now or in an earlier call
    pub(crate) fn run<W: Work>(&mut self, work: &W, first: usize) -> Result<(), Error> {
        let shared = &*self.shared;
        if shared.failed.load(Ordering::Relaxed) {
            return Err(Error::Panicked);
        }
        // No step is open, so nothing changes the word but this call.
        let (serial, _, _) = parts(shared.word.0.load(Ordering::Acquire));
        let base = serial.wrapping_add(1).wrapping_sub(first as u64);
        let job = Job { work: (&raw const *work).cast(), base, chunks: chunks_of::<W>, run: run_chunk::<W> };
        // SAFETY: no step is open, so no thread holds a chunk and none reads the job.
        unsafe { *shared.job.get() = job };
        shared.open(&job, first);
        shared.work(0);
        if shared.failed.load(Ordering::Relaxed) { Err(Error::Panicked) } else { Ok(()) }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.call_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked outside a chunk has nothing left to clean up.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Claims and runs chunks: a worker until the team ends, the caller until its pass is over.
    fn work(&self, thread: usize) {
        let mut last = None;
        loop {
            let current = self.word.0.load(Ordering::Acquire);
            let (serial, chunks, next) = parts(current);
            if next < chunks {
                if self
                    .word
                    .0
                    .compare_exchange_weak(current, current + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                {
                    let first = last != Some(serial);
                    last = Some(serial);
                    self.chunk(serial, chunks, next, thread, first);
                }
            } else if (thread == 0 && chunks == 0) || self.stop.load(Ordering::Relaxed) {
                return;
            } else {
                self.wait(serial, thread == 0);
            }
        }
    }

    fn chunk(&self, serial: u64, chunks: u64, chunk: u64, thread: usize, first: bool) {
        // SAFETY: a chunk is held, so the pass is open and the job is not written.
        let job = unsafe { *self.job.get() };
        let step = (serial.wrapping_sub(job.base) & SERIAL_MASK) as usize;
        let claim = Claim { step, chunk: chunk as usize, thread, first };
        // SAFETY: `run` and `work` were stored together, for the same type, and the caller lends the work until the
        // pass is over, which it is not while a chunk is held.
        let run = || unsafe { (job.run)(job.work, claim) };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        if u64::from(self.done.0.fetch_add(1, Ordering::AcqRel)) + 1 == chunks {
            self.done.0.store(0, Ordering::Relaxed);
            self.open(&job, step + 1);
        }
    }

    /// Opens a step, or the next one that has chunks, or ends the pass. Only whoever did the last chunk of the step
    /// before may call this, or the caller of the pass at its start.
    fn open(&self, job: &Job, step: usize) {
        let mut step = step;
        let chunks = loop {
            // SAFETY: as in `chunk`: the pass is open, since its next step has not been opened yet.
            let ask = || unsafe { (job.chunks)(job.work, step) };
            match catch_unwind(AssertUnwindSafe(ask)) {
                Ok(Some(0)) => step += 1,
                Ok(Some(chunks)) if chunks <= MAX_CHUNKS && !self.failed.load(Ordering::Relaxed) => {
                    break chunks as u64;
                }
                Ok(None) => break 0,
                Ok(Some(_)) | Err(_) => {
                    self.failed.store(true, Ordering::Relaxed);
                    break 0;
                }
            }
        };
        let serial = job.base.wrapping_add(step as u64) & SERIAL_MASK;
        self.word.0.store(word(serial, chunks), Ordering::SeqCst);
        #[cfg(test)]
        tests::dawdle();
        // A single chunk is for the thread that opens the step; nobody need wake for it.
        if chunks == 0 || chunks > 1 && self.awake(Ordering::SeqCst) < self.threads.min(self.cores) {
            self.call(chunks == 0);
        }
    }

    /// How many threads do not sleep, or have been called.
    fn awake(&self, order: Ordering) -> u32 {
        self.threads.saturating_sub(self.asleep.0.load(order))
    }

    /// Waits until another step is open than the one with this serial number, or the team ends.
    fn wait(&self, serial: u64, caller: bool) {
        let waiting =
            |order| parts(self.word.0.load(order)).0 == serial && !self.stop.load(Ordering::Relaxed);
        // A thread too many would spin on a core that one with a chunk waits for.
        let spins = if self.awake(Ordering::Relaxed) > self.cores { 0 } else { self.spins };
        for _ in 0..spins {
            if !waiting(Ordering::Acquire) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.caller_asleep.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted before the word is read again, while whoever opens a step writes the word before it reads the count:
        // one of the two sees the other.
        self.asleep.0.fetch_add(1, Ordering::SeqCst);
        if !waiting(Ordering::SeqCst) {
            self.asleep.0.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        *guard = *guard || caller;
        let wake = if caller { &self.wake_caller } else { &self.wake_worker };
        loop {
            guard = wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            if !waiting(Ordering::SeqCst) {
                return;
            }
            // The call was for an earlier step, and late. Whoever called has counted this thread out.
            self.asleep.0.fetch_add(1, Ordering::SeqCst);
            *guard = *guard || caller;
        }
    }

    /// Calls sleeping threads, as many as there are cores without one; the caller, if the pass is over.
    fn call(&self, over: bool) {
        let mut caller_asleep = self.caller_asleep.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep = self.asleep.0.load(Ordering::SeqCst);
        let awake = self.threads.saturating_sub(asleep);
        let mut wanted = if over { 0 } else { self.cores.saturating_sub(awake).min(asleep) };
        let mut called = 0;
        if *caller_asleep && (over || wanted > 0) {
            *caller_asleep = false;
            self.wake_caller.notify_one();
            (called, wanted) = (1, wanted.saturating_sub(1));
        }
        for _ in 0..wanted {
            self.wake_worker.notify_one();
        }
        // Those who are called do not count themselves out: called once is enough, however long they take to wake.
        self.asleep.0.fetch_sub(called + wanted, Ordering::SeqCst);
    }

    /// Calls everybody, at the end of the team.
    fn call_all(&self) {
        drop(self.caller_asleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake_worker.notify_all();
    }
}

/// How many rounds of the spin loop take so long.
fn spins(time: Duration) -> u32 {
    const ROUNDS: u32 = 512;
    let best = (0..3)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| std::hint::spin_loop());
            start.elapsed()
        })
        .min();
    let round = best.map_or(0, |t| t.as_nanos() as u64).max(u64::from(ROUNDS));
    (time.as_nanos() as u64 * u64::from(ROUNDS) / round).min(100_000) as u32
}

/// # Safety
/// * `work` points to a `W` that stays valid during the call
unsafe fn chunks_of<W: Work>(work: *const (), step: usize) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe { &*work.cast::<W>() }.chunks(step)
}

/// # Safety
/// * `work` points to a `W` that stays valid during the call
unsafe fn run_chunk<W: Work>(work: *const (), claim: Claim) {
    // SAFETY: the caller's promise.
    unsafe { &*work.cast::<W>() }.run(claim);
}

/// # Safety
/// None needed: the arguments are not looked at.
unsafe fn no_chunks(_: *const (), _: usize) -> Option<usize> {
    None
}

/// # Safety
/// None needed: the arguments are not looked at.
unsafe fn run_nothing(_: *const (), _: Claim) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Lets time pass where the system may take a thread off its core at the worst moment.
    pub(super) fn dawdle() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        if COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Each step adds what the step before left, so a step that starts early gives a wrong sum.
    struct Chain {
        chunks: Vec<usize>,
        sums: Vec<AtomicUsize>,
        busy: bool,
    }

    impl Chain {
        fn new(chunks: &[usize], busy: bool) -> Self {
            Chain {
                chunks: chunks.to_vec(),
                sums: chunks.iter().map(|_| AtomicUsize::new(0)).collect(),
                busy,
            }
        }
    }

    impl Work for Chain {
        fn chunks(&self, step: usize) -> Option<usize> {
            self.chunks.get(step).copied()
        }

        fn run(&self, claim: Claim) {
            let before = (0..claim.step).rev().find(|&s| self.chunks[s] > 0);
            let expected = before.map_or(1, |s| self.sums[s].load(Ordering::Relaxed));
            if self.busy {
                std::thread::sleep(Duration::from_micros(150 * (1 + claim.chunk as u64 % 3)));
            }
            self.sums[claim.step].fetch_add(expected, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_step_sees_all_that_the_steps_before_it_did_with_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let mut team = Team::new(threads).unwrap();
            for round in 0..200 {
                let chain = Chain::new(&[3, 1, 0, 2, 5, 1, 4], round % 50 == 0);
                team.run(&chain, 0).unwrap();
                let sums: Vec<_> = chain.sums.iter().map(|s| s.load(Ordering::Relaxed)).collect();
                assert_eq!(sums, [3, 3, 0, 6, 30, 30, 120], "{threads} threads");
            }
        }
    }

    #[test]
    fn a_pass_can_start_at_a_later_step_and_have_no_steps_at_all() {
        let mut team = Team::new(2).unwrap();
        let chain = Chain::new(&[7, 2, 3], false);
        chain.sums[0].store(10, Ordering::Relaxed);
        team.run(&chain, 1).unwrap();
        assert_eq!(chain.sums[2].load(Ordering::Relaxed), 60);
        team.run(&chain, 3).unwrap();
        team.run(&Chain::new(&[], false), 0).unwrap();
        team.run(&Chain::new(&[0, 0], false), 0).unwrap();
    }

    struct Panics(AtomicUsize);

    impl Work for Panics {
        fn chunks(&self, step: usize) -> Option<usize> {
            (step < 2).then_some(4)
        }

        fn run(&self, claim: Claim) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(claim.chunk != 2, "on purpose");
        }
    }

    #[test]
    fn a_panic_in_any_thread_ends_the_pass_with_an_error_and_does_not_hang() {
        for threads in [1, 2, 4] {
            let mut team = Team::new(threads).unwrap();
            let work = Panics(AtomicUsize::new(0));
            assert!(matches!(team.run(&work, 0), Err(Error::Panicked)));
            assert_eq!(work.0.load(Ordering::Relaxed), 4, "the second step must not start");
            assert!(matches!(team.run(&Chain::new(&[1], false), 0), Err(Error::Panicked)));
        }
    }

    #[test]
    fn threads_that_sleep_at_every_turn_lose_no_step_however_many_may_be_awake() {
        for (threads, cores) in [(2, 1), (2, 2), (4, 1), (4, 2), (4, 8), (9, 3)] {
            let mut team = Team::with(threads, cores, Duration::ZERO).unwrap();
            for round in 0..300 {
                let chain = Chain::new(&[2, 1, 2, 3, 1, 2, 2], round % 3 == 0);
                team.run(&chain, 0).unwrap();
                let last = chain.sums[6].load(Ordering::Relaxed);
                assert_eq!(last, 2 * 2 * 3 * 2 * 2, "{threads} threads on {cores} cores");
            }
            assert!(matches!(team.run(&Panics(AtomicUsize::new(0)), 0), Err(Error::Panicked)));
        }
    }

    #[test]
    fn sleeping_threads_wake_for_the_next_pass() {
        let mut team = Team::new(3).unwrap();
        for _ in 0..5 {
            std::thread::sleep(SPIN * 20);
            let chain = Chain::new(&[2, 2], true);
            team.run(&chain, 0).unwrap();
            assert_eq!(chain.sums[1].load(Ordering::Relaxed), 4);
        }
    }
}
