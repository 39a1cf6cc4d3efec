//! The escapes of prompts, read as llama.cpp reads them.

/// Replaces `\n`, `\t`, `\r`, `\\`, `\'`, `\"` and `\xHH`; any other backslash stays as it is.
///
/// `\xHH` stands for a byte, so the result need not be UTF-8.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, after) = match first {
            b'\\' => escape(tail).unwrap_or((b'\\', tail)),
            other => (other, tail),
        };
        out.push(byte);
        rest = after;
    }
    out
}

/// The byte that the text after a backslash stands for, and the text after that.
fn escape(tail: &[u8]) -> Option<(u8, &[u8])> {
    let (&letter, after) = tail.split_first()?;
    Some(match letter {
        b'n' => (b'\n', after),
        b't' => (b'\t', after),
        b'r' => (b'\r', after),
        b'\\' | b'\'' | b'"' => (letter, after),
        b'x' => (digit(*after.first()?)? << 4 | digit(*after.get(1)?)?, &after[2..]),
        _ => return None,
    })
}

fn digit(c: u8) -> Option<u8> {
    // A hexadecimal digit is below 16, so the cast loses nothing.
    char::from(c).to_digit(16).map(|d| d as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_replaced_once_and_from_the_left() {
        assert_eq!(unescape(r#"a\nb\tc\r\\n\'\""#), b"a\nb\tc\r\\n'\"");
        assert_eq!(unescape(r"\x41\xe6\x97\xa5"), "A日".as_bytes());
        assert_eq!(unescape("日本\\n"), "日本\n".as_bytes());
    }

    #[test]
    fn other_backslashes_stay() {
        for same in [r"\d", r"\", r"a\", r"\x", r"\x4", r"\xzz", r"\x4z", r"\é", "", "plain"] {
            assert_eq!(unescape(same), same.as_bytes(), "{same}");
        }
    }
}
