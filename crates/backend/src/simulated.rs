//! A device made of formulas: real results, made-up times on a scripted clock, faults on request.
//!
//! Everything that stands on backends (selection, tuning, learning) can be tried on it without a device and
//! without waiting: the clock moves by what each step costs, so a test of a million calls takes as long as
//! its arithmetic. Costs come from a function, which may as well look up recorded ones. Results are those of the
//! reference kernels, so it passes the conformance suite like any other device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernelwise_measure::{Clock, ScriptedClock};
use kernelwise_types::units::{Bytes, Nanos};
use kernelwise_types::{
    DType, Device, Estimate, KernelId, KernelSpec, Machine, Reading, Shape, TensorView,
    TensorViewMut, Workload,
};

use crate::device::{Accelerator, Direction};
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::sample::{Arrangement, Tensor};
use crate::space::{Setting, Space};

/// Gives the time of one run, for instance from a table of recorded ones.
pub type Cost = dyn Fn(&Workload, &Setting) -> Nanos + Send + Sync;

/// A kernel of the simulated device: a spec, a space, and what a run costs.
#[derive(Clone)]
pub struct SimulatedKernel {
    spec: KernelSpec,
    space: Space,
    cost: Arc<Cost>,
}

impl SimulatedKernel {
    /// A kernel whose runs cost what `cost` says.
    pub fn new(
        spec: KernelSpec,
        cost: impl Fn(&Workload, &Setting) -> Nanos + Send + Sync + 'static,
    ) -> Self {
        Self {
            spec,
            space: Space::none(),
            cost: Arc::new(cost),
        }
    }

    /// The same with parameters.
    pub fn with_space(mut self, space: Space) -> Self {
        self.space = space;
        self
    }
}

impl Kernel for SimulatedKernel {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn space(&self, _workload: &Workload, _machine: &Machine) -> Space {
        self.space.clone()
    }
}

impl fmt::Debug for SimulatedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedKernel")
            .field("spec", &self.spec)
            .field("space", &self.space)
            .finish_non_exhaustive()
    }
}

/// What the device is like, apart from its kernels.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What it says it is. Its memory, if known, is what buffers must fit into.
    pub device: Device,
    /// What every transfer costs before the first byte.
    pub transfer_latency: Nanos,
    /// Bytes moved per nanosecond, either way.
    pub bytes_per_ns: f64,
    /// What compiling one program costs.
    pub compile: Nanos,
    /// How long [`Accelerator::wait`] waits before it gives up.
    pub patience: Nanos,
}

/// Something that goes wrong once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The next program does not compile.
    CompileError,
    /// The device disappears at the next launch and stays away until it is opened again.
    Lost,
    /// The next launch never ends.
    Hang,
    /// The next launch fails.
    KernelError,
    /// The next launch leaves a wrong number in its first output.
    WrongResult,
}

/// The simulated device.
#[derive(Debug)]
pub struct Simulated {
    profile: Profile,
    kernels: Vec<SimulatedKernel>,
    clock: Arc<ScriptedClock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    mishaps: VecDeque<Mishap>,
    slowdowns: Vec<(KernelId, f64)>,
    /// Why it is away.
    lost: Option<String>,
    /// Counts up when it is opened again; what was made before is gone.
    generation: u64,
    allocated: u64,
    /// When the work submitted so far ends, in clock time.
    busy_until: f64,
}

/// A tensor in the simulated device's memory.
#[derive(Debug)]
pub struct SimulatedBuffer {
    tensor: Tensor,
    bytes: u64,
    generation: u64,
    state: Arc<Mutex<State>>,
}

impl Drop for SimulatedBuffer {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        // Memory of a lost device went with it.
        if state.generation == self.generation {
            state.allocated -= self.bytes;
        }
    }
}

/// A kernel prepared for one workload and setting.
#[derive(Debug)]
pub struct SimulatedProgram {
    kernel: KernelId,
    workload: Workload,
    cost: Nanos,
    generation: u64,
}

/// Submitted work: when it began and when it ends, if it does.
#[derive(Debug)]
pub struct SimulatedWork {
    start: f64,
    end: Option<f64>,
}

/// A panic while the lock was held leaves plain numbers behind, none of which can be half written.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulated {
    /// A device with these kernels whose time passes on `clock`.
    pub fn new(
        profile: Profile,
        kernels: impl IntoIterator<Item = SimulatedKernel>,
        clock: Arc<ScriptedClock>,
    ) -> Self {
        Self {
            profile,
            kernels: kernels.into_iter().collect(),
            clock,
            state: Arc::default(),
        }
    }

    /// Lets something go wrong; several are worked off in order.
    pub fn inject(&self, mishap: Mishap) {
        lock(&self.state).mishaps.push_back(mishap);
    }

    /// From now on this kernel takes `factor` times as long: a driver update, a cooler that fails.
    pub fn slow_down(&self, kernel: &KernelId, factor: f64) {
        let mut state = lock(&self.state);
        state.slowdowns.retain(|(id, _)| id != kernel);
        state.slowdowns.push((kernel.clone(), factor));
    }

    /// Bytes in buffers now.
    pub fn allocated(&self) -> Bytes {
        Bytes(lock(&self.state).allocated)
    }

    fn name(&self) -> String {
        match &self.profile.device.name {
            Reading::Known(name) => name.clone(),
            Reading::Unknown(_) => "the simulated device".to_owned(),
        }
    }

    fn lost(&self, reason: &str) -> Fault {
        Fault::DeviceLost {
            device: self.name(),
            reason: reason.to_owned(),
        }
    }

    /// The state of a device that is there and still has what was made in `generation`.
    fn present(&self, generation: Option<u64>) -> Result<MutexGuard<'_, State>, Fault> {
        let state = lock(&self.state);
        if let Some(reason) = &state.lost {
            return Err(self.lost(reason));
        }
        if generation.is_some_and(|made| made != state.generation) {
            return Err(self.lost("this was made before it was opened again"));
        }
        Ok(state)
    }

    /// Takes the next mishap if it is one of these.
    fn mishap(state: &mut State, kinds: &[Mishap]) -> Option<Mishap> {
        let next = state.mishaps.front().copied();
        let due = next.filter(|next| kinds.contains(next));
        if due.is_some() {
            state.mishaps.pop_front();
        }
        due
    }

    fn moving(&self, bytes: u64) -> f64 {
        self.profile.transfer_latency.get() + bytes as f64 / self.profile.bytes_per_ns
    }

    /// Puts work of this length at the end of the queue.
    fn submit(&self, state: &mut State, length: f64) -> SimulatedWork {
        let start = (self.clock.now() as f64).max(state.busy_until);
        state.busy_until = start + length;
        SimulatedWork {
            start,
            end: Some(start + length),
        }
    }

    /// Lets time pass until then.
    fn advance_to(&self, end: f64) {
        let now = self.clock.now() as f64;
        if end > now {
            self.clock.advance((end - now).ceil() as u64);
        }
    }

    fn nanos(&self, value: f64) -> Result<Nanos, Fault> {
        Nanos::new(value).map_err(|error| Fault::kernel(self.name(), error))
    }
}

impl Accelerator for Simulated {
    type Buffer = SimulatedBuffer;
    type Program = SimulatedProgram;
    type Pending = SimulatedWork;

    fn device(&self) -> &Device {
        &self.profile.device
    }

    fn kernels(&self) -> Vec<Arc<dyn Kernel>> {
        let kernels = self.kernels.iter().cloned();
        kernels
            .map(|kernel| Arc::new(kernel) as Arc<dyn Kernel>)
            .collect()
    }

    fn allocate(&self, dtype: DType, shape: Shape) -> Result<SimulatedBuffer, Fault> {
        let mut state = self.present(None)?;
        let bytes = shape.elements() as u64 * dtype.size() as u64;
        if let Reading::Known(memory) = &self.profile.device.memory
            && state.allocated + bytes > memory.0
        {
            return Err(Fault::OutOfMemory {
                device: self.name(),
                bytes: Bytes(bytes),
            });
        }
        state.allocated += bytes;
        Ok(SimulatedBuffer {
            tensor: Tensor::empty(dtype, shape, Arrangement::Contiguous),
            bytes,
            generation: state.generation,
            state: Arc::clone(&self.state),
        })
    }

    fn upload(
        &self,
        from: &TensorView<'_>,
        to: &mut SimulatedBuffer,
    ) -> Result<SimulatedWork, Fault> {
        let mut state = self.present(Some(to.generation))?;
        to.tensor.read_from(from)?;
        let length = self.moving(to.bytes);
        Ok(self.submit(&mut state, length))
    }

    fn download(&self, from: &SimulatedBuffer, to: &mut TensorViewMut<'_>) -> Result<Nanos, Fault> {
        let work = {
            let mut state = self.present(Some(from.generation))?;
            let length = self.moving(from.bytes);
            self.submit(&mut state, length)
        };
        let time = self.wait(work)?;
        from.tensor.write_to(to)?;
        Ok(time)
    }

    fn compile(
        &self,
        kernel: &KernelId,
        workload: &Workload,
        setting: &Setting,
    ) -> Result<(SimulatedProgram, Nanos), Fault> {
        let mut state = self.present(None)?;
        let known = self.kernels.iter().find(|known| known.spec.id == *kernel);
        let known = known.ok_or_else(|| Fault::NoKernel {
            kernel: kernel.to_string(),
        })?;
        if Self::mishap(&mut state, &[Mishap::CompileError]).is_some() {
            return Err(Fault::Compile {
                kernel: kernel.to_string(),
                log: "an error was asked for".to_owned(),
            });
        }
        let time = self.profile.compile;
        self.clock.advance(time.get() as u64);
        let program = SimulatedProgram {
            kernel: kernel.clone(),
            workload: workload.clone(),
            cost: (known.cost)(workload, setting),
            generation: state.generation,
        };
        Ok((program, time))
    }

    fn launch(
        &self,
        program: &SimulatedProgram,
        inputs: &[&SimulatedBuffer],
        outputs: &mut [SimulatedBuffer],
    ) -> Result<SimulatedWork, Fault> {
        let mut state = self.present(Some(program.generation))?;
        let mishap = Self::mishap(
            &mut state,
            &[
                Mishap::Lost,
                Mishap::Hang,
                Mishap::KernelError,
                Mishap::WrongResult,
            ],
        );
        match mishap {
            Some(Mishap::Lost) => {
                state.lost = Some("it was asked to go".to_owned());
                return Err(self.lost("it was asked to go"));
            }
            Some(Mishap::KernelError) => {
                return Err(Fault::kernel(&program.kernel, "an error was asked for"));
            }
            Some(Mishap::Hang) => {
                let start = self.clock.now() as f64;
                return Ok(SimulatedWork { start, end: None });
            }
            _ => {}
        }
        let made_now = |buffer: &SimulatedBuffer| buffer.generation == state.generation;
        if !inputs.iter().all(|buffer| made_now(buffer)) || !outputs.iter().all(made_now) {
            return Err(self.lost("a buffer was made before it was opened again"));
        }
        {
            let inputs: Result<Vec<_>, _> = inputs.iter().map(|b| b.tensor.view()).collect();
            let outputs: Result<Vec<_>, _> =
                outputs.iter_mut().map(|b| b.tensor.view_mut()).collect();
            kernelwise_reference::compute(&program.workload, &inputs?, &mut outputs?)
                .map_err(|error| crate::host::reference_fault(&program.kernel, error))?;
        }
        if mishap == Some(Mishap::WrongResult)
            && let Some(output) = outputs.first_mut()
        {
            output.tensor.spoil();
        }
        let slowdown = state.slowdowns.iter().find(|(id, _)| *id == program.kernel);
        let factor = slowdown.map_or(1.0, |(_, factor)| *factor);
        let length = program.cost.get() * factor;
        Ok(self.submit(&mut state, length))
    }

    fn wait(&self, pending: SimulatedWork) -> Result<Nanos, Fault> {
        let patience = self.profile.patience.get();
        match pending.end {
            Some(end) if end - pending.start <= patience => {
                self.advance_to(end);
                self.nanos(end - pending.start)
            }
            _ => {
                self.advance_to(pending.start + patience);
                Err(Fault::Timeout {
                    device: self.name(),
                    limit_ns: patience as u64,
                })
            }
        }
    }

    fn transfer(&self, bytes: Bytes, _direction: Direction) -> Estimate {
        match Nanos::new(self.moving(bytes.0)) {
            Ok(time_ns) => Estimate::Prior {
                time_ns,
                source: "the simulated device's profile".to_owned(),
            },
            Err(_) => Estimate::Unknown,
        }
    }

    fn reopen(&self) -> Result<(), Fault> {
        let mut state = lock(&self.state);
        state.lost = None;
        state.generation += 1;
        state.allocated = 0;
        state.busy_until = 0.0;
        Ok(())
    }
}
