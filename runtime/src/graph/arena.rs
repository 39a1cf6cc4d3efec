//! One block of memory for all values of a plan.
//!
//! Threads write disjoint parts of it at the same time, which references cannot express, so this is one of the few
//! places with unsafe code: views are made from offsets, and whoever makes one states why nobody else is in the way.
//! The plan is the reason throughout: it gives values whose lifetimes overlap different places, a step reads only
//! what earlier steps have written, and the chunks of a step write different rows or columns.

use crate::error::Error;
use memmap2::MmapMut;
use quantsmith_kernels::ActGroup;
use std::ptr::NonNull;

/// Every value starts at a multiple of this.
pub(crate) const ALIGN: usize = 128;

/// Types that any bytes are a valid value of.
///
/// # Safety
/// * any bytes are a valid value, and the alignment is at most [`ALIGN`]
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: a float.
unsafe impl Plain for f32 {}
// SAFETY: an integer.
unsafe impl Plain for i8 {}
// SAFETY: an integer.
unsafe impl Plain for u16 {}
// SAFETY: a `repr(C)` struct of floats and integers.
unsafe impl Plain for ActGroup {}
// SAFETY: a byte.
unsafe impl Plain for u8 {}

/// Zeroed memory that can be viewed in pieces.
pub(crate) struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    _memory: Option<MmapMut>,
}

// SAFETY: the memory belongs to the arena alone; views state who else may look at their bytes.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Asks the system for zeroed memory, which takes room only where it is touched.
    pub(crate) fn new(bytes: usize, what: &'static str, hint: &'static str) -> Result<Self, Error> {
        if bytes == 0 {
            return Ok(Arena { base: NonNull::dangling(), bytes: 0, _memory: None });
        }
        let memory = MmapMut::map_anon(bytes);
        let mut memory = memory.map_err(|_| Error::Memory { what, bytes: bytes as u64, hint })?;
        let base = NonNull::new(memory.as_mut_ptr()).expect("a map has an address");
        Ok(Arena { base, bytes, _memory: Some(memory) })
    }

    fn check<T: Plain>(&self, at: usize, len: usize) -> *mut T {
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
        assert!(end.is_some_and(|end| end <= self.bytes), "a view beyond the arena");
        assert!(at.is_multiple_of(align_of::<T>()), "a view that is not aligned");
        // SAFETY: `at` is not beyond the end.
        unsafe { self.base.as_ptr().add(at) }.cast()
    }

    /// Views `len` values from the byte `at` on.
    ///
    /// # Safety
    /// * nobody writes these bytes while the view is alive
    #[inline]
    pub(crate) unsafe fn view<T: Plain>(&self, at: usize, len: usize) -> &[T] {
        let pointer = self.check::<T>(at, len);
        // SAFETY: in bounds and aligned, which was checked; any bytes are valid; nobody writes, says the caller.
        unsafe { std::slice::from_raw_parts(pointer, len) }
    }

    /// Views `len` values from the byte `at` on, to write them.
    ///
    /// # Safety
    /// * nobody else reads or writes these bytes while the view is alive
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the arena is shared by design; the caller states exclusiveness")]
    pub(crate) unsafe fn view_mut<T: Plain>(&self, at: usize, len: usize) -> &mut [T] {
        let pointer = self.check::<T>(at, len);
        // SAFETY: in bounds and aligned, which was checked; any bytes are valid; nobody else looks, says the caller.
        unsafe { std::slice::from_raw_parts_mut(pointer, len) }
    }

    /// The address of a value that threads write in columns of their own.
    pub(crate) fn pointer<T: Plain>(&self, at: usize, len: usize) -> *mut T {
        self.check(at, len)
    }
}
