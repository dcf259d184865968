//! Latencies by percentile as a picture.

use std::fmt::Write;

use crate::{
    figure::{Curve, Section, Unit},
    report::format_value,
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
/// Room for labels.
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 20.0;
/// Room for the name of a curve, below the picture.
const NAME: f64 = 15.0;

/// Each step to the right has a tenth of the share that is left.
const DECADES: f64 = 4.0;
const TICKS: [(f64, &str); 6] = [
    (0.0, "0 %"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

const COLOURS: [&str; 8] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f",
];

/// An SVG document with one curve for every latency that was measured.
pub(crate) fn svg(sections: &[Section]) -> String {
    let curves: Vec<_> = sections
        .iter()
        .flat_map(|section| section.curves.iter().map(move |curve| (section, curve)))
        .filter(|(_, curve)| curve.latency.count() > 0)
        .collect();
    let scale = Scale::of(curves.iter().map(|(_, curve)| *curve));
    let height = HEIGHT + NAME * (curves.len() as f64 + 1.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    scale.draw(&mut text);
    for (index, (section, curve)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<_> = (0..=200)
            .map(|step| quantile_at(f64::from(step) / 200.0))
            .map(|quantile| {
                let (x, y) = (x_of(quantile), scale.y_of(curve.latency.quantile(quantile)));
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let name = escape(&format!("{}: {}", section.name, curve.name));
        let y = HEIGHT + NAME * (index as f64 + 1.0);
        put(
            &mut text,
            format_args!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\n\
                 <text x=\"{LEFT}\" y=\"{y}\" fill=\"{colour}\">{name}</text>",
                points.join(" ")
            ),
        );
    }
    text.push_str("</svg>\n");
    text
}

/// From the least to the largest latency, by powers of ten.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of<'a>(curves: impl Iterator<Item = &'a Curve>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for curve in curves {
            low = low.min(curve.latency.quantile(0.0));
            high = high.max(curve.latency.quantile(quantile_at(1.0)));
        }
        if high == 0.0 {
            (low, high) = (1e3, 1e6);
        }
        let (low, high) = (low.max(1.0).log10().floor(), high.log10().ceil());
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    fn y_of(&self, nanoseconds: f64) -> f64 {
        let share = (nanoseconds.max(1.0).log10() - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, text: &mut String) {
        let mut power = self.low;
        while power <= self.high {
            let value = 10.0_f64.powf(power);
            let (y, label) = (self.y_of(value), format_value(value, Unit::Nanoseconds));
            put(
                text,
                format_args!(
                    "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
                     <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                    LEFT - 6.0,
                    y + 4.0
                ),
            );
            power += 1.0;
        }
        for (quantile, label) in TICKS {
            let x = x_of(quantile);
            put(
                text,
                format_args!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"#eee\"/>\n\
                     <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                    HEIGHT - BOTTOM,
                    HEIGHT - BOTTOM + 16.0
                ),
            );
        }
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("text takes everything");
}

/// The quantile at a share of the way from the left to the right edge.
fn quantile_at(share: f64) -> f64 {
    1.0 - 10.0_f64.powf(-DECADES * share)
}

fn x_of(quantile: f64) -> f64 {
    let share = -(1.0 - quantile).max(1e-9).log10() / DECADES;
    LEFT + share.min(1.0) * (WIDTH - LEFT - 40.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latency::Latency;

    #[test]
    fn every_latency_has_a_curve() {
        let mut section = Section::new("a & b");
        for name in ["one", "two"] {
            let mut latency = Latency::new();
            (1..1000).for_each(|n| latency.record(Duration::from_micros(n)));
            section.latency(name, latency);
        }
        section.latency("none", Latency::new());
        let text = svg(&[section]);
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(text.contains("a &amp; b: two") && text.contains("1.00 ms"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn nothing_is_still_a_picture() {
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}
