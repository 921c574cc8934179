//! A specification as it is written, before anything is looked up or checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: String,
    #[serde(default)]
    pub(super) files: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) parameters: Option<Spanned<BTreeMap<Spanned<String>, Spanned<Value>>>>,
    #[serde(default)]
    pub(super) space: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) restrictions: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) compile: Option<WrittenCommand>,
    pub(super) run: WrittenCommand,
    #[serde(default)]
    pub(super) repeat: WrittenRepeat,
    #[serde(default)]
    pub(super) time: WrittenTime,
    #[serde(default)]
    pub(super) check: WrittenCheck,
    #[serde(default)]
    pub(super) budget: WrittenBudget,
    #[serde(default)]
    pub(super) strategy: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) warm: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) device: Option<String>,
    #[serde(default)]
    pub(super) runs: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) limits: WrittenLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCommand {
    pub(super) command: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) timeout: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRepeat {
    #[serde(default)]
    pub(super) warm_up: Option<u32>,
    #[serde(default)]
    pub(super) runs: Option<Spanned<u32>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTime {
    #[serde(default)]
    pub(super) from: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) pattern: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) field: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) unit: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCheck {
    #[serde(default)]
    pub(super) pattern: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) command: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenBudget {
    #[serde(default)]
    pub(super) evaluations: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) seconds: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLimits {
    #[serde(default)]
    pub(super) output: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) disk: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) memory: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) processes: Option<Spanned<u64>>,
}
