//! What a convolution is made and run with: an engine, a stream and the number of threads.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use kernelwise_types::op::Conv2d;

use super::interface::{
    Argument, CONVOLUTION_AUTO, ENGINE_CPU, Engine, F32, FORMAT_ANY, FORWARD_INFERENCE, Handle,
    Interface, Memory, MemoryDesc, Primitive, PrimitiveDesc, QUERY_IMPLEMENTATION, STREAM_IN_ORDER,
    Stream, failure, succeed,
};
use super::tensor::{Form, Plain, Tensor, pair, zeros};
use super::{OneDnn, SetThreads};
use crate::CallError;
use crate::error::thread_count;

/// What everything else is made with.
#[derive(Debug)]
pub(super) struct Context {
    stream: Handle<Stream>,
    engine: Handle<Engine>,
    pub(super) interface: Interface,
    set_threads: SetThreads,
    threads: c_int,
}

impl Context {
    pub(super) fn new(onednn: &OneDnn, threads: usize) -> Result<Self, CallError> {
        let threads = thread_count(threads)?;
        let interface = onednn.interface;
        // SAFETY: each function makes the object that its counterpart releases; the engine outlives the stream by
        // the order of the fields.
        let (engine, stream) = unsafe {
            let engine = Handle::create("dnnl_engine_create", interface.engine_destroy, |out| {
                (interface.engine_create)(out, ENGINE_CPU, 0)
            })?;
            let stream = Handle::create("dnnl_stream_create", interface.stream_destroy, |out| {
                (interface.stream_create)(out, engine.get(), STREAM_IN_ORDER)
            })?;
            (engine, stream)
        };
        Ok(Self {
            stream,
            engine,
            interface,
            set_threads: onednn.set_threads,
            threads,
        })
    }

    /// The library asks OpenMP for the number of threads when it makes a kernel and again when it runs one.
    pub(super) fn use_threads(&self) {
        // SAFETY: any positive number is legal.
        unsafe { (self.set_threads)(self.threads) };
    }

    fn desc(&self, form: &Form, format: c_int) -> Result<Handle<MemoryDesc>, CallError> {
        let Interface {
            memory_desc_create_with_tag: create,
            memory_desc_destroy: destroy,
            ..
        } = self.interface;
        // SAFETY: the sizes are as many as the rank says, and are copied.
        unsafe {
            Handle::create("dnnl_memory_desc_create_with_tag", destroy, |out| {
                create(out, form.rank, &raw const form.dims, F32, format)
            })
        }
    }

    pub(super) fn plain(&self, form: &Form) -> Result<Plain, CallError> {
        Ok(Plain {
            form: form.clone(),
            desc: self.desc(form, form.plain_format())?,
        })
    }

    /// Lets the library choose a kernel and layouts.
    pub(super) fn plan(
        &self,
        conv: &Conv2d,
        [source, weights, destination]: [&Form; 3],
    ) -> Result<Handle<PrimitiveDesc>, CallError> {
        let source = self.desc(source, FORMAT_ANY)?;
        let weights = self.desc(weights, FORMAT_ANY)?;
        let destination = self.desc(destination, FORMAT_ANY)?;
        let stride = pair(conv.stride)?;
        let pad = pair(conv.pad)?;
        // The library counts the taps left out between two neighbours.
        let gaps = pair(conv.dilation.map(|distance| distance.saturating_sub(1)))?;
        let Interface {
            convolution_forward_primitive_desc_create: create,
            primitive_desc_destroy: destroy,
            ..
        } = self.interface;
        let function = "dnnl_convolution_forward_primitive_desc_create";
        // SAFETY: all descriptions are alive and copied; no bias and no attributes may be null.
        unsafe {
            Handle::create(function, destroy, |out| {
                create(
                    out,
                    self.engine.get(),
                    FORWARD_INFERENCE,
                    CONVOLUTION_AUTO,
                    source.get(),
                    weights.get(),
                    ptr::null(),
                    destination.get(),
                    &raw const stride,
                    &raw const gaps,
                    &raw const pad,
                    &raw const pad,
                    ptr::null(),
                )
            })
        }
    }

    pub(super) fn implementation(&self, plan: &Handle<PrimitiveDesc>) -> Result<String, CallError> {
        let mut name: *const c_char = ptr::null();
        let result: *mut c_void = (&raw mut name).cast();
        // SAFETY: this query writes one pointer to a text that lives as long as the plan.
        unsafe {
            let query = self.interface.primitive_desc_query;
            let status = query(plan.get(), QUERY_IMPLEMENTATION, 0, result);
            succeed("dnnl_primitive_desc_query", status)?;
            if name.is_null() {
                return Ok(String::new());
            }
            Ok(CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    pub(super) fn primitive(
        &self,
        plan: &Handle<PrimitiveDesc>,
    ) -> Result<Handle<Primitive>, CallError> {
        let Interface {
            primitive_create: create,
            primitive_destroy: destroy,
            ..
        } = self.interface;
        // SAFETY: the plan is alive; the primitive keeps what it needs of it.
        unsafe {
            Handle::create("dnnl_primitive_create", destroy, |out| {
                create(out, plan.get())
            })
        }
    }

    /// A tensor in its plain layout and in that which the plan chose for this operand.
    pub(super) fn tensor(
        &self,
        Plain { form, desc: plain }: Plain,
        plan: &Handle<PrimitiveDesc>,
        operand: c_int,
    ) -> Result<Tensor, CallError> {
        // SAFETY: the description lives as long as the plan, which outlives this call; null is refused.
        let (own, bytes, plain_is_own) = unsafe {
            let own = (self.interface.primitive_desc_query_md)(plan.get(), operand, 0);
            if own.is_null() {
                return Err(failure("dnnl_primitive_desc_query_md", 2));
            }
            let bytes = (self.interface.memory_desc_get_size)(own);
            let same = (self.interface.memory_desc_equal)(own, plain.get());
            (own, bytes, same != 0)
        };
        let mut buffer = zeros(bytes)?;
        let start = buffer.as_mut_ptr().cast();
        // SAFETY: both descriptions are alive; the buffer holds what the second one says.
        unsafe {
            Ok(Tensor {
                inward: self.reorder(plain.get(), own)?,
                outward: self.reorder(own, plain.get())?,
                plain: self.memory(plain.get(), ptr::null_mut())?,
                own: self.memory(own, start)?,
                _buffer: buffer,
                plain_is_own,
                elements: form.elements,
            })
        }
    }

    /// # Safety
    ///
    /// Both descriptions must be alive.
    unsafe fn reorder(
        &self,
        from: *const MemoryDesc,
        to: *const MemoryDesc,
    ) -> Result<Handle<Primitive>, CallError> {
        let Interface {
            reorder_primitive_desc_create: create,
            primitive_desc_destroy: destroy,
            ..
        } = self.interface;
        let engine = self.engine.get();
        // SAFETY: descriptions and engine are alive; no attributes may be null.
        let plan = unsafe {
            Handle::create("dnnl_reorder_primitive_desc_create", destroy, |out| {
                create(out, from, engine, to, engine, ptr::null())
            })?
        };
        self.primitive(&plan)
    }

    /// # Safety
    ///
    /// The description must be alive; before the memory is used, it must refer to a buffer of its size.
    unsafe fn memory(
        &self,
        desc: *const MemoryDesc,
        start: *mut c_void,
    ) -> Result<Handle<Memory>, CallError> {
        let Interface {
            memory_create: create,
            memory_destroy: destroy,
            ..
        } = self.interface;
        // SAFETY: description and engine are alive; the pointer is only stored.
        unsafe {
            Handle::create("dnnl_memory_create", destroy, |out| {
                create(out, desc, self.engine.get(), start)
            })
        }
    }

    /// # Safety
    ///
    /// The memories must fit the primitive and refer to buffers of their size.
    pub(super) unsafe fn run<const N: usize>(
        &self,
        primitive: &Handle<Primitive>,
        arguments: [(c_int, &Handle<Memory>); N],
    ) -> Result<(), CallError> {
        let arguments = arguments.map(|(index, memory)| Argument {
            index,
            memory: memory.get(),
        });
        // SAFETY: everything is alive and fits, as the caller vouches; the wait ends before any borrow does.
        unsafe {
            let (execute, wait) = (self.interface.primitive_execute, self.interface.stream_wait);
            let status = execute(
                primitive.get(),
                self.stream.get(),
                N as c_int,
                arguments.as_ptr(),
            );
            succeed("dnnl_primitive_execute", status)?;
            succeed("dnnl_stream_wait", wait(self.stream.get()))
        }
    }
}
