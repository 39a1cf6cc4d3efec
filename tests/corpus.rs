//! The corpus of the fuzzers, replayed: each file as it is, cut at every byte, with every field set to its extremes, and
//! with bytes changed, taken out, doubled and moved at random, the same in every run.

#[allow(unreachable_pub, reason = "a module of another workspace, too")]
#[path = "../fuzz/src/readers.rs"]
mod readers;

use std::fmt::Arguments;
use std::ops::Range;
use std::path::{Path, PathBuf};

use quantsmith::files::inspect::trace;
use quantsmith::files::{OpenOptions, Trace};
use quantsmith_kernels::Registry;
use quantsmith_tests::repository;
use readers::{READERS, read};

/// Files of a folder of the corpus.
fn corpus(kind: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = repository().join("fuzz/corpus").join(kind);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
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
            assert!(read(kind, &bytes), "{}", path.display());
        }
    }
}

#[test]
fn every_cut_and_every_extreme_is_taken_or_refused() {
    for (kind, _) in READERS {
        for (path, bytes) in corpus(kind) {
            let cuts = (0..bytes.len().min(HEADER)).filter(|&cut| read(kind, &bytes[..cut])).count();
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
                        refused += usize::from(!read(kind, &changed));
                    }
                }
            }
            assert!(refused > 20, "{}: {refused}", path.display());
        }
    }
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

#[test]
fn what_is_changed_at_random_is_taken_or_refused() {
    for (kind, _) in READERS {
        for (seed, (_, bytes)) in corpus(kind).iter().enumerate() {
            let mut noise = Noise(seed as u64 * 2 + 0x9e37_79b9_7f4a_7c15);
            for _ in 0..1500 {
                let mut changed = bytes.clone();
                for _ in 0..=noise.below(4) {
                    let at = noise.below(changed.len().min(HEADER));
                    let end = at + noise.below((changed.len() - at).min(64));
                    match noise.below(4) {
                        0 => changed[at..end].iter_mut().for_each(|b| *b = noise.below(256) as u8),
                        1 => drop(changed.drain(at..end)),
                        2 => {
                            let piece = changed[at..end].to_vec();
                            let to = noise.below(changed.len().min(HEADER));
                            changed.splice(to..to, piece);
                        }
                        _ => {
                            if let Some(byte) = changed.get_mut(at) {
                                *byte ^= 1 << noise.below(8);
                            }
                        }
                    }
                }
                read(kind, &changed);
            }
        }
    }
}
