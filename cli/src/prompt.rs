//! From flags to prompt tokens.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use quantsmith::text::{EncodeOptions, Tokenizer};

use crate::args::PromptArgs;
use crate::escape::unescape;
use crate::failure::Failure;
use crate::output::warn;
use crate::table::counted;

/// Largest prompt that is read from a file: far beyond any context, and short of filling the memory.
const MAX_FILE: u64 = 1 << 30;

impl PromptArgs {
    /// The text of the prompt, or `None` when no flag gives one.
    pub(crate) fn text(&self) -> Result<Option<String>, Failure> {
        let text = match (&self.prompt, &self.file, &self.binary_file) {
            (Some(text), ..) if self.no_escape => text.clone(),
            (Some(text), ..) => utf8(unescape(text), "-p")?,
            (_, Some(path), _) => {
                let mut text = self.read(path)?;
                if text.ends_with('\n') {
                    text.pop();
                }
                text
            }
            (.., Some(path)) => self.read(path)?,
            (None, None, None) => return Ok(None),
        };
        Ok(Some(text))
    }

    /// The text of the prompt, which must be given.
    pub(crate) fn require(&self) -> Result<String, Failure> {
        self.text()?
            .ok_or_else(|| Failure::usage("no prompt was given: -p TEXT, or -f FILE (- is standard input)"))
    }

    fn read(&self, path: &Path) -> Result<String, Failure> {
        let text = read_file(path)?;
        if self.escape { utf8(unescape(&text), &path.display().to_string()) } else { Ok(text) }
    }
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    let (name, bytes) = if path == Path::new("-") {
        ("standard input".to_owned(), read(io::stdin().lock()))
    } else {
        (path.display().to_string(), File::open(path).and_then(read))
    };
    let bytes = bytes.map_err(|e| Failure::run(format!("{name}: cannot read: {e}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::run(format!("{name}: longer than the {MAX_FILE} bytes that are accepted")));
    }
    utf8(bytes, &name)
}

fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text that bytes are, or where they are none.
pub(crate) fn utf8(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let byte = e.as_bytes()[at];
        Failure::run(format!("{name}: byte {at} is {byte:#04x}, which is not UTF-8; accepted: UTF-8 text"))
    })
}

/// Turns a raw prompt into tokens, as llama.cpp's completion does: special tokens in the text count as such, and
/// the marks around it are those that the model's metadata asks for.
pub(crate) fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, Failure> {
    let tokens = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true })?;
    if let [first, second, ..] = tokens[..]
        && Some(first) == tokenizer.bos()
        && first == second
    {
        warn("the prompt starts with two BOS tokens: the text has one, and the model adds one");
    }
    if tokens.is_empty() {
        return Err(Failure::usage(
            "the prompt is empty, and this model begins no text by itself (it adds no BOS)",
        ));
    }
    Ok(tokens)
}

/// The text of a token; of one that prints nothing, such as a begin mark, its entry in the vocabulary.
pub(crate) fn piece(tokenizer: &Tokenizer, id: u32) -> String {
    let bytes = if tokenizer.is_control(id) { tokenizer.token_text(id) } else { tokenizer.piece(id) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Refuses a prompt that does not fit into the context.
pub(crate) fn check_fits(tokens: usize, context: usize) -> Result<(), Failure> {
    if tokens > context {
        let tokens = counted(tokens, "token");
        return Err(Failure::run(format!(
            "the prompt has {tokens} and the context holds {context}: shorten the prompt, or give a larger context with -c"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(prompt: &str) -> PromptArgs {
        PromptArgs {
            prompt: Some(prompt.into()),
            file: None,
            binary_file: None,
            escape: false,
            no_escape: false,
        }
    }

    fn file(content: &[u8]) -> (PromptArgs, std::path::PathBuf) {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("quantsmith-prompt-{}-{number}", std::process::id()));
        std::fs::write(&path, content).expect("the temporary folder is writable");
        (PromptArgs { prompt: None, file: Some(path.clone()), ..args("") }, path)
    }

    #[test]
    fn escapes_are_read_in_arguments_unless_that_is_turned_off() {
        assert_eq!(args(r"a\nb").text(), Ok(Some("a\nb".into())));
        assert_eq!(PromptArgs { no_escape: true, ..args(r"a\nb") }.text(), Ok(Some(r"a\nb".into())));
    }

    #[test]
    fn a_file_is_taken_as_it_is_but_for_one_newline() {
        let (from_file, path) = file(b"a\\n\n\n");
        assert_eq!(from_file.text(), Ok(Some("a\\n\n".into())));
        assert_eq!(PromptArgs { escape: true, ..from_file }.text(), Ok(Some("a\n\n".into())));
        let binary = PromptArgs { prompt: None, binary_file: Some(path.clone()), ..args("") };
        assert_eq!(binary.text(), Ok(Some("a\\n\n\n".into())));
        std::fs::remove_file(path).expect("the file is there");
    }

    #[test]
    fn text_that_is_not_utf8_is_refused_with_the_place() {
        let error = args(r"ab\xff").text().expect_err("not UTF-8");
        assert!(error.line().is_some_and(|l| l.contains("byte 2 is 0xff")), "{error:?}");
        let (from_file, path) = file(b"abc\xe6\x97");
        let error = from_file.text().expect_err("not UTF-8");
        assert!(error.line().is_some_and(|l| l.contains("byte 3 is 0xe6")), "{error:?}");
        std::fs::remove_file(path).expect("the file is there");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_figures() {
        assert_eq!(check_fits(10, 10), Ok(()));
        let line = check_fits(11, 10).expect_err("too long").line().expect("a line");
        assert!(line.contains("11 tokens") && line.contains("holds 10"), "{line}");
    }
}
