//! No kernel allocates in steady state: counted by the allocator itself, on one thread. (Threads of a pool
//! are woken through a queue that allocates a block now and then.)
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kernelwise_backend::sample::{self, Arrangement, Values};
use kernelwise_backend::{Call, Host, Scratch, Terms, admit};
use kernelwise_types::{Numerics, TensorView, TensorViewMut, Workload};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every request goes to the system's allocator unchanged; counting touches a thread-local number
// that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the system's requirement.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; everything came from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WORKLOADS: &[&str] = &[
    "matmul f32 12x12x12",
    "matmul f64 40x33x50",
    "matmul f32 1x100x70",
    "matmul f32 4x9x8x7",
    "matmul f16 20x21x22",
    "conv2d f32 n1 c4 h12 w12 k8 r3 s3 stride1 pad1",
    "conv2d f32 n1 c8 h9 w9 k8 r1 s1 stride1 pad0",
    "conv2d f32 n1 c8 h9 w9 k8 r3 s3 stride1 pad1 groups8",
    "conv2d f32 n1 c2 h20 w20 k2 r9 s9 stride1 pad4",
    "conv3d f32 n1 c2 d5 h6 w7 k3 t3 r3 s3 stride1 pad1",
    "elementwise.add:row+gelu f32 8x100",
    "elementwise.add f64 1000",
    "activation.tanh f32 1000",
    "pool2d.max f32 n1 c2 h12 w12 r3 s3 stride2 pad1",
    "norm.layer f32 8x100",
    "norm.batch f32 4x5x20",
    "softmax f32 8x100",
    "softmax f32 8x100 axis0",
    "reduce.sum f32 8x100 axes1",
    "reduce.max f32 8x100 axes0",
    "scan.sum f32 8x100",
    "sort u32 2x500",
    "sort.pairs u32 2x500 values=f32",
    "sort.arg f32 2x500",
    "fft complex64 4x60",
    "fft.real f32 4x60",
    "gather f32 50x8 axis0 idx30",
    "scatter.add f32 50x8 axis0 idx30",
    "transpose f32 40x50 perm1,0",
    "reshape f32 8x100 to=100x8",
    "copy f32 8x100",
];

/// Libraries that take their packing buffers from the allocator on every call and offer no way to lend them one.
const THEIR_OWN: &[&str] = &["-gemm", "-matrixmultiply"];

#[test]
fn kernels_do_not_allocate_in_steady_state() {
    let machine = kernelwise_probe::machine();
    let host = Host::new(machine.clone(), kernelwise_cpu::kernels().unwrap()).unwrap();
    let terms = Terms {
        numerics: Numerics::ReducedPrecision,
        ..Terms::usual(&machine)
    };
    let mut tried = 0;
    let mut guilty = Vec::new();
    for text in WORKLOADS {
        let workload: Workload = text.parse().unwrap();
        let inputs =
            sample::inputs(&workload, Arrangement::Contiguous, Values::Ordinary, 1).unwrap();
        let mut outputs =
            sample::outputs(&workload, Arrangement::Contiguous, Values::Ordinary, 1).unwrap();
        let inputs: Vec<TensorView<'_>> = inputs.iter().map(|t| t.view().unwrap()).collect();
        for kernel in host.kernels_for(&workload) {
            let id = kernel.spec().id.to_string();
            let setting = kernel.space(&workload, &machine).default_setting();
            if id.ends_with("-reference")
                || admit(kernel.as_ref(), &workload, None, &setting, &terms).is_err()
            {
                continue;
            }
            let mut outputs: Vec<TensorViewMut<'_>> =
                outputs.iter_mut().map(|t| t.view_mut().unwrap()).collect();
            let mut call = Call::new(&workload, &inputs, &mut outputs).unwrap();
            let mut scratch = Scratch::new();
            scratch
                .reserve(kernel.workspace(&workload, &setting))
                .unwrap();
            // First use may fill tables.
            kernel.execute(&mut call, &setting, &mut scratch).unwrap();
            let before = COUNT.with(Cell::get);
            for _ in 0..3 {
                kernel.execute(&mut call, &setting, &mut scratch).unwrap();
            }
            let allocated = COUNT.with(Cell::get) - before;
            if THEIR_OWN.iter().any(|library| id.ends_with(library)) {
                continue;
            }
            if allocated > 0 {
                guilty.push(format!("{id} on {text}: {allocated} in 3 calls"));
            }
            tried += 1;
        }
    }
    assert!(guilty.is_empty(), "{}", guilty.join("\n"));
    assert!(
        tried > 2 * WORKLOADS.len(),
        "only {tried} kernels were tried"
    );
}
