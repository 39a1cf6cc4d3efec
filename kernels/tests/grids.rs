//! The grids are what their README says: each file, expanded to one signed byte an entry, has the checksum beside it.

use sha2::{Digest, Sha256};
use std::path::Path;

/// A line of the README's table.
struct Grid<'a> {
    file: &'a str,
    entries: usize,
    values: Vec<i8>,
    checksum: &'a str,
}

fn grid(line: &str) -> Option<Grid<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [_, file, shape, values, checksum] = cells[..] else { return None };
    let (rows, cols) = shape.split_once('×')?;
    Some(Grid {
        file: file.strip_prefix('`')?.strip_suffix('`')?,
        entries: rows.trim().parse::<usize>().ok()? * cols.trim().parse::<usize>().ok()?,
        values: values.split(',').map(|v| v.trim().parse().expect("a value")).collect(),
        checksum: checksum.trim_matches('`'),
    })
}

#[test]
fn each_grid_has_its_checksum() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/formats/grids");
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("the README of the grids");
    let grids: Vec<Grid<'_>> = readme.lines().filter_map(grid).collect();
    let files = std::fs::read_dir(&folder).expect("the folder of the grids");
    let hex = files.filter(|f| f.as_ref().is_ok_and(|f| f.path().extension().is_some_and(|e| e == "hex")));
    assert_eq!(grids.len(), hex.count(), "a line for each file");
    for Grid { file, entries, values, checksum } in grids {
        let text = std::fs::read_to_string(folder.join(file)).expect(file);
        let digits = text.lines().flat_map(|line| line.split('#').next().unwrap_or("").chars());
        let digits: Vec<u32> = digits.filter_map(|c| c.to_digit(16)).collect();
        let bytes = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]);
        let width = if values.len() <= 4 { 2 } else { 4 };
        let codes =
            bytes.flat_map(|byte| (0..8 / width).map(move |k| byte >> (k * width) & ((1 << width) - 1)));
        let table: Vec<u8> = codes.map(|code| values[code as usize] as u8).collect();
        assert_eq!(table.len(), entries, "{file}");
        let found: String = Sha256::digest(&table).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, checksum, "{file}");
    }
}
