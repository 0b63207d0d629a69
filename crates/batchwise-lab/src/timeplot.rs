//! Plots with time on x: curves of latency (log scale) or load, spans with names, shaded bands,
//! and events.

use anyhow::Result;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::{
    self, Area, Drawn, GREY, GRID, axes, draw, legend_line, legend_text, legend_y, ticks,
};

/// What is on y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Height {
    /// Mean latency, ns, on a log scale.
    Latency,
    /// Requests a second.
    Load,
    /// A share, 0 to 1.
    Share,
}

/// A curve over time.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the legend calls it.
    pub label: String,
    /// Its colour.
    pub color: RGBColor,
    /// Whether it is dashed.
    pub dashed: bool,
    /// Seconds and heights, in pieces that nothing joins.
    pub pieces: Vec<Vec<(f64, f64)>>,
}

/// A part of the time with a name, written at the top.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Begin, seconds.
    pub from: f64,
    /// End, seconds.
    pub to: f64,
    /// Its name.
    pub name: String,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct TimePlot<'a> {
    /// Its title.
    pub title: &'a str,
    /// What is on y.
    pub height: Height,
    /// Drawn in this order.
    pub curves: Vec<Curve>,
    /// Parts of the time.
    pub spans: Vec<Span>,
    /// Times that are shaded, and what the legend says of them.
    pub shaded: Option<(&'a str, Vec<(f64, f64)>)>,
    /// Moments that are marked at the lower edge, by kind: what the legend calls it, and when.
    pub events: Vec<(String, RGBColor, Vec<f64>)>,
    /// A level that is marked, and what the legend calls it.
    pub level: Option<(f64, &'a str)>,
}

const SHADE: RGBColor = RGBColor(196, 78, 32);

impl TimePlot<'_> {
    /// As SVG text.
    pub fn svg(&self) -> Result<String> {
        let heights = || {
            let points = self.curves.iter().flat_map(|c| c.pieces.iter().flatten());
            let level = self.level.map(|level| level.0);
            points.map(|p| p.1).filter(|y| y.is_finite()).chain(level)
        };
        let (bottom, top) = match self.height {
            Height::Load => (0.0, heights().fold(1000.0, f64::max) * 1.12),
            Height::Share => (0.0, heights().fold(0.05, f64::max) * 1.12),
            Height::Latency => {
                let low = heights().fold(2e4, f64::min).max(1e3);
                (low / 1.5, heights().fold(low * 10.0, f64::max) * 2.0)
            }
        };
        draw(self.title, |area, legend| {
            let mut builder = axes(area);
            let seconds = 0.0..self.right();
            match self.height {
                Height::Load => {
                    let chart = builder.build_cartesian_2d(seconds, bottom..top)?;
                    self.draw_on(chart, bottom, top, &|y| plot::thousands(*y))?;
                }
                Height::Share => {
                    let chart = builder.build_cartesian_2d(seconds, bottom..top)?;
                    self.draw_on(chart, bottom, top, &|y| format!("{:.0} %", y * 100.0))?;
                }
                Height::Latency => {
                    let log = (bottom..top).log_scale();
                    let log = log.with_key_points(ticks(bottom, top));
                    let chart = builder.build_cartesian_2d(seconds, log)?;
                    self.draw_on(chart, bottom, top, &|y| plot::duration(*y))?;
                }
            }
            self.draw_legend(legend)
        })
    }

    fn right(&self) -> f64 {
        let points = self.curves.iter().flat_map(|c| c.pieces.iter().flatten());
        let ends = self.spans.iter().map(|span| span.to);
        points.map(|p| p.0).chain(ends).fold(1.0, f64::max) * 1.01
    }

    fn draw_on<Y>(
        &self,
        mut chart: ChartContext<
            '_,
            SVGBackend<'_>,
            Cartesian2d<plotters::coord::types::RangedCoordf64, Y>,
        >,
        bottom: f64,
        top: f64,
        label: &dyn Fn(&f64) -> String,
    ) -> Drawn
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let what = match self.height {
            Height::Load => "requests/s",
            Height::Share => "share",
            Height::Latency => "mean latency",
        };
        if let Some((_, times)) = &self.shaded {
            for &(from, to) in times {
                let corners = [(from, bottom), (to.min(self.right()), top)];
                chart.draw_series([Rectangle::new(corners, SHADE.mix(0.12).filled())])?;
            }
        }
        chart
            .configure_mesh()
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(GRID)
            .x_desc("seconds")
            .y_desc(what)
            .y_labels(14)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&label)
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for span in &self.spans {
            let line = [(span.from, bottom), (span.from, top)];
            let style = GREY.stroke_width(1);
            chart.draw_series(DashedLineSeries::new(line, 3, 4, style))?;
            let at = ((span.from + span.to) / 2.0, top * 0.95);
            let style = ("sans-serif", 14).into_font().color(&GREY);
            let style = style.pos(Pos::new(HPos::Center, VPos::Top));
            chart.draw_series([Text::new(span.name.clone(), at, style)])?;
        }
        if let Some((level, _)) = self.level {
            let line = [(0.0, level), (self.right(), level)];
            chart.draw_series(DashedLineSeries::new(line, 2, 3, GREY.stroke_width(2)))?;
        }
        for curve in &self.curves {
            let style = curve.color.stroke_width(2);
            for piece in &curve.pieces {
                let points = piece.iter().map(|&(x, y)| (x, y.min(top)));
                if curve.dashed {
                    chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
                } else {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
        }
        for (_, color, times) in &self.events {
            let marks = times
                .iter()
                .map(|&x| TriangleMarker::new((x, bottom), 6, color.filled()));
            chart.draw_series(marks)?;
        }
        Ok(())
    }

    fn draw_legend(&self, legend: &Area<'_>) -> Drawn {
        let mut row = 0;
        for curve in &self.curves {
            legend_line(legend, row, &curve.label, curve.color, curve.dashed)?;
            row += 1;
        }
        if let Some((_, name)) = self.level {
            legend_line(legend, row, name, GREY, true)?;
            row += 1;
        }
        if let Some((name, _)) = &self.shaded {
            let y = legend_y(row);
            let style = SHADE.mix(0.25).filled();
            legend.draw(&Rectangle::new([(8, y - 7), (36, y + 7)], style))?;
            legend_text(legend, row, name)?;
            row += 1;
        }
        for (name, color, _) in self.events.iter().filter(|event| !event.2.is_empty()) {
            let at = (22, legend_y(row));
            legend.draw(&TriangleMarker::new(at, 6, color.filled()))?;
            legend_text(legend, row, name)?;
            row += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(height: Height, pieces: Vec<Vec<(f64, f64)>>) -> String {
        let curve = Curve {
            label: "measured".into(),
            color: BLACK,
            dashed: false,
            pieces,
        };
        let plot = TimePlot {
            title: "a plot",
            height,
            curves: vec![curve],
            spans: vec![Span {
                from: 0.0,
                to: 2.0,
                name: "64 B".into(),
            }],
            shaded: Some(("Nagle on", vec![(0.5, 1.0)])),
            events: vec![
                ("probe".into(), BLACK, vec![0.5]),
                ("abort".into(), BLACK, vec![]),
            ],
            level: Some((5e5, "500 µs")),
        };
        plot.svg().unwrap()
    }

    #[test]
    fn a_plot_names_its_spans_and_the_events_that_happened() {
        let svg = plot(Height::Latency, vec![vec![(0.0, 2e4), (2.0, 3e7)]]);
        assert!(svg.contains("64 B") && svg.contains("Nagle on") && svg.contains("probe"));
        assert!(!svg.contains("abort"));
    }

    #[test]
    fn nothing_measured_and_infinite_latencies_still_give_a_plot() {
        assert!(plot(Height::Load, vec![]).starts_with("<svg"));
        let svg = plot(
            Height::Latency,
            vec![vec![(0.0, f64::INFINITY), (1.0, 2e4)]],
        );
        assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("inf"));
    }
}
