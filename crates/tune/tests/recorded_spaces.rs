//! The default search on a space that somebody measured, if the records are there.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use kernelwise_measure::ScriptedClock;
use kernelwise_tune::recorded::Record;
use kernelwise_tune::replay::{Recorded, Settings, replay};

#[test]
fn the_default_is_better_than_chance_on_a_recorded_space() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/tuning-spaces");
    let file = folder.join("convolution_milo6-A4000.json.gz");
    if !file.is_file() {
        kernelwise_testing::skip(
            "recorded_spaces",
            &format!("{} is not there", file.display()),
        );
        return;
    }
    let record = Record::open(&file).unwrap();
    assert_eq!(
        (record.entries.len(), record.space.parameters().len()),
        (2442, 6)
    );
    assert_eq!(record.device, "NVIDIA RTX A4000");
    let spaces = [Recorded {
        name: "milo6".to_owned(),
        record: Arc::new(record),
    }];
    let settings = Settings {
        repeats: 4,
        budgets: vec![25, 50, 100],
        ..Settings::default()
    };
    let figures = replay(&spaces, &settings, &ScriptedClock::new()).unwrap();
    for (budget, fraction) in &figures.mean {
        assert!(
            fraction.fraction_of_optimum > fraction.random_exact,
            "{budget}: {fraction:?}"
        );
    }
}
