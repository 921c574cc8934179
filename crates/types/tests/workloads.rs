//! What holds for every workload there is: texts round-trip, costs are consistent and never fall when a
//! problem grows, and nothing that is written or put together can make the crate panic.
// Clippy knows tests by their attribute; what they call and draw from is test code as well.
#![allow(clippy::unwrap_used)]

mod strategy;

use kernelwise_types::op::{
    Conv2d, Conv3d, Fft, FftKind, Gather, IndexType, Matmul, Norm, NormKind, Operand, Operation,
    Pool2d, PoolKind, Scan, ScanKind, Scatter, ScatterKind, Softmax, SoftmaxKind, Sort, SortKind,
    WorkloadError,
};
use kernelwise_types::{Cost, DType, LayoutKind, Workload};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use strategy::{on_some_dtype, operations, shape, workload};

#[test]
fn the_strategy_covers_every_operation_on_every_element_type_it_takes() {
    let strategies = operations();
    let names: Vec<&str> = strategies.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Operation::NAMES);

    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for (name, strategy) in strategies {
        let drawn = (strategy, any::<Index>(), Just(LayoutKind::Contiguous));
        for _ in 0..200 {
            let (operation, dtype, layout) = drawn.new_tree(&mut runner).unwrap().current();
            assert_eq!(operation.name(), name);
            let workload = on_some_dtype(operation, dtype, layout);
            assert!(name == "elementwise" || workload.is_some(), "{name}");
            seen.extend(workload.map(|workload| workload.dtype()));
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), DType::ALL);
}

/// Texts with one size doubled: each number of the shape, and each keyed size that can only add work. A
/// larger filter, stride or padding may leave fewer windows and is not among them.
fn doubled(workload: &Workload) -> Vec<String> {
    const KEYS: [&str; 7] = ["n", "c", "d", "h", "w", "k", "idx"];
    let text = workload.to_string();
    let words: Vec<&str> = text.split(' ').collect();
    let double = |digits: &str| (2 * digits.parse::<usize>().unwrap()).to_string();
    let mut texts = Vec::new();
    let mut push = |position: usize, word: String| {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        words[position] = word;
        // Both sides of a reshape grow together.
        if let Some(to) = words.iter_mut().find(|word| word.starts_with("to=")) {
            let (first, rest) = to[3..].split_once('x').unwrap();
            *to = format!("to={}x{rest}", double(first));
        }
        texts.push(words.join(" "));
    };
    for (position, word) in words.iter().enumerate().skip(2) {
        let key = word.trim_end_matches(|c: char| c.is_ascii_digit());
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let sizes: Vec<&str> = word.split('x').collect();
            for grown in 0..sizes.len() {
                let mut sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                sizes[grown] = double(&sizes[grown]);
                push(position, sizes.join("x"));
            }
        } else if KEYS.contains(&key) {
            push(position, format!("{key}{}", double(&word[key.len()..])));
        }
    }
    texts
}

fn counts(cost: &Cost) -> [u64; 5] {
    [
        cost.flops.0,
        cost.transcendentals,
        cost.comparisons,
        cost.bytes_read.0,
        cost.bytes_written.0,
    ]
}

/// Numbers at which something could overflow.
const HUGE: [&str; 8] = [
    "0",
    "2147483648",
    "4294967296",
    "288230376151711744",
    "576460752303423487",
    "9223372036854775807",
    "18446744073709551615",
    "340282366920938463463374607431768211456",
];

/// The text with some runs of digits replaced.
fn with_numbers(text: &str, replacements: &[(Index, &str)]) -> String {
    let digit = |c: char| c.is_ascii_digit();
    let mut parts: Vec<String> = Vec::new();
    for c in text.chars() {
        match parts.last_mut() {
            Some(part) if part.ends_with(digit) == digit(c) => part.push(c),
            _ => parts.push(c.to_string()),
        }
    }
    // Digits of the name and the element type stay: they are not sizes.
    let fields = text.splitn(3, ' ').take(2).map(|word| word.len() + 1).sum();
    let mut start = 0usize;
    let mut numbers = Vec::new();
    for (position, part) in parts.iter().enumerate() {
        if start >= fields && part.starts_with(digit) {
            numbers.push(position);
        }
        start += part.len();
    }
    for (which, number) in replacements {
        if !numbers.is_empty() {
            parts[*which.get(&numbers)] = (*number).to_owned();
        }
    }
    parts.concat()
}

/// One careless edit of a text.
fn edited(text: &str, edit: u8, place: Index, word: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let at = place.index(words.len());
    match edit % 5 {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[at].clone()),
        2 => words[at] = word.to_owned(),
        3 => words.insert(at, word.to_owned()),
        _ => {
            let letters: Vec<char> = words[at].chars().collect();
            let cut = place.index(letters.len() + 1);
            words[at] = letters[..cut]
                .iter()
                .chain(letters.iter().skip(cut + 1))
                .collect();
        }
    }
    words.join(" ")
}

/// What is read is a workload like any other.
fn assert_reads_back(text: &str) {
    if let Ok(workload) = text.parse::<Workload>() {
        let printed = workload.to_string();
        assert_eq!(
            printed.parse::<Workload>().as_ref(),
            Ok(&workload),
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_and_json_round_trip(workload in workload()) {
        let text = workload.to_string();
        let read: Workload = text.parse().unwrap();
        prop_assert_eq!(&read, &workload);
        prop_assert_eq!(read.to_string(), text.as_str());
        prop_assert_eq!(read.cost(), workload.cost());
        let json = serde_json::to_string(&workload).unwrap();
        prop_assert_eq!(&json, &format!("\"{text}\""));
        prop_assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload);
    }

    #[test]
    fn costs_agree_with_the_operands(workload in workload()) {
        let Some(cost) = workload.cost() else {
            prop_assert_eq!(workload.operation().name(), "custom");
            return Ok(());
        };
        prop_assert!(cost.bytes_written.0 > 0);
        prop_assert!(cost.intensity().is_some_and(f64::is_finite));
        if workload.operation().name() == "custom" {
            return Ok(());
        }
        let sum = |operands: &[Operand]| operands.iter().map(|o| o.bytes()).sum::<u64>();
        let (inputs, outputs) = (sum(workload.inputs()), sum(workload.outputs()));
        // What is updated in place is read as well.
        let updated = if workload.operation().name() == "scatter" { outputs } else { 0 };
        prop_assert!(cost.bytes_read.0 <= inputs + updated);
        prop_assert!(cost.bytes_written.0 <= outputs);
    }

    #[test]
    fn a_larger_problem_never_costs_less(workload in workload()) {
        let texts = doubled(&workload);
        let sizes = workload.inputs().first().map_or(0, |operand| operand.shape.rank());
        prop_assert!(texts.len() >= sizes, "{}", workload);
        for text in texts {
            let larger: Workload = text.parse().unwrap();
            let (Some(before), Some(after)) = (workload.cost(), larger.cost()) else {
                continue;
            };
            for (before, after) in counts(before).into_iter().zip(counts(after)) {
                prop_assert!(before <= after, "{} against {}", workload, larger);
            }
        }
    }

    #[test]
    fn careless_edits_never_panic(
        workload in workload(),
        edits in proptest::collection::vec((any::<u8>(), any::<Index>(), "[ -~]{0,6}"), 1..4),
    ) {
        let text = edits.iter().fold(workload.to_string(), |text, (edit, place, word)| {
            edited(&text, *edit, *place, word)
        });
        assert_reads_back(&text);
    }

    #[test]
    fn arbitrary_text_never_panics(
        garbage in "\\PC{0,40}",
        name in select(Operation::NAMES),
        variant in "[.:+a-z_]{0,12}",
        dtype in select(DType::ALL),
        fields in "[ x,=.0-9a-z]{0,40}",
    ) {
        assert_reads_back(&garbage);
        assert_reads_back(&format!("{name}{variant} {dtype} {fields}"));
    }

    #[test]
    fn huge_sizes_are_typed_errors(
        workload in workload(),
        replacements in proptest::collection::vec((any::<Index>(), select(&HUGE[..])), 1..6),
    ) {
        let text = with_numbers(&workload.to_string(), &replacements);
        assert_reads_back(&text);
    }

    #[test]
    fn unchecked_problems_never_panic(
        numbers in proptest::array::uniform16(select(vec![0, 1, 2, 3, 1 << 31, 1 << 59, usize::MAX / 2, usize::MAX])),
        shape in shape(0..=4),
        dtype in select(DType::ALL),
    ) {
        let [n, c, d, h, w, k, t, r, s, groups, a0, a1, a2, b0, b1, b2] = numbers;
        let problems: [Operation; 11] = [
            Matmul { batch: n, m: h, k, n: w, trans_a: true, trans_b: false }.into(),
            Conv2d { n, c, h, w, k, r, s, stride: [a0, a1], pad: [b0, b1], dilation: [a2, b2], groups }.into(),
            Conv3d {
                n, c, d, h, w, k, t, r, s,
                stride: [a0, a1, a2], pad: [b0, b1, b2], dilation: [a2, b0, a1], groups,
            }.into(),
            Pool2d { kind: PoolKind::Max, n, c, h, w, r, s, stride: [a0, a1], pad: [b0, b1] }.into(),
            Norm { kind: NormKind::Batch, shape, inference: true }.into(),
            Softmax { kind: SoftmaxKind::Log, shape, axis: n }.into(),
            Scan { kind: ScanKind::Sum, shape, axis: n, exclusive: true, reverse: true }.into(),
            Sort { kind: SortKind::Arg, shape, axis: n, descending: true, stable: true }.into(),
            Fft { kind: FftKind::InverseReal, shape }.into(),
            Gather { shape, axis: n, indices: c, index: IndexType::I32 }.into(),
            Scatter { kind: ScatterKind::Add, shape, axis: n, indices: c, index: IndexType::I64 }.into(),
        ];
        for operation in problems {
            let problem = operation.problem();
            let legal = problem.check(dtype).is_ok();
            let shaped = problem.inputs(dtype).is_ok() & problem.outputs(dtype).is_ok();
            let counted = problem.work(dtype).is_some() & problem.traffic(dtype).is_ok();
            let accepted = Workload::new(operation.clone(), dtype).is_ok();
            prop_assert!(!accepted || (legal && shaped && counted), "{:?}", operation);
        }
    }
}

#[test]
fn mistakes_are_named_with_the_remedy() {
    let table = [
        (
            "",
            "`` is not a workload: write an operation, an element type and sizes, such as `matmul f32 512x512x512`",
        ),
        ("conv2", "unknown operation `conv2`; did you mean `conv2d`?"),
        ("GEMM", "unknown operation `GEMM`; did you mean `matmul`?"),
        (
            "relu",
            "unknown operation `relu`; did you mean `activation.relu`?",
        ),
        (
            "add",
            "unknown operation `add`; did you mean `elementwise.add`?",
        ),
        ("sum", "unknown operation `sum`; did you mean `reduce.sum`?"),
        (
            "matmul. f32 2x2x2",
            "`matmul. f32 2x2x2` is not a workload: write an operation, an element type and sizes, such as `matmul f32 512x512x512`",
        ),
        (
            "copy",
            "`copy` is not a workload: write an operation, an element type and sizes, such as `matmul f32 512x512x512`",
        ),
        (
            "softmax fp32 8",
            "unknown element type `fp32`; did you mean `f32`?",
        ),
        (
            "reduce.summ f32 8",
            "reduce has no variant `summ`; did you mean `sum`?",
        ),
        (
            "scan f32 8",
            "scan needs a variant, such as `scan.sum`; known: sum, prod, max, min",
        ),
        (
            "norm.layer i32 8",
            "norm is not defined on i32: it takes real floating point",
        ),
        (
            "elementwise.add:row+exp u8 8x8",
            "exp is not defined on u8: it takes real or complex floating point",
        ),
        (
            "gather f32 8x8 idx3",
            "gather needs axis, as in `gather f32 50000x768 axis0 idx4096`",
        ),
        (
            "sort u32 8x8 descending",
            "sort has no use for `descending`: remove it, or check its spelling, as in `sort u32 8x1000`",
        ),
        (
            "conv2d f32 n1 c3 h8 w8 k4 r3 s3 stride2,1 pad1",
            "conv2d: `stride2,1` is not readable: expected one number, or one per dimension joined by x",
        ),
        (
            "transpose f32 2x3 perm0,2",
            "transpose: `0,2` is not an order of axes: name each from 0 to at most 7 once",
        ),
        (
            "copy f32 4x-3",
            "`4x-3` is not a shape: write sizes joined by x, such as 128x256, or `scalar`",
        ),
        (
            "copy f32 18446744073709551615x2",
            "shape 18446744073709551615x2 has more elements than this machine can address: make a dimension smaller",
        ),
        (
            "softmax f32 3x0",
            "softmax: operand `x` of shape 3x0 is empty: there is nothing to compute, skip the call",
        ),
        (
            "conv2d f32 n1 c1000000 h10000 w10000 k1000000 r1 s1 stride1 pad0",
            "conv2d: the number of arithmetic operations does not fit 64 bits: split the problem",
        ),
    ];
    for (text, message) in table {
        let error: WorkloadError = text.parse::<Workload>().unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn every_operation_has_an_example_in_its_own_words() {
    for (name, example) in Operation::NAMES.iter().zip(Operation::EXAMPLES) {
        let workload: Workload = example.parse().unwrap();
        assert_eq!(workload.operation().name(), *name);
        assert_eq!(workload.to_string(), *example);
    }
}

/// Every line in a block of the page is a workload, and every operation is there.
#[test]
fn the_page_on_workloads_is_true() {
    let page = include_str!("../../../docs/workloads.md");
    let blocks = page.split("```").skip(1).step_by(2);
    let texts = blocks
        .flat_map(|block| block.lines().skip(1))
        .filter(|line| !line.is_empty());
    let mut seen = Vec::new();
    for text in texts {
        let workload: Workload = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        seen.push(workload.operation().name());
    }
    for name in Operation::NAMES {
        assert!(seen.contains(name), "{name} is missing");
    }
}
