//! Convolution as a product of the filters and the matrix of windows.
//!
//! `im2col` packs the matrix panel by panel, straight from the image. `1x1` is for filters of one tap: at stride 1 the
//! image is the matrix, and is packed or read where it lies; at other strides the pixels in between are left out
//! when panels are filled.

use std::marker::PhantomData;
use std::sync::Arc;

use kernelwise_backend::{
    Axis, Call, Carver, Fault, Hint, HostKernel, Kernel, Knobs, Scratch, Setting, Space, knobs,
};
use kernelwise_types::units::Bytes;
use kernelwise_types::{
    InvalidKernelId, KernelSpec, Machine, Numerics, Refusal, Technique, Workload,
};

use super::geometry::Geometry;
use super::product::{Cut, Failure, Product, narrow};
use super::tensors::{Sharing, Tensors};
use super::windows::Windows;
use super::{Float, mend};
use crate::declare::{Needing, spec};
use crate::gemm::Strided;
use crate::isa::Level;
use crate::pool;

knobs! {
    /// How the product is cut and shared.
    pub(super) struct ProductKnobs {
        /// Threads: over images and groups if there are enough, else over filters and windows.
        threads,
        /// Windows in one block of the matrix.
        windows,
        /// Depth of one block: channels times taps.
        depth,
        /// Pack the filters instead of reading them where they lie.
        pack_filters,
        /// Pack the windows instead of reading them where they lie, which only those of one tap at stride 1 can be.
        pack_windows,
        /// 0 cuts the parts evenly, 1 finer, for threads that are not equally fast.
        schedule,
    }
}

/// Which windows a kernel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Windowing {
    Any,
    OneTap,
}

/// The kernel for one operation, element type and level.
struct Im2col<T> {
    spec: KernelSpec,
    level: Level,
    windowing: Windowing,
    element: PhantomData<fn() -> T>,
}

/// The kernel for any filter.
pub(super) fn im2col<T: Float>(
    operation: &str,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    kernel::<T>(operation, "im2col", level, Windowing::Any)
}

/// The kernel for filters of one tap.
pub(super) fn one_tap<T: Float>(
    operation: &str,
    level: Level,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    kernel::<T>(operation, "1x1", level, Windowing::OneTap)
}

fn kernel<T: Float>(
    operation: &str,
    variant: &str,
    level: Level,
    windowing: Windowing,
) -> Result<Arc<dyn HostKernel>, InvalidKernelId> {
    let variant = format!("{variant}-{}", level.name());
    let technique = Technique::Blocked;
    let spec = spec(
        operation,
        &[T::DTYPE],
        &variant,
        technique,
        Numerics::Reordered,
    )?;
    Ok(Arc::new(Im2col::<T> {
        spec: spec.on(level),
        level,
        windowing,
        element: PhantomData,
    }))
}

/// Whether the image is its own matrix of windows.
fn is_matrix(geometry: &Geometry) -> bool {
    geometry.pointwise() && geometry.windows() == geometry.plane()
}

/// An image that is its own matrix of windows: pixels are lanes, channels depths.
#[allow(unsafe_code)]
fn matrix_of<'a, T: Float>(level: Level, geometry: &Geometry, image: &'a [T]) -> Strided<'a, T> {
    let plane = geometry.plane();
    let channels = image.len() / plane.max(1);
    // SAFETY: the slice holds so many channels of `plane` neighbours.
    unsafe {
        Strided::new(
            level,
            image.as_ptr(),
            (plane, channels),
            (1, plane as isize),
        )
    }
}

impl ProductKnobs {
    fn cut(&self, geometry: &Geometry, windowing: Windowing, sharing: &Sharing) -> Cut {
        let in_place = windowing == Windowing::OneTap && is_matrix(geometry);
        Cut {
            windows: self.windows.max(1) as usize,
            depth: self.depth.max(1) as usize,
            pack_filters: self.pack_filters != 0,
            pack_windows: self.pack_windows != 0 || !in_place,
            threads: sharing.inside,
        }
    }
}

impl<T: Float> Im2col<T> {
    fn accepts(&self, geometry: &Geometry) -> Result<(), Refusal> {
        if self.windowing == Windowing::Any || geometry.pointwise() {
            return Ok(());
        }
        Err(Refusal::Shape {
            condition: "needs a filter of one tap, and no padding".to_owned(),
        })
    }

    fn product(&self, geometry: &Geometry, setting: &Setting) -> (Product, Sharing) {
        let knobs = ProductKnobs::of(setting);
        let sharing = Sharing::new(geometry, knobs.threads, knobs.schedule);
        let cut = knobs.cut(geometry, self.windowing, &sharing);
        (Product::new(self.level, geometry, cut), sharing)
    }
}

impl<T: Float> Kernel for Im2col<T> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        Geometry::of(workload).map_or(Ok(()), |geometry| self.accepts(&geometry))
    }

    /// A block that holds everything is as good as any larger one, so larger ones are not offered.
    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        let Some(geometry) = Geometry::of(workload) else {
            return Space::none();
        };
        let sizes = |total: usize, default: u32, sizes: &[u32]| {
            let whole = u32::try_from(total).unwrap_or(u32::MAX);
            let smaller = sizes.iter().copied().filter(|&size| size < whole);
            Axis::new(default.min(whole), smaller)
        };
        let threads = Axis::threads(machine);
        let parts = geometry.n * geometry.groups;
        let shared = threads.values().len() > 1 && parts > 2;
        // So few windows are always packed, all of them together.
        let few = narrow::<T>(self.level, geometry.windows()).is_some();
        let in_place = !few && self.windowing == Windowing::OneTap && is_matrix(&geometry);
        let blocks: &[u32] = if few {
            &[]
        } else {
            &[48, 96, 192, 480, 960, 1920]
        };
        Space::of::<ProductKnobs, 6>([
            threads,
            sizes(geometry.windows(), 480, blocks),
            sizes(geometry.depth(), 384, &[96, 192, 384, 768, 1536, 4608]),
            Axis::switch(false),
            if in_place {
                Axis::switch(true)
            } else {
                Axis::new(1, [])
            },
            if shared {
                Axis::switch(false)
            } else {
                Axis::new(0, [])
            },
        ])
        .with_constraint(pool::SHARED_ONLY, |knobs: ProductKnobs| {
            knobs.threads > 1 || knobs.schedule == 0
        })
        // With a thread for each part there is nothing to cut finer.
        .with_constraint(
            "threads < images * groups or schedule = 0",
            move |knobs: ProductKnobs| (knobs.threads as usize) < parts || knobs.schedule == 0,
        )
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        Geometry::of(workload).map_or(Bytes(0), |geometry| {
            let (product, sharing) = self.product(&geometry, setting);
            Carver::room::<T>(sharing.scratch_len(product.scratch_len::<T>()))
        })
    }

    fn hint(&self) -> Hint {
        match self.windowing {
            Windowing::Any => Hint::percent(self.level.part_of(65)),
            Windowing::OneTap => Hint::percent(self.level.part_of(80)),
        }
    }
}

impl<T: Float> HostKernel for Im2col<T> {
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        let tensors = Tensors::<T>::of(call, &self.spec, |geometry| self.accepts(geometry))?;
        let geometry = tensors.geometry;
        let level = self.level;
        let (product, sharing) = self.product(&geometry, setting);
        let scratch = scratch
            .carve()
            .take(sharing.scratch_len(product.scratch_len::<T>()))?;
        let matrix = self.windowing == Windowing::OneTap && is_matrix(&geometry);
        let failure = Failure::default();
        sharing.each(tensors, scratch, |part, scratch| {
            if matrix {
                let image = matrix_of(level, &geometry, part.image);
                failure.note(product.run(&image, part.weights, part.output, scratch));
            } else {
                let windows = Windows::new(level, &geometry, part.image);
                failure.note(product.run(&windows, part.weights, part.output, scratch));
                mend::padding(&geometry, part.image, part.weights, part.output);
            }
        });
        failure
            .result()
            .map_err(|error| Fault::kernel(&self.spec.id, error))
    }
}
