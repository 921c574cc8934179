//! Gather and scatter: slices picked by index, or put where indices say.
//!
//! | variant | how | best for |
//! |---|---|---|
//! | `plain` | element by element, through any strides | what has gaps |
//! | `rows` | whole slices in the order of the list, shared among threads | almost everything |
//! | `sorted` | the list sorted first, so that table or destination is walked once from end to end | tables beyond the cache, many indices that name the same places |
//!
//! Indices are looked at before anything is written. Kernels that only move elements are written once for each size
//! of element and listed for every element type of that size.
#![allow(unsafe_code)]

mod gather;
mod join;
pub(crate) mod memory;
mod picks;
mod scatter;
mod slab;
mod sorted;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod trial;

use std::sync::Arc;

use kernelwise_backend::{Fault, HostKernel};
use kernelwise_types::op::{IndexType, ScatterKind};
use kernelwise_types::{DType, InvalidKernelId, KernelSpec, Refusal, Shape};

use crate::isa::Level;
use gather::GatherKernel;
use join::{Add, Assign, Join, Max, Min};
use scatter::ScatterKernel;

/// The kernels. They are the same for all instruction sets.
pub(crate) fn kernels(_levels: &[Level]) -> Result<Vec<Arc<dyn HostKernel>>, InvalidKernelId> {
    let mut kernels: Vec<Arc<dyn HostKernel>> = Vec::new();
    for index in IndexType::ALL {
        let with_index = |dtype: DType| {
            let mut dtypes = vec![dtype, index.dtype()];
            dtypes.dedup();
            dtypes
        };
        for &dtype in DType::ALL {
            let dtypes = with_index(dtype);
            for method in [
                gather::Method::Plain,
                gather::Method::Rows,
                gather::Method::Sorted,
            ] {
                kernels.push(Arc::new(GatherKernel::new(&dtypes, method)?));
            }
            let kind = ScatterKind::Assign;
            match dtype.size() {
                1 => scatters::<Assign<u8>>(&mut kernels, kind, &dtypes)?,
                2 => scatters::<Assign<u16>>(&mut kernels, kind, &dtypes)?,
                4 => scatters::<Assign<u32>>(&mut kernels, kind, &dtypes)?,
                // Two numbers of four bytes need not lie at a multiple of eight.
                8 if dtype.align() < 8 => {
                    scatters::<Assign<[u32; 2]>>(&mut kernels, kind, &dtypes)?
                }
                8 => scatters::<Assign<u64>>(&mut kernels, kind, &dtypes)?,
                _ => scatters::<Assign<[u64; 2]>>(&mut kernels, kind, &dtypes)?,
            }
        }
        joining::<Add<f32>, Max<f32>, Min<f32>>(&mut kernels, &with_index(DType::F32))?;
        joining::<Add<f64>, Max<f64>, Min<f64>>(&mut kernels, &with_index(DType::F64))?;
        joining::<Add<i32>, Max<i32>, Min<i32>>(&mut kernels, &with_index(DType::I32))?;
        joining::<Add<i64>, Max<i64>, Min<i64>>(&mut kernels, &with_index(DType::I64))?;
    }
    Ok(kernels)
}

fn joining<A: Join, B: Join, C: Join>(
    kernels: &mut Vec<Arc<dyn HostKernel>>,
    dtypes: &[DType],
) -> Result<(), InvalidKernelId> {
    scatters::<A>(kernels, ScatterKind::Add, dtypes)?;
    scatters::<B>(kernels, ScatterKind::Max, dtypes)?;
    scatters::<C>(kernels, ScatterKind::Min, dtypes)
}

fn scatters<J: Join>(
    kernels: &mut Vec<Arc<dyn HostKernel>>,
    kind: ScatterKind,
    dtypes: &[DType],
) -> Result<(), InvalidKernelId> {
    for method in [
        scatter::Method::Plain,
        scatter::Method::Rows,
        scatter::Method::Sorted,
    ] {
        kernels.push(Arc::new(ScatterKernel::<J>::new(kind, dtypes, method)?));
    }
    Ok(())
}

/// Whether places and positions fit the records of a sorted list.
fn fits_records(shape: &Shape, axis: usize, indices: usize) -> Result<(), Refusal> {
    let places = shape.dims().get(axis).copied().unwrap_or(0);
    if u32::try_from(places.max(indices)).is_ok() {
        Ok(())
    } else {
        Err(Refusal::Shape {
            condition: "needs fewer than 2^32 places and indices".to_owned(),
        })
    }
}

/// The fault of a call that is not for this kernel.
fn unfit(spec: &KernelSpec) -> Fault {
    Fault::Refused {
        kernel: spec.id.to_string(),
        refusal: Refusal::Shape {
            condition: "needs its own operation and element types, without gaps".to_owned(),
        },
    }
}
