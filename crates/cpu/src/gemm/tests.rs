//! The engine against the plain triple loop.

use std::ops::Range;
use std::sync::Mutex;

use super::*;

/// Where the elements of a matrix lie.
#[derive(Debug, Clone, Copy)]
enum Lie {
    Rows,
    Columns,
    /// Rows with others between them.
    Gaps,
    /// Rows from the last to the first, each backwards.
    Backwards,
    /// Every second element of every second row.
    Sparse,
}

impl Lie {
    const ALL: [Self; 5] = [
        Self::Rows,
        Self::Columns,
        Self::Gaps,
        Self::Backwards,
        Self::Sparse,
    ];

    /// Row stride, column stride, position of the first element, and elements in all.
    fn place(self, rows: usize, columns: usize) -> (isize, isize, usize, usize) {
        let (r, c) = (rows as isize, columns as isize);
        let last = (rows * columns).saturating_sub(1);
        match self {
            Self::Rows => (c, 1, 0, rows * columns),
            Self::Columns => (1, r, 0, rows * columns),
            Self::Gaps => (c + 3, 1, 2, rows * (columns + 3) + 2),
            Self::Backwards => (-c, -1, last, rows * columns),
            Self::Sparse => (4 * c, 2, 1, 4 * rows * columns + 1),
        }
    }
}

/// Values that no sum of a few hundred products rounds away completely, different at every place.
fn value(seed: usize, i: usize) -> f64 {
    let mixed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (seed as u64) << 32);
    (mixed >> 40) as f64 / f64::from(1 << 23) - 1.0
}

trait Number: Real {
    const EPSILON: f64;
    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

impl Number for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    fn from_f64(x: f64) -> Self {
        x as Self
    }
    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Number for f64 {
    const EPSILON: f64 = f64::EPSILON;
    fn from_f64(x: f64) -> Self {
        x
    }
    fn to_f64(self) -> f64 {
        self
    }
}

/// One product to be checked.
#[derive(Debug, Clone, Copy)]
struct Case {
    size: (usize, usize, usize),
    lies: [Lie; 3],
    accumulate: bool,
    tiles: Tiles,
    threads: usize,
}

const PLAIN: Case = Case {
    size: (9, 17, 5),
    lies: [Lie::Rows; 3],
    accumulate: false,
    tiles: Tiles {
        mc: 64,
        kc: 64,
        nc: 96,
        pack_a: true,
        pack_b: true,
    },
    threads: 1,
};

/// Runs a case and compares every element, also those between the rows, which nobody may touch.
fn check<T: Number>(level: Level, case: &Case) {
    let (m, n, k) = case.size;
    let fill = |seed, len| -> Vec<T> { (0..len).map(|i| T::from_f64(value(seed, i))).collect() };
    let (ar, ac, a0, a_len) = case.lies[0].place(m, k);
    let (br, bc, b0, b_len) = case.lies[1].place(k, n);
    let (cr, cc, c0, c_len) = case.lies[2].place(m, n);
    let (a, b) = (fill(1, a_len), fill(2, b_len));
    let before = fill(3, c_len);
    let mut c = before.clone();

    // SAFETY: the strides and offsets of `place` stay inside vectors of the length it gives.
    let (left, right, target) = unsafe {
        (
            Strided::new(level, a.as_ptr().add(a0), (m, k), (ar, ac)),
            Strided::new(level, b.as_ptr().add(b0), (n, k), (bc, br)),
            Destination::new(c.as_mut_ptr().add(c0), (m, n), (cr, cc), case.accumulate),
        )
    };
    let mut scratch =
        vec![T::from_f64(f64::NAN); scratch_len::<T>(level, case.size, &case.tiles, case.threads)];
    multiply(
        level,
        case.size,
        &left,
        &right,
        target,
        &case.tiles,
        case.threads,
        &mut scratch,
    )
    .unwrap();

    let at = |base: usize, i: usize, rs: isize, j: usize, cs: isize| {
        (base as isize + i as isize * rs + j as isize * cs) as usize
    };
    let mut expected = before.clone();
    for i in 0..m {
        for j in 0..n {
            let place = at(c0, i, cr, j, cc);
            let start = if case.accumulate {
                before[place].to_f64()
            } else {
                0.0
            };
            let (mut sum, mut size) = (start, start.abs());
            for p in 0..k {
                let product = a[at(a0, i, ar, p, ac)].to_f64() * b[at(b0, p, br, j, bc)].to_f64();
                sum += product;
                size += product.abs();
            }
            let error = (c[place].to_f64() - sum).abs();
            // The classic bound: one rounding per product and sum.
            let bound = (k + 2) as f64 * T::EPSILON * size;
            assert!(
                error <= bound,
                "{} {case:?}: element {i},{j} is {:?}, not {sum}",
                level.name(),
                c[place]
            );
            expected[place] = c[place];
        }
    }
    assert!(
        c.iter()
            .zip(&expected)
            .all(|(c, e)| c.to_f64() == e.to_f64()),
        "{} {case:?}: wrote outside the matrix",
        level.name()
    );
}

fn check_all(case: &Case) {
    for level in Level::all() {
        check::<f32>(level, case);
        check::<f64>(level, case);
    }
}

/// Sizes around every tile there is: rows to 8, panels to 64 lanes and their edges.
#[test]
fn every_size_around_the_tiles() {
    for m in [1, 2, 3, 4, 5, 6, 7, 8, 9, 17] {
        for n in [
            1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 48, 49, 64, 65, 97, 113,
        ] {
            check_all(&Case {
                size: (m, n, 7),
                ..PLAIN
            });
        }
    }
    for k in [0, 1, 2, 3, 4, 5, 6, 8, 9, 63, 64, 65, 130, 200] {
        for (m, n) in [(1, 1), (3, 20), (8, 50)] {
            check_all(&Case {
                size: (m, n, k),
                ..PLAIN
            });
        }
    }
}

#[test]
fn every_layout_of_every_operand() {
    for a in Lie::ALL {
        for b in Lie::ALL {
            for c in Lie::ALL {
                for (size, accumulate) in [((13, 37, 21), false), ((6, 5, 70), true)] {
                    check_all(&Case {
                        size,
                        lies: [a, b, c],
                        accumulate,
                        ..PLAIN
                    });
                }
            }
        }
    }
}

#[test]
fn tiles_of_any_size_and_packing() {
    for (mc, kc, nc) in [
        (1, 1, 1),
        (3, 5, 7),
        (8, 16, 48),
        (100, 1, 100),
        (1, 100, 20),
        (5, 9, 1),
    ] {
        for (pack_a, pack_b) in [(true, true), (false, true), (true, false), (false, false)] {
            for accumulate in [false, true] {
                let tiles = Tiles {
                    mc,
                    kc,
                    nc,
                    pack_a,
                    pack_b,
                };
                let case = Case {
                    size: (19, 77, 23),
                    accumulate,
                    tiles,
                    ..PLAIN
                };
                check_all(&case);
                let a = if pack_a { Lie::Sparse } else { Lie::Backwards };
                check_all(&Case {
                    lies: [a, Lie::Gaps, Lie::Gaps],
                    ..case
                });
                // The transposed product: `a` is the side of the vectors now.
                check_all(&Case {
                    lies: [Lie::Columns; 3],
                    ..case
                });
            }
        }
    }
}

#[test]
fn threads_share_a_product() {
    for threads in [2, 3, 4, 7] {
        for size in [
            (1, 1, 3),
            (2, 300, 9),
            (300, 2, 9),
            (70, 130, 33),
            (0, 5, 3),
            (5, 0, 3),
        ] {
            check_all(&Case {
                size,
                threads,
                ..PLAIN
            });
        }
    }
}

/// Panel after panel, depth after depth, lane after lane, and zeros where there is no lane.
#[test]
fn panels_hold_what_the_contract_says() {
    let (lanes, depth) = (2..45, 3..40);
    for level in Level::all() {
        for lie in Lie::ALL {
            let (lane_stride, depth_stride, first, len) = lie.place(45, 40);
            let data: Vec<f32> = (1..=len).map(|i| i as f32).collect();
            let strides = (lane_stride, depth_stride);
            // SAFETY: the strides and offsets of `place` stay inside a vector of the length it gives.
            let matrix =
                unsafe { Strided::new(level, data.as_ptr().add(first), (45, 40), strides) };
            for width in [1, 3, 6, 8, 16, 48] {
                let panels = lanes.len().div_ceil(width);
                let mut into = vec![f32::NAN; panels * width * depth.len()];
                matrix.pack(lanes.clone(), depth.clone(), width, &mut into);
                for (i, value) in into.iter().enumerate() {
                    let lane = lanes.start + i / (width * depth.len()) * width + i % width;
                    let at = depth.start + i / width % depth.len();
                    let offset = lane as isize * lane_stride + at as isize * depth_stride;
                    let wanted = match lane {
                        2..45 => data[(first as isize + offset) as usize],
                        _ => 0.0,
                    };
                    assert_eq!(*value, wanted, "{} {lie:?} {width}: {i}", level.name());
                }
            }
        }
    }
}

/// A source that counts how often it was asked to pack.
struct Asked<'a> {
    matrix: Strided<'a, f32>,
    calls: Mutex<usize>,
}

impl Source<f32> for Asked<'_> {
    fn pack(&self, lanes: Range<usize>, depth: Range<usize>, width: usize, into: &mut [f32]) {
        let length = lanes.len().next_multiple_of(width) * depth.len();
        assert_eq!(into.len(), length, "exactly the panels");
        *self.calls.lock().unwrap() += usize::from(!lanes.is_empty());
        self.matrix.pack(lanes, depth, width, into);
    }

    fn in_place(&self) -> Option<Strided<'_, f32>> {
        Some(self.matrix)
    }

    fn extent(&self) -> (usize, usize) {
        self.matrix.extent()
    }
}

/// A slice as rows of `k` values, which are the lanes.
fn rows(level: Level, data: &[f32], k: usize) -> Strided<'_, f32> {
    let lanes = data.len() / k;
    // SAFETY: the slice holds so many rows.
    unsafe { Strided::new(level, data.as_ptr(), (lanes, k), (k as isize, 1)) }
}

/// A slice as rows of `n` values, whose columns are the lanes.
fn columns(level: Level, data: &[f32], n: usize) -> Strided<'_, f32> {
    let depth = data.len() / n;
    // SAFETY: the slice holds so many rows.
    unsafe { Strided::new(level, data.as_ptr(), (n, depth), (1, n as isize)) }
}

/// A slice as rows of `n` values that receive a product.
fn target(data: &mut [f32], n: usize) -> Destination<'_, f32> {
    let size = (data.len() / n, n);
    // SAFETY: the slice holds so many rows, and is borrowed exclusively.
    unsafe { Destination::new(data.as_mut_ptr(), size, (n as isize, 1), false) }
}

/// How often each side was packed, for a 64 x 96 by 96 x 128 product.
fn calls(tiles: &Tiles, threads: usize) -> (usize, usize) {
    let (m, n, k) = (64, 128, 96);
    let (a, b, mut c) = (vec![1f32; m * k], vec![1f32; k * n], vec![0f32; m * n]);
    let asked = |matrix| Asked {
        matrix,
        calls: Mutex::default(),
    };
    let level = Level::PORTABLE;
    let (a, b) = (asked(rows(level, &a, k)), asked(columns(level, &b, n)));
    let mut scratch = vec![0.0; scratch_len::<f32>(level, (m, n, k), tiles, threads)];
    let to = target(&mut c, n);
    multiply(level, (m, n, k), &a, &b, to, tiles, threads, &mut scratch).unwrap();
    assert!(c.iter().all(|x| *x == k as f32));
    let count = |side: Asked<'_>| side.calls.into_inner().unwrap();
    (count(a), count(b))
}

#[test]
fn every_tile_size_changes_what_is_packed() {
    let whole = Tiles {
        mc: 64,
        kc: 96,
        nc: 128,
        pack_a: true,
        pack_b: true,
    };
    assert_eq!(calls(&whole, 1), (1, 1));
    assert_eq!(calls(&Tiles { mc: 16, ..whole }, 1), (4, 1), "rows in four");
    assert_eq!(
        calls(&Tiles { kc: 32, ..whole }, 1),
        (3, 3),
        "depth in three"
    );
    assert_eq!(
        calls(&Tiles { nc: 64, ..whole }, 1),
        (2, 2),
        "columns in two"
    );
    assert_eq!(
        calls(
            &Tiles {
                pack_a: false,
                ..whole
            },
            1
        ),
        (0, 1)
    );
    assert_eq!(
        calls(
            &Tiles {
                pack_b: false,
                ..whole
            },
            1
        ),
        (1, 0)
    );
    assert_eq!(calls(&whole, 2), (2, 2), "each thread packs for itself");
}

#[test]
fn scratch_memory_is_what_is_packed() {
    let level = Level::PORTABLE;
    let len = |tiles: &Tiles, threads| scratch_len::<f64>(level, (64, 128, 96), tiles, threads);
    let whole = Tiles {
        mc: 64,
        kc: 96,
        nc: 128,
        pack_a: true,
        pack_b: true,
    };
    let slack = 64 / size_of::<f64>();
    assert_eq!(len(&whole, 1), (64 + 128) * 96 + slack);
    assert_eq!(
        len(
            &Tiles {
                pack_a: false,
                pack_b: false,
                ..whole
            },
            1
        ),
        0
    );
    assert!(len(&Tiles { kc: 32, ..whole }, 1) < len(&whole, 1) / 2);
    assert!(len(&whole, 2) > len(&whole, 1));
}

#[test]
fn refusals_come_before_the_first_write() {
    let level = Level::PORTABLE;
    let (a, b) = ([1f32; 12], [1f32; 20]);
    let (left, right) = (rows(level, &a, 4), columns(level, &b, 5));
    let sideways = rows(level, &b, 5);
    let tiles = PLAIN.tiles;
    let run = |size, a: &Strided<f32>, b: &Strided<f32>, tiles: &Tiles, scratch: &mut [f32]| {
        let mut c = [7f32; 15];
        let result = multiply(level, size, a, b, target(&mut c, 5), tiles, 1, scratch);
        assert!(result.is_ok() || c == [7f32; 15], "untouched");
        result.map_err(|error| error.to_string())
    };
    let mut room = vec![0f32; scratch_len::<f32>(level, (3, 5, 4), &tiles, 1)];
    assert_eq!(run((3, 5, 4), &left, &right, &tiles, &mut room), Ok(()));
    let short = room.len() - 1;
    let error = run((3, 5, 4), &left, &right, &tiles, &mut room[..short]).unwrap_err();
    assert!(error.contains("elements of scratch memory"), "{error}");
    room.resize(10_000, 0.0);
    for (size, operand) in [
        ((4, 5, 4), 'c'),
        ((3, 6, 4), 'c'),
        ((3, 5, 5), 'a'),
        ((3, 5, 4), 'b'),
    ] {
        let b = if operand == 'b' { &left } else { &right };
        let error = run(size, &left, b, &tiles, &mut room).unwrap_err();
        assert!(
            error.starts_with(&format!("operand `{operand}`")),
            "{error}"
        );
    }
    let in_place = Tiles {
        pack_b: false,
        ..tiles
    };
    let error = run((3, 4, 4), &left, &sideways, &in_place, &mut room).unwrap_err();
    assert_eq!(error, "operand `b` cannot be read in place: pack it");
}

/// An empty sum is zero, and adding it changes nothing.
#[test]
fn products_without_depth() {
    for accumulate in [false, true] {
        check_all(&Case {
            size: (5, 20, 0),
            accumulate,
            ..PLAIN
        });
    }
}

#[test]
fn tiles_follow_the_caches() {
    let caches = Caches {
        l1: 32 << 10,
        l2: 1 << 20,
    };
    let width = f64::kernels(Level::PORTABLE).width();
    let of = |caches: &Caches| Tiles::for_caches::<f64>(Level::PORTABLE, caches);
    let tiles = of(&caches);
    assert_eq!(tiles.kc, 512, "no deeper");
    assert_eq!(tiles.kc * tiles.nc * size_of::<f64>(), caches.l2 / 2);
    let tiny = Caches {
        l1: 4 << 10,
        ..caches
    };
    assert_eq!(of(&tiny).kc * width * size_of::<f64>(), tiny.l1);
    let unknown = Caches { l2: 0, ..caches };
    assert_eq!(of(&unknown).nc, width, "at least a panel");

    let product =
        |size, row_bytes| Tiles::for_product::<f64>(Level::PORTABLE, &tiny, size, row_bytes);
    assert_eq!(product((99, 3 * width, 99), None).kc, 512, "narrow");
    assert_eq!(product((99, 4 * width, 99), None).kc, of(&tiny).kc);
    assert!(product((64, 960, 960), None).pack_b, "no neighbours");
}

/// What the probe finds is what the tiles are cut for.
#[test]
fn caches_are_those_of_the_machine() {
    let mut machine = kernelwise_probe::machine();
    if let Some(known) = machine.caches.known() {
        let first = known.iter().find(|cache| cache.level == 1).unwrap();
        assert_eq!(Caches::of(&machine).l1 as u64, first.size_bytes.0);
    }
    machine.caches = kernelwise_types::Reading::unknown("no caches here");
    let usual = Caches {
        l1: 32 << 10,
        l2: 256 << 10,
    };
    assert_eq!(Caches::of(&machine), usual);
}
