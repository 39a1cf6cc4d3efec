//! The corpus of the fuzzers, replayed: each file as it is, right ones cut at every byte and with every field set to its
//! extremes, and all with bytes changed, taken out, doubled and moved at random, the same in every run. None may take
//! more than 64 MiB beyond the size of the file.

#[allow(unreachable_pub, reason = "a module of another workspace, too")]
#[path = "../fuzz/src/memory.rs"]
mod memory;
#[allow(unreachable_pub, reason = "a module of another workspace, too")]
#[path = "../fuzz/src/readers.rs"]
mod readers;

use std::collections::HashSet;
use std::fmt::Arguments;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quantsmith::files::inspect::trace;
use quantsmith::files::{OpenOptions, Trace};
use quantsmith_kernels::Registry;
use quantsmith_tests::repository;
use readers::{READERS, read};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Right files of a kind.
fn corpus(kind: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(&repository().join("fuzz/corpus").join(kind))
}

/// Files that a fuzzer made of them, which lead elsewhere; most are refused.
fn found(kind: &str) -> Vec<(PathBuf, Vec<u8>)> {
    files(&repository().join("fuzz/corpus").join(kind).join("found"))
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

/// Fields of a file that are numbers.
#[derive(Default)]
struct Fields(Vec<Range<usize>>);

impl Trace for Fields {
    fn field(&mut self, bytes: Range<u64>, _: Arguments<'_>, _: Arguments<'_>) {
        if bytes.end - bytes.start <= 8 {
            self.0.push(bytes.start as usize..bytes.end as usize);
        }
    }
}

/// The numbers of a file: as the reader tells them, or every word where it tells none.
fn fields(path: &Path, size: usize) -> Vec<Range<usize>> {
    let mut fields = Fields::default();
    match trace(path, &Registry::builtin(), &OpenOptions::default(), &mut fields) {
        Ok(()) => fields.0,
        Err(_) => (0..size / 4).map(|i| 4 * i..4 * i + 4).collect(),
    }
}

/// Most bytes of a file that are cut and changed one by one: its header, and some data.
const HEADER: usize = 4096;

#[test]
fn every_file_of_the_corpus_is_taken() {
    for (kind, magic) in READERS {
        let files = corpus(kind);
        assert!(!files.is_empty(), "{kind}");
        for (path, bytes) in files {
            assert!(bytes.starts_with(magic), "{}", path.display());
            assert_eq!(read(kind, &bytes), Ok(()), "{}", path.display());
        }
    }
}

#[test]
fn what_a_fuzzer_found_is_refused_in_many_ways() {
    for (kind, _) in READERS {
        let ways: HashSet<String> =
            found(kind).iter().filter_map(|(_, bytes)| read(kind, bytes).err()).map(|m| way(&m)).collect();
        assert!(ways.len() >= 8, "{kind}: {ways:?}");
    }
}

/// A message without its numbers.
fn way(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}

#[test]
fn every_cut_and_every_extreme_is_taken_or_refused() {
    for (kind, _) in READERS {
        for (path, bytes) in corpus(kind) {
            let cuts = (0..bytes.len().min(HEADER)).filter(|&cut| read(kind, &bytes[..cut]).is_ok()).count();
            // An old file cut between two tensors is still a file, and so is importance without the name of its text;
            // what pads the last tensor may be missing.
            assert!(cuts < 64, "{}: {cuts} cuts are taken", path.display());
            let mut refused = 0;
            for field in fields(&path, bytes.len()) {
                let width = field.len();
                for value in [0, 1, u64::MAX, u64::MAX - 1, u64::MAX >> 1] {
                    for big in [false, true] {
                        let mut number = value.to_le_bytes()[..width].to_vec();
                        if big {
                            number.reverse();
                        }
                        let mut changed = bytes.clone();
                        changed[field.clone()].copy_from_slice(&number);
                        refused += usize::from(read(kind, &changed).is_err());
                    }
                }
            }
            assert!(refused > 20, "{}: {refused}", path.display());
        }
    }
}

#[test]
#[should_panic(expected = "67108967 bytes for a file of 100")]
fn memory_out_of_proportion_would_be_seen() {
    readers::within(100, || vec![0u8; (64 << 20) + 103]);
}

/// Numbers without pattern.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % n.max(1)
    }
}

impl Noise {
    /// Changes bytes, takes some out, doubles some or moves them: a few times over.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().min(HEADER));
            let end = at + self.below((bytes.len() - at).min(64));
            match self.below(5) {
                0 => bytes[at..end].iter_mut().for_each(|b| *b = self.below(256) as u8),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len().min(HEADER));
                    bytes.splice(to..to, piece);
                }
                3 => {
                    let extreme =
                        [0, 1, u64::MAX, u64::MAX - 1, 1 << 31, 1 << 63][self.below(6)].to_le_bytes();
                    let width = [1, 4, 8][self.below(3)].min(bytes.len() - at);
                    bytes[at..at + width].copy_from_slice(&extreme[..width]);
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_changed_at_random_is_taken_or_refused() {
    for (kind, _) in READERS {
        let right = corpus(kind).into_iter().map(|(_, bytes)| (bytes, 1500));
        let found = found(kind).into_iter().map(|(_, bytes)| (bytes, 150));
        for (seed, (bytes, times)) in right.chain(found).enumerate() {
            let mut noise = Noise(seed as u64 * 2 + 0x9e37_79b9_7f4a_7c15);
            for _ in 0..times {
                let mut changed = bytes.clone();
                noise.change(&mut changed);
                let _ = read(kind, &changed);
            }
        }
    }
}

/// Fuzzing for those who have no fuzzer: `QUANTSMITH_FUZZ_SECONDS` for each reader, and what is refused in a new way, or
/// taken after a change, is changed further.
#[test]
#[ignore = "takes as long as it is asked to"]
fn every_reader_is_fuzzed_for_a_while() {
    let seconds = std::env::var("QUANTSMITH_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    for (kind, _) in READERS {
        let mut pool: Vec<Vec<u8>> =
            corpus(kind).into_iter().chain(found(kind)).map(|(_, bytes)| bytes).collect();
        let largest = pool.iter().map(Vec::len).max().unwrap_or(0);
        let (start, mut noise) = (Instant::now(), Noise(0x5eed));
        let (mut ways, mut count, mut slowest) = (HashSet::new(), 0u64, Duration::ZERO);
        while start.elapsed().as_secs() < seconds {
            let mut bytes = pool[noise.below(pool.len())].clone();
            noise.change(&mut bytes);
            bytes.truncate(2 * largest);
            let now = Instant::now();
            let way = match read(kind, &bytes) {
                Ok(()) => format!("taken {}", noise.below(50)),
                Err(message) => way(&message),
            };
            slowest = slowest.max(now.elapsed());
            if ways.insert(way) && pool.len() < 4096 {
                pool.push(bytes);
            }
            count += 1;
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap_or("VmHWM: unknown")
            .replace(char::is_whitespace, "");
        eprintln!("{kind}: {count} files, {} ways, slowest {slowest:?}, {peak}", ways.len());
        assert!(slowest < Duration::from_secs(2), "{kind}: {slowest:?}");
    }
}
