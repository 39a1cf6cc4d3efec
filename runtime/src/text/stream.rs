//! Text from ids as they come, never splitting a UTF-8 sequence.

use super::Tokenizer;

/// Turns generated ids into text piece by piece.
///
/// A token may hold half a character. Its bytes wait here until the rest comes, so every string handed out is
/// whole. Bytes that can never become a character are replaced by U+FFFD, one for each maximal part, as the
/// Unicode standard recommends.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    bytes: Utf8Buffer,
}

impl<'t> StreamDecoder<'t> {
    /// Starts a stream.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, bytes: Utf8Buffer::default() }
    }

    /// Takes the next token and returns the text that is complete with it, often empty.
    pub fn push(&mut self, id: u32) -> String {
        let mut out = String::new();
        self.push_into(id, &mut out);
        out
    }

    /// As [`push`](Self::push), appending to `out`.
    pub fn push_into(&mut self, id: u32, out: &mut String) {
        self.bytes.push(self.tokenizer.piece(id), out);
    }

    /// As [`push`](Self::push), but control tokens print their entry too.
    pub fn push_special(&mut self, id: u32) -> String {
        let mut out = String::new();
        if self.tokenizer.is_control(id) {
            self.bytes.push(self.tokenizer.token_text(id), &mut out);
        } else {
            self.push_into(id, &mut out);
        }
        out
    }

    /// Ends the stream: what was held back and never completed becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.bytes.finish(&mut out);
        out
    }
}

/// Bytes that wait for the rest of their character.
#[derive(Debug, Clone, Default)]
pub(crate) struct Utf8Buffer {
    held: Vec<u8>,
}

impl Utf8Buffer {
    /// Appends bytes and moves all that is decided to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.held.extend_from_slice(bytes);
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    rest = bad;
                    if let Some(length) = error.error_len() {
                        out.push(char::REPLACEMENT_CHARACTER);
                        rest = &bad[length..];
                        continue;
                    }
                }
            }
            break;
        }
        let kept = rest.len();
        self.held.drain(..self.held.len() - kept);
    }

    /// Replaces what is left by one U+FFFD.
    pub(crate) fn finish(&mut self, out: &mut String) {
        if !self.held.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::spm_metadata;
    use crate::text::{EncodeOptions, Tokenizer};

    /// Feeds bytes in the given cuts and returns what came out each time, and at the end.
    fn feed(parts: &[&[u8]]) -> Vec<String> {
        let mut buffer = Utf8Buffer::default();
        let mut outs: Vec<String> = parts
            .iter()
            .map(|part| {
                let mut out = String::new();
                buffer.push(part, &mut out);
                out
            })
            .collect();
        let mut end = String::new();
        buffer.finish(&mut end);
        outs.push(end);
        outs
    }

    #[test]
    fn an_emoji_in_four_tokens_comes_out_once() {
        let t = Tokenizer::from_metadata(&spm_metadata(&[("a", -1.0)])).unwrap();
        let ids = t.encode("🦙", EncodeOptions::default()).unwrap();
        let mut stream = StreamDecoder::new(&t);
        let outs: Vec<String> = ids.iter().map(|&id| stream.push(id)).collect();
        assert_eq!(outs, ["", "", "▁", "", "", "", "🦙"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn invalid_bytes_become_one_replacement_per_maximal_part() {
        // A surrogate in three bytes is three parts: ED cannot be followed by A0.
        assert_eq!(feed(&[b"\xED", b"\xA0", b"\x80"]), ["", "\u{FFFD}\u{FFFD}", "\u{FFFD}", ""]);
        assert_eq!(feed(&[b"\xF0\x9F", b"\xA6"]), ["", "", "\u{FFFD}"]);
        assert_eq!(feed(&[b"\xF0\x9F", b"x"]), ["", "\u{FFFD}x", ""]);
        assert_eq!(feed(&[b"\x80\xC3", b"\xA9\xFF"]), ["\u{FFFD}", "é\u{FFFD}", ""]);
    }

    #[test]
    fn any_cut_of_any_bytes_gives_the_lossy_text() {
        let mut state = 1u64;
        for _ in 0..2000 {
            let mut next = |n: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % n
            };
            let pool = b"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99\xED\xA0\xFF\xC0";
            let bytes: Vec<u8> = (0..next(20)).map(|_| pool[next(pool.len() as u64) as usize]).collect();
            let cut = next(bytes.len() as u64 + 1) as usize;
            let joined = feed(&[&bytes[..cut], &bytes[cut..]]).concat();
            assert_eq!(joined, String::from_utf8_lossy(&bytes), "{bytes:x?} cut at {cut}");
        }
    }
}
