//! Plots as SVG, and the same as PNG. What a plot shows is decided in [`panels`]; here it is drawn.
//!
//! The drawing is four times as large as it is shown, for plotters draws on whole pixels. Text is measured by a rule of thumb,
//! so that the same numbers make the same bytes on every machine, whatever fonts it has.

use std::path::Path;

use anyhow::{Context, Result, bail};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub mod panels;
mod thin;

/// Units of the drawing in one pixel.
const SCALE: i32 = 4;
/// Size of a chart, in pixels.
const WIDTH: i32 = 760;
const HEIGHT: i32 = 380;
/// Where its plane begins, and its title.
const LEFT: i32 = 68;
/// Points of all lines of a row of charts together: what keeps a file small.
const POINTS: usize = 9_000;

/// Colours that people with any kind of colour vision tell apart (Okabe and Ito 2008), without the yellow, which is hard to see
/// on white.
const COLORS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];
const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const AXIS: RGBColor = RGBColor(0x99, 0x99, 0x99);

/// How many lines can be told apart by their colours.
pub const COLORS_MAX: usize = COLORS.len();

/// A direction of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it is, with its unit.
    pub label: String,
    /// Its ends. Both are drawn.
    pub from: f64,
    /// See `from`.
    pub to: f64,
}

impl Axis {
    /// With a label and two ends.
    pub fn new(label: impl Into<String>, from: f64, to: f64) -> Axis {
        let label = label.into();
        Axis { label, from, to }
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// In a colour of its own.
    Strong,
    /// One of many: thin and pale.
    Thin,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// In the legend; empty: not there.
    pub name: String,
    /// By x.
    pub points: Vec<(f64, f64)>,
    /// How it looks.
    pub look: Look,
    /// Number of its colour.
    pub color: usize,
}

impl Line {
    /// In a colour of its own.
    pub fn strong(name: impl Into<String>, points: Vec<(f64, f64)>, color: usize) -> Line {
        Line {
            name: name.into(),
            points,
            look: Look::Strong,
            color,
        }
    }
}

/// Lines over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// To the right, equal distances are equal factors.
    pub logarithmic: bool,
    /// Upwards.
    pub y: Axis,
    /// The later ones lie above.
    pub lines: Vec<Line>,
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("cannot draw: {error}")
}

/// Charts in one SVG: one column, or two where there are more than two.
pub fn svg(charts: &[Chart]) -> Result<String> {
    let columns = if charts.len() > 2 { 2 } else { 1 };
    let rows = charts.len().div_ceil(columns).max(1);
    let (width, height) = (WIDTH * columns as i32, HEIGHT * rows as i32);
    let mut text = String::new();
    {
        let size = ((width * SCALE) as u32, (height * SCALE) as u32);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (area, chart) in root.split_evenly((rows, columns)).iter().zip(charts) {
            draw(area, chart, POINTS / rows)?;
        }
        root.present().map_err(failed)?;
    }
    // Shown at a quarter of the size at which it was drawn.
    let drawn = format!("width=\"{}\" height=\"{}\"", width * SCALE, height * SCALE);
    let shown = format!("width=\"{width}\" height=\"{height}\"");
    Ok(text.replacen(&drawn, &shown, 1))
}

/// An SVG as a PNG, twice as large as it is shown so that it is sharp on every screen. Text needs a font of the machine.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    use resvg::{tiny_skia, usvg};
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    let family = [
        "DejaVu Sans",
        "Liberation Sans",
        "Noto Sans",
        "Arial",
        "Helvetica",
    ]
    .into_iter()
    .map(str::to_owned)
    .find(|name| fonts.faces().any(|f| f.families.iter().any(|(n, _)| n == name)))
    .or_else(|| Some(fonts.faces().next()?.families.first()?.0.clone()));
    let Some(family) = family else {
        bail!("there is no font on this machine for the text of a PNG; write an SVG");
    };
    fonts.set_sans_serif_family(family);
    let tree = usvg::Tree::from_str(svg, &options).map_err(failed)?;
    let size = tree.size();
    let mut pixels = tiny_skia::Pixmap::new(2 * size.width() as u32, 2 * size.height() as u32)
        .context("the plot is too large for a PNG")?;
    resvg::render(
        &tree,
        tiny_skia::Transform::from_scale(2.0, 2.0),
        &mut pixels.as_mut(),
    );
    pixels.encode_png().map_err(failed)
}

/// Writes charts to a file, as SVG or PNG by its name.
pub fn write(path: &Path, charts: &[Chart]) -> Result<()> {
    let svg = svg(charts)?;
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => svg.into_bytes(),
        Some("png") => png(&svg)?,
        _ => bail!("{}: a plot is a .svg or a .png", path.display()),
    };
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn px(pixels: i32) -> i32 {
    pixels * SCALE
}

/// A style of text, by its height in pixels. The backend divides by 1.24.
fn style(pixels: f64, color: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", pixels * f64::from(SCALE) * 1.24)
        .into_font()
        .color(color)
}

fn draw(area: &Area<'_>, chart: &Chart, points: usize) -> Result<()> {
    let title = style(15.0, &TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw(&Text::new(chart.title.clone(), (px(LEFT), px(20)), title))
        .map_err(failed)?;
    let rows = legend(area, chart)?;
    let top = px(34 + 18 * rows);
    let x = chart.x.from..chart.x.to;
    if !chart.logarithmic {
        return plane(area, chart, top, points, x);
    }
    let marks: Vec<f64> = (-3..12)
        .flat_map(|n| [1.0, 2.0, 5.0].map(|d| d * 10f64.powi(n)))
        .filter(|v| x.contains(v))
        .collect();
    plane(area, chart, top, points, x.log_scale().with_key_points(marks))
}

/// The legend, in rows below the title. How many rows there are.
fn legend(area: &Area<'_>, chart: &Chart) -> Result<i32> {
    let named: Vec<&Line> = chart.lines.iter().filter(|l| !l.name.is_empty()).collect();
    if named.len() < 2 {
        return Ok(0);
    }
    let (mut at, mut row) = (LEFT, 0);
    for line in named {
        let width = 30 + line.name.chars().count() as i32 * 7 + 16;
        if at > LEFT && at + width > WIDTH {
            (at, row) = (LEFT, row + 1);
        }
        let y = px(40 + 18 * row);
        let sample = vec![(px(at), y), (px(at + 22), y)];
        stroke(area, sample, line).map_err(failed)?;
        let text = style(12.0, &TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(line.name.clone(), (px(at + 28), y), text))
            .map_err(failed)?;
        at += width;
    }
    Ok(row + 1)
}

fn look(line: &Line) -> ShapeStyle {
    let color = COLORS[line.color % COLORS.len()];
    match line.look {
        Look::Strong => color.stroke_width(7),
        Look::Thin => color.mix(0.35).stroke_width(3),
    }
}

/// Draws a line that is in the units of the drawing, or in those of a chart's plane.
fn stroke<CT>(
    area: &DrawingArea<SVGBackend<'_>, CT>,
    points: Vec<CT::From>,
    line: &Line,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
where
    CT: CoordTranslate,
    CT::From: Clone + 'static,
{
    area.draw(&PathElement::new(points, look(line)))
}

fn plane<X>(area: &Area<'_>, chart: &Chart, top: i32, points: usize, x: X) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut context = ChartBuilder::on(area)
        .margin_top(top)
        .margin_left(px(6))
        .margin_right(px(22))
        .margin_bottom(px(8))
        .x_label_area_size(px(44))
        .y_label_area_size(px(62))
        .build_cartesian_2d(x, chart.y.from..chart.y.to)
        .map_err(failed)?;
    context
        .configure_mesh()
        .x_labels(8)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(GRID.stroke_width(3))
        .axis_style(AXIS.stroke_width(4))
        .set_all_tick_mark_size(px(3))
        .label_style(style(12.0, &TEXT))
        .axis_desc_style(style(12.5, &TEXT))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_label_formatter(&|v| number(*v))
        .y_label_formatter(&|v| number(*v))
        .draw()
        .map_err(failed)?;
    let columns = (points / 2 / chart.lines.len().max(1)).clamp(40, 700);
    for line in &chart.lines {
        let points = thin::thin(&line.points, chart, columns);
        stroke(context.plotting_area(), points, line).map_err(failed)?;
    }
    Ok(())
}

/// A number beside an axis: no more digits than it has.
fn number(value: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::panels::{Run, all, queue, rates};
    use super::*;
    use crate::network::made_up;

    #[test]
    fn all_that_a_run_says_is_drawn() {
        let (scenario, outcome) = made_up(4);
        let run = Run {
            name: "made up",
            scenario: &scenario,
            outcome: &outcome,
        };
        let charts = all(run);
        assert_eq!(charts.len(), 6);
        let text = svg(&charts).expect("it can be drawn");
        for word in [
            "Rates that flows are allowed",
            "rate (Gb/s)",
            "time (ms)",
            "queue (KB)",
            "h0 \u{2192} h4",
            "marked packets",
        ] {
            assert!(text.contains(word), "{word}");
        }
        assert!(text.starts_with("<svg width=\"1520\" height=\"1140\" viewBox=\"0 0 6080 4560\""));
        assert_eq!(svg(&charts).expect("again"), text);
    }

    #[test]
    fn plots_stay_small() {
        let (mut scenario, mut outcome) = made_up(7);
        scenario.name = "long".to_owned();
        // A hundred times as many samples.
        let repeat = |row: &mut Vec<u64>| *row = row.repeat(100);
        let series = &mut outcome.series;
        let step = series.time[1] - series.time[0];
        series.time = (0..series.time.len() as u64 * 100).map(|n| n * step).collect();
        series.queues.iter_mut().for_each(repeat);
        series.rates.iter_mut().for_each(repeat);
        let run = [Run {
            name: "",
            scenario: &scenario,
            outcome: &outcome,
        }];
        for chart in [rates("r", &run), queue("q", &run)] {
            let chart = chart.expect("there is something");
            let bytes = svg(&[chart]).expect("it can be drawn").len();
            assert!(bytes < 150_000, "{bytes}");
        }
    }

    #[test]
    fn numbers_have_no_needless_digits() {
        let seen: Vec<String> = [0.0, 5.0, 0.25, -0.000_01, 1500.0, 2e6].map(number).to_vec();
        assert_eq!(seen, ["0", "5", "0.25", "0", "1500", "2.0e6"]);
    }
}
