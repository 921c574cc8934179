//! The examples, on smaller numbers.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "ndarray")]
#[allow(dead_code)] // its `main` runs more
#[path = "../examples/ndarray.rs"]
mod arrays;
#[allow(dead_code)] // its `main` runs more
#[path = "../examples/matmul.rs"]
mod matmul;
#[allow(dead_code)] // its `main` runs more
#[path = "../examples/own_variants.rs"]
mod own_variants;

#[test]
fn the_sort_of_ones_own_tells_what_it_learned() {
    let mut out = Vec::new();
    own_variants::run(&mut out, &[7, 100], 40).unwrap();
    let text = String::from_utf8(out).unwrap();
    // The sample is taken from a fixed sequence, so the cases are known.
    for case in [
        "sorting: length 7, sorted 1\n",
        "sorting: length 96 to 111, sorted 1\n",
    ] {
        assert!(text.contains(case), "{case} in\n{text}");
    }
    let runs = text.lines().filter(|line| line.starts_with("  runs "));
    let over = text.lines().filter(|line| line.starts_with("  over "));
    let (runs, over) = (runs.count(), over.count());
    assert!(runs >= 4 && over == 2 * runs, "nobody failed:\n{text}");
    let measured = text
        .lines()
        .filter(|line| line.starts_with("  over ") && line.contains("measured"));
    assert!(measured.count() >= 2, "others were tried:\n{text}");
}

#[test]
fn products_tell_what_they_learned() {
    let mut out = Vec::new();
    let kw = kernelwise::Kernelwise::new().unwrap();
    matmul::run(&mut out, &kw, &[[4, 4, 4], [1, 64, 16]], 200_000_000).unwrap();
    let text = String::from_utf8(out).unwrap();
    for shape in [
        "matmul f32 4x4x4\n  runs cpu-matmul-",
        "matmul f32 1x64x16\n  runs cpu-matmul-",
    ] {
        assert!(text.contains(shape), "{shape} in\n{text}");
    }
    let measured = text.lines().filter(|line| line.contains(" measured, n = "));
    assert!(measured.count() >= 3, "others were tried:\n{text}");
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_are_classified_without_copies() {
    let mut out = Vec::new();
    arrays::run(&mut out, 9, 20).unwrap();
    let text = String::from_utf8(out).unwrap();
    for operation in ["matmul", "elementwise", "softmax", "reduce"] {
        assert!(text.contains(&format!("cpu-{operation}")), "{text}");
    }
}
