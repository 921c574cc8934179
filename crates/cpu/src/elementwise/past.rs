//! A loop whose results go past the caches as they are made.
//!
//! A few lines at a time are computed in registers and one small buffer, and streamed from there. Several pages
//! are worked on side by side, because the processor fetches ahead within each of them.
#![allow(unsafe_code)]

use super::loops::{Fill, Stepped};
use crate::movement::stream::{PAGE, Stream};
use crate::vector_math::MathBody;

/// Most elements computed at once.
const CHUNK: usize = 256;

/// The loop.
pub(super) struct Past<'a, T, F> {
    /// What is computed.
    pub(super) fill: F,
    /// Where it goes.
    pub(super) out: &'a mut [T],
    /// How it gets there.
    pub(super) stream: Stream,
}

/// A chunk of elements of any size, aligned to lines.
#[repr(align(64))]
struct Chunk<T>([T; CHUNK]);

impl<T: Stepped, F: Fill<T>> MathBody for Past<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self {
            mut fill,
            out,
            stream,
        } = self;
        let few = F::FEW.min(CHUNK);
        let page = PAGE / size_of::<T>();
        let pages = stream.pages();
        let mut chunk = Chunk([T::ZERO; CHUNK]);
        let mut at = Stream::before_line(out);
        fill.fill::<FUSED>(0, &mut out[..at]);
        while pages > 1 && out.len() - at >= pages * page {
            for part in (0..page).step_by(few) {
                for side in 0..pages {
                    let at = at + side * page + part;
                    fill.fill::<FUSED>(at, &mut chunk.0[..few]);
                    fill.expect(at + pages * page, few);
                    stream.copy_lines(&chunk.0[..few], &mut out[at..at + few]);
                }
            }
            at += pages * page;
        }
        // One page after the other is what the processor fetches ahead best by itself.
        while out.len() - at >= few {
            fill.fill::<FUSED>(at, &mut chunk.0[..few]);
            stream.copy_lines(&chunk.0[..few], &mut out[at..at + few]);
            at += few;
        }
        fill.fill::<FUSED>(at, &mut out[at..]);
    }
}
