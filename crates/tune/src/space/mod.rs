//! Spaces: what can be tuned, and which combinations are allowed.
//!
//! A space is the product of its parameters' values, less what restrictions forbid. It may have 10¹² points, so nothing here
//! makes a list of them unless asked to, up to a limit:
//!
//! 1. **Enumerating** binds one parameter after the other and asks each restriction as soon as all its names are bound, so
//!    that a forbidden beginning is left with all its endings.
//! 2. **Sampling** draws whole configurations and keeps the first that is allowed: every one is equally likely. Where
//!    allowed ones are too rare for that, it goes down the same tree as enumerating, in a random order of values; then
//!    all allowed configurations can come, though not equally often.
//! 3. **Neighbours** differ in one parameter.
//!
//! A space may also be [listed](Space::listed): recorded ones are, since files tell what was allowed, not why.

mod expression;
mod listed;
mod value;
mod walk;

#[cfg(test)]
mod tests;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

pub use expression::{ComputeError, Expression, ExpressionError};
pub use value::Value;
pub use walk::Configurations;
pub(crate) use walk::Walk;

use listed::Listed;

/// Draws before rare configurations are looked for in another way.
const DRAWS: usize = 64;
/// Bindings after which the other way gives up: some milliseconds.
const PATIENCE: usize = 200_000;
/// Bindings of the walk to the first allowed configuration, and samples that are drawn if it does not get there.
const STEPS: usize = 2_000_000;
const SAMPLES: usize = 10;
/// Values a parameter can have.
const MOST_VALUES: usize = 1 << 16;

/// Something to tune: a name and the values it can have, in an order that means something if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its values, in order.
    pub values: Vec<Value>,
}

impl Parameter {
    /// A parameter.
    pub fn new<V: Into<Value>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().map(Into::into).collect(),
        }
    }
}

/// A point of a space: for every parameter, the place of its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Configuration(Box<[u16]>);

impl Configuration {
    /// A configuration by the places of its values. Whether there are such values, a space tells.
    pub fn new(places: impl Into<Box<[u16]>>) -> Self {
        Self(places.into())
    }

    /// The places of its values.
    pub fn places(&self) -> &[u16] {
        &self.0
    }

    /// The same, but for one parameter.
    pub fn with(&self, parameter: usize, place: u16) -> Self {
        let mut places = self.0.clone();
        if let Some(there) = places.get_mut(parameter) {
            *there = place;
        }
        Self(places)
    }
}

/// Why there is no such space.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// No parameters.
    #[error("a space needs at least one parameter")]
    NoParameters,
    /// A parameter without values.
    #[error("parameter `{0}` has no values: give at least one")]
    NoValues(String),
    /// More values than places.
    #[error("parameter `{name}` has {values} values: give at most {MOST_VALUES}")]
    TooManyValues {
        /// The parameter.
        name: String,
        /// How many it has.
        values: usize,
    },
    /// A number that is none.
    #[error("parameter `{0}` has a value that is not a finite number")]
    NotFinite(String),
    /// Two parameters of one name.
    #[error("two parameters are called `{0}`")]
    Twice(String),
    /// A value twice.
    #[error("parameter `{name}` has the value {value} twice")]
    ValueTwice {
        /// The parameter.
        name: String,
        /// The value.
        value: Value,
    },
    /// More points than can be counted.
    #[error("the product of all values has more than 2^127 points")]
    TooLarge,
    /// A restriction that cannot be read.
    #[error("a restriction cannot be read: {0}")]
    Restriction(#[from] ExpressionError),
    /// A restriction that mixes words and numbers.
    #[error("restriction `{text}` cannot be computed: {problem}")]
    Meaningless {
        /// The restriction.
        text: String,
        /// Why.
        problem: ComputeError,
    },
    /// A listed configuration that the parameters do not have.
    #[error("configuration {0:?} is not one of the parameters' values")]
    NotAPoint(Vec<u16>),
}

/// Why there is no first configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoneAllowed {
    /// All were tried.
    #[error("the restrictions allow no configuration: loosen them")]
    Empty,
    /// There are too many to try them all.
    #[error("no allowed configuration found in {tries} tries: loosen the restrictions")]
    NotFound {
        /// Values that were bound and configurations that were drawn, at most.
        tries: usize,
    },
}

/// Which neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Neighbourhood {
    /// One parameter has the value before or after.
    Adjacent,
    /// One parameter has any other value.
    OneChange,
}

/// A restriction and the parameter whose binding makes it computable.
#[derive(Debug, Clone)]
struct Restriction {
    expression: Expression,
    after: usize,
}

/// Parameters and restrictions.
///
/// ```
/// use kernelwise_tune::space::{Parameter, Space};
///
/// let space = Space::new(
///     vec![
///         Parameter::new("block_x", [16, 32, 64, 128]),
///         Parameter::new("block_y", [1, 2, 4, 8, 16]),
///     ],
///     &["32 <= block_x * block_y <= 1024", "block_x % 32 == 0 or block_y > 1"],
/// )?;
/// assert_eq!(space.points(), 20);
/// assert_eq!(space.configurations().count(), 18);
/// let first = space.configurations().next().unwrap();
/// assert_eq!(space.describe(&first), "block_x=16, block_y=2");
/// # Ok::<(), kernelwise_tune::space::SpaceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Space {
    parameters: Vec<Parameter>,
    restrictions: Vec<Restriction>,
    listed: Option<Listed>,
    points: u128,
}

impl Space {
    /// A space of these parameters, less what the restrictions forbid.
    ///
    /// A configuration for which a restriction has no value, because it divides by zero, is forbidden. One that mixes words and numbers
    /// is refused here, as far as the first values show it.
    pub fn new<S: AsRef<str>>(
        parameters: Vec<Parameter>,
        restrictions: &[S],
    ) -> Result<Self, SpaceError> {
        let points = check(&parameters)?;
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        let mut read = Vec::with_capacity(restrictions.len());
        for text in restrictions {
            let expression = Expression::parse(text.as_ref(), &names)?;
            let first = expression.holds(|slot| &parameters[slot].values[0]);
            if let Err(problem @ ComputeError::Words(_)) = first {
                let text = expression.text().to_owned();
                return Err(SpaceError::Meaningless { text, problem });
            }
            let after = expression.slots().last().copied().unwrap_or(0);
            read.push(Restriction { expression, after });
        }
        Ok(Self {
            parameters,
            restrictions: read,
            listed: None,
            points,
        })
    }

    /// A space of which exactly these configurations are allowed; one that comes twice counts once.
    pub fn listed(
        parameters: Vec<Parameter>,
        configurations: Vec<Configuration>,
    ) -> Result<Self, SpaceError> {
        let points = check(&parameters)?;
        let mut space = Self {
            parameters,
            restrictions: Vec::new(),
            listed: None,
            points,
        };
        let mut listed = Listed::default();
        for configuration in configurations {
            let Some(index) = space.index(&configuration) else {
                return Err(SpaceError::NotAPoint(configuration.0.into()));
            };
            listed.push(index, configuration);
        }
        space.listed = Some(listed);
        Ok(space)
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Texts of the restrictions.
    pub fn restrictions(&self) -> impl Iterator<Item = &str> {
        self.restrictions.iter().map(|one| one.expression.text())
    }

    /// Points of the product, allowed or not.
    pub fn points(&self) -> u128 {
        self.points
    }

    /// The number of a point, counted with the last parameter changing fastest; none if there is no such point.
    pub fn index(&self, configuration: &Configuration) -> Option<u128> {
        if configuration.0.len() != self.parameters.len() {
            return None;
        }
        let mut index = 0;
        for (parameter, place) in self.parameters.iter().zip(&configuration.0) {
            let (values, place) = (parameter.values.len(), usize::from(*place));
            if place >= values {
                return None;
            }
            index = index * values as u128 + place as u128;
        }
        Some(index)
    }

    /// The point with this number, allowed or not.
    pub fn at(&self, mut index: u128) -> Option<Configuration> {
        if index >= self.points {
            return None;
        }
        let mut places = vec![0; self.parameters.len()];
        for (parameter, place) in self.parameters.iter().zip(&mut places).rev() {
            let values = parameter.values.len() as u128;
            // Less than the number of values, which fits.
            *place = (index % values) as u16;
            index /= values;
        }
        Some(Configuration::new(places))
    }

    /// Whether a configuration is one, and allowed.
    pub fn allows(&self, configuration: &Configuration) -> bool {
        let Some(index) = self.index(configuration) else {
            return false;
        };
        match &self.listed {
            Some(listed) => listed.place(index).is_some(),
            None => {
                let mut restrictions = self.restrictions.iter();
                restrictions.all(|one| self.holds(&one.expression, &configuration.0))
            }
        }
    }

    /// The place of a configuration in the list of a [listed](Self::listed) space.
    pub fn place(&self, configuration: &Configuration) -> Option<usize> {
        self.listed.as_ref()?.place(self.index(configuration)?)
    }

    fn holds(&self, expression: &Expression, places: &[u16]) -> bool {
        let value = |slot: usize| &self.parameters[slot].values[usize::from(places[slot])];
        expression.holds(value).unwrap_or(false)
    }

    /// Whether restrictions allow the values up to a parameter, of which the last was just bound.
    fn may_go_on(&self, places: &[u16], bound: usize) -> bool {
        let mut restrictions = self.restrictions.iter();
        restrictions.all(|one| one.after != bound || self.holds(&one.expression, places))
    }

    /// All allowed configurations, one after the other.
    pub fn configurations(&self) -> Configurations<'_> {
        Configurations::new(self)
    }

    /// All allowed configurations, if they are at most so many and found without trying much more.
    pub fn list(&self, most: usize) -> Option<Vec<Configuration>> {
        if let Some(listed) = &self.listed {
            return (listed.all().len() <= most).then(|| listed.all().to_vec());
        }
        let mut walk = Walk::new(self);
        let mut list = Vec::new();
        let patience = PATIENCE.max(most.saturating_mul(10));
        while let Some(next) = walk.next_within(self, patience) {
            if list.len() == most {
                return None;
            }
            list.push(next);
        }
        (!walk.gave_up()).then_some(list)
    }

    /// The first allowed configuration: the first value of every parameter, or what is allowed next after it.
    ///
    /// Where a walk of two million steps does not come to it, one that is drawn takes its place, with values as early as they may be. If that
    /// fails as well, either there is none for certain, or it is too rare to be found.
    pub fn first(&self) -> Result<Configuration, NoneAllowed> {
        let mut walk = Walk::new(self);
        if let Some(first) = walk.next_within(self, STEPS) {
            return Ok(first);
        }
        if !walk.gave_up() {
            return Err(NoneAllowed::Empty);
        }
        // Always the same draws: it is the default that others are held against.
        let mut random = Pcg64Mcg::seed_from_u64(0);
        let mut walk = Walk::shuffled(self, &mut random);
        let mut drawn = walk.next_within(self, STEPS);
        if drawn.is_none() && !walk.gave_up() {
            return Err(NoneAllowed::Empty);
        }
        for _ in 0..SAMPLES {
            drawn = drawn.or_else(|| self.sample(&mut random));
        }
        let Some(mut found) = drawn else {
            let tries = 2 * STEPS + SAMPLES * (DRAWS + PATIENCE);
            return Err(NoneAllowed::NotFound { tries });
        };
        for slot in 0..self.parameters.len() {
            let mut earlier = (0..found.0[slot]).map(|place| found.with(slot, place));
            let earlier = earlier.find(|one| self.allows(one));
            found = earlier.unwrap_or(found);
        }
        Ok(found)
    }

    /// A random allowed configuration; none if there is none, or if none was found in a reasonable time.
    pub fn sample(&self, random: &mut impl Rng) -> Option<Configuration> {
        if let Some(listed) = &self.listed {
            let all = listed.all();
            return match all.is_empty() {
                true => None,
                false => Some(all[random.random_range(0..all.len())].clone()),
            };
        }
        let mut places = vec![0; self.parameters.len()];
        'draws: for _ in 0..DRAWS {
            for (bound, parameter) in self.parameters.iter().enumerate() {
                places[bound] = random.random_range(0..parameter.values.len()) as u16;
                if !self.may_go_on(&places, bound) {
                    continue 'draws;
                }
            }
            return Some(Configuration::new(places));
        }
        Walk::shuffled(self, random).next_within(self, PATIENCE)
    }

    /// Allowed configurations that differ in one parameter.
    pub fn neighbours(&self, of: &Configuration, which: Neighbourhood) -> Vec<Configuration> {
        let mut found = Vec::new();
        if self.index(of).is_none() {
            return found;
        }
        for (slot, parameter) in self.parameters.iter().enumerate() {
            let here = usize::from(of.0[slot]);
            let last = parameter.values.len() - 1;
            let range = match which {
                Neighbourhood::Adjacent => here.saturating_sub(1)..=last.min(here + 1),
                Neighbourhood::OneChange => 0..=last,
            };
            for place in range.filter(|place| *place != here) {
                let next = of.with(slot, place as u16);
                if self.allows(&next) {
                    found.push(next);
                }
            }
        }
        found
    }

    /// The value of a parameter.
    pub fn value(&self, configuration: &Configuration, parameter: usize) -> Option<&Value> {
        let place = *configuration.0.get(parameter)?;
        self.parameters
            .get(parameter)?
            .values
            .get(usize::from(place))
    }

    /// The values of a configuration, in the order of the parameters.
    pub fn values<'a>(
        &'a self,
        configuration: &'a Configuration,
    ) -> impl Iterator<Item = &'a Value> {
        (0..self.parameters.len()).filter_map(|slot| self.value(configuration, slot))
    }

    /// The configuration of these values; none if a parameter cannot have its value. Whether it is allowed is another question.
    pub fn configuration(&self, values: &[Value]) -> Option<Configuration> {
        if values.len() != self.parameters.len() {
            return None;
        }
        let places = self
            .parameters
            .iter()
            .zip(values)
            .map(|(parameter, value)| {
                let place = parameter
                    .values
                    .iter()
                    .position(|known| same(known, value))?;
                u16::try_from(place).ok()
            });
        places.collect::<Option<Box<[u16]>>>().map(Configuration)
    }

    /// `name=value, …`
    pub fn describe(&self, configuration: &Configuration) -> String {
        let pairs = self.parameters.iter().zip(self.values(configuration));
        let pairs = pairs.map(|(parameter, value)| format!("{}={value}", parameter.name));
        pairs.collect::<Vec<_>>().join(", ")
    }
}

/// Equal, also if one is written as a whole number and the other is not.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.number(), b.number()), (Some(a), Some(b)) if a == b)
}

/// Refuses what is no parameter; the number of points.
fn check(parameters: &[Parameter]) -> Result<u128, SpaceError> {
    if parameters.is_empty() {
        return Err(SpaceError::NoParameters);
    }
    let mut points: u128 = 1;
    for (slot, parameter) in parameters.iter().enumerate() {
        let (name, values) = (parameter.name.clone(), parameter.values.len());
        if parameters[..slot].iter().any(|other| other.name == name) {
            return Err(SpaceError::Twice(name));
        }
        match values {
            0 => return Err(SpaceError::NoValues(name)),
            1..=MOST_VALUES => {}
            _ => return Err(SpaceError::TooManyValues { name, values }),
        }
        let infinite = |value: &Value| value.number().is_some_and(|number| !number.is_finite());
        if parameter.values.iter().any(infinite) {
            return Err(SpaceError::NotFinite(name));
        }
        let mut seen = std::collections::HashSet::new();
        for value in &parameter.values {
            // As keys are written: what looks the same there cannot be told apart.
            if !seen.insert(value.to_string()) {
                let value = value.clone();
                return Err(SpaceError::ValueTwice { name, value });
            }
        }
        points = points
            .checked_mul(values as u128)
            .ok_or(SpaceError::TooLarge)?;
    }
    match points <= 1 << 127 {
        true => Ok(points),
        false => Err(SpaceError::TooLarge),
    }
}
