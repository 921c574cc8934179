//! How an update meets what is there.

use std::fmt::Debug;

use kernelwise_types::{DType, Element};

/// A way for two elements to become one.
pub(super) trait Join: Debug + 'static {
    /// What is joined. Every pattern of bits is one.
    type Item: Copy + Send + Sync;

    /// Whether elements of this type can be read and written as `Item`.
    fn joins(dtype: DType) -> bool;

    /// What becomes of `old` when `new` comes.
    fn join(old: Self::Item, new: Self::Item) -> Self::Item;
}

/// The new one takes the place of the old: any element type of the size of `T`.
#[derive(Debug)]
pub(super) struct Assign<T>(std::marker::PhantomData<T>);

impl<T: Copy + Send + Sync + Debug + 'static> Join for Assign<T> {
    type Item = T;

    fn joins(dtype: DType) -> bool {
        dtype.size() == size_of::<T>() && dtype.align() >= align_of::<T>()
    }

    #[inline(always)]
    fn join(_old: T, new: T) -> T {
        new
    }
}

/// The sum.
#[derive(Debug)]
pub(super) struct Add<T>(std::marker::PhantomData<T>);

/// The larger.
#[derive(Debug)]
pub(super) struct Max<T>(std::marker::PhantomData<T>);

/// The smaller.
#[derive(Debug)]
pub(super) struct Min<T>(std::marker::PhantomData<T>);

macro_rules! joins {
    ($join:ident: $($item:ty, $old:ident, $new:ident => $joined:expr;)*) => { $(
        impl Join for $join<$item> {
            type Item = $item;

            fn joins(dtype: DType) -> bool {
                dtype == <$item as Element>::DTYPE
            }

            #[inline(always)]
            fn join($old: $item, $new: $item) -> $item {
                $joined
            }
        }
    )* };
}

joins! { Add:
    f32, old, new => old + new;
    f64, old, new => old + new;
    i32, old, new => old.wrapping_add(new);
    i64, old, new => old.wrapping_add(new);
}

// What is there stays unless the new one beats it; what is not a number beats everything and is never beaten.
joins! { Max:
    f32, old, new => if new > old || (new.is_nan() && !old.is_nan()) { new } else { old };
    f64, old, new => if new > old || (new.is_nan() && !old.is_nan()) { new } else { old };
    i32, old, new => old.max(new);
    i64, old, new => old.max(new);
}

joins! { Min:
    f32, old, new => if new < old || (new.is_nan() && !old.is_nan()) { new } else { old };
    f64, old, new => if new < old || (new.is_nan() && !old.is_nan()) { new } else { old };
    i32, old, new => old.min(new);
    i64, old, new => old.min(new);
}
