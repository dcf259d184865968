//! What was measured, and what it is held against.

use crate::latency::Latency;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    Bytes,
    BytesPerSecond,
    PerSecond,
    /// Of one thing to another: no unit.
    Ratio,
}

/// One number.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

/// Which side of the limit is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AtMost,
    AtLeast,
}

/// A figure that something is expected of.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// What the figure is a ratio of, for people.
    pub(crate) of: &'static str,
    pub(crate) side: Side,
    pub(crate) limit: f64,
    pub(crate) measured: f64,
    pub(crate) unit: Unit,
}

impl Target {
    pub(crate) fn is_met(&self) -> bool {
        match self.side {
            Side::AtMost => self.measured <= self.limit,
            Side::AtLeast => self.measured >= self.limit,
        }
    }
}

/// A distribution, for the plot.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) latency: Latency,
}

/// What one measurement gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
    pub(crate) curves: Vec<Curve>,
}

impl Section {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64, unit: Unit) {
        self.figures.push(Figure {
            name: name.into(),
            value,
            unit,
        });
    }

    /// Median and 99th percentile, and a curve of the plot.
    pub(crate) fn latency(&mut self, name: &str, latency: Latency) {
        self.figure(format!("{name}, p50"), latency.median(), Unit::Nanoseconds);
        self.figure(
            format!("{name}, p99"),
            latency.quantile(0.99),
            Unit::Nanoseconds,
        );
        self.curves.push(Curve {
            name: name.into(),
            latency,
        });
    }

    pub(crate) fn target(&mut self, target: Target) {
        self.targets.push(target);
    }
}

/// The middle one; of two middle ones the mean.
///
/// # Panics
/// When there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_itself_is_good_on_either_side() {
        let target = |side, measured| Target {
            name: String::new(),
            of: "",
            side,
            limit: 0.5,
            measured,
            unit: Unit::Ratio,
        };
        assert!(target(Side::AtMost, 0.5).is_met());
        assert!(target(Side::AtLeast, 0.5).is_met());
        assert!(!target(Side::AtMost, 0.51).is_met());
        assert!(!target(Side::AtLeast, 0.49).is_met());
        assert!(!target(Side::AtLeast, f64::NAN).is_met());
    }

    #[test]
    fn median_is_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0]) - 2.5).abs() < f64::EPSILON);
    }
}
