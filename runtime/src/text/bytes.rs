//! The printable alphabet of byte-level BPE: one character for each byte.
//!
//! Bytes that print in Latin-1 stand for themselves; the other 68 are U+0100 onwards in byte order. The alphabet
//! was fixed with the first byte-level vocabulary and all of them share it.

/// Whether a byte stands for itself.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The character of each byte.
pub(crate) const ALPHABET: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut shifted = 0u32;
    let mut byte = 0usize;
    while byte < 256 {
        table[byte] = if is_plain(byte as u8) {
            byte as u8 as char
        } else {
            shifted += 1;
            match char::from_u32(0xFF + shifted) {
                Some(c) => c,
                None => unreachable!(),
            }
        };
        byte += 1;
    }
    table
};

/// The byte that a character of the alphabet stands for.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    match c as u32 {
        code @ 0..=0xFF => is_plain(code as u8).then_some(code as u8),
        0x100..=0x143 => (0..=255u8).find(|&b| ALPHABET[b as usize] == c),
        _ => None,
    }
}

/// Appends the bytes that a vocabulary entry prints; characters outside the alphabet print as themselves.
pub(crate) fn decode_into(entry: &str, out: &mut Vec<u8>) {
    for c in entry.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_its_own_character_and_comes_back() {
        for byte in 0..=255u8 {
            assert_eq!(byte_of(ALPHABET[byte as usize]), Some(byte));
        }
        assert_eq!(ALPHABET[b' ' as usize], 'Ġ');
        assert_eq!(ALPHABET[b'\n' as usize], 'Ċ');
        assert_eq!(ALPHABET[0xAD], 'Ń');
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn entries_print_the_bytes_of_their_characters() {
        let printed = |entry: &str| {
            let mut out = Vec::new();
            decode_into(entry, &mut out);
            out
        };
        assert_eq!(printed("Ġhi"), b" hi");
        assert_eq!(printed("日"), "日".as_bytes());
    }
}
