//! Stop strings: texts that end an answer, wherever the borders of tokens fall.

/// What came of a piece of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopStep {
    /// The text that is decided: it contains no stop string and cannot be the beginning of one.
    pub text: String,
    /// Which of the stop strings ended the answer, if one did. Nothing after it counts.
    pub stopped: Option<usize>,
}

/// Watches a stream of text for stop strings.
///
/// Text that may be the beginning of a stop string is held back until the next pieces decide. The stop string
/// itself is never handed out; of several, the one that begins first counts, and of those the longest.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: Option<usize>,
}

impl StopStrings {
    /// Watches for these texts; empty ones are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), stopped: None }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> StopStep {
        if let Some(stop) = self.stopped {
            return StopStep { text: String::new(), stopped: Some(stop) };
        }
        self.held.push_str(text);
        let found = self
            .stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| !stop.is_empty())
            .filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i)))
            .min_by_key(|&(at, i)| (at, std::cmp::Reverse(self.stops[i].len())));
        // A longer stop string that begins earlier may still be coming.
        let open = self.begun();
        match found {
            Some((at, i)) if at <= open => {
                self.stopped = Some(i);
                self.held.truncate(at);
                StopStep { text: std::mem::take(&mut self.held), stopped: self.stopped }
            }
            _ => {
                let rest = self.held.split_off(open);
                StopStep { text: std::mem::replace(&mut self.held, rest), stopped: None }
            }
        }
    }

    /// Ends the stream and returns what was held back.
    pub fn finish(&mut self) -> String {
        // At the end a stop string that stands complete in what was held back counts after all.
        let held = std::mem::take(&mut self.held);
        let found = self.stops.iter().enumerate().filter(|(_, s)| !s.is_empty());
        match found.filter_map(|(i, s)| Some((held.find(s.as_str())?, i))).min() {
            Some((at, i)) => {
                self.stopped = Some(i);
                held[..at].to_owned()
            }
            None => held,
        }
    }

    /// Where the longest end of the held text starts that is the beginning of a stop string.
    fn begun(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        (from..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(|&at| {
                let end = &self.held[at..];
                self.stops.iter().any(|stop| stop.len() > end.len() && stop.starts_with(end))
            })
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], parts: &[&str]) -> (Vec<String>, Option<usize>, String) {
        let mut s = StopStrings::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut stopped = None;
        let texts = parts
            .iter()
            .map(|part| {
                let step = s.push(part);
                stopped = step.stopped;
                step.text
            })
            .collect();
        (texts, stopped, s.finish())
    }

    #[test]
    fn a_stop_string_may_be_spread_over_tokens() {
        let (texts, stopped, rest) = run(&["User:"], &["Hello\nU", "se", "r", ": more"]);
        assert_eq!((texts.concat(), stopped, rest), ("Hello\n".into(), Some(0), String::new()));
        assert_eq!(texts[0], "Hello\n", "what cannot be a stop string comes out at once");
    }

    #[test]
    fn what_only_looks_like_a_beginning_comes_out() {
        let (texts, stopped, rest) = run(&["User:"], &["a Us", "ing Us"]);
        assert_eq!((texts, stopped, rest), (vec!["a ".into(), "Using ".into()], None, "Us".into()));
        // Overlapping beginnings.
        let (texts, stopped, _) = run(&["aab"], &["a", "a", "a", "b"]);
        assert_eq!((texts.concat(), stopped), ("a".into(), Some(0)));
    }

    #[test]
    fn the_first_counts_and_of_those_the_longest() {
        assert_eq!(run(&["bc", "abc"], &["xabc"]).1, Some(1));
        assert_eq!(run(&["b", "bc"], &["abcd"]).1, Some(1));
        let (texts, stopped, _) = run(&["abcd", "c"], &["abc", "x"]);
        assert_eq!((texts.concat(), stopped), ("ab".into(), Some(1)), "the longer one did not come");
        assert_eq!(run(&["abcd", "c"], &["abc", "d"]).1, Some(0));
        let (texts, _, rest) = run(&["abcd", "c"], &["abc"]);
        assert_eq!((texts.concat(), rest), (String::new(), "ab".into()), "at the end nothing more can come");
    }

    #[test]
    fn nothing_comes_after_the_stop() {
        let mut s = StopStrings::new(vec!["é\n".into(), String::new()]);
        assert_eq!(s.push("caf"), StopStep { text: "caf".into(), stopped: None });
        assert_eq!(s.push("é"), StopStep { text: String::new(), stopped: None });
        assert_eq!(s.push("\nmore"), StopStep { text: String::new(), stopped: Some(0) });
        assert_eq!(s.push("x"), StopStep { text: String::new(), stopped: Some(0) });
        assert_eq!(s.finish(), "");
        assert_eq!(run(&[], &["a", "b"]).0, ["a", "b"]);
    }
}
