//! The part of oneDNN's C interface (version 3) that a forward convolution needs, and handles that release what
//! they hold. Signatures and values follow the documentation of the interface.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{self, NonNull};

use crate::load::Opened;
use crate::{CallError, LoadError};

/// Declares the opaque objects of the interface; the type tells pointers to them apart.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[derive(Debug)]
        #[repr(C)]
        pub(super) struct $name {
            opaque: [u8; 0],
        }
    )*};
}
opaque! { Engine Stream MemoryDesc Memory Attributes PrimitiveDesc Primitive }

/// Sizes, strides or padding; the interface reads as many as a tensor has dimensions.
pub(super) type Dims = [i64; 12];

/// One operand of a primitive.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Argument {
    pub(super) index: c_int,
    pub(super) memory: *mut Memory,
}

/// What the library says of itself.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: c_int,
    pub(super) minor: c_int,
    pub(super) patch: c_int,
    hash: *const c_char,
    pub(super) cpu_runtime: c_uint,
    gpu_runtime: c_uint,
}

pub(super) const RUNTIME_OMP: c_uint = 2;
pub(super) const ENGINE_CPU: c_int = 1;
pub(super) const STREAM_IN_ORDER: c_uint = 1;
pub(super) const F32: c_int = 3;
/// The layout that suits the kernel best.
pub(super) const FORMAT_ANY: c_int = 1;
/// Four and five dimensions stored in the order of their names: NCHW and KCRS, and KCRS per group.
pub(super) const FORMAT_ABCD: c_int = 5;
pub(super) const FORMAT_ABCDE: c_int = 6;
pub(super) const FORWARD_INFERENCE: c_int = 96;
/// Direct, Winograd or whatever else the library thinks best.
pub(super) const CONVOLUTION_AUTO: c_int = 3;
pub(super) const QUERY_IMPLEMENTATION: c_int = 8;
pub(super) const QUERY_SOURCE: c_int = 129;
pub(super) const QUERY_WEIGHTS: c_int = 131;
pub(super) const QUERY_DESTINATION: c_int = 133;
pub(super) const ARG_SOURCE: c_int = 1;
pub(super) const ARG_DESTINATION: c_int = 17;
pub(super) const ARG_WEIGHTS: c_int = 33;

/// Declares the functions, and how to find them in a library.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Pointers into the library, which is never unloaded.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct Interface {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Interface {
            /// # Safety
            ///
            /// The library must be oneDNN, version 3.
            pub(super) unsafe fn bind(opened: &Opened) -> Result<Self, LoadError> {
                Ok(Self {
                    // SAFETY: the signatures are those of the interface's version 3.
                    $($name: unsafe { opened.get(concat!("dnnl_", stringify!($name)))? },)*
                })
            }
        }
    };
}

functions! {
    engine_create(*mut *mut Engine, c_int, usize) -> c_int;
    engine_destroy(*mut Engine) -> c_int;
    stream_create(*mut *mut Stream, *mut Engine, c_uint) -> c_int;
    stream_destroy(*mut Stream) -> c_int;
    stream_wait(*mut Stream) -> c_int;
    memory_desc_create_with_tag(*mut *mut MemoryDesc, c_int, *const Dims, c_int, c_int) -> c_int;
    memory_desc_destroy(*mut MemoryDesc) -> c_int;
    memory_desc_equal(*const MemoryDesc, *const MemoryDesc) -> c_int;
    memory_desc_get_size(*const MemoryDesc) -> usize;
    memory_create(*mut *mut Memory, *const MemoryDesc, *mut Engine, *mut c_void) -> c_int;
    memory_destroy(*mut Memory) -> c_int;
    memory_set_data_handle(*mut Memory, *mut c_void) -> c_int;
    convolution_forward_primitive_desc_create(
        *mut *mut PrimitiveDesc,
        *mut Engine,
        c_int,
        c_int,
        *const MemoryDesc,
        *const MemoryDesc,
        *const MemoryDesc,
        *const MemoryDesc,
        *const Dims,
        *const Dims,
        *const Dims,
        *const Dims,
        *const Attributes
    ) -> c_int;
    reorder_primitive_desc_create(
        *mut *mut PrimitiveDesc,
        *const MemoryDesc,
        *mut Engine,
        *const MemoryDesc,
        *mut Engine,
        *const Attributes
    ) -> c_int;
    primitive_desc_query(*const PrimitiveDesc, c_int, c_int, *mut c_void) -> c_int;
    primitive_desc_query_md(*const PrimitiveDesc, c_int, c_int) -> *const MemoryDesc;
    primitive_desc_destroy(*mut PrimitiveDesc) -> c_int;
    primitive_create(*mut *mut Primitive, *const PrimitiveDesc) -> c_int;
    primitive_destroy(*mut Primitive) -> c_int;
    primitive_execute(*const Primitive, *mut Stream, c_int, *const Argument) -> c_int;
}

/// An object of the library, released when dropped.
#[derive(Debug)]
pub(super) struct Handle<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
}

impl<T> Handle<T> {
    /// Calls `create`, which puts the new object where its argument points and returns a status.
    ///
    /// # Safety
    ///
    /// When the status is success, the object must be one that `destroy` releases and nobody else does.
    pub(super) unsafe fn create(
        function: &'static str,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        create: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Self, CallError> {
        let mut object = ptr::null_mut();
        let status = create(&raw mut object);
        succeed(function, status)?;
        let object = NonNull::new(object).ok_or_else(|| failure(function, RUNTIME_ERROR))?;
        Ok(Self { object, destroy })
    }

    pub(super) const fn get(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: the object came from the function that `destroy` undoes, and is released here only. The status
        // can only say that the pointer is null, which it is not.
        unsafe { (self.destroy)(self.object.as_ptr()) };
    }
}

const RUNTIME_ERROR: c_int = 5;

/// Turns a status into a result.
pub(super) fn succeed(function: &'static str, status: c_int) -> Result<(), CallError> {
    if status == 0 {
        Ok(())
    } else {
        Err(failure(function, status))
    }
}

pub(super) const fn failure(function: &'static str, status: c_int) -> CallError {
    let meaning = match status {
        1 => "out of memory",
        2 => "invalid arguments",
        3 => "not implemented for these arguments",
        4 => "no further implementation",
        RUNTIME_ERROR => "an error at run time",
        6 => "not required",
        _ => "a status this program does not know",
    };
    CallError::Status {
        function,
        meaning,
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::succeed;

    #[test]
    fn a_status_names_the_function_and_its_meaning() {
        assert_eq!(succeed("dnnl_engine_create", 0), Ok(()));
        let error = succeed("dnnl_primitive_create", 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "dnnl_primitive_create failed: not implemented for these arguments (status 3)"
        );
    }
}
