//! A plot as SVG: groups of horizontal bars, a colour for each series.

use std::fmt::Write as _;

/// Groups of bars.
pub(crate) struct Plot {
    /// What is shown, and in which unit.
    pub(crate) title: String,
    /// The names of the series.
    pub(crate) series: Vec<String>,
    /// The name of each group and its value in each series, if it has one.
    pub(crate) groups: Vec<(String, Vec<Option<f64>>)>,
}

/// Colours that are told apart without seeing red and green, and in print.
const COLOURS: [&str; 9] =
    ["#999999", "#56b4e9", "#0072b2", "#e69f00", "#d55e00", "#cc79a7", "#009e73", "#f0e442", "#000000"];

const BAR: usize = 11;
const LABELS: usize = 130;
const BARS: usize = 560;
const NUMBERS: usize = 70;
const TOP: usize = 58;

impl Plot {
    /// The plot as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let largest =
            self.groups.iter().flat_map(|(_, values)| values).flatten().copied().fold(0.0, f64::max);
        let shown = |(_, values): &&(String, Vec<Option<f64>>)| values.iter().any(Option::is_some);
        let bars = |values: &[Option<f64>]| values.iter().flatten().count();
        let heights = self.groups.iter().filter(shown).map(|(_, values)| bars(values) * BAR + BAR);
        let (width, height) = (LABELS + BARS + NUMBERS, TOP + heights.sum::<usize>());
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"{width}\" height=\"{height}\" \
             fill=\"white\"/>\n<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>\n",
            escaped(&self.title)
        );
        let step = (width - 20) / self.series.len().max(1);
        for (n, name) in self.series.iter().enumerate() {
            let x = 10 + n * step;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"32\" width=\"9\" height=\"9\" fill=\"{}\"/><text x=\"{}\" y=\"40\">{}</text>",
                colour(n),
                x + 13,
                escaped(name)
            );
        }
        let mut y = TOP;
        for (name, values) in self.groups.iter().filter(shown) {
            let middle = y + (bars(values) * BAR) / 2 + 4;
            let x = LABELS - 6;
            let _ =
                writeln!(out, "<text x=\"{x}\" y=\"{middle}\" text-anchor=\"end\">{}</text>", escaped(name));
            for (n, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let length = if largest > 0.0 { value / largest * BARS as f64 } else { 0.0 };
                let _ = writeln!(
                    out,
                    "<rect x=\"{LABELS}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>\
                     <text x=\"{:.1}\" y=\"{}\" font-size=\"9\">{}</text>",
                    BAR - 1,
                    colour(n),
                    LABELS as f64 + length + 4.0,
                    y + BAR - 2,
                    short(*value)
                );
                y += BAR;
            }
            y += BAR;
        }
        out.push_str("</svg>\n");
        out
    }
}

fn colour(n: usize) -> &'static str {
    COLOURS[n % COLOURS.len()]
}

/// Three digits of a number.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        let plot = Plot {
            title: "a < b".into(),
            series: vec!["one".into(), "two".into()],
            groups: vec![
                ("x".into(), vec![Some(50.0), None]),
                ("y".into(), vec![Some(0.0), Some(100.0)]),
                ("none".into(), vec![None, None]),
            ],
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && !svg.contains("none"), "{svg}");
        assert!(svg.contains("width=\"280.0\"") && svg.contains("width=\"560.0\""), "{svg}");
        assert_eq!(svg.matches("fill=\"#56b4e9\"").count(), 2, "legend and one bar: {svg}");
        assert!(!Plot { groups: Vec::new(), ..plot }.svg().contains("NaN"));
    }
}
