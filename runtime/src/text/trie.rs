//! Entries by prefix: which of them begin at a place of a text.

use super::hash::Keys;

/// Entries longer than this are left out: they would make every place of a text as costly as they are long.
pub(crate) const LONGEST: usize = 512;

/// A prefix tree over bytes. Its edges lie in one hash table.
#[derive(Debug)]
pub(crate) struct Trie {
    edges: Vec<(u32, u32)>,
    used: usize,
    keys: Keys,
    /// The entry that ends in each node.
    ids: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// An edge is named by 24 bits of node and 8 of byte.
const MOST_NODES: usize = (1 << 24) - 1;

impl Trie {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self { edges: vec![(NONE, 0); 64], used: 0, keys: Keys::new(), ids: vec![NONE] }
    }

    /// Enters a text; the later of two equal ones counts. Returns false if it is empty, too long, or if the tree
    /// is full.
    pub(crate) fn insert(&mut self, text: &[u8], id: u32) -> bool {
        if text.is_empty() || text.len() > LONGEST || self.ids.len() + text.len() > MOST_NODES {
            return false;
        }
        let mut node = 0;
        for &byte in text {
            node = match self.child(node, byte) {
                Some(child) => child,
                None => self.add(node, byte),
            };
        }
        self.ids[node as usize] = id;
        true
    }

    /// The entries that `text` begins with, shortest first, each with its length.
    pub(crate) fn prefixes<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, u32)> + 't {
        let mut node = 0;
        let walk = text.iter().map_while(move |&byte| {
            node = self.child(node, byte)?;
            Some(self.ids[node as usize])
        });
        walk.enumerate().filter(|&(_, id)| id != NONE).map(|(i, id)| (i + 1, id))
    }

    fn name(node: u32, byte: u8) -> u32 {
        node << 8 | u32::from(byte)
    }

    fn slot(&self, name: u32) -> usize {
        let mask = self.edges.len() - 1;
        let mut slot = self.keys.number(name.into()) as usize & mask;
        while self.edges[slot].0 != NONE && self.edges[slot].0 != name {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn child(&self, node: u32, byte: u8) -> Option<u32> {
        let (name, child) = self.edges[self.slot(Self::name(node, byte))];
        (name != NONE).then_some(child)
    }

    fn add(&mut self, node: u32, byte: u8) -> u32 {
        if self.used * 2 >= self.edges.len() {
            let grown = vec![(NONE, 0); self.edges.len() * 2];
            for (name, child) in std::mem::replace(&mut self.edges, grown) {
                if name != NONE {
                    let slot = self.slot(name);
                    self.edges[slot] = (name, child);
                }
            }
        }
        let child = self.ids.len() as u32;
        self.ids.push(NONE);
        let slot = self.slot(Self::name(node, byte));
        self.edges[slot] = (Self::name(node, byte), child);
        self.used += 1;
        child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_come_shortest_first() {
        let mut trie = Trie::new();
        for (id, text) in ["a", "ab", "abcd", "b", "\u{2581}"].into_iter().enumerate() {
            assert!(trie.insert(text.as_bytes(), id as u32));
        }
        assert!(!trie.insert(b"", 9) && !trie.insert(&[b'x'; LONGEST + 1], 9));
        let found = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcde"), [(1, 0), (2, 1), (4, 2)]);
        assert_eq!(found("abc"), [(1, 0), (2, 1)]);
        assert_eq!(found("\u{2581}"), [(3, 4)]);
        assert!(found("x").is_empty() && found("").is_empty());
    }

    #[test]
    fn many_texts_are_all_found() {
        let mut trie = Trie::new();
        let texts: Vec<String> =
            (0..20_000u32).map(|i| format!("{:x}", i.wrapping_mul(2_654_435_761))).collect();
        for (id, text) in texts.iter().enumerate() {
            trie.insert(text.as_bytes(), id as u32);
        }
        for (id, text) in texts.iter().enumerate() {
            assert_eq!(trie.prefixes(text.as_bytes()).last(), Some((text.len(), id as u32)));
        }
    }
}
