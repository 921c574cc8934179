//! OpenBLAS against a naive product, where it is installed.

use std::path::Path;

use kernelwise_rivals::{CallError, LoadError, OpenBlas};
use kernelwise_testing::skip;

fn loaded() -> Option<OpenBlas> {
    OpenBlas::load()
        .inspect_err(|error| skip("openblas", &error.to_string()))
        .ok()
}

/// Small whole numbers, so that every order of summation gives the same result.
fn numbers(len: usize) -> impl Iterator<Item = i8> {
    (0..len).map(|i| ((i * 7 + i / 5) % 11) as i8 - 5)
}

fn expected(m: usize, n: usize, k: usize, ta: bool, tb: bool) -> Vec<i32> {
    let a: Vec<_> = numbers(m * k).map(i32::from).collect();
    let b: Vec<_> = numbers(k * n).map(i32::from).collect();
    let at = |i, l| if ta { a[l * m + i] } else { a[i * k + l] };
    let bt = |l, j| if tb { b[j * k + l] } else { b[l * n + j] };
    (0..m * n)
        .map(|out| (0..k).map(|l| at(out / n, l) * bt(l, out % n)).sum())
        .collect()
}

#[test]
fn products_equal_the_naive_loop() {
    let Some(blas) = loaded() else { return };
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 7),
        (17, 1, 9),
        (1, 13, 4),
        (33, 19, 65),
        (2, 3, 0),
        (0, 3, 2),
    ] {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let wanted = expected(m, n, k, ta, tb);

            let a: Vec<f32> = numbers(m * k).map(f32::from).collect();
            let b: Vec<f32> = numbers(k * n).map(f32::from).collect();
            let mut c = vec![f32::NAN; m * n];
            blas.sgemm(m, n, k, &a, ta, &b, tb, &mut c).unwrap();
            let wide: Vec<_> = wanted.iter().map(|&x| x as f32).collect();
            assert_eq!(c, wide, "f32 {m}x{k}x{n} {ta} {tb}");

            let a: Vec<f64> = numbers(m * k).map(f64::from).collect();
            let b: Vec<f64> = numbers(k * n).map(f64::from).collect();
            let mut c = vec![f64::NAN; m * n];
            blas.dgemm(m, n, k, &a, ta, &b, tb, &mut c).unwrap();
            let wide: Vec<_> = wanted.iter().map(|&x| f64::from(x)).collect();
            assert_eq!(c, wide, "f64 {m}x{k}x{n} {ta} {tb}");
        }
    }
}

#[test]
fn sizes_and_slices_must_agree() {
    let Some(blas) = loaded() else { return };
    let six = [0.0f32; 6];
    let mut c = [7.0f32; 4];
    let cases = [
        ([2, 2, 3], [5, 6], "a holds 5 elements, the sizes ask for 6"),
        ([2, 2, 3], [6, 4], "b holds 4 elements, the sizes ask for 6"),
        ([2, 1, 3], [6, 3], "c holds 4 elements, the sizes ask for 2"),
        ([usize::MAX, 2, 3], [6, 6], "a holds 6 elements"),
    ];
    for ([m, n, k], [a, b], message) in cases {
        let product = blas.sgemm(m, n, k, &six[..a], false, &six[..b], false, &mut c);
        let error = product.unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
    assert_eq!(c, [7.0; 4], "untouched on error");

    let error = blas.sgemm(1 << 31, 0, 0, &[], false, &[], false, &mut []);
    assert_eq!(
        error.unwrap_err().to_string(),
        "m is 2147483648, the library takes 0 to 2147483647"
    );
}

#[test]
fn it_says_what_it_is_and_takes_a_thread_count() {
    let Some(blas) = loaded() else { return };
    assert!(blas.config().starts_with("OpenBLAS"), "{}", blas.config());
    assert!(!blas.core().is_empty());

    assert!(blas.file().contains("openblas"), "{}", blas.file());
    blas.set_threads(1).unwrap();
    assert_eq!(blas.threads(), 1);
    assert_eq!(blas.set_threads(0), Err(CallError::Threads(0)));
}

#[test]
fn a_wrong_path_says_how_to_install_it() {
    // SAFETY: there is no such file.
    let error = unsafe { OpenBlas::load_from(Path::new("/nowhere/libopenblas.so.0")) }.unwrap_err();
    assert!(matches!(
        &error,
        LoadError::Absent {
            library: "OpenBLAS",
            ..
        }
    ));
    let message = error.to_string();
    for part in [
        "OpenBLAS could not be loaded (/nowhere/libopenblas.so.0: ",
        "`pip install scipy-openblas32` or `apt-get install libopenblas0-pthread`",
        "KERNELWISE_OPENBLAS",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn another_library_is_not_taken_for_openblas() {
    // SAFETY: the C library has none of the functions looked for.
    let error = unsafe { OpenBlas::load_from(Path::new("libc.so.6")) }.unwrap_err();
    assert!(matches!(&error, LoadError::Symbol { symbol, .. } if symbol == "openblas_get_config"));
    assert!(
        error
            .to_string()
            .starts_with("libc.so.6 has no function `openblas_get_config`")
    );
}
