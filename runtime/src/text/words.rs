//! What makes long texts cheap: pieces that cannot merge with each other, and words seen before.

use super::vocab::{SPACE_MARK, TextIndex, Texts};

/// Where pairs can never merge: before a U+2581, unless some symbol holds it after the same character.
///
/// Merging only ever makes symbols of the vocabulary. So text may be cut there and its parts merged one by one,
/// and the result is the same.
#[derive(Debug)]
pub(crate) struct Borders {
    /// Characters that some symbol holds before a U+2581, in order.
    inside: Vec<char>,
}

impl Borders {
    /// Looks at the texts of all symbols.
    pub(crate) fn new<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Self {
        let mut inside: Vec<char> = Vec::new();
        for text in texts.filter_map(|text| std::str::from_utf8(text).ok()) {
            for (at, _) in text.match_indices(SPACE_MARK) {
                inside.extend(text[..at].chars().next_back());
            }
        }
        inside.sort_unstable();
        inside.dedup();
        Self { inside }
    }

    /// The parts of a text.
    pub(crate) fn cut<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut start = 0;
        let mut marks = text.match_indices(SPACE_MARK).map(|(at, _)| at);
        std::iter::from_fn(move || {
            if start >= text.len() {
                return None;
            }
            let end = marks.by_ref().find(|&at| {
                at > start
                    && text[..at].chars().next_back().is_some_and(|c| self.inside.binary_search(&c).is_err())
            });
            let part = start..end.unwrap_or(text.len());
            start = part.end;
            Some(&text[part])
        })
    }
}

/// The ids of words that came before, for one call on a long text.
#[derive(Debug, Default)]
pub(crate) struct WordCache {
    table: Option<Table>,
}

#[derive(Debug)]
struct Table {
    words: Texts,
    index: TextIndex,
    ids: Vec<u32>,
    ends: Vec<u32>,
}

/// Texts below this are done before a cache would pay.
const WORTHWHILE: usize = 2048;
/// Most words remembered.
const MOST: usize = 1 << 14;
/// Longest word remembered.
const LONGEST: usize = 48;

impl WordCache {
    /// Prepares for a text of this many bytes.
    pub(crate) fn begin(&mut self, bytes: usize) {
        if self.table.is_none() && bytes >= WORTHWHILE {
            self.table = Some(Table {
                words: Texts::default(),
                index: TextIndex::with_capacity(MOST),
                ids: Vec::new(),
                ends: Vec::new(),
            });
        }
    }

    /// The ids of a word, if they are known.
    pub(crate) fn get(&self, word: &[u8]) -> Option<&[u32]> {
        let table = self.table.as_ref().filter(|_| word.len() <= LONGEST)?;
        let at = table.index.get(&table.words, word)? as usize;
        let start = if at == 0 { 0 } else { table.ends[at - 1] as usize };
        table.ids.get(start..table.ends[at] as usize)
    }

    /// Remembers the ids of a word.
    pub(crate) fn put(&mut self, word: &[u8], ids: &[u32]) {
        let Some(table) = &mut self.table else { return };
        if word.len() > LONGEST || table.words.len() >= MOST {
            return;
        }
        let at = table.words.len() as u32;
        table.words.push(word);
        table.ids.extend_from_slice(ids);
        table.ends.push(table.ids.len() as u32);
        table.index.insert(&table.words, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_no_symbol_reaches() {
        let borders =
            Borders::new([&b"a"[..], "▁▁".as_bytes(), "x▁y".as_bytes(), "▁the".as_bytes()].into_iter());
        let cut = |text| borders.cut(text).collect::<Vec<_>>();
        assert_eq!(cut("the▁cat▁▁sat"), ["the", "▁cat", "▁▁sat"]);
        assert_eq!(cut("▁fox▁yes▁"), ["▁fox▁yes", "▁"]);
        assert_eq!(cut(""), [""; 0]);
        assert_eq!(cut("▁"), ["▁"]);
    }

    #[test]
    fn words_are_remembered_up_to_a_limit() {
        let mut cache = WordCache::default();
        cache.put(b"a", &[1]);
        assert_eq!(cache.get(b"a"), None, "not worth it for a short text");
        cache.begin(1 << 20);
        for i in 0..2 * MOST as u32 {
            cache.put(format!("w{i}").as_bytes(), &[i, i + 1]);
        }
        assert_eq!(cache.get(b"w7"), Some(&[7, 8][..]));
        assert_eq!(cache.get(format!("w{}", 2 * MOST - 1).as_bytes()), None);
        cache.put(&[b'x'; 100], &[1]);
        assert_eq!(cache.get(&[b'x'; 100]), None);
    }
}
