//! oneDNN against a naive convolution, where it is installed.

use std::path::Path;

use kernelwise_rivals::{CallError, LoadError, OneDnn};
use kernelwise_testing::skip;
use kernelwise_types::op::Conv2d;

fn loaded() -> Option<OneDnn> {
    OneDnn::load()
        .inspect_err(|error| skip("onednn", &error.to_string()))
        .ok()
}

/// An ordinary 3 x 3 convolution that keeps the size of odd images.
const PLAIN: Conv2d = Conv2d {
    n: 2,
    c: 5,
    h: 7,
    w: 9,
    k: 3,
    r: 3,
    s: 3,
    stride: [1, 1],
    pad: [1, 1],
    dilation: [1, 1],
    groups: 1,
};

/// Small whole numbers, so that every order of summation gives the same result.
fn numbers(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7 + i / 5) % 11) as f32 - 5.0)
        .collect()
}

fn naive(conv: &Conv2d, source: &[f32], weights: &[f32]) -> Vec<f32> {
    let [p, q] = conv.output_size().expect("a legal convolution");
    let (channels, filters) = (conv.c / conv.groups, conv.k / conv.groups);
    let at = |image: usize, channel: usize, y: usize, x: usize| {
        // Coordinates count from the first zero of the padding.
        let (y, x) = (y.checked_sub(conv.pad[0])?, x.checked_sub(conv.pad[1])?);
        let inside = y < conv.h && x < conv.w;
        inside.then(|| source[((image * conv.c + channel) * conv.h + y) * conv.w + x])
    };
    let mut out = Vec::new();
    for image in 0..conv.n {
        for filter in 0..conv.k {
            for (y, x) in (0..p * q).map(|pixel| (pixel / q, pixel % q)) {
                let mut sum = 0.0;
                for channel in 0..channels {
                    for (r, s) in (0..conv.r * conv.s).map(|tap| (tap / conv.s, tap % conv.s)) {
                        let pixel = at(
                            image,
                            filter / filters * channels + channel,
                            y * conv.stride[0] + r * conv.dilation[0],
                            x * conv.stride[1] + s * conv.dilation[1],
                        );
                        let weight =
                            weights[((filter * channels + channel) * conv.r + r) * conv.s + s];
                        sum += pixel.unwrap_or(0.0) * weight;
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

fn source_len(conv: &Conv2d) -> usize {
    conv.n * conv.c * conv.h * conv.w
}

fn weights_len(conv: &Conv2d) -> usize {
    conv.k * conv.c / conv.groups * conv.r * conv.s
}

#[test]
fn convolutions_equal_the_naive_loop() {
    let Some(onednn) = loaded() else { return };
    let shapes = [
        PLAIN,
        Conv2d { n: 0, ..PLAIN },
        Conv2d {
            r: 1,
            s: 1,
            pad: [0, 0],
            c: 16,
            k: 33,
            ..PLAIN
        },
        Conv2d {
            stride: [2, 3],
            pad: [0, 2],
            r: 2,
            ..PLAIN
        },
        Conv2d {
            dilation: [2, 1],
            h: 11,
            ..PLAIN
        },
        Conv2d {
            groups: 2,
            c: 6,
            k: 4,
            ..PLAIN
        },
        Conv2d {
            groups: 5,
            k: 5,
            n: 1,
            ..PLAIN
        },
        Conv2d {
            c: 32,
            k: 32,
            ..PLAIN
        },
        Conv2d {
            n: 1,
            c: 1,
            h: 1,
            w: 1,
            k: 1,
            ..PLAIN
        },
    ];
    for conv in shapes {
        let (source, weights) = (numbers(source_len(&conv)), numbers(weights_len(&conv)));
        let wanted = naive(&conv, &source, &weights);
        let mut prepared = onednn.convolution(&conv, &weights, 1).unwrap();
        assert!(!prepared.implementation().is_empty());

        let mut out = vec![f32::NAN; wanted.len()];
        prepared.execute_plain(&source, &mut out).unwrap();
        close(&out, &wanted, &conv, "plain");
        if let Some((_, short)) = source.split_first() {
            let error = prepared.execute_plain(short, &mut out).unwrap_err();
            assert!(matches!(error, CallError::Length { .. }), "{error}");
        }

        // Other images meanwhile, so that a result left from before would show.
        let negated: Vec<_> = source.iter().map(|x| -x).collect();
        prepared.set_source(&negated).unwrap();
        prepared.execute().unwrap();
        prepared.destination(&mut out).unwrap();
        let wanted: Vec<_> = wanted.iter().map(|x| -x).collect();
        close(&out, &wanted, &conv, "own layout");
    }
}

/// Winograd's transforms round, so small whole numbers are met closely, not always exactly.
fn close(out: &[f32], wanted: &[f32], conv: &Conv2d, path: &str) {
    assert_eq!(out.len(), wanted.len());
    for (i, (&got, &want)) in out.iter().zip(wanted).enumerate() {
        assert!(
            (got - want).abs() < 0.01,
            "{path}, {conv:?}, element {i}: {got}, not {want}"
        );
    }
}

#[test]
fn a_prepared_convolution_moves_between_threads() {
    let Some(onednn) = loaded() else { return };
    let (source, weights) = (numbers(source_len(&PLAIN)), numbers(weights_len(&PLAIN)));
    let wanted = naive(&PLAIN, &source, &weights);
    let mut prepared = onednn.convolution(&PLAIN, &weights, 2).unwrap();
    drop(weights);
    let out = std::thread::spawn(move || {
        let mut out = vec![0.0; wanted.len()];
        prepared.execute_plain(&source, &mut out).unwrap();
        (out, wanted)
    });
    let (out, wanted) = out.join().unwrap();
    close(&out, &wanted, &PLAIN, "moved");
}

#[test]
fn lengths_threads_and_sizes_are_checked() {
    let Some(onednn) = loaded() else { return };
    let weights = numbers(weights_len(&PLAIN));
    let refused = |conv: &Conv2d, weights: &[f32], threads| {
        onednn.convolution(conv, weights, threads).unwrap_err()
    };
    assert_eq!(
        refused(&PLAIN, &weights[1..], 1).to_string(),
        "weights holds 134 elements, the sizes ask for 135"
    );
    assert_eq!(refused(&PLAIN, &weights, 0), CallError::Threads(0));
    let indivisible = Conv2d { groups: 2, ..PLAIN };
    let endless = Conv2d {
        n: usize::MAX,
        ..PLAIN
    };
    assert_eq!(
        refused(&endless, &weights, 1).to_string(),
        "the number of elements is 18446744073709551615, the library takes 0 to 1099511627776"
    );
    assert!(matches!(
        refused(&indivisible, &weights, 1),
        CallError::Problem(_)
    ));

    let mut prepared = onednn.convolution(&PLAIN, &weights, 1).unwrap();
    let (source, mut out) = (numbers(630), vec![7.0; 378]);
    let lengths = [
        prepared.set_source(&source[1..]),
        prepared.destination(&mut out[1..]),
        prepared.execute_plain(&source[1..], &mut out),
        prepared.execute_plain(&source, &mut out[1..]),
    ];
    let wanted = [("the source", 630), ("the destination", 378)];
    for (result, (what, needed)) in lengths.into_iter().zip(wanted.into_iter().cycle()) {
        let got = needed - 1;
        assert_eq!(result, Err(CallError::Length { what, needed, got }));
    }
    assert!(out.iter().all(|&x| x == 7.0), "untouched on error");
}

#[test]
fn it_says_what_it_is() {
    let Some(onednn) = loaded() else { return };
    assert!(onednn.version().starts_with("3."), "{}", onednn.version());
    assert!(onednn.file().contains("dnnl"), "{}", onednn.file());
}

#[test]
fn a_wrong_path_says_how_to_install_it() {
    // SAFETY: there is no such file.
    let error = unsafe { OneDnn::load_from(Path::new("/nowhere/libdnnl.so.3")) }.unwrap_err();
    assert!(matches!(
        &error,
        LoadError::Absent {
            library: "oneDNN",
            ..
        }
    ));
    let message = error.to_string();
    for part in [
        "oneDNN could not be loaded (/nowhere/libdnnl.so.3: ",
        "`pip install --no-deps onednn-cpu-gomp`",
        "KERNELWISE_ONEDNN",
    ] {
        assert!(message.contains(part), "{message}");
    }
}
