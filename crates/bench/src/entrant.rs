//! The kernels that take part, each with the setting it runs with.

use std::sync::Arc;

use kernelwise_backend::{Fault, Host, HostKernel, Setting, Terms, admit, prior};
use kernelwise_types::op::Operation;
use kernelwise_types::units::Bytes;
use kernelwise_types::{InvalidParams, Numerics, Params, Technique, Workload};

use crate::bench::Options;
use crate::figures::{RefusedKernel, Source};

/// A kernel with its setting.
pub(crate) struct Entrant {
    pub(crate) kernel: Arc<dyn HostKernel>,
    pub(crate) setting: Setting,
    pub(crate) params: Params,
    pub(crate) threads: u32,
    pub(crate) workspace: Bytes,
    pub(crate) opt_in: bool,
}

impl Entrant {
    pub(crate) fn source(&self) -> Source {
        match self.kernel.spec().technique {
            Technique::Library => Source::Wrapped,
            _ => Source::Own,
        }
    }
}

/// What kernels may do here. Convolutions of reduced precision are shown even when nobody asked.
pub(crate) fn terms<'a>(host: &'a Host, workload: &Workload, options: &Options) -> Terms<'a> {
    let shown = options.allow_reduced || matches!(workload.operation(), Operation::Conv2d(_));
    Terms {
        numerics: match shown {
            true => Numerics::ReducedPrecision,
            false => Numerics::Reordered,
        },
        ..Terms::usual(host.machine())
    }
}

/// The kernels that may run, in the order of the host, and why the others may not.
pub(crate) fn enter(
    host: &Host,
    workload: &Workload,
    options: &Options,
) -> (Vec<Entrant>, Vec<RefusedKernel>) {
    let terms = terms(host, workload, options);
    let (mut entrants, mut refused) = (Vec::new(), Vec::new());
    for kernel in host.kernels_for(workload) {
        let spec = kernel.spec();
        if spec.technique == Technique::Reference {
            continue;
        }
        let id = spec.id.clone();
        match entrant(Arc::clone(&kernel), workload, options, &terms) {
            Ok(entrant) => entrants.push(entrant),
            Err(reason) => refused.push(RefusedKernel { kernel: id, reason }),
        }
    }
    (entrants, refused)
}

fn entrant(
    kernel: Arc<dyn HostKernel>,
    workload: &Workload,
    options: &Options,
    terms: &Terms<'_>,
) -> Result<Entrant, String> {
    let space = kernel.space(workload, terms.machine);
    // As many threads as asked for where the kernel can, else what it does by itself.
    let asked = Params::new().with("threads", options.threads.into());
    let asked = asked.ok().and_then(|params| space.setting(&params).ok());
    let setting = asked.unwrap_or_else(|| space.default_setting());
    let refusal = |fault: Fault| match fault {
        Fault::Refused { refusal, .. } => refusal.to_string(),
        other => other.to_string(),
    };
    admit(kernel.as_ref(), workload, None, &setting, terms).map_err(refusal)?;
    let threads = prior::threads(&space, &setting);
    if threads > options.threads {
        return Err(format!(
            "runs on {threads} threads or more, {} were asked for",
            options.threads
        ));
    }
    let words = |error: InvalidParams| error.to_string();
    Ok(Entrant {
        params: space.params(&setting).map_err(words)?,
        workspace: kernel.workspace(workload, &setting),
        opt_in: kernel.spec().numerics == Numerics::ReducedPrecision && !options.allow_reduced,
        kernel,
        setting,
        threads,
    })
}
