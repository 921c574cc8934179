//! Element types as values: addresses of elements whatever their type, and whether a kernel is made for them.

use kernelwise_types::{DType, KernelSpec, TensorView, TensorViewMut, ViewError, Workload};

/// Evaluates `$call` with `$element` standing for the Rust type of an element type.
macro_rules! by_element {
    ($dtype:expr, $element:ident => $call:expr) => {
        match $dtype {
            DType::F16 => {
                type $element = half::f16;
                $call
            }
            DType::Bf16 => {
                type $element = half::bf16;
                $call
            }
            DType::F32 => {
                type $element = f32;
                $call
            }
            DType::F64 => {
                type $element = f64;
                $call
            }
            DType::I8 => {
                type $element = i8;
                $call
            }
            DType::I16 => {
                type $element = i16;
                $call
            }
            DType::I32 => {
                type $element = i32;
                $call
            }
            DType::I64 => {
                type $element = i64;
                $call
            }
            DType::U8 => {
                type $element = u8;
                $call
            }
            DType::U16 => {
                type $element = u16;
                $call
            }
            DType::U32 => {
                type $element = u32;
                $call
            }
            DType::U64 => {
                type $element = u64;
                $call
            }
            DType::Bool => {
                type $element = bool;
                $call
            }
            DType::Complex64 => {
                type $element = num_complex::Complex<f32>;
                $call
            }
            DType::Complex128 => {
                type $element = num_complex::Complex<f64>;
                $call
            }
        }
    };
}

#[cfg(test)]
pub(crate) use by_element;

/// The address of the first element, whatever its type.
pub(crate) fn first(view: &TensorView<'_>) -> Result<*const u8, ViewError> {
    by_element!(view.dtype(), T => view.as_ptr::<T>().map(<*const T>::cast))
}

/// The address of the first element, whatever its type, for writing.
pub(crate) fn first_mut(view: &mut TensorViewMut<'_>) -> Result<*mut u8, ViewError> {
    by_element!(view.dtype(), T => view.as_mut_ptr::<T>().map(<*mut T>::cast))
}

/// Whether a kernel's element types are those of a workload. As comparing with [`Workload::dtypes`], but
/// without making the list: kernels ask at every call.
pub(crate) fn made_for(spec: &KernelSpec, workload: &Workload) -> bool {
    let known = spec.id.dtypes();
    let mut seen = 0;
    let operands = workload.inputs().iter().chain(workload.outputs());
    let all = std::iter::once(workload.dtype()).chain(operands.map(|operand| operand.dtype));
    for dtype in all {
        if known.iter().take(seen).any(|known| *known == dtype) {
            continue;
        }
        if known.get(seen) != Some(&dtype) {
            return false;
        }
        seen += 1;
    }
    seen == known.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_types_are_compared_as_the_list_is() {
        let lists = [
            "u32",
            "i64",
            "u32_i64",
            "i64_u32",
            "u32_f32",
            "u32_i64_f32",
            "f32",
        ];
        for text in [
            "sort u32 5",
            "sort.arg u32 5",
            "sort.arg i64 5",
            "sort.pairs u32 5 values=f32",
        ] {
            let workload: Workload = text.parse().unwrap();
            for list in lists {
                let spec = KernelSpec {
                    id: format!("cpu-sort-{list}-x").parse().unwrap(),
                    version: 1,
                    technique: kernelwise_types::Technique::Scalar,
                    numerics: kernelwise_types::Numerics::BitIdentical,
                    needs: kernelwise_types::Needs::default(),
                };
                let same = spec.id.dtypes() == workload.dtypes();
                assert_eq!(made_for(&spec, &workload), same, "{list} on {text}");
            }
        }
    }

    #[test]
    fn the_first_element_is_found_for_every_type() {
        for &dtype in DType::ALL {
            by_element!(dtype, T => {
                // SAFETY: zero is a value of every element type.
                let mut memory: [T; 3] = unsafe { std::mem::zeroed() };
                let address = memory.as_ptr().addr();
                let shape = "3".parse().unwrap();
                let view = TensorView::contiguous(&memory, shape).unwrap();
                assert_eq!(first(&view).unwrap().addr(), address, "{dtype}");
                let mut view = TensorViewMut::contiguous(&mut memory, shape).unwrap();
                assert_eq!(first_mut(&mut view).unwrap().addr(), address, "{dtype}");
            });
        }
    }
}
