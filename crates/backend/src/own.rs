//! Users' kernels: a closure with a spec is a kernel like any other.

use kernelwise_types::units::Bytes;
use kernelwise_types::{KernelSpec, Machine, Refusal, Workload};

use crate::call::Call;
use crate::fault::Fault;
use crate::kernel::{HostKernel, Kernel};
use crate::prior::Hint;
use crate::scratch::Scratch;
use crate::space::{Setting, Space};

/// A kernel made of a closure. It goes the same way, through the same checks, as those that come with the
/// program.
///
/// ```
/// use kernelwise_backend::{Call, Fault, HostKernel, OwnKernel, Scratch, Setting};
/// use kernelwise_types::{KernelSpec, Needs, Numerics, TensorView, TensorViewMut, Technique, Workload};
///
/// let spec = KernelSpec {
///     id: "cpu-custom.double-f32-plain".parse()?,
///     version: 1,
///     technique: Technique::Custom,
///     numerics: Numerics::BitIdentical,
///     needs: Needs::default(),
/// };
/// let double = OwnKernel::new(spec, |call, _setting, _scratch| {
///     let (_, inputs, outputs) = call.parts();
///     let [x] = inputs else { return Err(Fault::kernel("double", "takes one input")) };
///     let [out] = outputs else { return Err(Fault::kernel("double", "gives one output")) };
///     for (to, from) in out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
///         *to = 2.0 * from;
///     }
///     Ok(())
/// });
///
/// let workload: Workload = "custom.double f32 3".parse()?;
/// let (x, mut out) = ([1f32, 2.0, 3.0], [0f32; 3]);
/// let inputs = [TensorView::contiguous(&x, "3".parse()?)?];
/// let mut outputs = [TensorViewMut::contiguous(&mut out, "3".parse()?)?];
/// let mut call = Call::new(&workload, &inputs, &mut outputs)?;
/// double.execute(&mut call, &Setting::NONE, &mut Scratch::new())?;
/// assert_eq!(out, [2.0, 4.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnKernel<F> {
    spec: KernelSpec,
    execute: F,
    accepts: Option<Box<Accepts>>,
    space: Option<Box<SpaceOf>>,
    workspace: Option<Box<WorkspaceOf>>,
    hint: Hint,
}

type Accepts = dyn Fn(&Workload) -> Result<(), Refusal> + Send + Sync;
type SpaceOf = dyn Fn(&Workload, &Machine) -> Space + Send + Sync;
type WorkspaceOf = dyn Fn(&Workload, &Setting) -> Bytes + Send + Sync;

impl<F> OwnKernel<F>
where
    F: Fn(&mut Call<'_, '_>, &Setting, &mut Scratch) -> Result<(), Fault> + Send + Sync,
{
    /// What computes, and what is to be known about it.
    pub fn new(spec: KernelSpec, execute: F) -> Self {
        Self {
            spec,
            execute,
            accepts: None,
            space: None,
            workspace: None,
            hint: Hint::default(),
        }
    }

    /// The same with a condition on the sizes; see [`Kernel::accepts`].
    pub fn accepting(
        mut self,
        accepts: impl Fn(&Workload) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Self {
        self.accepts = Some(Box::new(accepts));
        self
    }

    /// The same with parameters; see [`Kernel::space`].
    pub fn with_space(
        mut self,
        space: impl Fn(&Workload, &Machine) -> Space + Send + Sync + 'static,
    ) -> Self {
        self.space = Some(Box::new(space));
        self
    }

    /// The same with scratch memory; see [`Kernel::workspace`].
    pub fn with_workspace(
        mut self,
        workspace: impl Fn(&Workload, &Setting) -> Bytes + Send + Sync + 'static,
    ) -> Self {
        self.workspace = Some(Box::new(workspace));
        self
    }

    /// The same with an expectation; see [`Kernel::hint`].
    pub fn with_hint(mut self, hint: Hint) -> Self {
        self.hint = hint;
        self
    }
}

impl<F: Send + Sync> Kernel for OwnKernel<F> {
    fn spec(&self) -> &KernelSpec {
        &self.spec
    }

    fn accepts(&self, workload: &Workload) -> Result<(), Refusal> {
        self.accepts
            .as_ref()
            .map_or(Ok(()), |accepts| accepts(workload))
    }

    fn space(&self, workload: &Workload, machine: &Machine) -> Space {
        self.space
            .as_ref()
            .map_or_else(Space::none, |space| space(workload, machine))
    }

    fn workspace(&self, workload: &Workload, setting: &Setting) -> Bytes {
        self.workspace
            .as_ref()
            .map_or(Bytes(0), |workspace| workspace(workload, setting))
    }

    fn hint(&self) -> Hint {
        self.hint.clone()
    }
}

impl<F> HostKernel for OwnKernel<F>
where
    F: Fn(&mut Call<'_, '_>, &Setting, &mut Scratch) -> Result<(), Fault> + Send + Sync,
{
    fn execute(
        &self,
        call: &mut Call<'_, '_>,
        setting: &Setting,
        scratch: &mut Scratch,
    ) -> Result<(), Fault> {
        (self.execute)(call, setting, scratch)
    }
}

impl<F> std::fmt::Debug for OwnKernel<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnKernel")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}
