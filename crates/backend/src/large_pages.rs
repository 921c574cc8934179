//! Large pages, where the system gives them to those who ask: fewer address translations for big blocks of memory.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Size of a large page on most systems; blocks that hold none of them need not ask.
pub(crate) const SIZE: usize = 2 << 20;

/// Asks for large pages for the whole pages in a block. A request only: being refused leaves ordinary pages.
pub(crate) fn ask<T>(room: &mut [MaybeUninit<T>]) {
    #[cfg(target_os = "linux")]
    {
        let begin = room.as_mut_ptr().cast::<u8>();
        let before = begin.align_offset(rustix::param::page_size());
        let bytes = size_of_val(room).checked_sub(before);
        let Some(length) = bytes.filter(|length| *length >= SIZE) else {
            return;
        };
        // SAFETY: the range lies in `room`, which is borrowed exclusively; advice changes how its pages are backed, never
        // what they hold.
        let _ = unsafe {
            let first = begin.wrapping_add(before).cast();
            rustix::mm::madvise(first, length, rustix::mm::Advice::LinuxHugepage)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = room;
}
