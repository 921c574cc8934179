//! Counts allocations, for the figure that says a choice makes none.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count beside it.
pub(crate) struct Counting;

thread_local! {
    /// Allocations of this thread. Without a destructor, so that it can be counted in at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every request goes to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as in `dealloc`, and the size is the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// How often something allocates on this thread.
pub(crate) fn during(body: &mut dyn FnMut()) -> u64 {
    let before = COUNT.get();
    body();
    COUNT.get() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let mut kept = Vec::new();
        let count = during(&mut || {
            for i in 0..3 {
                kept.push(Box::new([i; 100]));
            }
        });
        // The boxes, and the list at least once.
        assert!((4..=6).contains(&count), "{count}");
        assert_eq!(during(&mut || assert_eq!(kept.len(), 3)), 0);
    }
}
