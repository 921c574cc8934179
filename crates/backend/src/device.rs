//! Devices with memory of their own: buffers that stay there, programs that are compiled before they are
//! launched, work that is finished later, and devices that go away.
//!
//! [`Accelerator`] is what a device driver is wrapped into. [`Staged`] turns one into a [`Backend`]: it moves the
//! caller's tensors there and back, compiles each program once, and after a lost device forgets what was
//! compiled, so that the next call starts afresh.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kernelwise_types::op::Operation;
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{
    DType, Device, Estimate, KernelId, Shape, TensorView, TensorViewMut, Workload,
};

use crate::backend::{Backend, Timing};
use crate::call::Call;
use crate::fault::Fault;
use crate::kernel::{Kernel, Terms, admit};
use crate::scratch::Scratch;
use crate::space::Setting;

/// Which way data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the device.
    Upload,
    /// From the device to the host.
    Download,
}

/// A device that is reached through a driver. Work is submitted and finished later: a [`Pending`](Self::Pending)
/// value stands for it until [`wait`](Self::wait).
pub trait Accelerator: Send + Sync {
    /// A tensor in the device's memory, stored without gaps.
    type Buffer: Send + Sync;
    /// A compiled kernel for one workload and setting.
    type Program: Send + Sync;
    /// Submitted work.
    type Pending: Send;

    /// The device.
    fn device(&self) -> &Device;

    /// Its kernels, in a fixed order.
    fn kernels(&self) -> Vec<Arc<dyn Kernel>>;

    /// Room for a tensor.
    fn allocate(&self, dtype: DType, shape: Shape) -> Result<Self::Buffer, Fault>;

    /// Starts moving a tensor to the device. The tensor is read before this returns.
    fn upload(&self, from: &TensorView<'_>, to: &mut Self::Buffer) -> Result<Self::Pending, Fault>;

    /// Moves a tensor back, after everything submitted before, and gives the device's time for it.
    /// Nothing is written on error.
    fn download(&self, from: &Self::Buffer, to: &mut TensorViewMut<'_>) -> Result<Nanos, Fault>;

    /// Makes a program and says how long that took.
    fn compile(
        &self,
        kernel: &KernelId,
        workload: &Workload,
        setting: &Setting,
    ) -> Result<(Self::Program, Nanos), Fault>;

    /// Starts a program.
    fn launch(
        &self,
        program: &Self::Program,
        inputs: &[&Self::Buffer],
        outputs: &mut [Self::Buffer],
    ) -> Result<Self::Pending, Fault>;

    /// Waits for submitted work and gives the time it took by the device's own clock.
    fn wait(&self, pending: Self::Pending) -> Result<Nanos, Fault>;

    /// How long moving so many bytes should take.
    fn transfer(&self, bytes: Bytes, direction: Direction) -> Estimate;

    /// Opens a lost device again. Buffers and programs from before are gone.
    fn reopen(&self) -> Result<(), Fault>;
}

/// An accelerator as a backend for host tensors.
#[derive(Debug)]
pub struct Staged<A: Accelerator> {
    accelerator: A,
    programs: Mutex<Programs<A::Program>>,
}

type Programs<P> = HashMap<(KernelId, Workload, Setting), Arc<P>>;

impl<A: Accelerator> Staged<A> {
    /// Nothing is compiled yet.
    pub fn new(accelerator: A) -> Self {
        Self {
            accelerator,
            programs: Mutex::new(HashMap::new()),
        }
    }

    /// The device itself, for callers who keep their tensors there.
    pub fn accelerator(&self) -> &A {
        &self.accelerator
    }

    /// How long a call should spend moving its operands there and its results back. `None` if the
    /// device cannot tell.
    pub fn transfer(&self, workload: &Workload) -> Option<Nanos> {
        let time = |bytes: u64, direction| {
            let estimate = self.accelerator.transfer(Bytes(bytes), direction);
            estimate.time().map(Nanos::get)
        };
        let inputs = workload.inputs().iter();
        let up: Option<f64> = inputs.map(|o| time(o.bytes(), Direction::Upload)).sum();
        let outputs = workload.outputs().iter();
        let down: Option<f64> = outputs.map(|o| time(o.bytes(), Direction::Download)).sum();
        Nanos::new(up? + down?).ok()
    }

    /// The program, compiled now or before; the time only if it was compiled now.
    fn program(
        &self,
        kernel: &KernelId,
        workload: &Workload,
        setting: &Setting,
    ) -> Result<(Arc<A::Program>, Option<Nanos>), Fault> {
        let key = (kernel.clone(), workload.clone(), *setting);
        // A thread that panicked while it held the lock left a complete map: entries are inserted whole.
        let lock = || self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = lock().get(&key) {
            return Ok((Arc::clone(program), None));
        }
        // Compiled without the lock: a slow compiler holds nobody up. Two threads may both do it once.
        let (program, time) = self.accelerator.compile(kernel, workload, setting)?;
        let program = Arc::new(program);
        lock().insert(key, Arc::clone(&program));
        Ok((program, Some(time)))
    }

    fn stage(
        &self,
        kernel: &KernelId,
        call: &mut Call<'_, '_>,
        setting: &Setting,
    ) -> Result<Timing, Fault> {
        let device = &self.accelerator;
        let (program, compile) = self.program(kernel, call.workload(), setting)?;
        let mut upload = 0.0;
        let mut inputs = Vec::with_capacity(call.inputs().len());
        for view in call.inputs() {
            let mut buffer = device.allocate(view.dtype(), *view.shape())?;
            let pending = device.upload(view, &mut buffer)?;
            upload += device.wait(pending)?.get();
            inputs.push(buffer);
        }
        let mut outputs = Vec::new();
        let in_place = matches!(call.workload().operation(), Operation::Scatter(_));
        for view in call.outputs().iter() {
            let mut buffer = device.allocate(view.dtype(), *view.shape())?;
            if in_place {
                let pending = device.upload(&view.as_view(), &mut buffer)?;
                upload += device.wait(pending)?.get();
            }
            outputs.push(buffer);
        }
        let inputs: Vec<&A::Buffer> = inputs.iter().collect();
        let pending = device.launch(&program, &inputs, &mut outputs)?;
        let kernel = device.wait(pending)?;
        let mut download = 0.0;
        for (buffer, view) in outputs.iter().zip(call.outputs()) {
            download += device.download(buffer, view)?.get();
        }
        Ok(Timing {
            compile,
            upload: Nanos::new(upload).ok(),
            kernel: Some(kernel),
            download: Nanos::new(download).ok(),
        })
    }
}

impl<A: Accelerator> Backend for Staged<A> {
    fn device(&self) -> &Device {
        self.accelerator.device()
    }

    fn kernels(&self) -> Vec<Arc<dyn Kernel>> {
        self.accelerator.kernels()
    }

    fn candidates(&self, workload: &Workload) -> Vec<Arc<dyn Kernel>> {
        let dtypes = workload.dtypes();
        let full = workload.operation().to_string();
        let mut kernels = self.kernels();
        kernels.retain(|kernel| {
            let id = &kernel.spec().id;
            let operation = id.operation();
            (operation == workload.operation().name() || operation == full) && id.dtypes() == dtypes
        });
        kernels
    }

    /// Results reach the caller's tensors only after the kernel ended well. The host's scratch memory
    /// is not used.
    fn run(
        &self,
        id: &KernelId,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        _scratch: &mut Scratch,
        terms: &Terms<'_>,
    ) -> Result<Timing, Fault> {
        let kernels = self.kernels();
        let kernel = kernels.iter().find(|kernel| kernel.spec().id == *id);
        let kernel = kernel.ok_or_else(|| Fault::NoKernel {
            kernel: id.to_string(),
        })?;
        let alignment = Some(call.alignment());
        admit(kernel.as_ref(), call.workload(), alignment, setting, terms)?;
        let result = self.stage(id, call, setting);
        if let Err(Fault::DeviceLost { .. }) = &result {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            programs.clear();
        }
        result
    }
}
