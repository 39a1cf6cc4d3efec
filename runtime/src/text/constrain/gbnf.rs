//! GBNF, llama.cpp's notation for grammars, read and written again in the notation of the parser.
//!
//! ```text
//! root  ::= item ("," item)*      # a comment
//! item  ::= [a-z]{1,8} | "\"" [^"\n]+ "\""
//! ```
//!
//! In GBNF every character stands for itself: there are no words that a lexer would prefer. So literals are
//! written out character by character, and the parser's own lexer never has a choice to make.

use std::collections::HashMap;
use std::fmt::Write;

use crate::text::TextError;

/// The deepest nesting of groups.
const DEEPEST: usize = 200;
/// The largest count of a repetition.
const MOST: u32 = 10_000;

/// Translates a grammar; it must have a rule `root`.
///
/// # Errors
/// Names the line and column and what would be accepted.
pub(super) fn to_lark(grammar: &str) -> Result<String, TextError> {
    let mut reader = Reader { text: grammar, at: 0, rules: HashMap::new(), names: Vec::new(), depth: 0 };
    let mut bodies: Vec<Option<String>> = Vec::new();
    let mut used: Vec<usize> = Vec::new();
    reader.space(true);
    while reader.at < grammar.len() {
        let start = reader.at;
        let name = reader.name()?.to_owned();
        let rule = reader.rule(&name, start);
        reader.space(false);
        reader.expect("::=")?;
        reader.space(true);
        let body = reader.alternatives()?;
        used.resize(used.len().max(reader.names.len()), usize::MAX);
        bodies.resize(bodies.len().max(reader.names.len()), None);
        if bodies[rule].replace(body).is_some() {
            return Err(reader.wrong(start, &format!("the rule {name:?} again"), "each rule once"));
        }
        reader.line_end()?;
    }
    bodies.resize(reader.names.len(), None);
    let Some(&root) = reader.rules.get("root") else {
        return Err(reader.wrong(
            grammar.len(),
            "no rule root",
            "a rule that the answer starts with: root ::= …",
        ));
    };
    let mut out = format!("start: rule_{root}\n");
    for (rule, body) in bodies.iter().enumerate() {
        let Some(body) = body else {
            let (name, at) = &reader.names[rule];
            return Err(reader.wrong(
                *at,
                &format!("the rule {name:?}, which is nowhere defined"),
                "a defined rule",
            ));
        };
        let _ = writeln!(out, "rule_{rule}: {body}");
    }
    Ok(out)
}

struct Reader<'g> {
    text: &'g str,
    at: usize,
    /// Numbers of rules by name.
    rules: HashMap<String, usize>,
    /// Names of rules by number, and where each is first seen.
    names: Vec<(String, usize)>,
    depth: usize,
}

impl<'g> Reader<'g> {
    fn rest(&self) -> &'g str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Skips white space and comments; line ends only if `lines`.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if lines => self.at += 1,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => break,
            }
        }
    }

    fn expect(&mut self, what: &str) -> Result<(), TextError> {
        if self.rest().starts_with(what) {
            self.at += what.len();
            return Ok(());
        }
        Err(self.found(what))
    }

    fn line_end(&mut self) -> Result<(), TextError> {
        self.space(false);
        match self.peek() {
            None | Some('\n' | '\r') => {
                self.space(true);
                Ok(())
            }
            Some(_) => Err(self.found("the end of the line, | or another symbol")),
        }
    }

    fn wrong(&self, at: usize, found: &str, accepted: &str) -> TextError {
        let before = &self.text[..at.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        TextError::Constraint(format!("line {line} column {column}: found {found}; accepted: {accepted}"))
    }

    /// The error that something else was expected here.
    fn found(&self, accepted: &str) -> TextError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(c) => format!("{c:?}"),
        };
        self.wrong(self.at, &found, accepted)
    }

    fn name(&mut self) -> Result<&'g str, TextError> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.found("the name of a rule"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    fn rule(&mut self, name: &str, at: usize) -> usize {
        if let Some(&rule) = self.rules.get(name) {
            return rule;
        }
        let rule = self.names.len();
        self.rules.insert(name.to_owned(), rule);
        self.names.push((name.to_owned(), at));
        rule
    }

    fn alternatives(&mut self) -> Result<String, TextError> {
        let mut out = self.sequence()?;
        loop {
            self.space(self.depth > 0);
            // An alternative may also begin on a line of its own.
            let mark = self.at;
            self.space(true);
            if self.peek() != Some('|') {
                self.at = mark;
                return Ok(out);
            }
            self.at += 1;
            self.space(true);
            out.push_str(" | ");
            out.push_str(&self.sequence()?);
        }
    }

    fn sequence(&mut self) -> Result<String, TextError> {
        let mut out = String::new();
        loop {
            self.space(self.depth > 0);
            let item = match self.peek() {
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.at += 1;
                    "/(?s:.)/".to_owned()
                }
                Some('(') => self.group()?,
                Some('<' | '!') => {
                    return Err(self.wrong(
                        self.at,
                        "a reference to a token",
                        "literals, classes, rules and groups; tokens cannot be named here",
                    ));
                }
                Some(c) if c.is_ascii_alphanumeric() || c == '-' || c == '_' => {
                    let at = self.at;
                    let name = self.name()?;
                    format!("rule_{}", self.rule(name, at))
                }
                _ => break,
            };
            let item = self.repeated(item)?;
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(&item);
        }
        Ok(if out.is_empty() { "\"\"".to_owned() } else { out })
    }

    fn group(&mut self) -> Result<String, TextError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong(self.at, "groups nested too deep", "at most 200 levels"));
        }
        self.space(true);
        let inner = self.alternatives()?;
        self.space(true);
        self.expect(")")?;
        self.depth -= 1;
        Ok(format!("({inner})"))
    }

    fn repeated(&mut self, item: String) -> Result<String, TextError> {
        let mut item = item;
        loop {
            self.space(false);
            item = match self.peek() {
                Some(c @ ('*' | '+' | '?')) => {
                    self.at += 1;
                    format!("({item}){c}")
                }
                Some('{') => {
                    let at = self.at;
                    self.at += 1;
                    let least = self.count()?;
                    let most = if self.peek() == Some(',') {
                        self.at += 1;
                        self.space(false);
                        if self.peek() == Some('}') { None } else { Some(self.count()?) }
                    } else {
                        Some(least)
                    };
                    self.expect("}")?;
                    match most {
                        Some(most) if most < least => {
                            return Err(self.wrong(at, &format!("{{{least},{most}}}"), "a count that grows"));
                        }
                        Some(most) => format!("({item}){{{least},{most}}}"),
                        None => format!("({item}){{{least},}}"),
                    }
                }
                _ => return Ok(item),
            };
        }
    }

    fn count(&mut self) -> Result<u32, TextError> {
        self.space(false);
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count = rest[..end].parse().ok().filter(|&n| n <= MOST);
        let count = count.ok_or_else(|| self.found("a count up to 10000"))?;
        self.at += end;
        self.space(false);
        Ok(count)
    }

    fn literal(&mut self) -> Result<String, TextError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(self.wrong(
                        start,
                        "a literal without end",
                        "a closing quote on the same line",
                    ));
                }
                Some('"') => {
                    self.at += 1;
                    break;
                }
                Some(_) => {
                    let c = self.character()?;
                    if !out.is_empty() {
                        out.push(' ');
                    }
                    let _ = write!(out, "/\\x{{{:X}}}/", u32::from(c));
                }
            }
        }
        Ok(if out.is_empty() { "\"\"".to_owned() } else { format!("({out})") })
    }

    fn class(&mut self) -> Result<String, TextError> {
        let start = self.at;
        self.at += 1;
        let mut out = String::from("/[");
        if self.peek() == Some('^') {
            self.at += 1;
            out.push('^');
        }
        let mut empty = true;
        loop {
            match self.peek() {
                None | Some('\n') => {
                    return Err(self.wrong(start, "a class without end", "a closing ] on the same line"));
                }
                Some(']') => {
                    self.at += 1;
                    break;
                }
                Some(_) => {
                    let low = self.character()?;
                    let _ = write!(out, "\\x{{{:X}}}", u32::from(low));
                    let mut ahead = self.rest().chars();
                    if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
                        self.at += 1;
                        let at = self.at;
                        let high = self.character()?;
                        if high < low {
                            return Err(self.wrong(
                                at,
                                &format!("the range {low:?} to {high:?}"),
                                "ascending ranges",
                            ));
                        }
                        let _ = write!(out, "-\\x{{{:X}}}", u32::from(high));
                    }
                    empty = false;
                }
            }
        }
        if empty {
            return Err(self.wrong(start, "an empty class", "at least one character"));
        }
        out.push_str("]/");
        Ok(out)
    }

    /// One character of a literal or class, which may be escaped.
    fn character(&mut self) -> Result<char, TextError> {
        let at = self.at;
        let c = self.next().unwrap_or_default();
        if c != '\\' {
            return Ok(c);
        }
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '^' | '-' | '/')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => {
                return Err(self.wrong(
                    at,
                    "an unknown escape",
                    r#"\n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH"#,
                ));
            }
        };
        let text = self.rest().get(..digits);
        let code = text.and_then(|text| u32::from_str_radix(text, 16).ok()).and_then(char::from_u32);
        let code = code
            .ok_or_else(|| self.wrong(at, "an escape that is no character", "hexadecimal digits of one"))?;
        self.at += digits;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_are_written_character_by_character() {
        assert_eq!(
            to_lark(
                "root ::= \"ab\" item* # comment\nitem ::= [a-z^\\]]{2,3} | \"\\n\"\n  | (\"x\"\n | root)?\n"
            )
            .unwrap(),
            "start: rule_0\n\
             rule_0: (/\\x{61}/ /\\x{62}/) (rule_1)*\n\
             rule_1: (/[\\x{61}-\\x{7A}\\x{5E}\\x{5D}]/){2,3} | (/\\x{A}/) | (((/\\x{78}/) | rule_0))?\n"
        );
        assert_eq!(
            to_lark("root::=[^a-]|\"\"|.").unwrap(),
            "start: rule_0\nrule_0: /[^\\x{61}\\x{2D}]/ | \"\" | /(?s:.)/\n"
        );
    }

    #[test]
    fn errors_say_where_and_what() {
        for (grammar, line, text) in [
            ("", 1, "root"),
            ("a ::= \"x\"", 1, "no rule root"),
            ("root ::= item", 1, "nowhere defined"),
            ("root ::= \"a\"\nroot ::= \"b\"", 2, "again"),
            ("root ::= \"a", 1, "literal without end"),
            ("root ::= [a", 1, "class without end"),
            ("root ::= []", 1, "empty class"),
            ("root ::= [z-a]", 1, "range"),
            ("root ::= (\"a\"", 1, "the end"),
            ("root ::= \"a\" )", 1, "')'"),
            ("root ::= \"\\q\"", 1, "escape"),
            ("root ::= \"\\uD800\"", 1, "no character"),
            ("root ::= \"a\"{3,2}", 1, "grows"),
            ("root ::= \"a\"{99999999999}", 1, "count"),
            ("root\n= \"a\"", 1, "::="),
            ("root ::= \"a\"\n\n  <think>", 3, "name of a rule"),
            ("root ::= <think>", 1, "token"),
            ("root := \"a\"", 1, "::="),
        ] {
            let error = to_lark(grammar).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line} ")) && error.contains(text), "{grammar:?}: {error}");
        }
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(to_lark(&deep).unwrap_err().to_string().contains("deep"));
    }
}
