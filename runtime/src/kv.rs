//! The key-value cache: one block of memory, a place for each layer and head.
//!
//! Layers with a sliding window keep only what the window and a batch can need, as a ring. The layout within a head
//! is that of the attention kernels.

use crate::error::Error;
use crate::graph::arena::{ALIGN, Arena};
use crate::graph::plan::AttentionSizes;
use crate::model::hparams::HParams;
use quantsmith_kernels::ops::attention::{CHUNK, CellType, Cells, KvLayout, Set};

/// The types of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTypes {
    /// The type of keys.
    pub keys: CellType,
    /// The type of values.
    pub values: CellType,
}

/// The keys of a layer, or its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Where those of the first head start, in bytes.
    at: usize,
    /// Bytes of a chunk of a head.
    chunk: usize,
    cells: CellType,
}

/// The cache of one layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerCache {
    pub(crate) layout: KvLayout,
    /// Heads of keys and values.
    pub(crate) heads: usize,
    /// Heads of queries that share one of those.
    pub(crate) group: usize,
    pub(crate) window: Option<usize>,
    /// Positions that there is room for, whole chunks: of a ring, fewer than the context.
    pub(crate) positions: usize,
    keys: Side,
    values: Side,
}

impl LayerCache {
    fn chunks(&self) -> usize {
        self.positions / CHUNK
    }
}

/// Where everything is in a cache.
#[derive(Clone, Debug)]
pub(crate) struct CachePlan {
    pub(crate) layers: Vec<LayerCache>,
    pub(crate) bytes: usize,
    types: CacheTypes,
}

impl CachePlan {
    /// Places for `context` positions, of which a pass adds at most `batch`.
    ///
    /// `None` when that is more than can be addressed.
    pub(crate) fn new(params: &HParams, types: CacheTypes, context: usize, batch: usize) -> Option<Self> {
        let layout = KvLayout::new(params.head_dim, params.value_dim);
        let mut bytes = 0usize;
        let mut place = |cells: CellType, chunk: usize, count: usize| {
            let at = bytes;
            let size = chunk.checked_mul(count)?.checked_next_multiple_of(ALIGN)?;
            bytes = bytes.checked_add(size)?;
            Some(Side { at, chunk, cells })
        };
        let mut layers = Vec::with_capacity(params.layers.len());
        for layer in &params.layers {
            // A chunk more, since neither end of what is needed lies at the border of one.
            let ring = layer.window.map(|w| (w.saturating_add(batch)).next_multiple_of(CHUNK) + CHUNK);
            let positions = context.next_multiple_of(CHUNK).min(ring.unwrap_or(usize::MAX));
            let chunks = (positions / CHUNK).checked_mul(layer.kv_heads)?;
            layers.push(LayerCache {
                layout,
                heads: layer.kv_heads,
                group: layer.heads / layer.kv_heads,
                window: layer.window,
                positions,
                keys: place(types.keys, types.keys.k_bytes(layout), chunks)?,
                values: place(types.values, types.values.v_bytes(layout), chunks)?,
            });
        }
        Some(CachePlan { layers, bytes, types })
    }

    /// What makes a cache one that another session can take over: types, and the sizes of rings.
    pub(crate) fn settings(&self) -> String {
        let ring = self.layers.iter().filter(|l| l.window.is_some()).map(|l| l.positions).max();
        let ring = ring.map(|n| format!(", rings of {n} positions (-ub)")).unwrap_or_default();
        format!("{} keys and {} values{ring}", self.types.keys.name(), self.types.values.name())
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

    /// Visits the memory that holds so many positions: of each layer and head the keys and then the values.
    pub(crate) fn each_cell(
        &mut self,
        plan: &CachePlan,
        written: usize,
        visit: &mut dyn FnMut(&mut [u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        for layer in &plan.layers {
            let used = layer.chunks().min(written.div_ceil(CHUNK));
            for side in [layer.keys, layer.values] {
                for head in 0..layer.heads {
                    let at = side.at + head * layer.chunks() * side.chunk;
                    // SAFETY: the cache is borrowed mutably, so nobody else looks.
                    visit(unsafe { self.memory.view_mut(at, used * side.chunk) })?;
                }
            }
        }
        Ok(())
    }

    /// The keys of a head.
    ///
    /// # Safety
    /// * nobody writes keys of this head while the view is alive
    pub(crate) unsafe fn keys(&self, layer: &LayerCache, head: usize) -> Cells<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.cells(layer, &layer.keys, head) }
    }

    /// The values of a head.
    ///
    /// # Safety
    /// * nobody writes values of this head while the view is alive
    pub(crate) unsafe fn values(&self, layer: &LayerCache, head: usize) -> Cells<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.cells(layer, &layer.values, head) }
    }

    /// # Safety
    /// * nobody writes this side of this head while the view is alive
    unsafe fn cells(&self, layer: &LayerCache, side: &Side, head: usize) -> Cells<'_> {
        let len = layer.chunks() * side.chunk;
        let at = side.at + head * len;
        // SAFETY: the caller's promise.
        Cells { ty: side.cells, bytes: unsafe { self.memory.view(at, len) } }
    }

    /// Stores the key and the value of a position in a head.
    ///
    /// # Safety
    /// * nobody else reads or writes the chunk of this head that holds the position, during the call
    pub(crate) unsafe fn store(
        &self,
        attention: Set,
        layer: &LayerCache,
        head: usize,
        position: usize,
        [key, value]: [&[f32]; 2],
    ) {
        let chunk = head * layer.chunks() + position / CHUNK % layer.chunks();
        for (side, row, store) in [
            (&layer.keys, key, Set::store_k as fn(Set, CellType, KvLayout, &[f32], usize, &mut [u8])),
            (&layer.values, value, Set::store_v),
        ] {
            // SAFETY: the caller's promise.
            let cells = unsafe { self.memory.view_mut(side.at + chunk * side.chunk, side.chunk) };
            store(attention, side.cells, layer.layout, row, position, cells);
        }
    }
}
