//! What strategies see: the same times, refusals by name.

use kernelwise_types::{Backend, Numerics, Reading, SystemState};

use super::parse;
use crate::gpu::{DeviceError, GpuCost, Wishes, device, recommend};
use crate::strategy::{Choice, Constraints, Limit, Priced, Situation, Strategy, TuningStrategy};

fn cost(name: &str) -> GpuCost {
    GpuCost::new(device(name).unwrap()).unwrap()
}

#[test]
fn prices_are_predictions() {
    let workload = parse("matmul f32 1000x700x300");
    for (name, backend) in [("a100", Backend::Cuda), ("apple-m2", Backend::Metal)] {
        let gpu = cost(name);
        assert_eq!((gpu.backend(), gpu.device()), (backend, name));
        let choices = gpu
            .settings(&workload, &Situation::default(), Numerics::Reordered)
            .unwrap();
        assert!(choices.len() > 20);
        let advice = recommend(gpu.gpu(), &workload, &Wishes::default()).unwrap();
        assert_eq!(choices[0], Choice::of(advice.params.clone()));
        let prices: Vec<_> = choices
            .iter()
            .map(|choice| gpu.price(&workload, choice).unwrap())
            .collect();
        let expected = advice.prediction.unwrap();
        assert_eq!(prices[0].time_ns, expected.warm_ns);
        // What the first call pays more is what compiling takes.
        let cold = prices[0].time_ns.get() + prices[0].compile_ns.get();
        assert!((cold - expected.cold_ns.get()).abs() < 1.0);
        assert!(
            prices
                .windows(2)
                .all(|pair| pair[0].time_ns <= pair[1].time_ns)
        );
        for price in &prices {
            assert!(price.spread_ln > 0.0 && price.power.is_none() && price.units >= 1);
            // Three matrices of single precision, nothing else.
            assert_eq!(price.memory.0, 4 * (1000 * 700 + 700 * 300 + 1000 * 300));
            assert_eq!(price.occupancy.is_some(), name == "a100");
        }
    }
}

#[test]
fn refusals_name_what_stands_in_the_way() {
    let workload = parse("matmul f32 64x64x64");
    let refused = |name: &str, text: &str, allowed| {
        let gpu = cost(name);
        gpu.settings(&parse(text), &Situation::default(), allowed)
            .unwrap_err()
            .limit
    };
    assert_eq!(
        refused("apple-m2", "matmul f64 8x8x8", Numerics::Reordered),
        Limit::Operation
    );
    assert_eq!(
        refused("a100", "matmul f32 8x8x8", Numerics::BitIdentical),
        Limit::Numerics
    );
    assert_eq!(
        refused("webgpu-default", "matmul f32 8x8x8", Numerics::Reordered),
        Limit::Operation
    );
    assert_eq!(
        refused(
            "rtx-2070-super",
            "gather f32 50000x76800 axis0 idx8",
            Numerics::Reordered
        ),
        Limit::Memory
    );
    let gpu = cost("a100");
    for params in ["", "group_x=16", "group_x=99999", "tile=3"] {
        let choice = Choice::of(params.parse().unwrap());
        let error = gpu.price(&workload, &choice).unwrap_err();
        assert_eq!(error.limit, Limit::Parameters, "{params}: {error}");
    }
    let kernel = Choice {
        kernel: Some("cpu-matmul-f32-naive".parse().unwrap()),
        params: "".parse().unwrap(),
    };
    assert_eq!(
        gpu.price(&workload, &kernel).unwrap_err().limit,
        Limit::Parameters
    );
    let mut broken = device("a100").unwrap();
    broken.bandwidth_gbs = Some(f64::NAN);
    assert!(matches!(
        GpuCost::new(broken),
        Err(DeviceError::Figure {
            field: "bandwidth_gbs",
            ..
        })
    ));
}

/// A machine that tells nothing.
fn quiet() -> SystemState {
    fn no<T>() -> Reading<T> {
        Reading::unknown("test")
    }
    SystemState {
        cpu_utilisation: no(),
        per_cpu_utilisation: no(),
        steal: no(),
        run_queue: no(),
        load_1min: no(),
        cpu_pressure: no(),
        memory_pressure: no(),
        io_pressure: no(),
        memory_available: no(),
        temperature: no(),
        throttling: no(),
        power: no(),
        battery: no(),
        power_mode: no(),
        frequency: no(),
    }
}

#[test]
fn a_strategy_expects_what_the_model_predicts() {
    let workload = parse("matmul f32 1000x700x300");
    let strategy = Strategy::new(cost("a100"));
    let constraints = Constraints::default();
    let told = strategy.tune_for_workload(&workload, &quiet(), &constraints);
    let told = told.unwrap();
    let again = strategy.predict(&workload, &told.best.choice).unwrap();
    assert_eq!(told.best.expected, again);
    let advice = recommend(strategy.priced().gpu(), &workload, &Wishes::default()).unwrap();
    assert_eq!(again.time_ns, advice.prediction.unwrap().warm_ns);
    assert!(!told.alternatives.is_empty());
    // Nobody measured the power of a launch.
    assert_eq!(again.power, None);
}
