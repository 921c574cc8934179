//! Workloads that this thread has met.
//!
//! A workload lists its operands, which takes memory to make. The operation that tells it apart does not, so each thread
//! keeps the workloads it met under their operations, and a call of one it knows allocates nothing.

use std::cell::RefCell;
use std::collections::HashMap;

use kernelwise_select::key::Key;
use kernelwise_types::op::{Operation, WorkloadError};
use kernelwise_types::{DType, Workload};

/// Workloads that a thread keeps, some hundred bytes each. When there are more it begins anew.
const KEPT: usize = 4096;

thread_local! {
    static WORKLOADS: RefCell<HashMap<Key, Workload>> = RefCell::default();
}

/// The workload of an operation on an element type.
pub(crate) fn of(operation: Operation, dtype: DType) -> Result<Workload, WorkloadError> {
    let key = Key::of(&(&operation, dtype));
    // A thread that ends may have none any more.
    let known = WORKLOADS.try_with(|known| known.borrow().get(&key).cloned());
    if let Ok(Some(workload)) = known {
        return Ok(workload);
    }
    let workload = Workload::new(operation, dtype)?;
    let _ = WORKLOADS.try_with(|known| {
        let mut known = known.borrow_mut();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, workload.clone());
    });
    Ok(workload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use kernelwise_types::op::Matmul;

    use super::*;

    #[test]
    fn what_is_kept_is_what_would_be_made_and_has_a_bound() {
        for n in 1..=KEPT + 10 {
            let operation = Operation::from(Matmul::new(n, 2, 3));
            for dtype in [DType::F32, DType::I8] {
                let made = of(operation.clone(), dtype).unwrap();
                assert_eq!(made, Workload::new(operation.clone(), dtype).unwrap());
            }
        }
        let again = of(Matmul::new(KEPT + 10, 2, 3).into(), DType::I8).unwrap();
        assert_eq!(again.outputs()[0].dtype, DType::I32);
        WORKLOADS.with(|known| assert!(known.borrow().len() <= KEPT));
        assert!(of(Matmul::new(0, 2, 3).into(), DType::F32).is_err());
    }
}
