//! Tables of text, for a terminal or as Markdown.

use crate::output::printable;

/// Which way a column leans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under a head.
pub(crate) struct Table {
    head: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows yet.
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = (S, Align)>) -> Self {
        Self { head: head.into_iter().map(|(name, align)| (name.into(), align)).collect(), rows: Vec::new() }
    }

    /// Adds a row: as many cells as there are columns; missing ones are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| printable(&cell)).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |at: usize| self.rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
        self.head.iter().enumerate().map(|(at, (name, _))| width(name).max(widest(at))).collect()
    }

    /// The table for a terminal: columns apart by two blanks, lines without blanks at the end.
    pub(crate) fn plain(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        let head: Vec<String> = self.head.iter().map(|(name, _)| name.clone()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let cells = self.padded(row, &widths);
            out.push_str(cells.join("  ").trim_end());
            out.push('\n');
        }
        out
    }

    /// The table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        // The rule below the head needs three characters.
        let widths: Vec<usize> = self.widths().into_iter().map(|w| w.max(3)).collect();
        let mut out = String::new();
        let mut line = |cells: &[String]| {
            out.push_str("| ");
            out.push_str(&cells.join(" | "));
            out.push_str(" |\n");
        };
        let head: Vec<String> = self.head.iter().map(|(name, _)| name.clone()).collect();
        line(&self.padded(&head, &widths));
        let rules = self.head.iter().zip(&widths).map(|((_, align), &width)| match align {
            Align::Left => "-".repeat(width),
            Align::Right => format!("{}:", "-".repeat(width - 1)),
        });
        line(&rules.collect::<Vec<_>>());
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            line(&self.padded(&cells, &widths));
        }
        out
    }

    fn padded(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells = row.iter().zip(&self.head).zip(widths);
        cells
            .map(|((cell, (_, align)), &to)| {
                let blanks = " ".repeat(to.saturating_sub(width(cell)));
                match align {
                    Align::Left => format!("{cell}{blanks}"),
                    Align::Right => format!("{blanks}{cell}"),
                }
            })
            .collect()
    }
}

/// How wide text is, counting characters: exact for the names that tables here hold.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// A number of bytes as people read it: `512 B`, `1.5 KiB`, `93.8 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// A number of parameters as people read it: `134.5 M`.
pub(crate) fn count(n: u64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    match units.iter().find(|(size, _)| n as f64 >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", n as f64 / size),
        None => n.to_string(),
    }
}

/// A number of things: `1 token`, `2 tokens`.
pub(crate) fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A whole number with a comma between groups of three digits.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new([("name", Align::Left), ("id", Align::Right), ("", Align::Left)]);
        table.row(["Q4_K".into(), "12".into(), "yes".into()]);
        table.row(["a|b\n".into(), "7".into()]);
        table
    }

    #[test]
    fn plain_tables_line_up() {
        assert_eq!(sample().plain(), "name   id\nQ4_K   12  yes\na|b\\n   7\n");
    }

    #[test]
    fn markdown_tables_line_up_and_escape_bars() {
        let text = sample().markdown();
        assert!(
            text.starts_with("| name  |  id |     |\n| ----- | --: | --- |\n| Q4_K  |  12 | yes |\n"),
            "{text}"
        );
        assert!(text.contains("a\\|b"), "{text}");
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!((counted(1, "token"), counted(0, "token")), ("1 token".into(), "0 tokens".into()));
        assert_eq!((bytes(0), bytes(1023), bytes(1536)), ("0 B".into(), "1023 B".into(), "1.5 KiB".into()));
        assert_eq!((bytes(98_362_432), bytes(1 << 30)), ("93.8 MiB".into(), "1.0 GiB".into()));
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!((count(999), count(134_515_008)), ("999".into(), "134.5 M".into()));
        assert_eq!(
            (grouped(0), grouped(1000), grouped(98_362_432)),
            ("0".into(), "1,000".into(), "98,362,432".into())
        );
    }
}
