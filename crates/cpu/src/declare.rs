//! Writing a kernel's spec in one line.

use kernelwise_types::{
    DType, InvalidKernelId, KernelSpec, LayoutKind, Needs, Numerics, Technique,
};

use crate::isa::Level;

/// Counts up with what all of them have in common, such as how threads share their work.
const VERSION: u32 = 2;

/// A spec for the processor that needs contiguous operands and nothing else.
pub(crate) fn spec(
    operation: &str,
    dtypes: &[DType],
    variant: &str,
    technique: Technique,
    numerics: Numerics,
) -> Result<KernelSpec, InvalidKernelId> {
    let dtypes: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
    Ok(KernelSpec {
        id: format!("cpu-{operation}-{}-{variant}", dtypes.join("_")).parse()?,
        version: VERSION,
        technique,
        numerics,
        needs: Needs {
            layout: LayoutKind::Contiguous,
            ..Needs::default()
        },
    })
}

/// What a spec can say beyond that.
pub(crate) trait Needing: Sized {
    /// The same with the instructions of a level.
    fn on(self, level: Level) -> Self;
    /// The same for operands that lie in memory as badly as this.
    fn following(self, layout: LayoutKind) -> Self;
    /// The same for outputs of so many elements at the most.
    fn up_to(self, elements: u64) -> Self;
}

impl Needing for KernelSpec {
    fn on(mut self, level: Level) -> Self {
        self.needs.isa = level.isa();
        self
    }

    fn following(mut self, layout: LayoutKind) -> Self {
        self.needs.layout = layout;
        self
    }

    fn up_to(mut self, elements: u64) -> Self {
        self.needs.max_elements = Some(elements);
        self
    }
}
