//! The key-value cache: f16, one block of memory, a place for each layer and head.
//!
//! Layers with a sliding window keep only what the window and a batch can need, as a ring. The layout within a head
//! is that of the attention kernels.

use crate::error::Error;
use crate::graph::arena::{ALIGN, Arena};
use crate::graph::plan::AttentionSizes;
use crate::model::hparams::HParams;
use quantsmith_kernels::ops::attention::{CHUNK, KvLayout};

/// The cache of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerCache {
    pub(crate) layout: KvLayout,
    /// Heads of keys and values.
    pub(crate) heads: usize,
    /// Heads of queries that share one of those.
    pub(crate) group: usize,
    pub(crate) window: Option<usize>,
    /// Positions that there is room for: of a ring, fewer than the context.
    pub(crate) positions: usize,
    /// Where the keys of the first head start, in bytes.
    keys: usize,
    /// Where the values of the first head start, in bytes.
    values: usize,
}

/// Where everything is in a cache.
#[derive(Clone, Debug)]
pub(crate) struct CachePlan {
    pub(crate) layers: Vec<LayerCache>,
    pub(crate) bytes: usize,
}

impl CachePlan {
    /// Places for `context` positions, of which a pass adds at most `batch`.
    ///
    /// `None` when that is more than can be addressed.
    pub(crate) fn new(params: &HParams, context: usize, batch: usize) -> Option<Self> {
        let layout = KvLayout::new(params.head_dim, params.value_dim);
        let mut bytes = 0usize;
        let mut place = |len: usize, heads: usize| {
            let at = bytes;
            let size =
                len.checked_mul(heads)?.checked_mul(size_of::<u16>())?.checked_next_multiple_of(ALIGN)?;
            bytes = bytes.checked_add(size)?;
            Some(at)
        };
        let mut layers = Vec::with_capacity(params.layers.len());
        for layer in &params.layers {
            // A chunk more, since neither end of what is needed lies at the border of one.
            let ring = layer.window.map(|w| (w.saturating_add(batch)).next_multiple_of(CHUNK) + CHUNK);
            let positions = context.next_multiple_of(CHUNK).min(ring.unwrap_or(usize::MAX));
            layers.push(LayerCache {
                layout,
                heads: layer.kv_heads,
                group: layer.heads / layer.kv_heads,
                window: layer.window,
                positions,
                keys: place(layout.k_len(positions), layer.kv_heads)?,
                values: place(layout.v_len(positions), layer.kv_heads)?,
            });
        }
        Some(CachePlan { layers, bytes })
    }

    /// What attention over this cache needs beside its operands.
    pub(crate) fn attention(&self) -> AttentionSizes {
        let parts = |l: &LayerCache| l.positions.div_ceil(CHUNK) * l.heads * l.layout.part_len(l.group);
        AttentionSizes {
            head: self.layers.iter().map(|l| l.layout.v_dim()).max().unwrap_or(0),
            scratch: self.layers.iter().map(|l| l.layout.scratch_len()).max().unwrap_or(0),
            parts: self.layers.iter().map(parts).max().unwrap_or(0),
        }
    }

    /// The oldest position that is still there after `written` positions were written, for every layer.
    pub(crate) fn oldest(&self, written: usize) -> usize {
        self.layers.iter().map(|l| written.saturating_sub(l.positions)).max().unwrap_or(0)
    }

    /// The largest window, less one: how many positions before it a token needs, where layers have windows.
    pub(crate) fn reach(&self) -> Option<usize> {
        self.layers.iter().filter_map(|l| l.window).max().map(|w| w - 1)
    }
}

/// The memory of a cache.
pub(crate) struct Cache {
    memory: Arena,
}

impl Cache {
    pub(crate) fn new(plan: &CachePlan) -> Result<Self, Error> {
        let memory = Arena::new(plan.bytes, "keys and values", "ask for a smaller context with -c")?;
        Ok(Cache { memory })
    }

    /// The keys of a head.
    ///
    /// # Safety
    /// * nobody writes keys of this head while the view is alive
    pub(crate) unsafe fn keys(&self, layer: &LayerCache, head: usize) -> &[u16] {
        let len = layer.layout.k_len(layer.positions);
        // SAFETY: the caller's promise.
        unsafe { self.memory.view(layer.keys + head * len * size_of::<u16>(), len) }
    }

    /// The values of a head.
    ///
    /// # Safety
    /// * nobody writes values of this head while the view is alive
    pub(crate) unsafe fn values(&self, layer: &LayerCache, head: usize) -> &[u16] {
        let len = layer.layout.v_len(layer.positions);
        // SAFETY: the caller's promise.
        unsafe { self.memory.view(layer.values + head * len * size_of::<u16>(), len) }
    }

    /// The chunk of a head's keys that holds a position, to write.
    ///
    /// # Safety
    /// * nobody else reads or writes this chunk while the view is alive
    #[allow(
        clippy::mut_from_ref,
        reason = "the cache is shared between threads; the caller states exclusiveness"
    )]
    pub(crate) unsafe fn keys_mut(&self, layer: &LayerCache, head: usize, position: usize) -> &mut [u16] {
        let (all, chunk) = (layer.layout.k_len(layer.positions), layer.layout.k_len(CHUNK));
        let at = head * all + position / CHUNK % (all / chunk) * chunk;
        // SAFETY: the caller's promise.
        unsafe { self.memory.view_mut(layer.keys + at * size_of::<u16>(), chunk) }
    }

    /// The chunk of a head's values that holds a position, to write.
    ///
    /// # Safety
    /// * nobody else reads or writes this chunk while the view is alive
    #[allow(
        clippy::mut_from_ref,
        reason = "the cache is shared between threads; the caller states exclusiveness"
    )]
    pub(crate) unsafe fn values_mut(&self, layer: &LayerCache, head: usize, position: usize) -> &mut [u16] {
        let (all, chunk) = (layer.layout.v_len(layer.positions), layer.layout.v_len(CHUNK));
        let at = head * all + position / CHUNK % (all / chunk) * chunk;
        // SAFETY: the caller's promise.
        unsafe { self.memory.view_mut(layer.values + at * size_of::<u16>(), chunk) }
    }
}
