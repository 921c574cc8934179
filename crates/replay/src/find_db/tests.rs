use std::io::Write;

use super::*;

const HEAD: &str = "spatial,c,d,h,w,z,y,x,k,do,ho,wo,n,pad_d,pad_h,pad_w,str_d,str_h,str_w,\
    dil_d,dil_h,dil_w,bias,layout,dtype,dir,groups,ms_direct,ms_gemm";

fn row(c: u32, dtype: &str, times: &str) -> String {
    format!("2,{c},1,8,8,1,3,3,16,1,8,8,4,0,1,1,1,1,1,1,1,1,0,NCHW,{dtype},F,1,{times}")
}

fn read(rows: &[String]) -> Result<FindDb, ReadError> {
    let text = format!("{HEAD}\n{}\n", rows.join("\n"));
    FindDb::read(text.as_bytes())
}

#[test]
fn rows_become_problems_compressed_or_not() {
    let rows = [row(64, "FP32", "1.5,"), row(32, "FP16", "2,0.5")];
    let plain = read(&rows).unwrap();
    assert_eq!(plain.algorithms, ["direct", "gemm"]);
    assert_eq!(plain.problems[0].times_ms, [Some(1.5), None]);
    assert_eq!(plain.problems[1].best_ms(), 0.5);
    let text = format!("{HEAD}\n{}\n", rows.join("\n"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(FindDb::read(&packed[..]).unwrap(), plain);
    // Compressed files one after the other are one file.
    let more = format!("{}\n", row(16, "FP32", "3,4"));
    let mut second = flate2::write::GzEncoder::new(packed.clone(), flate2::Compression::fast());
    second.write_all(more.as_bytes()).unwrap();
    let both = FindDb::read(&second.finish().unwrap()[..]).unwrap();
    assert_eq!(both.problems.len(), 3);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&packed).unwrap();
    assert_eq!(FindDb::open(file.path()).unwrap(), plain);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let message = |rows: &[String]| read(rows).unwrap_err().to_string();
    assert_eq!(
        message(&[row(1, "FP32", "1,2"), row(1, "FP32", "fast,2")]),
        "line 3 of the record: `fast` in column `ms_direct` is not a time above zero"
    );
    for time in ["0", "-1", "nan", "inf"] {
        assert!(message(&[row(1, "FP32", &format!("{time},2"))]).contains("above zero"));
    }
    assert_eq!(
        message(&[row(1, "FP32", ",")]),
        "line 2 of the record has no time at all"
    );
    assert_eq!(message(&[]), "the record has no problems");
    let odd = row(1, "FP32", "1,2").replace(",8,8,", ",8,x,");
    assert!(message(&[odd]).contains("`x` in column `w` is not a whole number"));
    let short = "2,3".to_owned();
    assert!(matches!(read(&[short]), Err(ReadError::Table(_))));
    let other = FindDb::read("spatial,k\n1,2\n".as_bytes()).unwrap_err();
    assert!(
        other
            .to_string()
            .starts_with("the record has no column `c` in place 2")
    );
    let none = HEAD.replace(",ms_direct,ms_gemm", "");
    assert!(matches!(
        FindDb::read(none.as_bytes()),
        Err(ReadError::NoAlgorithm)
    ));
    let workspace = HEAD.replace("ms_gemm", "workspace");
    let error = FindDb::read(workspace.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("column `workspace` of the record is no time")
    );
    // Cut short in the middle of the compressed data.
    assert!(FindDb::read(&[0x1f, 0x8b, 8, 0][..]).is_err());
    assert!(matches!(
        FindDb::open(Path::new("no such file")),
        Err(ReadError::File(_))
    ));
}

#[test]
fn the_learner_sees_work_and_neighbours() {
    let record = read(&[
        row(64, "FP32", "1,2"),
        row(128, "FP32", "1,2"),
        row(64, "FP16", "1,2"),
    ]);
    let record = record.unwrap();
    let problems: Vec<Problem> = record.problems.iter().map(Recorded::problem).collect();
    // 4 images, 16 results, 64 inputs, 3x3, 8x8 positions.
    let flops = 2.0 * 4.0 * 16.0 * 64.0 * 9.0 * 64.0f64;
    assert!((problems[0].ln_work() - flops.ln()).abs() < 1e-9);
    assert!((problems[1].ln_work() - problems[0].ln_work() - 2f64.ln()).abs() < 1e-9);
    assert_eq!(problems[0].features().len(), COLUMNS.len() + 14);
    // Times are not among the features.
    let slower = read(&[row(64, "FP32", "9,8")]).unwrap();
    assert_eq!(slower.problems[0].problem(), problems[0]);
    assert_ne!(problems[0], problems[2]);
}
