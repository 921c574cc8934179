//! The settings of a launch, and which of them are worth considering.
//!
//! The list depends on the kind of work and on the device, never on the size: the best of a fixed list gets slower with size if each
//! of its members does, so predictions of recommendations are monotone.

use kernelwise_types::{DType, InvalidParams, Params, Workload};
use serde::{Deserialize, Serialize};

use super::device::{Api, Arithmetic, Gpu};
use super::problem::Problem;

/// The settings of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Threads of a group along x (columns, elements of a row) and y (rows).
    pub group: [u32; 2],
    /// Outputs of a thread along x and y; of a stream, accesses.
    pub tile: [u32; 2],
    /// Steps of a sum between two barriers, which are unrolled; 1 where nothing is summed in steps.
    pub depth: u32,
    /// Numbers per access.
    pub vector: u32,
    /// Groups that share a row, or a sum; a second launch puts their parts together.
    pub split: u32,
    /// Whether what is read more than once is kept in shared memory.
    pub staged: bool,
    /// How numbers are multiplied.
    pub arithmetic: Arithmetic,
}

/// Names as in parameters, in the order of [`Config::numbers`].
const NAMES: [&str; 9] = [
    "group_x",
    "group_y",
    "tile_x",
    "tile_y",
    "depth",
    "vector",
    "split",
    "staged",
    "arithmetic",
];

/// Arithmetic by number, as in parameters: 0 is that of the element type.
const ARITHMETIC: [Arithmetic; 3] = [Arithmetic::Own, Arithmetic::Half, Arithmetic::Tensor];

impl Config {
    /// Threads of a group.
    pub fn threads(&self) -> u32 {
        self.group[0].saturating_mul(self.group[1])
    }

    fn numbers(&self) -> [u64; 9] {
        let arithmetic = ARITHMETIC.iter().position(|a| *a == self.arithmetic);
        [
            self.group[0].into(),
            self.group[1].into(),
            self.tile[0].into(),
            self.tile[1].into(),
            self.depth.into(),
            self.vector.into(),
            self.split.into(),
            self.staged.into(),
            arithmetic.unwrap_or(0) as u64,
        ]
    }

    /// The form in which settings travel.
    pub fn params(&self) -> Result<Params, InvalidParams> {
        let named = NAMES.iter().zip(self.numbers());
        named
            .into_iter()
            .try_fold(Params::new(), |params, (name, number)| {
                params.with(name, number)
            })
    }

    /// Reads that form; says what is missing or not known.
    pub fn read(params: &Params) -> Result<Self, String> {
        if let Some((name, _)) = params.iter().find(|(name, _)| !NAMES.contains(name)) {
            return Err(format!(
                "a launch has no parameter `{name}`{}",
                crate::nearest::hint(name, NAMES)
            ));
        }
        let number = |at: usize| -> Result<u32, String> {
            let name = NAMES[at];
            let value = params
                .get(name)
                .ok_or_else(|| format!("`{name}` is missing"))?;
            u32::try_from(value).map_err(|_| format!("`{name}` is {value}: that is too large"))
        };
        let arithmetic = number(8)?;
        let known = ARITHMETIC.get(arithmetic as usize).copied();
        Ok(Self {
            group: [number(0)?, number(1)?],
            tile: [number(2)?, number(3)?],
            depth: number(4)?,
            vector: number(5)?,
            split: number(6)?,
            staged: number(7)? != 0,
            arithmetic: known.ok_or_else(|| {
                format!("`arithmetic` is {arithmetic}: write 0, 1 (half) or 2 (tensor)")
            })?,
        })
    }

    /// Every setting worth considering for work of this kind on this device, before limits and permissions.
    pub(super) fn all(gpu: &Gpu, workload: &Workload, problem: &Problem) -> Vec<Self> {
        let bytes = workload.dtype().size() as u32;
        let plain = Self {
            group: [1, 1],
            tile: [1, 1],
            depth: 1,
            vector: 1,
            split: 1,
            staged: false,
            arithmetic: Arithmetic::Own,
        };
        let mut all = Vec::new();
        match problem {
            Problem::Product { .. } => {
                for arithmetic in arithmetics(gpu, workload.dtype()) {
                    products(arithmetic, bytes, &mut all);
                }
            }
            Problem::Stream { .. } => {
                for threads in [64, 128, 256, 512, 1024] {
                    for vector in [1, 2, 4, 8].into_iter().filter(|v| v * bytes <= 16) {
                        for accesses in [1, 2, 4] {
                            all.push(Self {
                                group: [threads, 1],
                                tile: [accesses, 1],
                                vector,
                                ..plain
                            });
                        }
                    }
                }
            }
            Problem::Rows { splits, passes, .. } => {
                for x in [32, 64, 128, 256, 512, 1024] {
                    for y in [1, 2, 4, 8].into_iter().filter(|y| x * y <= 1024) {
                        for split in [1, 4, 16, 64, 256]
                            .into_iter()
                            .filter(|&n| n == 1 || *splits)
                        {
                            for staged in [false, true].into_iter().filter(|s| !s || *passes > 1) {
                                for vector in
                                    [1, 4].into_iter().filter(|v| *v == 1 || v * bytes <= 16)
                                {
                                    all.push(Self {
                                        group: [x, y],
                                        vector,
                                        split,
                                        staged,
                                        ..plain
                                    });
                                }
                            }
                        }
                    }
                }
            }
            Problem::Exchange { .. } => {
                for [x, y] in [
                    [32, 32],
                    [32, 16],
                    [32, 8],
                    [32, 4],
                    [16, 16],
                    [16, 8],
                    [8, 8],
                ] {
                    all.push(Self {
                        group: [x, y],
                        tile: [1, x / y],
                        staged: true,
                        ..plain
                    });
                }
            }
        }
        all.retain(|config| {
            config.threads() <= gpu.limits.threads_per_group
                && config.group[0] <= gpu.limits.group[0]
                && config.group[1] <= gpu.limits.group[1]
        });
        all
    }
}

fn products(arithmetic: Arithmetic, bytes: u32, all: &mut Vec<Config>) {
    let square: [&[[u32; 2]]; 2] = [
        &[[8, 8], [16, 8], [16, 16], [32, 8], [32, 16]],
        &[[1, 1], [2, 2], [4, 4], [8, 4], [8, 8]],
    ];
    // For products with a vector, of which one side is 1.
    let flat: [&[[u32; 2]]; 2] = [
        &[[32, 1], [64, 1], [128, 1], [256, 1], [1, 64], [1, 256]],
        &[[1, 1], [4, 1], [1, 4]],
    ];
    // A product with a vector has few outputs: only parts of its sums keep all units busy.
    let splits: [&[u32]; 2] = [&[1], &[1, 4, 16, 64]];
    for ([groups, tiles], splits) in [square, flat].into_iter().zip(splits) {
        let shapes = groups
            .iter()
            .flat_map(|g| tiles.iter().map(move |t| (g, t)));
        for ((&group, &tile), &split) in shapes.flat_map(|s| splits.iter().map(move |n| (s, n))) {
            for (depth, vector) in [8, 16, 32].into_iter().flat_map(|d| [(d, 1), (d, 4)]) {
                let side = [group[0] * tile[0], group[1] * tile[1]];
                // Matrix units take 16 x 16 at a time.
                let tiles = arithmetic != Arithmetic::Tensor
                    || side.iter().all(|n| n % 16 == 0) && depth % 16 == 0;
                let vectors =
                    vector == 1 || vector * bytes <= 16 && tile.iter().all(|n| n % vector == 0);
                if tiles && vectors {
                    all.push(Config {
                        group,
                        tile,
                        depth,
                        vector,
                        split,
                        staged: true,
                        arithmetic,
                    });
                }
            }
        }
    }
}

/// The ways in which the device can multiply elements of this type.
pub(super) fn arithmetics(gpu: &Gpu, dtype: DType) -> Vec<Arithmetic> {
    let tensor = gpu.results_per_clock(dtype, Arithmetic::Tensor).is_some();
    // Narrower arithmetic than the elements have: on devices that have no matrix units to ask instead.
    let half = matches!(gpu.api, Api::Metal | Api::WebGpu) && gpu.half && dtype == DType::F32;
    let all = [
        (Arithmetic::Own, true),
        (Arithmetic::Half, half),
        (Arithmetic::Tensor, tensor),
    ];
    all.into_iter()
        .filter(|(_, can)| *can)
        .map(|(a, _)| a)
        .collect()
}
