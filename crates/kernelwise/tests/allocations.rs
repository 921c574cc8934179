//! A call of a workload that was met before allocates nothing.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kernelwise::Kernelwise;
use kernelwise::own::Features;

struct Counting;

thread_local! {
    /// Allocations of this thread. Without a destructor, so that it can be counted in at any time.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every request goes to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn during(mut body: impl FnMut()) -> u64 {
    let before = COUNT.get();
    body();
    COUNT.get() - before
}

#[test]
fn products_allocate_nothing_once_they_are_known() {
    // One kernel, which needs no memory of its own, and no comparisons: what is left is Kernelwise.
    let kw = Kernelwise::builder()
        .force("matmul", "cpu-matmul-f32-unpacked-portable")
        .verify_one_in(0)
        .build()
        .unwrap();
    let (a, b, mut c) = ([1f32; 128], [1f32; 128], [0f32; 64]);
    let mut call = || {
        kw.matmul((&a, [8, 16]), (&b, [16, 8]), (&mut c, [8, 8]))
            .unwrap();
    };
    let first = during(&mut call);
    assert!(first > 0, "the counter counts");
    for _ in 0..10 {
        call();
    }
    assert_eq!(during(|| (0..1000).for_each(|_| call())), 0);
}

#[test]
fn own_operations_allocate_nothing_but_what_their_variants_do() {
    let kw = Kernelwise::builder().build().unwrap();
    let adding = kw
        .operation("adding")
        .features(|x: &[u32]| {
            Features::new()
                .size("length", x.len())
                .share("full", 0.5)
                .kind("order", "any")
        })
        .variant("forward", |x: &mut [u32]| x.iter().sum::<u32>())
        .variant("backward", |x: &mut [u32]| x.iter().rev().sum::<u32>())
        .build()
        .unwrap();
    let mut x = [3; 100];
    assert!(during(|| assert_eq!(adding.run(&mut x), Ok(300))) > 0);
    let many = || (0..1000).for_each(|_| assert_eq!(adding.run(&mut x), Ok(300)));
    assert_eq!(during(many), 0);
}
