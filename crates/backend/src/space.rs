//! Tuning parameters: the space a kernel declares, and one setting out of it.
//!
//! Inside a kernel, parameters are the fields of a struct made by [`knobs!`](crate::knobs); a [`Setting`] carries their
//! values past code that knows no kernel in particular, without allocating; [`Params`] is how they are
//! written. The struct fixes how many there are and what they are called, so a space cannot disagree
//! with it.

use std::fmt;
use std::sync::Arc;

use kernelwise_types::{InvalidParams, Machine, Params};

/// Most parameters one kernel can have.
pub const MAX_KNOBS: usize = 8;

/// Most threads one call is shared among.
pub const MAX_THREADS: u32 = 256;

/// A struct of tuning parameters, in a fixed order. Made by [`knobs!`](crate::knobs).
pub trait Knobs<const N: usize>: Copy {
    /// The names, in order.
    const NAMES: [&'static str; N];

    /// The struct with these values.
    fn from_values(values: [u32; N]) -> Self;

    /// The values, in order.
    fn values(self) -> [u32; N];

    /// Reads a setting; a value that is missing is 0.
    fn of(setting: &Setting) -> Self {
        Self::from_values(std::array::from_fn(|knob| setting.get(knob).unwrap_or(0)))
    }

    /// This struct as a setting.
    fn setting(self) -> Setting {
        Setting::new(self.values())
    }
}

/// Declares a struct of tuning parameters, each a `u32`, and its place in a [`Setting`].
///
/// ```
/// use kernelwise_backend::{Knobs, Setting, knobs};
///
/// knobs! {
///     /// How the rows are shared out.
///     pub struct RowKnobs {
///         /// Threads that work at once.
///         threads,
///         /// Rows in one piece.
///         rows,
///     }
/// }
///
/// let knobs = RowKnobs { threads: 2, rows: 64 };
/// assert_eq!(RowKnobs::of(&knobs.setting()), knobs);
/// assert_eq!(RowKnobs::NAMES, ["threads", "rows"]);
/// ```
#[macro_export]
macro_rules! knobs {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$knob_doc:meta])* $knob:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$knob_doc])* $vis $knob: u32,)+
        }

        impl $crate::Knobs<{ [$(stringify!($knob)),+].len() }> for $name {
            const NAMES: [&'static str; { [$(stringify!($knob)),+].len() }] = [$(stringify!($knob)),+];

            fn from_values([$($knob),+]: [u32; { [$(stringify!($knob)),+].len() }]) -> Self {
                Self { $($knob),+ }
            }

            fn values(self) -> [u32; { [$(stringify!($knob)),+].len() }] {
                [$(self.$knob),+]
            }
        }
    };
}

/// Values for all parameters of one kernel, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Setting {
    values: [u32; MAX_KNOBS],
    len: u8,
}

impl Setting {
    /// For a kernel without parameters.
    pub const NONE: Self = Self {
        values: [0; MAX_KNOBS],
        len: 0,
    };

    /// These values, in the kernel's order.
    pub fn new<const N: usize>(values: [u32; N]) -> Self {
        const { assert!(N <= MAX_KNOBS, "more parameters than a setting holds") };
        let mut all = [0; MAX_KNOBS];
        all[..N].copy_from_slice(&values);
        Self {
            values: all,
            len: N as u8,
        }
    }

    /// One value.
    pub fn get(&self, knob: usize) -> Option<u32> {
        self.as_slice().get(knob).copied()
    }

    /// All values, in order.
    pub fn as_slice(&self) -> &[u32] {
        &self.values[..usize::from(self.len)]
    }

    /// The same with another value at one place; unchanged if there is no such place.
    fn replaced(mut self, knob: usize, value: u32) -> Self {
        if knob < usize::from(self.len) {
            self.values[knob] = value;
        }
        self
    }
}

/// The values one parameter may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    values: Vec<u32>,
    default: u32,
}

impl Axis {
    /// The default and others, in any order.
    pub fn new(default: u32, others: impl IntoIterator<Item = u32>) -> Self {
        let mut values: Vec<u32> = others.into_iter().chain([default]).collect();
        values.sort_unstable();
        values.dedup();
        Self { values, default }
    }

    /// 1 to as many threads as this process may use, but no more than [`MAX_THREADS`]; one by default.
    pub fn threads(machine: &Machine) -> Self {
        Self::new(1, 1..=machine.usable_threads().min(MAX_THREADS))
    }

    /// 0 and 1.
    pub fn switch(default: bool) -> Self {
        Self::new(u32::from(default), [0, 1])
    }

    /// The values, ascending.
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// The value used when nothing is known.
    pub fn default_value(&self) -> u32 {
        self.default
    }
}

/// A condition that ties parameters to each other.
#[derive(Clone)]
struct Constraint {
    text: String,
    holds: Arc<dyn Fn(&Setting) -> bool + Send + Sync>,
}

/// Every setting a kernel can run with on one workload and machine.
#[derive(Clone, Default)]
pub struct Space {
    names: Vec<&'static str>,
    axes: Vec<Axis>,
    constraints: Vec<Constraint>,
}

/// Why a setting is none of a kernel's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Not as many values as parameters.
    #[error("{expected} parameters are needed ({names}), not {actual}")]
    Count {
        /// How many the kernel has.
        expected: usize,
        /// How many came.
        actual: usize,
        /// Their names.
        names: String,
    },
    /// A value that is not offered.
    #[error("`{name}={value}` is not offered: choose one of {offered:?}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// The value.
        value: u64,
        /// What is offered.
        offered: Vec<u32>,
    },
    /// Values that do not go together.
    #[error("{params} breaks the condition `{condition}`")]
    Constraint {
        /// The setting.
        params: Params,
        /// The condition.
        condition: String,
    },
    /// A name the kernel does not have.
    #[error("there is no parameter `{name}` here: there is {names}")]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        names: String,
    },
    /// A name that cannot be written.
    #[error(transparent)]
    Params(#[from] InvalidParams),
}

impl Space {
    /// For a kernel without parameters: one setting, [`Setting::NONE`].
    pub fn none() -> Self {
        Self::default()
    }

    /// One axis per field of `K`, in its order.
    pub fn of<K: Knobs<N>, const N: usize>(axes: [Axis; N]) -> Self {
        const { assert!(N <= MAX_KNOBS, "more parameters than a setting holds") };
        Self {
            names: K::NAMES.to_vec(),
            axes: axes.into(),
            constraints: Vec::new(),
        }
    }

    /// The same with a condition on `K`, whose text says what holds: "rows * columns <= 1024". A
    /// default that breaks it is still what [`default_setting`](Self::default_setting) gives, so choose it well.
    pub fn with_constraint<K: Knobs<N>, const N: usize>(
        mut self,
        text: impl Into<String>,
        holds: impl Fn(K) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.constraints.push(Constraint {
            text: text.into(),
            holds: Arc::new(move |setting| holds(K::of(setting))),
        });
        self
    }

    /// Names and values of the parameters, in order.
    pub fn axes(&self) -> impl Iterator<Item = (&'static str, &Axis)> {
        self.names.iter().copied().zip(&self.axes)
    }

    /// The conditions in words.
    pub fn conditions(&self) -> impl Iterator<Item = &str> {
        self.constraints.iter().map(|c| c.text.as_str())
    }

    /// The setting used when nothing is known.
    pub fn default_setting(&self) -> Setting {
        self.pick(|axis| axis.default)
    }

    fn pick(&self, value: impl Fn(&Axis) -> u32) -> Setting {
        let mut setting = Setting {
            len: self.axes.len().min(MAX_KNOBS) as u8,
            ..Setting::NONE
        };
        for (place, axis) in setting.values.iter_mut().zip(&self.axes) {
            *place = value(axis);
        }
        setting
    }

    /// Whether a kernel may run with this setting.
    pub fn check(&self, setting: &Setting) -> Result<(), SettingError> {
        let values = setting.as_slice();
        if values.len() != self.axes.len() {
            return Err(SettingError::Count {
                expected: self.axes.len(),
                actual: values.len(),
                names: self.names.join(", "),
            });
        }
        for ((name, axis), &value) in self.axes().zip(values) {
            if axis.values.binary_search(&value).is_err() {
                return Err(SettingError::Value {
                    name,
                    value: value.into(),
                    offered: axis.values.clone(),
                });
            }
        }
        match self.constraints.iter().find(|c| !(c.holds)(setting)) {
            None => Ok(()),
            Some(broken) => Err(SettingError::Constraint {
                params: self.params(setting)?,
                condition: broken.text.clone(),
            }),
        }
    }

    /// The setting as it is written. Extra values are left out.
    pub fn params(&self, setting: &Setting) -> Result<Params, InvalidParams> {
        let named = self.names.iter().zip(setting.as_slice());
        named
            .into_iter()
            .try_fold(Params::new(), |params, (name, &value)| {
                params.with(name, value.into())
            })
    }

    /// The usual setting on so many threads. `None` if it does not run on as many.
    pub fn on_threads(&self, threads: u32) -> Option<Setting> {
        let usual = self.default_setting();
        let knob = self.names.iter().position(|name| *name == "threads");
        let setting = match knob {
            Some(knob) => usual.replaced(knob, threads),
            None => usual,
        };
        let fits = knob.is_some() || threads == 1;
        (fits && self.check(&setting).is_ok()).then_some(setting)
    }

    /// Reads a written setting; what is not named has its default.
    pub fn setting(&self, params: &Params) -> Result<Setting, SettingError> {
        let mut setting = self.default_setting();
        for (name, value) in params.iter() {
            let knob = self.names.iter().position(|known| *known == name);
            let Some((knob, axis)) = knob.and_then(|knob| Some((knob, self.axes.get(knob)?)))
            else {
                return Err(SettingError::Unknown {
                    name: name.to_owned(),
                    names: match self.names.as_slice() {
                        [] => "none".to_owned(),
                        names => names.join(", "),
                    },
                });
            };
            let Ok(narrow) = u32::try_from(value) else {
                return Err(SettingError::Value {
                    name: self.names[knob],
                    value,
                    offered: axis.values.clone(),
                });
            };
            setting = setting.replaced(knob, narrow);
        }
        self.check(&setting)?;
        Ok(setting)
    }

    /// Every setting that satisfies the conditions, the last parameter fastest; made one at a time.
    pub fn iter(&self) -> impl Iterator<Item = Setting> + '_ {
        let mut places = Some([0usize; MAX_KNOBS]);
        std::iter::from_fn(move || {
            let current = places?;
            let mut setting = self.default_setting();
            for (knob, axis) in self.axes.iter().enumerate() {
                setting = setting.replaced(knob, axis.values[current[knob]]);
            }
            places = self.after(current);
            Some(setting)
        })
        .filter(|setting| self.check(setting).is_ok())
    }

    /// The position after this one, as an odometer counts; `None` at the end.
    fn after(&self, mut places: [usize; MAX_KNOBS]) -> Option<[usize; MAX_KNOBS]> {
        for (knob, axis) in self.axes.iter().enumerate().rev() {
            places[knob] += 1;
            if places[knob] < axis.values.len() {
                return Some(places);
            }
            places[knob] = 0;
        }
        None
    }

    /// The default, and every setting that takes one parameter to an end of its range with the others
    /// at their defaults, and all at their ends together: where kernels break. Only those that
    /// satisfy the conditions, each once.
    pub fn corners(&self) -> Vec<Setting> {
        let ends = |axis: &Axis| [axis.values[0], axis.values[axis.values.len() - 1]];
        let mut corners = vec![
            self.default_setting(),
            self.pick(|axis| ends(axis)[0]),
            self.pick(|axis| ends(axis)[1]),
        ];
        for (knob, axis) in self.axes.iter().enumerate() {
            for end in ends(axis) {
                corners.push(self.default_setting().replaced(knob, end));
            }
        }
        let mut kept: Vec<Setting> = Vec::new();
        for corner in corners {
            if self.check(&corner).is_ok() && !kept.contains(&corner) {
                kept.push(corner);
            }
        }
        kept
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, axis) in self.axes() {
            map.entry(&name, &axis.values);
        }
        for condition in self.conditions() {
            map.entry(&"where", &condition);
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::knobs! {
        struct Tile {
            threads,
            rows,
            columns,
        }
    }

    fn space() -> Space {
        Space::of::<Tile, 3>([
            Axis::new(1, [1, 2]),
            Axis::new(16, [4, 64]),
            Axis::new(16, [4, 64]),
        ])
        .with_constraint("rows * columns <= 1024", |t: Tile| {
            t.rows * t.columns <= 1024
        })
    }

    #[test]
    fn settings_outside_the_space_are_refused_by_name() {
        let space = space();
        let check = |values: [u32; 3]| {
            space
                .check(&Setting::new(values))
                .map_err(|e| e.to_string())
        };
        assert_eq!(check([2, 64, 16]), Ok(()));
        assert_eq!(
            check([3, 16, 16]),
            Err("`threads=3` is not offered: choose one of [1, 2]".into())
        );
        assert_eq!(
            check([1, 64, 64]),
            Err(
                "columns=64,rows=64,threads=1 breaks the condition `rows * columns <= 1024`".into()
            )
        );
        assert_eq!(
            space.check(&Setting::NONE).unwrap_err().to_string(),
            "3 parameters are needed (threads, rows, columns), not 0"
        );
    }

    #[test]
    fn written_settings_come_back_and_defaults_fill_in() {
        let space = space();
        let setting = space.setting(&"rows=4".parse().unwrap()).unwrap();
        assert_eq!(setting, Setting::new([1, 4, 16]));
        let written = space.params(&setting).unwrap();
        assert_eq!(written.to_string(), "columns=16,rows=4,threads=1");
        assert_eq!(space.setting(&written).unwrap(), setting);
        let error = |text: &str| {
            space
                .setting(&text.parse().unwrap())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("row=4"),
            "there is no parameter `row` here: there is threads, rows, columns"
        );
        assert_eq!(
            error("rows=4294967300"),
            "`rows=4294967300` is not offered: choose one of [4, 16, 64]"
        );
        assert_eq!(
            Space::none()
                .setting(&"a=1".parse().unwrap())
                .unwrap_err()
                .to_string(),
            "there is no parameter `a` here: there is none"
        );
    }

    #[test]
    fn every_legal_setting_is_visited_once() {
        let all: Vec<Setting> = space().iter().collect();
        // 2 x 3 x 3, less the two with 64 x 64.
        assert_eq!(all.len(), 16);
        let mut unique = all.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), 16);
        assert_eq!(
            Space::none().iter().collect::<Vec<_>>(),
            [Setting::NONE],
            "no parameters are one setting"
        );
    }

    #[test]
    fn corners_reach_both_ends_of_every_axis() {
        let space = space();
        let corners = space.corners();
        for (knob, (name, axis)) in space.axes().enumerate() {
            for end in [axis.values()[0], axis.values()[axis.values().len() - 1]] {
                assert!(
                    corners.iter().any(|c| c.get(knob) == Some(end)),
                    "{name}={end}"
                );
            }
        }
        assert!(corners.iter().all(|c| space.check(c).is_ok()));
        assert_eq!(corners[0], space.default_setting());
    }

    #[test]
    fn threads_end_where_the_machine_does() {
        let machine = kernelwise_probe::machine();
        let threads = Axis::threads(&machine);
        let all: Vec<u32> = (1..=machine.usable_threads()).collect();
        assert_eq!(
            (threads.values(), threads.default_value()),
            (all.as_slice(), 1)
        );
    }
}
