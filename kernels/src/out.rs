//! The output matrix of a product, of which several threads write different rows.

use core::marker::PhantomData;
use core::ops::Range;

/// A matrix of `tokens` rows of `stride` f32 values, `out[token * stride + row]`, that the holder may write in part.
#[derive(Debug)]
pub struct OutMut<'a> {
    ptr: *mut f32,
    stride: usize,
    tokens: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: an `OutMut` is an exclusive borrow of the values it may write, as `&mut [f32]` is.
unsafe impl Send for OutMut<'_> {}

impl<'a> OutMut<'a> {
    /// The whole of a slice.
    ///
    /// # Panics
    /// * if the slice is shorter than `stride * tokens`
    pub fn new(out: &'a mut [f32], stride: usize, tokens: usize) -> Self {
        assert!(
            out.len() >= stride * tokens,
            "output of {} values for {tokens} tokens of {stride}",
            out.len()
        );
        OutMut { ptr: out.as_mut_ptr(), stride, tokens, owner: PhantomData }
    }

    /// A matrix that several holders write at once.
    ///
    /// # Safety
    /// * `ptr` is valid for writes of `stride * tokens` values for the lifetime `'a`
    /// * while this value lives, nobody else reads or writes the rows that are written through it
    pub unsafe fn from_raw(ptr: *mut f32, stride: usize, tokens: usize) -> Self {
        OutMut { ptr, stride, tokens, owner: PhantomData }
    }

    /// Rows of one token, to write.
    ///
    /// # Panics
    /// * if the token or the rows lie outside the matrix
    #[inline]
    pub fn rows(&mut self, token: usize, rows: Range<usize>) -> &mut [f32] {
        assert!(
            token < self.tokens && rows.start <= rows.end && rows.end <= self.stride,
            "rows outside the output"
        );
        // SAFETY: the range lies inside the matrix (checked above), which the constructor's caller vouched for, and
        // the borrow of `self` keeps this holder from handing out another part meanwhile.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.add(token * self.stride + rows.start), rows.len()) }
    }
}
