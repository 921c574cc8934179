//! Every exit code, with the command that ends with it and what it says.
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

mod typed;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use typed::{kernelwise, run, text, words};

/// The words, the code and what was said; the folder of the test has no name.
fn told(words: &[&str], output: &Output, folder: &Path) -> String {
    let code = output
        .status
        .code()
        .map_or("none".to_owned(), |code| code.to_string());
    let told = format!(
        "$ kernelwise {}\n{}-> {code}\n\n",
        words.join(" "),
        text(&output.stderr)
    );
    told.replace(folder.to_str().unwrap(), "<folder>")
}

/// All of them end with this code and print nothing else.
fn all_end_with(code: i32, folder: &Path, commands: &[&[&str]]) -> String {
    let told = commands.iter().map(|words| {
        let output = run(folder, words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stdout), "", "{words:?}");
        told(words, &output, folder)
    });
    told.collect()
}

#[test]
fn code_0_is_said_by_silence() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["cost", "matmul f32 8x8x8"];
    let output = run(folder.path(), &words);
    assert!(!output.stdout.is_empty());
    insta::assert_snapshot!(told(&words, &output, folder.path()));
}

#[test]
fn code_1_says_what_failed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let bad = folder.join("bad.wisdom");
    std::fs::write(&bad, "{\"not\": \"wisdom\"}\n").unwrap();
    insta::assert_snapshot!(all_end_with(
        1,
        folder,
        &[
            &["learn", "--shapes", "/"],
            &["import", bad.to_str().unwrap()],
        ]
    ));
    // Where nothing can be kept, whoever asks for what is kept is told so.
    let nowhere = Path::new("/proc/kernelwise");
    for words in [
        &["cache", "stats"][..],
        &["report"],
        &["export"],
        &["model", "show"],
    ] {
        let output = run(nowhere, words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("there is no place for records: set KERNELWISE_DIR"),
            "{said}"
        );
    }
}

#[test]
fn code_2_says_what_makes_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let spec = folder.join("spec.toml");
    std::fs::write(
        &spec,
        "name = \"x\"\nnmae = 3\n[parameters]\nx = [1, 2]\n[run]\ncommand = [\"true\"]\n",
    )
    .unwrap();
    let list = folder.join("list.txt");
    std::fs::write(&list, "copy f32 100\ncopi f32 3\n").unwrap();
    insta::assert_snapshot!(all_end_with(
        2,
        folder,
        &[
            &["lern"],
            &["select", "copy", "--shape", "0"],
            &["select", "matmul", "--shape", "3x4"],
            &["select", "matmul", "--shape", "99999999x99999999x99999999"],
            &["learn", "--shapes", list.to_str().unwrap()],
            &["tune", "--spec", spec.to_str().unwrap()],
            &["tune", "copy", "--shape", "64", "--strategy", "genetc"],
        ]
    ));
    // How much memory there is depends on the machine.
    for verb in ["run", "select", "explain"] {
        let words = [
            verb,
            "copy",
            "--shape",
            "1000000000000",
            "--calibration-budget",
            "0.01",
        ];
        let output = run(folder, &words);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains("name a smaller shape"),
            "{}",
            text(&output.stderr)
        );
    }
    // What is no text says something, too.
    #[cfg(unix)]
    for variable in ["KERNELWISE_MODE", "KERNELWISE_FORCE"] {
        use std::os::unix::ffi::OsStrExt;
        let output = kernelwise(folder, &["select", "copy", "--shape", "64"])
            .env(variable, std::ffi::OsStr::from_bytes(b"copy=\xff"))
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("{variable} is not readable as text")),
            "{said}"
        );
    }
    for words in [
        &["select", "copy", "--shape", "64"][..],
        &["watch", "--shape", "copy f32 64"],
    ] {
        let forced = "matmul=cpu-copy-f32-memcpy";
        let output = kernelwise(folder, words)
            .env("KERNELWISE_FORCE", forced)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("cpu-copy-f32-memcpy does not compute matmul"),
            "{said}"
        );
    }
    let mode = kernelwise(folder, &["select", "copy", "--shape", "64"])
        .env("KERNELWISE_MODE", "frozn")
        .output()
        .unwrap();
    assert_eq!(mode.status.code(), Some(2));
    assert!(text(&mode.stderr).contains("there are learn, frozen and shadow"));
}

#[test]
fn code_3_says_what_was_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = words(
        "compare copy --shape 1000 --baseline cpu-copy-f32-memcpy --fail-above 5% --time-budget 0.05 --calibration-budget 0.01",
    );
    // Whoever is forced to be slow exceeds any threshold.
    let output = kernelwise(folder, &words)
        .env("KERNELWISE_FORCE", "copy=cpu-copy-f32-reference")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("the choice is slower"),
        "what was measured is told"
    );
    insta::assert_snapshot!(told(&words, &output, folder));
}

#[test]
fn code_4_says_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    insta::assert_snapshot!(all_end_with(
        4,
        folder,
        &[
            &["kernels", "--op", "matmull"],
            &["learn", "--op", "copi"],
            &[
                "recommend",
                "matmul",
                "--shape",
                "64x64x64",
                "--device",
                "a10O"
            ],
            &["cache", "quarantine", "--lift", "cpu-copy-f32-memcpy"],
            &["run", "custom.wave", "--shape", "4"],
            &["watch", "--shape", "custom.wave f32 4"],
            &["report"],
            &["export"],
        ]
    ));
    let quick = [
        "--shape",
        "64",
        "--time-budget",
        "0.01",
        "--calibration-budget",
        "0.01",
    ];
    for (forced, hint) in [
        (
            "copy=cpu-copy-f32-memcopy",
            "did you mean `cpu-copy-f32-memcpy`?",
        ),
        ("copi=cpu-copy-f32-memcpy", "did you mean `copy`?"),
    ] {
        let words = [&["select", "copy"], &quick[..]].concat();
        let output = kernelwise(folder, &words)
            .env("KERNELWISE_FORCE", forced)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains(hint),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_missing_file_is_not_found_whoever_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let missing = folder.join("nowhere");
    let missing = missing.to_str().unwrap();
    insta::assert_snapshot!(all_end_with(
        4,
        folder,
        &[
            &["learn", "--shapes", missing],
            &["bench", "ops", "--shapes", missing],
            &["bench", "choices", "--shapes", missing],
            &["replay", "find-db", missing],
            &["replay", "space", missing],
            &["model", "evaluate", "--find-db", missing],
            &["tune", "--spec", missing],
            &["import", missing],
            &["merge", missing, "-o", "x"],
        ]
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_a_closed_pipe_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["table", "json"] {
        let words = ["cost", "copy f32 3", "--format", format];
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = kernelwise(folder.path(), &words)
            .stdout(full)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("standard output cannot be written: "),
            "{said}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = kernelwise(folder.path(), &words)
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn a_mistyped_baseline_is_told_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = words("compare copy --shape 64 --baseline cpu-copy-f32-memcopy");
    let output = run(folder, &words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("did you mean `cpu-copy-f32-memcpy`?"),
        "{said}"
    );
    assert!(
        !folder.join("records.sqlite").exists(),
        "no calibration was kept, so none was made"
    );
}

/// Says it is OpenBLAS and computes nothing.
const WRONG: &str = "\
    const char *openblas_get_config(void) { return \"OpenBLAS 0.3.99\"; }
    const char *openblas_get_corename(void) { return \"Wrong\"; }
    int openblas_get_num_threads(void) { return 1; }
    int openblas_get_parallel(void) { return 1; }
    void openblas_set_num_threads(int n) { }
    void cblas_sgemm(void) { }
    void cblas_dgemm(void) { }";

#[cfg(target_os = "linux")]
#[test]
fn code_5_says_who_was_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (source, library) = (folder.join("wrong.c"), folder.join("libwrong.so"));
    std::fs::write(&source, WRONG).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .output();
    match compiled {
        Ok(compiled) => assert!(compiled.status.success(), "{}", text(&compiled.stderr)),
        Err(error) => return kernelwise_testing::skip("cc", &error.to_string()),
    }
    let words = [
        "bench",
        "ops",
        "--shape",
        "matmul f32 24x24x24",
        "--time-budget",
        "0.02",
        "--calibration-budget",
        "0.01",
    ];
    let output = kernelwise(folder, &words)
        .env("KERNELWISE_OPENBLAS", &library)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("openblas"),
        "the others are told all the same"
    );
    insta::assert_snapshot!(told(&words, &output, folder));
}

#[test]
fn code_6_leaves_records_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    typed::answer(folder, &["cache", "stats"]);
    let file = folder.join("records.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    // SQLite keeps the version of its user in bytes 60 to 63 of the file.
    bytes[60..64].copy_from_slice(&9999u32.to_be_bytes());
    std::fs::write(&file, &bytes).unwrap();
    let commands = [
        &["select", "copy", "--shape", "64"][..],
        &["learn"],
        &["cache", "clear", "--yes"],
    ];
    let told = all_end_with(6, folder, &commands);
    let known = told.find("this one knows ").map(|at| &told[at..]);
    let known = known.and_then(|known| known.split(')').next()).unwrap();
    insta::assert_snapshot!(told.replace(known, "this one knows <format>"));
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[cfg(unix)]
#[test]
fn code_130_says_that_it_was_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["probe", "--watch", "--interval", "0.1", "--format", "json"];
    let mut watch = kernelwise(folder.path(), &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first line says that it is listening.
    let mut out = BufReader::new(watch.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let id = watch.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    out.read_to_string(&mut String::new()).unwrap();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    insta::assert_snapshot!(told(&words, &output, folder.path()));
}
