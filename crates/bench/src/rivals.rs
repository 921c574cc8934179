//! Other people's libraries as contenders, called as their users call them.
//!
//! Each reads the same inputs as the kernels and writes the same output, because where a large output happens to lie can
//! cost more than the differences looked for. Small ones, which are in the nearest cache wherever they lie, go to
//! a slice of its own: asking the tensor for it would take a good part of a small product's time. The crates `gemm` and `matrixmultiply` are built in;
//! OpenBLAS and oneDNN are loaded where they are installed. oneDNN takes part twice: in its own layout, as in a network
//! that it runs as a whole, and on plain images, as a program meets it that keeps its tensors plain. Where memory is the
//! limit and no library is to be beaten, the calibration's own loop takes part on the operands of the kernels.

mod bare;
mod product;

use kernelwise_backend::Call;
use kernelwise_backend::sample::Tensor;
use kernelwise_rivals::{CallError, Convolution, OneDnn, OpenBlas};
use kernelwise_types::op::{Matmul, Operation, Sort, SortKind};
use kernelwise_types::{DType, Element, Reading, Workload};

use crate::figures::RivalFact;
use product::{Library, Product, Real};

/// The libraries that are here, and why others are not.
#[derive(Debug)]
pub struct Rivals {
    openblas: Result<OpenBlas, String>,
    onednn: Result<OneDnn, String>,
    threads: u32,
}

/// A library that does not take part, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// A library with one problem before it.
pub(crate) trait Rival {
    fn name(&self) -> &'static str;

    /// Computes it once.
    fn run(&mut self, call: &mut Call<'_, '_>) -> Result<(), String>;

    /// Puts the result of the last run into the call's output, if it is elsewhere.
    fn show(&mut self, call: &mut Call<'_, '_>) -> Result<(), String>;
}

/// Where a library writes.
struct Target<T> {
    /// A slice of its own; without, the output of the call.
    own: Option<Vec<T>>,
}

/// Outputs of more bytes than this are shared.
const SMALL: usize = 64 << 10;

impl<T: Element> Target<T> {
    fn new(elements: usize, value: T) -> Self {
        let small = elements <= SMALL / size_of::<T>();
        Self {
            own: small.then(|| vec![value; elements]),
        }
    }

    fn slice<'b>(&'b mut self, call: &'b mut Call<'_, '_>) -> Result<&'b mut [T], String> {
        match &mut self.own {
            Some(own) => Ok(own),
            None => output(call),
        }
    }

    fn show(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        let Some(own) = &self.own else { return Ok(()) };
        let output = output(call)?;
        if output.len() != own.len() {
            return Err(format!(
                "{} elements instead of {}",
                own.len(),
                output.len()
            ));
        }
        output.copy_from_slice(own);
        Ok(())
    }
}

fn output<'b, T: Element>(call: &'b mut Call<'_, '_>) -> Result<&'b mut [T], String> {
    let first = call.outputs().first_mut().ok_or("there is no output")?;
    first.as_mut_slice().map_err(|error| error.to_string())
}

type Entered<'a> = (Vec<Box<dyn Rival + 'a>>, Vec<Absent>);

impl Rivals {
    /// Looks for the libraries, which will use so many threads.
    pub fn load(threads: u32) -> Self {
        Self {
            openblas: OpenBlas::load().map_err(|error| error.to_string()),
            onednn: OneDnn::load().map_err(|error| error.to_string()),
            threads,
        }
    }

    /// None of those that have to be loaded, for this reason.
    pub fn without(reason: &str) -> Self {
        Self {
            openblas: Err(reason.to_owned()),
            onednn: Err(reason.to_owned()),
            threads: 1,
        }
    }

    /// What is known of the libraries that an operation is compared with.
    pub fn facts(&self, operation: &str) -> Vec<RivalFact> {
        let built_in = |name| RivalFact {
            name,
            version: Reading::Known("built into this program".to_owned()),
            doubt: None,
        };
        match operation {
            "matmul" => vec![
                built_in("gemm"),
                built_in("matrixmultiply"),
                RivalFact {
                    name: "openblas",
                    version: Reading::from(self.openblas.as_ref().map(|blas| {
                        format!(
                            "{}, {} kernels, {}",
                            blas.config(),
                            blas.core(),
                            blas.file()
                        )
                    })),
                    doubt: self.openblas.as_ref().ok().and_then(OpenBlas::doubt),
                },
            ],
            "conv2d" => vec![RivalFact {
                name: "onednn",
                version: Reading::from(
                    self.onednn
                        .as_ref()
                        .map(|dnn| format!("{}, {}", dnn.version(), dnn.file())),
                ),
                doubt: None,
            }],
            "sort" => vec![built_in("std")],
            "copy" | "elementwise" => vec![built_in(bare::NAME)],
            _ => Vec::new(),
        }
    }

    /// The libraries that can compute this, and why others cannot.
    pub(crate) fn enter<'a>(&'a self, workload: &Workload, inputs: &'a [Tensor]) -> Entered<'a> {
        match (workload.operation(), workload.dtype()) {
            (Operation::TensorCopy(_) | Operation::Elementwise(_), _) => {
                match bare::enter(workload, inputs, self.threads) {
                    Ok(rival) => (vec![rival], Vec::new()),
                    Err(reason) => none(&[bare::NAME], reason),
                }
            }
            (Operation::Matmul(product), DType::F32) => self.products::<f32>(product, inputs),
            (Operation::Matmul(product), DType::F64) => self.products::<f64>(product, inputs),
            (Operation::Matmul(_), dtype) => {
                let names = ["gemm", "matrixmultiply", "openblas"];
                none(
                    &names,
                    &format!("is compared on f32 and f64 only, not {dtype}"),
                )
            }
            (Operation::Conv2d(conv), DType::F32) => {
                let mut entered = Entered::default();
                for (name, plain) in [("onednn", false), ("onednn-plain", true)] {
                    match self.convolution(name, conv, plain, inputs) {
                        Ok(rival) => entered.0.push(rival),
                        Err(reason) => entered.1.push(Absent { name, reason }),
                    }
                }
                entered
            }
            (Operation::Conv2d(_), dtype) => {
                let names = ["onednn", "onednn-plain"];
                none(&names, &format!("is compared on f32 only, not {dtype}"))
            }
            (Operation::Sort(sort), dtype) => match std_sort(sort, dtype, inputs) {
                Some(rival) => (vec![rival], Vec::new()),
                None => none(
                    &["std"],
                    "sorts rows of plain keys, not pairs, indices or other axes",
                ),
            },
            _ => Entered::default(),
        }
    }

    fn products<'a, T: Real>(&'a self, product: &Matmul, inputs: &'a [Tensor]) -> Entered<'a> {
        let openblas = self.openblas.as_ref();
        let openblas = openblas.map(|blas| Library::OpenBlas(blas, self.threads as usize));
        let libraries = [
            ("gemm", Ok(Library::Gemm)),
            ("matrixmultiply", Ok(Library::Matrixmultiply)),
            ("openblas", openblas),
        ];
        let mut entered = Entered::default();
        for (name, library) in libraries {
            let library = library.map_err(Clone::clone);
            let library = library.and_then(|library| match library {
                Library::OpenBlas(..) => Ok(library),
                _ if self.threads > 1 => {
                    Err("is built in without threads: compare with one".to_owned())
                }
                library => Ok(library),
            });
            let rival =
                library.and_then(|library| Product::<T>::new(name, library, *product, inputs));
            match rival {
                Ok(rival) => entered.0.push(Box::new(rival)),
                Err(reason) => entered.1.push(Absent { name, reason }),
            }
        }
        entered
    }

    fn convolution<'a>(
        &self,
        name: &'static str,
        conv: &kernelwise_types::op::Conv2d,
        plain: bool,
        inputs: &'a [Tensor],
    ) -> Result<Box<dyn Rival + 'a>, String> {
        let onednn = self.onednn.as_ref().map_err(Clone::clone)?;
        let [images, weights] = inputs else {
            return Err("takes images and weights".to_owned());
        };
        let (images, weights) = (slice::<f32>(images)?, slice::<f32>(weights)?);
        let words = |error: CallError| error.to_string();
        let mut prepared = onednn
            .convolution(conv, weights, self.threads as usize)
            .map_err(words)?;
        prepared.set_source(images).map_err(words)?;
        let [p, q] = conv.output_size().map_err(|error| error.to_string())?;
        Ok(Box::new(Images {
            name,
            prepared,
            images,
            output: Target::new(conv.n * conv.k * p * q, 0.0),
            plain,
        }))
    }
}

fn none<'a>(names: &[&'static str], reason: &str) -> Entered<'a> {
    let absent = names.iter().map(|name| Absent {
        name,
        reason: reason.to_owned(),
    });
    (Vec::new(), absent.collect())
}

fn slice<T: Element>(tensor: &Tensor) -> Result<&[T], String> {
    let view = tensor.view().map_err(|error| error.to_string())?;
    view.as_slice().map_err(|error| error.to_string())
}

/// A convolution by oneDNN.
struct Images<'a> {
    name: &'static str,
    prepared: Convolution,
    images: &'a [f32],
    output: Target<f32>,
    plain: bool,
}

impl Rival for Images<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        let done = match self.plain {
            true => {
                let output = self.output.slice(call)?;
                self.prepared.execute_plain(self.images, output)
            }
            false => self.prepared.execute(),
        };
        done.map_err(|error| error.to_string())
    }

    fn show(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        if !self.plain {
            let output = self.output.slice(call)?;
            let read = self.prepared.destination(output);
            read.map_err(|error| error.to_string())?;
        }
        self.output.show(call)
    }
}

/// A sort of rows by the standard library, the copy into the output included as in the kernels.
struct Rows<'a, T> {
    keys: &'a [T],
    out: Target<T>,
    row: usize,
    sort: fn(&mut [T]),
}

impl<T: Element> Rival for Rows<'_, T> {
    fn name(&self) -> &'static str {
        "std"
    }

    fn run(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        let out = self.out.slice(call)?;
        if out.len() != self.keys.len() {
            return Err(format!(
                "{} keys into {} places",
                self.keys.len(),
                out.len()
            ));
        }
        out.copy_from_slice(self.keys);
        out.chunks_exact_mut(self.row).for_each(self.sort);
        Ok(())
    }

    fn show(&mut self, call: &mut Call<'_, '_>) -> Result<(), String> {
        self.out.show(call)
    }
}

/// The standard library's unstable sort, or its stable one where that was asked for; `None` for what it does not do in place.
fn std_sort<'a>(sort: &Sort, dtype: DType, inputs: &'a [Tensor]) -> Option<Box<dyn Rival + 'a>> {
    let row = *sort.shape.dims().last()?;
    let last = sort.axis + 1 == sort.shape.rank();
    if sort.kind != SortKind::Keys || !last || row == 0 {
        return None;
    }
    macro_rules! rows {
        ($($dtype:ident = $rust:ty, $order:expr;)*) => {
            match dtype {
                $(DType::$dtype => {
                    let keys = slice::<$rust>(inputs.first()?).ok()?;
                    let sort: fn(&mut [$rust]) = match (sort.descending, sort.stable) {
                        (false, false) => |keys| keys.sort_unstable_by($order),
                        (true, false) => |keys| keys.sort_unstable_by(|a, b| $order(b, a)),
                        (false, true) => |keys| keys.sort_by($order),
                        (true, true) => |keys| keys.sort_by(|a, b| $order(b, a)),
                    };
                    let out = Target::new(keys.len(), <$rust>::default());
                    Some(Box::new(Rows { keys, out, row, sort }))
                })*
                _ => None,
            }
        };
    }
    rows! {
        U8 = u8, Ord::cmp;
        U16 = u16, Ord::cmp;
        U32 = u32, Ord::cmp;
        U64 = u64, Ord::cmp;
        I8 = i8, Ord::cmp;
        I16 = i16, Ord::cmp;
        I32 = i32, Ord::cmp;
        I64 = i64, Ord::cmp;
        F32 = f32, f32::total_cmp;
        F64 = f64, f64::total_cmp;
    }
}

#[cfg(test)]
mod tests {
    use kernelwise_backend::sample::{self, Arrangement, Values};
    use kernelwise_backend::{HostKernel, ReferenceKernel, Scratch, Setting, answer};

    use super::*;

    /// The outputs after something was done to a call.
    fn after(
        workload: &Workload,
        inputs: &[Tensor],
        body: impl FnOnce(&mut Call<'_, '_>),
    ) -> Vec<Tensor> {
        let mut outputs =
            sample::outputs(workload, Arrangement::Contiguous, Values::Typical, 3).unwrap();
        let views: Vec<_> = inputs.iter().map(|tensor| tensor.view().unwrap()).collect();
        let mut views_mut: Vec<_> = outputs.iter_mut().map(|t| t.view_mut().unwrap()).collect();
        body(&mut Call::new(workload, &views, &mut views_mut).unwrap());
        outputs
    }

    /// Names of those that computed it right.
    fn right(rivals: &Rivals, text: &str) -> Vec<&'static str> {
        let workload: Workload = text.parse().unwrap();
        let inputs =
            sample::inputs(&workload, Arrangement::Contiguous, Values::Typical, 3).unwrap();
        let reference = ReferenceKernel::for_workload(&workload).unwrap();
        let expected = after(&workload, &inputs, |call| {
            let mut scratch = Scratch::new();
            let done = reference.execute(call, &Setting::NONE, &mut scratch);
            done.unwrap();
        });
        let (entered, _) = rivals.enter(&workload, &inputs);
        let mut names = Vec::new();
        for mut rival in entered {
            let outputs = after(&workload, &inputs, |call| {
                rival.run(call).unwrap();
                rival.show(call).unwrap();
            });
            let numerics = kernelwise_types::Numerics::Reordered;
            let same = answer::compare(&workload, numerics, &[], &expected, &outputs);
            assert_eq!(same, Ok(()), "{} on {text}", rival.name());
            names.push(rival.name());
        }
        names
    }

    #[test]
    fn products_are_right_in_every_form() {
        let rivals = Rivals::load(1);
        for sides in ["", " ta", " tb", " ta tb"] {
            for dtype in ["f32", "f64"] {
                let names = right(&rivals, &format!("matmul {dtype} 3x5x8x7{sides}"));
                assert_eq!(names[..2], ["gemm", "matrixmultiply"]);
                assert_eq!(names.len() == 3, rivals.openblas.is_ok());
            }
        }
        // Large enough to share the output.
        assert!(right(&rivals, "matmul f32 2x100x3x200").len() >= 2);
    }

    #[test]
    fn convolutions_are_right_in_both_layouts() {
        let rivals = Rivals::load(1);
        let names = right(&rivals, "conv2d f32 n2 c5 h9 w8 k6 r3 s3 stride2 pad1");
        assert_eq!(names, right(&rivals, "conv2d f32 n1 c1 h60 w60 k8 r1 s1"));
        match &rivals.onednn {
            Ok(_) => assert_eq!(names, ["onednn", "onednn-plain"]),
            Err(reason) => kernelwise_testing::skip("onednn", reason),
        }
    }

    #[test]
    fn the_standard_library_sorts_keys_in_both_directions() {
        let rivals = Rivals::without("not asked");
        for text in [
            "sort u32 3x50",
            "sort f32 2x40 desc",
            "sort i64 77 stable desc",
            "sort u8 9x9 stable",
            "sort u32 20000",
        ] {
            assert_eq!(right(&rivals, text), ["std"], "{text}");
        }
    }

    #[test]
    fn the_bare_loop_copies_and_adds() {
        let rivals = Rivals::without("not asked");
        for text in ["copy f32 3x1000", "elementwise.add f32 7x333"] {
            assert_eq!(right(&rivals, text), ["bare-loop"], "{text}");
        }
        for text in [
            "copy f64 10",
            "elementwise.mul f32 10",
            "elementwise.add:row f32 2x5",
        ] {
            assert!(right(&rivals, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn who_is_absent_says_why() {
        let mut rivals = Rivals::without("nowhere to be found");
        let absent = |rivals: &Rivals, text: &str| {
            let workload: Workload = text.parse().unwrap();
            let inputs =
                sample::inputs(&workload, Arrangement::Contiguous, Values::Typical, 1).unwrap();
            let (_, absent) = rivals.enter(&workload, &inputs);
            let words = absent.iter().map(|a| format!("{}: {}", a.name, a.reason));
            words.collect::<Vec<_>>()
        };
        let conv = "conv2d f32 n1 c2 h4 w4 k2 r3 s3";
        assert_eq!(
            absent(&rivals, "matmul f32 2x2x2"),
            ["openblas: nowhere to be found"]
        );
        assert_eq!(absent(&rivals, conv).len(), 2);
        assert_eq!(absent(&rivals, "matmul i32 2x2x2").len(), 3);
        assert_eq!(absent(&rivals, "sort.arg u32 10 stable").len(), 1);
        assert_eq!(absent(&rivals, "sort u32 10x4 axis0").len(), 1);
        assert!(absent(&rivals, "copy f32 10").is_empty());
        assert_eq!(absent(&rivals, "copy i32 10").len(), 1);
        rivals.threads = 2;
        assert_eq!(absent(&rivals, "matmul f32 2x2x2").len(), 3);
        assert_eq!(absent(&rivals, "copy f32 10").len(), 1);
        let facts = rivals.facts("matmul");
        assert_eq!(facts.len(), 3);
        assert_eq!(facts[2].version.reason(), Some("nowhere to be found"));
        assert_eq!(rivals.facts("conv2d").len(), 1);
    }
}
