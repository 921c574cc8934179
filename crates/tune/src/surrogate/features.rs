//! A configuration as numbers.
//!
//! Besides the place of each value, in order, models are told what hardware makes of several parameters at once, whatever
//! their names: the logarithms of products of two (threads of a block, elements of a tile), and of each value that is not a power of two how often two
//! divides it and what is left (whether it fills warps, banks and lines, and divides the sizes of problems).

use crate::space::{Configuration, Space, Value};

/// Parameters whose products are told at most: the number of pairs grows with the square.
const MOST_FACTORS: usize = 8;
/// How far a left-over factor moves a configuration away, compared with going from the first value to the last.
const ODD: f32 = 0.5;

/// The numbers of a parameter's values.
#[derive(Debug, Clone)]
struct Column {
    slot: usize,
    /// Place, from 0 to 1.
    place: Vec<f32>,
    /// log2 of the value, if all of them have one.
    log: Option<Vec<f32>>,
    /// How often two divides it, and log2 of what is left; if any value is not a power of two.
    twos: Option<Vec<(f32, f32)>>,
}

/// What models are told.
#[derive(Debug, Clone)]
pub(crate) struct Features {
    columns: Vec<Column>,
    /// Pairs of columns whose product is told.
    products: Vec<(usize, usize)>,
    width: usize,
    smooth_width: usize,
}

impl Features {
    pub(crate) fn new(space: &Space) -> Self {
        let parameters = space.parameters().iter().enumerate();
        let columns: Vec<Column> = parameters
            .filter(|(_, parameter)| parameter.values.len() > 1)
            .map(|(slot, parameter)| Column::new(slot, &parameter.values))
            .collect();
        let mut factors: Vec<usize> = (0..columns.len())
            .filter(|c| columns[*c].log.is_some())
            .collect();
        // Those that vary most say most.
        factors.sort_by(|a, b| columns[*b].range().total_cmp(&columns[*a].range()));
        factors.truncate(MOST_FACTORS);
        factors.sort_unstable();
        let products: Vec<(usize, usize)> = factors
            .iter()
            .enumerate()
            .flat_map(|(nth, a)| factors[..nth].iter().map(|b| (*b, *a)))
            .collect();
        let odd = columns
            .iter()
            .filter(|column| column.twos.is_some())
            .count();
        Self {
            width: columns.len() + products.len() + 2 * odd,
            smooth_width: columns.len() + odd,
            columns,
            products,
        }
    }

    /// Numbers per configuration for trees.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Numbers per configuration for the smooth model.
    pub(crate) fn smooth_width(&self) -> usize {
        self.smooth_width
    }

    /// Writes what trees are told.
    pub(crate) fn row(&self, configuration: &Configuration, row: &mut Vec<f32>) {
        row.clear();
        let place = |column: &Column| usize::from(configuration.places()[column.slot]);
        let log = |column: usize| {
            let column = &self.columns[column];
            column.log.as_ref().map_or(0.0, |log| log[place(column)])
        };
        row.extend(
            self.columns
                .iter()
                .map(|column| column.place[place(column)]),
        );
        row.extend(self.products.iter().map(|(a, b)| log(*a) + log(*b)));
        for column in &self.columns {
            if let Some(twos) = &column.twos {
                let (twos, rest) = twos[place(column)];
                row.extend([twos, rest]);
            }
        }
    }

    /// Writes where the smooth model sees it: every coordinate from 0 to 1.
    pub(crate) fn smooth_row(&self, configuration: &Configuration, row: &mut Vec<f32>) {
        row.clear();
        for column in &self.columns {
            let place = usize::from(configuration.places()[column.slot]);
            row.push(column.smooth(place));
            if let Some(twos) = &column.twos {
                let most = twos.iter().map(|(_, rest)| *rest).fold(0.0, f32::max);
                row.push(ODD * twos[place].1 / most);
            }
        }
    }
}

impl Column {
    fn new(slot: usize, values: &[Value]) -> Self {
        let last = (values.len() - 1) as f32;
        let logs = values.iter().map(|value| {
            let number = value.number().filter(|number| *number > 0.0)?;
            Some(number.log2() as f32)
        });
        let twos: Option<Vec<(f32, f32)>> = values
            .iter()
            .map(|value| match value {
                Value::Int(number) if *number > 0 => {
                    let twos = number.trailing_zeros();
                    Some((twos as f32, ((number >> twos) as f64).log2() as f32))
                }
                _ => None,
            })
            .collect();
        Self {
            slot,
            place: (0..values.len()).map(|place| place as f32 / last).collect(),
            log: logs.collect(),
            twos: twos.filter(|twos| twos.iter().any(|(_, rest)| *rest > 0.0)),
        }
    }

    /// Logarithms from the least to the greatest; zero if there are none.
    fn range(&self) -> f32 {
        let logs = self.log.iter().flatten();
        let (low, high) = logs.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), log| {
            (low.min(*log), high.max(*log))
        });
        (high - low).max(0.0)
    }

    /// Sizes are as far apart as their ratio is from one; words and switches as their places are.
    fn smooth(&self, place: usize) -> f32 {
        match &self.log {
            Some(log) if self.range() > 0.0 => {
                let low = log.iter().copied().fold(f32::INFINITY, f32::min);
                (log[place] - low) / self.range()
            }
            _ => self.place[place],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Parameter;

    #[test]
    fn products_and_powers_of_two_are_told() {
        let space = Space::new(
            vec![
                Parameter::new("x", [16, 32, 48]),
                Parameter::new("fixed", [7]),
                Parameter::new("y", [1, 2]),
                Parameter::new("word", ["a", "b"]),
            ],
            &[] as &[&str],
        )
        .unwrap();
        let features = Features::new(&space);
        let mut row = Vec::new();
        features.row(&Configuration::new([2, 0, 1, 1]), &mut row);
        // Places, log2(48 * 2), 48 = 2^4 * 3.
        let three = 3_f32.log2();
        assert_eq!(row, [1.0, 1.0, 1.0, 5.0 + three, 4.0, three]);
        assert_eq!(row.len(), features.width());
        features.smooth_row(&Configuration::new([2, 0, 1, 0]), &mut row);
        assert_eq!(row, [1.0, ODD, 1.0, 0.0]);
        assert_eq!(row.len(), features.smooth_width());
    }
}
