//! Pre-tokenizers: cutting text into the words that pairs merge within.
//!
//! A scheme is a list of passes; each pass cuts every piece that the one before left. A pass is a list of
//! alternatives tried in order at each position, as in the regular expressions that models publish. What no
//! alternative matches stays a piece of its own.
//!
//! The expressions run on finite automata, so a pass is linear in its text and never recurses. Automata have no
//! look-ahead; the published expressions use it for one thing, `\s+(?!\S)`: a run of white space leaves its last
//! character to the word that follows. That alternative is [`Rule::Spaces`] here.

mod table;

use std::ops::Range;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

pub(crate) use table::{DEFAULT, Scheme, Spelling, by_name};

/// One pass of a scheme.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pass {
    /// Alternatives, tried in order at each position.
    Rules(&'static [Rule]),
    /// Cuts runs of digits into groups of three, counted from the end.
    Thousands,
    /// The same, but only runs that no letter or underscore follows.
    BoundedThousands,
}

/// One alternative of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// Matches the expression.
    Re(&'static str),
    /// Matches a run of white space, less its last character if a word follows and anything is left.
    Spaces,
    /// The same, but in chunks of 512, 256 and so on down to 4, then 2 and 1.
    SpaceChunks,
}

/// A compiled scheme.
#[derive(Debug)]
pub(crate) struct Splitter {
    passes: Vec<Cutter>,
}

/// A compiled pass.
#[derive(Debug)]
enum Cutter {
    Rules { regex: Regex, rules: &'static [Rule] },
    Thousands { digits: Regex, bounded: bool },
}

/// Pieces of a text by byte range; the memory is reused from text to text.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    now: Vec<Range<u32>>,
    next: Vec<Range<u32>>,
}

impl Splitter {
    /// Compiles a scheme.
    ///
    /// # Errors
    /// Returns the engine's message if an expression does not compile.
    pub(crate) fn new(passes: &[Pass]) -> Result<Self, String> {
        let compile = |pass: &Pass| {
            Ok(match pass {
                Pass::Rules(rules) => Cutter::Rules {
                    regex: automaton(rules.iter().map(|rule| match rule {
                        Rule::Re(pattern) => pattern,
                        Rule::Spaces | Rule::SpaceChunks => r"\s+",
                    }))?,
                    rules,
                },
                Pass::Thousands | Pass::BoundedThousands => Cutter::Thousands {
                    digits: automaton([r"\d+"].into_iter())?,
                    bounded: matches!(pass, Pass::BoundedThousands),
                },
            })
        };
        Ok(Self { passes: passes.iter().map(compile).collect::<Result<_, String>>()? })
    }

    /// Cuts `text`, which must be shorter than 4 GiB; the pieces cover it without gaps.
    pub(crate) fn split<'p>(&self, text: &str, pieces: &'p mut Pieces) -> &'p [Range<u32>] {
        pieces.now.clear();
        if !text.is_empty() {
            pieces.now.push(0..text.len() as u32);
        }
        for pass in &self.passes {
            pieces.next.clear();
            for piece in &pieces.now {
                pass.cut(text, piece.clone(), &mut pieces.next);
            }
            std::mem::swap(&mut pieces.now, &mut pieces.next);
        }
        &pieces.now
    }
}

/// Compiles alternatives, of which the first that matches counts.
fn automaton<'r>(rules: impl Iterator<Item = &'r str>) -> Result<Regex, String> {
    let rules: Vec<&str> = rules.collect();
    // The lazy automata of large character classes outgrow the default cache and would be rebuilt all the time.
    let config = Regex::config().hybrid_cache_capacity(8 << 20);
    Regex::builder().configure(config).build_many(&rules).map_err(|e| e.to_string())
}

impl Cutter {
    /// Cuts one piece, seeing nothing outside it.
    fn cut(&self, text: &str, piece: Range<u32>, out: &mut Vec<Range<u32>>) {
        let base = piece.start;
        let text = &text[piece.start as usize..piece.end as usize];
        match self {
            Self::Rules { regex, rules } => cut_by_rules(regex, rules, text, base, out),
            Self::Thousands { digits, bounded } => cut_thousands(digits, *bounded, text, base, out),
        }
    }
}

/// Cuts at each match of the alternatives.
fn cut_by_rules(regex: &Regex, rules: &[Rule], text: &str, base: u32, out: &mut Vec<Range<u32>>) {
    let mut at = 0;
    while at < text.len() {
        let here = Input::new(text).range(at..).anchored(Anchored::Yes);
        let found = match regex.search(&here).filter(|m| !m.is_empty()) {
            Some(found) => found,
            None => {
                // Rare: nothing matches here, so the next match ends a piece that no alternative claims.
                let later = Input::new(text).range(at..);
                let Some(found) = regex.search(&later).filter(|m| !m.is_empty()) else { break };
                out.push(base + at as u32..base + found.start() as u32);
                found
            }
        };
        let (start, mut end) = (found.start(), found.end());
        let rule = rules[found.pattern().as_usize()];
        if !matches!(rule, Rule::Re(_)) && end < text.len() {
            let last = text[..end].chars().next_back().map_or(0, char::len_utf8);
            if end - last > start {
                end -= last;
            }
        }
        at = start;
        if matches!(rule, Rule::SpaceChunks) {
            // No other rule can match inside the run: it would have matched here.
            at = cut_chunks(text, start..end, base, out);
        }
        if at < end {
            out.push(base + at as u32..base + end as u32);
        }
        at = end;
    }
    if at < text.len() {
        out.push(base + at as u32..base + text.len() as u32);
    }
}

/// Cuts a run of white space into chunks and returns where the last one starts.
fn cut_chunks(text: &str, run: Range<usize>, base: u32, out: &mut Vec<Range<u32>>) -> usize {
    let mut left = text[run.clone()].chars().count();
    let mut chars = text[run.clone()].char_indices();
    let mut at = run.start;
    loop {
        let chunk = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|&c| c <= left).unwrap_or(1);
        left = left.saturating_sub(chunk);
        if left == 0 {
            return at;
        }
        chars.by_ref().take(chunk).for_each(drop);
        let next = run.end - chars.as_str().len();
        out.push(base + at as u32..base + next as u32);
        at = next;
    }
}

/// Cuts each run of digits so that every group but the first has three, and the first one to three; what stands
/// between runs is a piece. With `bounded`, a run that a letter or underscore follows is left alone.
fn cut_thousands(digits: &Regex, bounded: bool, text: &str, base: u32, out: &mut Vec<Range<u32>>) {
    let mut at = 0;
    let mut cut = |at: &mut usize, here: usize| {
        if here > *at {
            out.push(base + *at as u32..base + here as u32);
            *at = here;
        }
    };
    for run in digits.find_iter(text).map(|run| run.range()) {
        let follows = text[run.end..].chars().next();
        if bounded && follows.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let count = text[run.clone()].chars().count();
        for (i, (start, _)) in text[run.clone()].char_indices().enumerate() {
            if i == 0 || (count - i).is_multiple_of(3) {
                cut(&mut at, run.start + start);
            }
        }
        cut(&mut at, run.end);
    }
    cut(&mut at, text.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::cpu_seconds;

    pub(crate) fn words<'t>(scheme: &str, text: &'t str) -> Vec<&'t str> {
        let scheme = by_name(scheme).unwrap();
        let splitter = Splitter::new(scheme.passes).unwrap();
        let mut pieces = Pieces::default();
        splitter.split(text, &mut pieces).iter().map(|r| &text[r.start as usize..r.end as usize]).collect()
    }

    #[test]
    fn every_scheme_compiles_and_covers_its_text() {
        let text = "Hello,  World's 12345 \n\n\t tést नमस्ते 日本語の\u{3000}x!!!\r\n <|a|> 🦙🦙 ''re'LL  ";
        for name in table::names() {
            assert_eq!(words(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn gpt2_words() {
        assert_eq!(
            words("gpt-2", "I'll go  to 123 places!! \n x"),
            ["I", "'ll", " go", " ", " to", " 123", " places", "!!", " \n", " x"]
        );
        assert_eq!(words("gpt-2", "a   "), ["a", "   "]);
        assert_eq!(words("gpt-2", "I'LL"), ["I", "'", "LL"]);
    }

    #[test]
    fn smollm_isolates_digits() {
        assert_eq!(words("smollm", "x  12 y"), ["x", "  ", "1", "2", " y"]);
        assert_eq!(words("smollm", "13, 21"), ["1", "3", ",", " ", "2", "1"]);
    }

    #[test]
    fn llama3_words() {
        assert_eq!(
            words("llama-bpe", "I'LL say \"hi\" 1234567\n\n  x"),
            ["I", "'LL", " say", " \"", "hi", "\"", " ", "123", "456", "7", "\n\n", " ", " x"]
        );
        assert_eq!(words("qwen2", "a1234"), ["a", "1", "2", "3", "4"]);
    }

    #[test]
    fn thousands_are_counted_from_the_end() {
        assert_eq!(words("superbpe", "a1234567b12"), ["a", "1", "234", "567", "b", "12"]);
        assert_eq!(words("tiny_aya", "1234567 12345x"), ["1", "234", "567", " ", "123", "45", "x"]);
        assert_eq!(words("afmoe", "x12345"), ["x", "12", "345"]);
    }

    #[test]
    fn white_space_in_chunks() {
        let lengths = |text: &str| words("jais-2", text).iter().map(|w| w.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&" ".repeat(1000)), [512, 256, 128, 64, 32, 8]);
        // The last space goes to the word.
        assert_eq!(lengths(&format!("{}x", " ".repeat(8))), [4, 2, 1, 2]);
        assert_eq!(lengths("  \n  x"), [3, 1, 2]);
    }

    #[test]
    fn case_decides_where_words_end() {
        assert_eq!(
            words("gpt-4o", "camelCase HTTPServer's ÉcoleÀ"),
            ["camel", "Case", " HTTPServer's", " École", "À"]
        );
        assert_eq!(words("tekken", "don't 123"), ["don", "'t", " ", "1", "2", "3"]);
        assert_eq!(words("kimi-k2", "abc漢字Def"), ["abc", "漢字", "Def"]);
    }

    #[test]
    fn passes_cut_what_the_ones_before_left() {
        assert_eq!(words("deepseek-v3", "ab12345漢字!x  y"), ["ab", "123", "45", "漢字", "!x", " ", " y"]);
        assert_eq!(words("falcon", "a+=1234 b"), ["a", "+=", "123", "4", " b"]);
        assert_eq!(words("bloom", "a b. c"), ["a", " b", ".", " c"]);
        assert_eq!(words("laguna", "a \n\n b"), ["a", " ", "\n\n", " b"]);
        assert_eq!(words("exaone-moe", "so many words, so"), ["so many words", ",", " so"]);
    }

    #[test]
    fn long_runs_are_linear() {
        for name in table::names() {
            let scheme = by_name(name).unwrap();
            let splitter = Splitter::new(scheme.passes).unwrap();
            let mut pieces = Pieces::default();
            for unit in ["A", "\n", " ", "漢", "1", "!", "é", "'", "\u{301}", " a", "\r\n "] {
                let text = unit.repeat(200_000);
                let seconds = cpu_seconds(|| {
                    splitter.split(&text, &mut pieces);
                });
                assert!(seconds < 1.0, "{name} {unit:?} took {seconds}");
            }
        }
    }
}
