//! Private formats: a file names them by name and digest, and nothing is taken for what it is not.

use std::fs;

use super::*;
use crate::files::ops::{Edit, edit};
use crate::files::private::NAMES;
use crate::files::{Array, GgufWriter, Layout, Metadata, NewTensor, Value};

/// A table with one private format of 32 weights in 14 bytes.
struct Private {
    name: &'static str,
    digest: &'static str,
}

const OURS: Private =
    Private { name: "MY_Q3", digest: "1a2b3c4d00000000000000000000000000000000000000000000000000000001" };

impl Private {
    fn number(&self) -> u32 {
        u32::from_str_radix(&self.digest[..8], 16).expect("digits") | 1 << 31
    }
}

impl TypeTable for Private {
    fn shape(&self, type_id: u32) -> Option<BlockShape> {
        if type_id == self.number() { self.shape_named(self.name) } else { Table.shape(type_id) }
    }

    fn names(&self) -> Vec<String> {
        [Table.names(), vec![self.name.to_owned()]].concat()
    }

    fn shape_named(&self, name: &str) -> Option<BlockShape> {
        (name == self.name).then_some(BlockShape { name: self.name, elements: 32, bytes: 14 })
    }

    fn digest(&self, type_id: u32) -> Option<String> {
        (type_id == self.number()).then(|| self.digest.to_owned())
    }
}

fn written(path: &Path) {
    let tensor = NewTensor {
        name: "a.weight".into(),
        dims: vec![64],
        type_id: OURS.number(),
        layout: Layout::Current,
    };
    let mut writer = GgufWriter::create(path, &[], &Metadata::new(), &[tensor], &OURS).expect("created");
    writer.write(&[7; 28]).expect("written");
    writer.finish().expect("finished");
}

#[test]
fn a_private_format_is_found_by_name_and_digest() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mine.gguf");
    written(&path);
    let file = ModelFile::open(&path, &OURS).expect("opened");
    assert_eq!(file.tensors()[0].type_name, "MY_Q3");
    assert_eq!(
        file.metadata().strings(NAMES).map(|s| s[0].to_string_lossy().into_owned()),
        Some("MY_Q3".into())
    );
    let again = dir.path().join("again.gguf");
    edit(&path, &again, &[], &OURS).expect("rewritten");
    assert!(fs::read(&path).expect("read") == fs::read(&again).expect("read"));
}

#[test]
fn a_program_without_the_format_says_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mine.gguf");
    written(&path);
    let refused = |table: &dyn TypeTable| ModelFile::open(&path, table).expect_err("refused").to_string();
    let error = refused(&Table);
    assert!(error.contains("'a.weight'") && error.contains("MY_Q3"), "{error}");
    assert!(error.contains("1a2b3c4d0000…") && error.contains("has not got"), "{error}");
    // The same name with another declaration.
    let other = Private {
        digest: concat!("99999999", "000000000000000000000000000000000000000000000000000000ff"),
        ..OURS
    };
    let error = refused(&other);
    assert!(error.contains("MY_Q3 of another declaration"), "{error}");
    // The same number, which is the start of the digest, with another end.
    let twin = Private {
        digest: concat!("1a2b3c4d", "000000000000000000000000000000000000000000000000000000ff"),
        ..OURS
    };
    let error = refused(&twin);
    assert!(error.contains("of another declaration"), "{error}");
}

#[test]
fn a_private_number_without_a_name_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bare.gguf");
    fs::write(&path, Raw::new(3).tensor("a", &[64], OURS.number(), &[7; 28]).build()).expect("written");
    let error = ModelFile::open(&path, &OURS).expect_err("refused").to_string();
    assert!(error.contains("no known type") && error.contains(NAMES), "{error}");
}

#[test]
fn a_file_without_private_formats_does_not_speak_of_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
    fs::write(&input, Raw::new(3).entry_str("a", "b").tensor("a", &[32], 2, &pattern(18)).build())
        .expect("written");
    let names = Value::Array(Array::String(vec!["X".into()]));
    edit(&input, &output, &[Edit::Set(NAMES.into(), names)], &Table).expect("rewritten");
    let file = ModelFile::open(&output, &Table).expect("opened");
    assert!(file.metadata().get(NAMES).is_none());
}
