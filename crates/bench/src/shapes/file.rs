//! Files of shapes: DeepBench's two lists, and plain lists of workloads.
//!
//! DeepBench writes comma-separated lines, the name of a set first, then sizes: five fields for a product (m, n, k and whether
//! either side is transposed), eleven for a convolution (w, h, c, n, k, filter width, filter height, padding along both,
//! stride along both). Its products are named in the order of BLAS; here they are the same products of matrices stored row by row.
//! Lines that begin with `#` and empty lines say nothing.

use kernelwise_types::op::{Conv2d, Matmul, Operation, WorkloadError};
use kernelwise_types::{DType, Workload};

/// Why a file of shapes cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeFileError {
    /// A line that is neither a workload nor a line of DeepBench.
    #[error(
        "{file}:{line}: `{text}` is no shape: write a workload such as `matmul f32 64x64x64`, or a line of DeepBench \
         (set,m,n,k,a_t,b_t or set,w,h,c,n,k,s,r,pad_w,pad_h,stride_w,stride_h)"
    )]
    Line {
        /// The file, as it was named.
        file: String,
        /// Counted from one.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// A field of DeepBench that cannot be read.
    #[error("{file}:{line}: {field} is `{text}`, expected {expected}")]
    Field {
        /// The file, as it was named.
        file: String,
        /// Counted from one.
        line: usize,
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
    /// Sizes that make no operation.
    #[error("{file}:{line}: {error}")]
    Workload {
        /// The file, as it was named.
        file: String,
        /// Counted from one.
        line: usize,
        /// What is wrong with them.
        error: Box<WorkloadError>,
    },
    /// Nothing but comments.
    #[error("{file} names no shape: write one workload per line, such as `matmul f32 64x64x64`")]
    Empty {
        /// The file, as it was named.
        file: String,
    },
}

/// Reads the shapes of a file with this content; `file` is how messages name it. Shapes of DeepBench have no element type
/// and get `dtype`. A shape that stands several times is kept once.
pub fn read_shapes(file: &str, text: &str, dtype: DType) -> Result<Vec<Workload>, ShapeFileError> {
    let mut shapes: Vec<Workload> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = Line {
            file,
            number: number + 1,
            text: line.trim(),
        };
        if line.text.is_empty() || line.text.starts_with('#') {
            continue;
        }
        let shape = line.shape(dtype)?;
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    if shapes.is_empty() {
        let file = file.to_owned();
        return Err(ShapeFileError::Empty { file });
    }
    Ok(shapes)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    file: &'a str,
    number: usize,
    text: &'a str,
}

/// Fields of a line that are sizes, in DeepBench's order.
const CONV_FIELDS: [&str; 11] = [
    "w",
    "h",
    "c",
    "n",
    "k",
    "the filter's width",
    "the filter's height",
    "padding along w",
    "padding along h",
    "stride along w",
    "stride along h",
];

impl Line<'_> {
    fn shape(self, dtype: DType) -> Result<Workload, ShapeFileError> {
        let word = self.text.split([' ', '.', ',']).next().unwrap_or_default();
        if Operation::NAMES.contains(&word) {
            return self.legal(self.text.parse());
        }
        // A name that is nearly one is a workload that is mistyped.
        let mistyped = self.text.parse::<Workload>().err().filter(|error| {
            matches!(error, WorkloadError::UnknownOperation { .. })
                && error.to_string().contains("did you mean")
        });
        let fields: Vec<&str> = self.text.split(',').map(str::trim).collect();
        match fields.as_slice() {
            [_set, m, n, k, a_t, b_t] => {
                let product = Matmul {
                    trans_a: self.flag("a transposed", a_t)?,
                    trans_b: self.flag("b transposed", b_t)?,
                    ..Matmul::new(self.size("m", m)?, self.size("k", k)?, self.size("n", n)?)
                };
                self.legal(Workload::new(product, dtype))
            }
            [_set, sizes @ ..] if sizes.len() == CONV_FIELDS.len() => {
                let mut values = [0; CONV_FIELDS.len()];
                for ((value, name), text) in values.iter_mut().zip(CONV_FIELDS).zip(sizes) {
                    *value = self.size(name, text)?;
                }
                let [w, h, c, n, k, s, r, pad_w, pad_h, stride_w, stride_h] = values;
                let conv = Conv2d {
                    n,
                    c,
                    h,
                    w,
                    k,
                    r,
                    s,
                    stride: [stride_h, stride_w],
                    pad: [pad_h, pad_w],
                    dilation: [1; 2],
                    groups: 1,
                };
                self.legal(Workload::new(conv, dtype))
            }
            _ => match mistyped {
                Some(error) => self.legal(Err(error)),
                None => Err(ShapeFileError::Line {
                    file: self.file.to_owned(),
                    line: self.number,
                    text: self.text.to_owned(),
                }),
            },
        }
    }

    fn legal(self, shape: Result<Workload, WorkloadError>) -> Result<Workload, ShapeFileError> {
        shape.map_err(|error| ShapeFileError::Workload {
            file: self.file.to_owned(),
            line: self.number,
            error: Box::new(error),
        })
    }

    fn size(self, field: &'static str, text: &str) -> Result<usize, ShapeFileError> {
        text.parse()
            .map_err(|_| self.unreadable(field, text, "a whole number"))
    }

    fn flag(self, field: &'static str, text: &str) -> Result<bool, ShapeFileError> {
        text.parse()
            .map_err(|_| self.unreadable(field, text, "true or false"))
    }

    fn unreadable(self, field: &'static str, text: &str, expected: &'static str) -> ShapeFileError {
        ShapeFileError::Field {
            file: self.file.to_owned(),
            line: self.number,
            field,
            text: text.to_owned(),
            expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let shapes = read_shapes("list.csv", text, DType::F32).map_err(|e| e.to_string())?;
        Ok(shapes.iter().map(Workload::to_string).collect())
    }

    #[test]
    fn products_of_deepbench_keep_their_sides_apart() {
        let text = "# Vector saves m, n, k, a_t, b_t\r\nsome_set,3,5,7,false,false\n\nsome_set,3,5,7,true,false\nother,3,5,7,false,true\n";
        let expected = [
            "matmul f32 3x7x5",
            "matmul f32 3x7x5 ta",
            "matmul f32 3x7x5 tb",
        ];
        assert_eq!(read(text).unwrap(), expected);
        // The same shape of another set is the same shape.
        assert_eq!(
            read("a,3,5,7,false,false\nb,3,5,7,false,false")
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn convolutions_of_deepbench_keep_rows_and_columns_apart() {
        let text = "# Vector saves w, h, c, n, k, filter_w(s), filter_h(r), pad_w, pad_h, wstride, hstride\nset,70,16,1,4,32,20,5,3,2,1,2";
        assert_eq!(
            read(text).unwrap(),
            ["conv2d f32 n4 c1 h16 w70 k32 r5 s20 stride2x1 pad2x3"]
        );
    }

    #[test]
    fn plain_lists_name_their_own_types() {
        let text = "matmul f64 2x3x4\n  transpose f32 4x6 perm1,0  \n# done";
        assert_eq!(
            read(text).unwrap(),
            ["matmul f64 2x3x4", "transpose f32 4x6 perm1,0"]
        );
        let half = read_shapes("l", "s,3,5,7,false,false", DType::F16).unwrap();
        assert_eq!(half[0].dtype(), DType::F16);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, expected) in [
            (
                "matmul f32 2x2x2\nmatmull f32 2x2x2",
                "list.csv:2: unknown operation `matmull`; did you mean `matmul`?",
            ),
            (
                "copy f32 9\ntranspoze f32 4x6 perm1,0",
                "list.csv:2: unknown operation `transpoze`; did you mean `transpose`?",
            ),
            (
                "zebra f32 2x2x2",
                "list.csv:1: `zebra f32 2x2x2` is no shape: write a workload",
            ),
            (
                "set,3,5,7,false",
                "list.csv:1: `set,3,5,7,false` is no shape",
            ),
            (
                "#\nset,3,five,7,false,false",
                "list.csv:2: n is `five`, expected a whole number",
            ),
            (
                "set,3,5,7,false,no",
                "list.csv:1: b transposed is `no`, expected true or false",
            ),
            (
                "set,3,5,-7,false,false",
                "list.csv:1: k is `-7`, expected a whole number",
            ),
            (
                "set,4,4,1,1,1,9,9,0,0,1,1",
                "list.csv:1: conv2d: the window covers 9",
            ),
            ("matmul f32 0x2x2", "list.csv:1: "),
            ("# nothing\n", "list.csv names no shape"),
            ("", "list.csv names no shape"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
