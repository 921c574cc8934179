//! Half precision in memory, single in the arithmetic: operands are widened while they are packed for the f32
//! engine, sums stay f32 over the whole depth and are rounded once.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};
use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    Element, InvalidKernelId, KernelSpec, LayoutKind, Machine, Numerics, Technique, Workload,
};

use super::operands::{Product, Stack};
use super::packed::{COLUMNS, DEPTHS, ROWS, hint};
use super::product::{self, problem};
use crate::declare::{Needing, spec};
use crate::gemm::{Caches, Destination, Source, Strided, Tiles, multiply, scratch_len};
use crate::isa::{Body, Level};
use crate::pool::threads;

knobs! {
    /// How the product is cut. Both operands are always packed: that is where they are widened.
    pub(crate) struct HalfKnobs {
        /// Threads that work at once.
        threads,
        /// Most rows in a block.
        mc,
        /// Most depth in a block.
        kc,
        /// Most columns in a block.
        nc,
    }
}

impl HalfKnobs {
    fn tiles(self) -> Tiles {
        Tiles {
            mc: self.mc as usize,
            kc: self.kc as usize,
            nc: self.nc as usize,
            pack_a: true,
            pack_b: true,
        }
    }
}

/// An element type of 16 bits.
pub(super) trait Half: Element + Default {
    /// Widens every value.
    fn widen(level: Level, from: &[Self], into: &mut [f32]);
    /// Rounds every value to the nearest.
    fn round(level: Level, from: &[f32], into: &mut [Self]);
}

impl Half for f16 {
    fn widen(level: Level, from: &[Self], into: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx2() {
            // SAFETY: a level with AVX2 has F16C.
            return unsafe { x86::widen(from, into) };
        }
        let _ = level;
        for (into, from) in into.iter_mut().zip(from) {
            *into = from.to_f32();
        }
    }

    fn round(level: Level, from: &[f32], into: &mut [Self]) {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx2() {
            // SAFETY: a level with AVX2 has F16C.
            return unsafe { x86::round(from, into) };
        }
        let _ = level;
        for (into, from) in into.iter_mut().zip(from) {
            *into = Self::from_f32(*from);
        }
    }
}

impl Half for bf16 {
    fn widen(level: Level, from: &[Self], into: &mut [f32]) {
        struct Widen<'a>(&'a [bf16], &'a mut [f32]);
        impl Body for Widen<'_> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                for (into, from) in self.1.iter_mut().zip(self.0) {
                    *into = f32::from_bits(u32::from(from.to_bits()) << 16);
                }
            }
        }
        level.run(Widen(from, into));
    }

    fn round(level: Level, from: &[f32], into: &mut [Self]) {
        struct Round<'a>(&'a [f32], &'a mut [bf16]);
        impl Body for Round<'_> {
            type Output = ();
            #[inline(always)]
            fn run(self) {
                for (into, from) in self.1.iter_mut().zip(self.0) {
                    *into = bf16::from_f32(*from);
                }
            }
        }
        level.run(Round(from, into));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use half::f16;

    /// # Safety
    /// The processor has AVX and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn widen(from: &[f16], into: &mut [f32]) {
        let whole = from.len().min(into.len()) / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: eight values from `at` on lie inside both slices; f16 is 16 bits.
            unsafe {
                let values = _mm_loadu_si128(from.as_ptr().add(at).cast());
                _mm256_storeu_ps(into.as_mut_ptr().add(at), _mm256_cvtph_ps(values));
            }
        }
        for (into, from) in into[whole..].iter_mut().zip(&from[whole..]) {
            let value = _mm_cvtph_ps(_mm_cvtsi32_si128(from.to_bits().into()));
            *into = _mm_cvtss_f32(value);
        }
    }

    /// # Safety
    /// The processor has AVX and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn round(from: &[f32], into: &mut [f16]) {
        let whole = from.len().min(into.len()) / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: eight values from `at` on lie inside both slices; f16 is 16 bits.
            unsafe {
                let values = _mm256_loadu_ps(from.as_ptr().add(at));
                let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
                _mm_storeu_si128(into.as_mut_ptr().add(at).cast(), rounded);
            }
        }
        for (into, from) in into[whole..].iter_mut().zip(&from[whole..]) {
            let rounded = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(*from));
            *into = f16::from_bits(_mm_cvtsi128_si32(rounded) as u16);
        }
    }
}

/// Depths that are widened at once, and the lanes of the widest panel: what lies on the stack meanwhile.
const DEPTHS_AT_ONCE: usize = 32;
const LANES_AT_ONCE: usize = 64;

/// A strided matrix of 16-bit values that fills panels of f32.
struct Widening<'a, H> {
    level: Level,
    first: *const H,
    lanes: usize,
    depth: usize,
    lane_stride: isize,
    depth_stride: isize,
    borrow: PhantomData<&'a H>,
}

// SAFETY: a shared borrow of its elements, which are `Sync`; it only reads.
unsafe impl<H: Sync> Sync for Widening<'_, H> {}

impl<H: Half> Widening<'_, H> {
    /// Widens some lanes and depths into a buffer; returns its strides.
    fn load(
        &self,
        lanes: Range<usize>,
        depth: Range<usize>,
        buffer: &mut [f32; DEPTHS_AT_ONCE * LANES_AT_ONCE],
    ) -> (isize, isize) {
        let along_lanes = self.lane_stride == 1;
        let (outer, inner, outer_stride, inner_stride, width) = if along_lanes {
            (
                depth,
                lanes,
                self.depth_stride,
                self.lane_stride,
                LANES_AT_ONCE,
            )
        } else {
            (
                lanes,
                depth,
                self.lane_stride,
                self.depth_stride,
                DEPTHS_AT_ONCE,
            )
        };
        for (into, at) in buffer.chunks_exact_mut(width).zip(outer) {
            let offset = at as isize * outer_stride + inner.start as isize * inner_stride;
            let into = &mut into[..inner.len()];
            let first = self.first.wrapping_offset(offset);
            if inner_stride == 1 {
                // SAFETY: these neighbours lie inside the matrix: the caller checked lanes and depth.
                let from = unsafe { std::slice::from_raw_parts(first, inner.len()) };
                H::widen(self.level, from, into);
            } else {
                for (step, into) in into.iter_mut().enumerate() {
                    // SAFETY: as above, one by one.
                    let value = unsafe { first.offset(step as isize * inner_stride).read() };
                    H::widen(self.level, &[value], std::slice::from_mut(into));
                }
            }
        }
        if along_lanes {
            (1, LANES_AT_ONCE as isize)
        } else {
            (DEPTHS_AT_ONCE as isize, 1)
        }
    }
}

impl<H: Half> Source<f32> for Widening<'_, H> {
    fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [f32]) {
        let inside = lanes.end <= self.lanes && depth.end <= self.depth;
        if !inside || !(1..=LANES_AT_ONCE).contains(&width) {
            return;
        }
        let mut buffer = [0f32; DEPTHS_AT_ONCE * LANES_AT_ONCE];
        for (panel, first) in lanes.clone().step_by(width).enumerate() {
            let lanes = first..lanes.end.min(first + width);
            for start in depth.clone().step_by(DEPTHS_AT_ONCE) {
                let part = start..depth.end.min(start + DEPTHS_AT_ONCE);
                let size = (lanes.len(), part.len());
                let strides = self.load(lanes.clone(), part, &mut buffer);
                // SAFETY: `load` filled the buffer at these lanes and depths.
                let widened = unsafe { Strided::new(self.level, buffer.as_ptr(), size, strides) };
                let position = (panel * depth.len() + start - depth.start) * width;
                let target = &mut into[position..][..size.1 * width];
                widened.pack(0..size.0, 0..size.1, width, target);
            }
        }
    }

    fn extent(&self) -> (usize, usize) {
        (self.lanes, self.depth)
    }
}

/// The kernel for one element type and level.
#[derive(Debug)]
pub(super) struct PackedHalf<H> {
    spec: KernelSpec,
    level: Level,
    element: PhantomData<H>,
}

impl<H: Half> PackedHalf<H> {
    pub(super) fn new(level: Level) -> Result<Self, InvalidKernelId> {
        let variant = format!("packed-{}", level.name());
        let (technique, numerics) = (Technique::Blocked, Numerics::Reordered);
        let spec = spec("matmul", &[H::DTYPE], &variant, technique, numerics)?;
        Ok(Self {
            spec: spec.on(level).following(LayoutKind::Strided),
            level,
            element: PhantomData,
        })
    }

    /// Elements of f32 for the sums, and for packing.
    fn room(&self, size: (usize, usize, usize), knobs: HalfKnobs) -> (usize, usize) {
        let threads = threads(knobs.threads);
        let packing = scratch_len::<f32>(self.level, size, &knobs.tiles(), threads);
        (size.0.saturating_mul(size.1), packing)
    }
}

impl<H: Half> Kernel for PackedHalf<H> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let Some(product) = problem(workload) else {
            return Space::none();
        };
        let tiles = Tiles::for_caches::<f32>(self.level, &Caches::of(machine));
        Space::of::<HalfKnobs, _>([
            Axis::threads(machine),
            product::sizes(tiles.mc, &ROWS, product.m),
            product::sizes(tiles.kc, &DEPTHS, product.k),
            product::sizes(tiles.nc, &COLUMNS, product.n),
        ])
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        let Some(product) = problem(workload) else {
            return Bytes(0);
        };
        let size = (product.m, product.n, product.k);
        let (sums, packing) = self.room(size, HalfKnobs::of(setting));
        Bytes(
            Carver::room::<f32>(sums)
                .0
                .saturating_add(Carver::room::<f32>(packing).0),
        )
    }

    fn hint(&self) -> Hint {
        hint(self.level)
    }
}

impl<H: Half> HostKernel for PackedHalf<H> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let knobs = HalfKnobs::of(setting);
        let product = Product::<H>::read(call, &self.spec.id)?;
        let size @ (m, n, k) = (product.m, product.n, product.k);
        let (sums, packing) = self.room(size, knobs);
        let mut pieces = scratch.carve();
        let sums = pieces.take::<f32>(sums)?;
        let packing = pieces.take::<f32>(packing)?;
        let (level, threads) = (self.level, threads(knobs.threads));
        for index in 0..product.batch {
            let side = |stack: &Stack<*const H>, lanes, lane_stride, depth_stride| Widening {
                level,
                first: stack.first.wrapping_offset(index as isize * stack.step),
                lanes,
                depth: k,
                lane_stride,
                depth_stride,
                borrow: PhantomData,
            };
            let a = side(&product.a, m, product.a.rows, product.a.columns);
            let b = side(&product.b, n, product.b.columns, product.b.rows);
            let pointer = sums.as_mut_ptr();
            // SAFETY: `sums` has room for m x n, row by row, and is not used until the product is there.
            let c = unsafe { Destination::new(pointer, (m, n), (n as isize, 1), false) };
            multiply(level, size, &a, &b, c, &knobs.tiles(), threads, packing)
                .map_err(|error| Fault::kernel(&self.spec.id, error))?;
            // SAFETY: the call is borrowed until the end, and the index is below the batch.
            unsafe { store(level, &product, index, sums) };
        }
        Ok(())
    }
}

/// Rounds the sums of one matrix into the result.
///
/// # Safety
/// The call the product was read from is borrowed and the index below the batch.
unsafe fn store<H: Half>(level: Level, product: &Product<H>, index: usize, sums: &[f32]) {
    let c = &product.c;
    for (row, sums) in sums.chunks_exact(product.n.max(1)).enumerate() {
        let first = c
            .first
            .wrapping_offset(index as isize * c.step + row as isize * c.rows);
        if c.columns == 1 {
            // SAFETY: a row of the result, whose elements are neighbours, writable by nobody else.
            let into = unsafe { std::slice::from_raw_parts_mut(first, product.n) };
            H::round(level, sums, into);
        } else {
            for (column, sum) in sums.iter().enumerate() {
                let mut value = [H::default()];
                H::round(level, std::slice::from_ref(sum), &mut value);
                // SAFETY: as above, one by one.
                unsafe { first.offset(column as isize * c.columns).write(value[0]) };
            }
        }
    }
}
