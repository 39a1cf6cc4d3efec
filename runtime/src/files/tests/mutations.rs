//! Files of every container with one field changed, or cut: whatever comes of it, no panic, no hang.

use std::path::Path;

use super::inspect::{fields, one_of_each};
use super::*;
use crate::files::inspect::summarise;

/// Uses all of a model that could be opened.
fn exercise(model: &ModelFile) {
    for tensor in model.tensors() {
        assert_eq!(model.data(tensor).len() as u64, tensor.bytes, "{}", tensor.name);
    }
    let summary = summarise(model);
    assert_eq!(summary.tensors.len(), model.tensors().len());
}

fn read(name: &str, bytes: &[u8]) -> bool {
    match ModelFile::from_bytes(Path::new("m"), bytes.to_vec(), &Table) {
        Ok(model) => {
            exercise(&model);
            true
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 1500 && !message.contains('\n'), "{name}: {message}");
            assert!(error.offset().is_none_or(|at| at <= bytes.len() as u64), "{name}: {message}");
            false
        }
    }
}

#[test]
fn each_field_set_to_its_extremes_is_read_or_refused() {
    for (name, bytes) in one_of_each() {
        assert!(read(name, &bytes));
        let (mut refused, mut changes) = (0, 0);
        for (range, _) in fields(&bytes).into_iter().filter(|(r, _)| r.end - r.start <= 8) {
            let range = range.start as usize..range.end as usize;
            let width = range.len();
            let number = |v: u64| -> Vec<u8> { v.to_le_bytes()[..width].to_vec() };
            let reversed = |mut v: Vec<u8>| -> Vec<u8> {
                v.reverse();
                v
            };
            let high = number(1 << (8 * width - 1));
            for value in [
                number(0),
                number(1),
                reversed(number(1)),
                number(u64::MAX),
                number(u64::MAX - 1),
                reversed(number(u64::MAX - 1)),
                high.clone(),
                reversed(high),
            ] {
                let mut changed = bytes.clone();
                changed[range.clone()].copy_from_slice(&value);
                refused += usize::from(!read(name, &changed));
                changes += 1;
            }
        }
        assert!(refused > 100 && refused < changes, "{name}: {refused} of {changes} refused");
    }
}

#[test]
fn each_cut_is_read_or_refused() {
    for (name, bytes) in one_of_each() {
        let cuts = bytes.len().min(2500);
        let read = (0..cuts).filter(|&cut| read(name, &bytes[..cut])).count();
        // Only an old file cut between two tensors is still a file.
        assert!(if name.starts_with("gguf") { read == 0 } else { read <= 2 }, "{name}: {read}");
    }
}

#[test]
fn each_byte_changed_is_read_or_refused() {
    for (name, bytes) in one_of_each() {
        let header = bytes.len().min(1200);
        for at in 0..header {
            for change in [0x01, 0x80, 0xff, 0x40] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                read(name, &changed);
            }
        }
    }
}
