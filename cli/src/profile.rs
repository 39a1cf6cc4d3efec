//! Where the time goes: what `--profile` shows, for the prompt and for generation apart.
//!
//! A line is a kind of step of the plan, with all operations that were fused into it; then drawing, and what is left of
//! the time of the phase: text, output, and what the program does between steps.

use std::time::Duration;

use quantsmith::StepTime;
use serde::Serialize;

use crate::generate::Timings;
use crate::table::{Align, Table, counted};

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Steps of the prompt.
    pub(crate) prompt: Vec<StepTime>,
    /// Steps of generation.
    pub(crate) generation: Vec<StepTime>,
    /// How often a token was drawn, and the time that took.
    pub(crate) drawn: (u64, Duration),
}

/// Adds the times of another call to those of a phase.
pub(crate) fn add(phase: &mut Vec<StepTime>, more: Vec<StepTime>) {
    for step in more {
        match phase.iter_mut().find(|known| known.ops == step.ops && known.formats == step.formats) {
            Some(known) => {
                known.count += step.count;
                known.time += step.time;
                known.busy += step.busy;
                known.bytes += step.bytes;
            }
            None => phase.push(step),
        }
    }
}

/// The result as JSON has it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    prompt: Phase,
    generation: Phase,
}

#[derive(Debug, Serialize)]
struct Phase {
    tokens: usize,
    ms: f64,
    steps: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    kind: &'static str,
    formats: String,
    ops: String,
    calls: u64,
    ms: f64,
    /// Of the time of the phase.
    share: f64,
    /// How fast the matrices of products are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    gb_per_s: Option<f64>,
    /// The part of the threads' time in which they had nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<f64>,
}

impl Profile {
    /// Puts the measured times in order.
    pub(crate) fn report(self, timings: &Timings, threads: usize) -> Report {
        let none = (0, Duration::ZERO);
        Report {
            prompt: Phase::new(timings.prompt_tokens, timings.prompt, self.prompt, none, threads),
            generation: Phase::new(timings.runs, timings.generation, self.generation, self.drawn, threads),
        }
    }
}

impl Phase {
    fn new(
        tokens: usize,
        all: Duration,
        mut steps: Vec<StepTime>,
        drawn: (u64, Duration),
        threads: usize,
    ) -> Self {
        steps.sort_by_key(|step| std::cmp::Reverse(step.time));
        let seconds = all.as_secs_f64();
        let share = |time: Duration| if all.is_zero() { 0.0 } else { time.as_secs_f64() / seconds };
        let rest = all.saturating_sub(steps.iter().map(|step| step.time).sum::<Duration>() + drawn.1);
        let plain = |kind, calls, time: Duration| Line {
            kind,
            formats: String::new(),
            ops: String::new(),
            calls,
            ms: time.as_secs_f64() * 1e3,
            share: share(time),
            gb_per_s: None,
            waiting: None,
        };
        let mut lines: Vec<Line> = Vec::with_capacity(steps.len() + 2);
        for step in steps {
            let time = step.time.as_secs_f64();
            lines.push(Line {
                gb_per_s: (step.bytes > 0 && time > 0.0).then(|| step.bytes as f64 / time / 1e9),
                waiting: (time > 0.0)
                    .then(|| (1.0 - step.busy.as_secs_f64() / (time * threads as f64)).clamp(0.0, 1.0)),
                formats: step.formats,
                ops: step.ops,
                ..plain(step.kind, step.count, step.time)
            });
        }
        if drawn.0 > 0 {
            lines.push(plain("sampling", drawn.0, drawn.1));
        }
        lines.push(plain("other", 0, rest));
        Phase { tokens, ms: seconds * 1e3, steps: lines }
    }

    fn text(&self, name: &str) -> String {
        let head = [("kind", Align::Left), ("format", Align::Left), ("calls", Align::Right)];
        let figures = [
            ("ms", Align::Right),
            ("share", Align::Right),
            ("GB/s", Align::Right),
            ("waiting", Align::Right),
        ];
        let mut table = Table::new(head.into_iter().chain(figures).chain([("operations", Align::Left)]));
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        for line in &self.steps {
            table.row([
                line.kind.to_owned(),
                line.formats.clone(),
                if line.calls == 0 { String::new() } else { line.calls.to_string() },
                format!("{:.2}", line.ms),
                percent(line.share),
                line.gb_per_s.map_or_else(String::new, |speed| format!("{speed:.1}")),
                line.waiting.map_or_else(String::new, percent),
                line.ops.clone(),
            ]);
        }
        format!("{name}: {}, {:.2} ms\n{}", counted(self.tokens, "token"), self.ms, table.plain())
    }
}

impl Report {
    /// The tables of both phases; one in which nothing happened is left out.
    pub(crate) fn text(&self) -> String {
        let phases = [("prompt", &self.prompt), ("generation", &self.generation)];
        let texts: Vec<String> =
            phases.iter().filter(|(_, phase)| phase.ms > 0.0).map(|(name, phase)| phase.text(name)).collect();
        texts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ops: &str, ms: u64, bytes: u64) -> StepTime {
        let time = Duration::from_millis(ms);
        let (kind, formats) = if bytes > 0 { ("product", "Q4_0") } else { ("attend", "") };
        StepTime { kind, formats: formats.into(), ops: ops.into(), count: 2, time, busy: time, bytes }
    }

    #[test]
    fn shares_add_up_and_waiting_is_of_all_threads() {
        let mut profile = Profile { drawn: (3, Duration::from_millis(1)), ..Profile::default() };
        for _ in 0..2 {
            add(&mut profile.generation, vec![step("attend", 1, 0), step("matmul", 3, 6_000_000)]);
        }
        let timings = Timings { runs: 4, generation: Duration::from_millis(10), ..Timings::default() };
        let report = profile.report(&timings, 2);
        let lines = &report.generation.steps;
        let kinds: Vec<_> = lines.iter().map(|line| (line.kind, line.calls)).collect();
        assert_eq!(kinds, [("product", 4), ("attend", 4), ("sampling", 3), ("other", 0)]);
        assert!((lines.iter().map(|line| line.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!((lines[0].gb_per_s, lines[0].waiting, lines[1].gb_per_s), (Some(2.0), Some(0.5), None));
        let text = report.text();
        assert!(text.starts_with("generation: 4 tokens, 10.00 ms\nkind "), "{text}");
    }

    #[test]
    fn nothing_at_all_gives_no_tables_and_no_shares_beyond_reason() {
        let report = Profile::default().report(&Timings::default(), 2);
        assert_eq!(report.text(), "");
        assert_eq!(report.prompt.steps[0].share, 0.0);
    }
}
