//! The README says what the program says.

use quantsmith_tests::quantsmith;
use std::fs;

const START: &str = "<!-- formats: made by `quantsmith formats --markdown`, checked by a test -->\n";
const END: &str = "<!-- /formats -->";

/// The table of formats in the README is the program's. `QUANTSMITH_BLESS=1` writes it anew.
#[test]
fn the_table_of_formats_is_the_programs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = fs::read_to_string(path).expect("the README");
    let table = quantsmith!("formats", "--markdown").run().stdout;
    let (before, rest) = readme.split_once(START).expect("the start of the table");
    let (written, after) = rest.split_once(END).expect("the end of the table");
    let want = format!("{}\n", table.trim_end());
    if written != want && std::env::var_os("QUANTSMITH_BLESS").is_some() {
        fs::write(path, format!("{before}{START}{want}{END}{after}")).expect("the README can be written");
        return;
    }
    assert_eq!(written, want, "run this test with QUANTSMITH_BLESS=1");
}
