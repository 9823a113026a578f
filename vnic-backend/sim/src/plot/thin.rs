//! Fewer points for the same picture.

use super::Chart;

/// Points of a line that are inside of a chart, at most two for each of `columns`: the least and the greatest of what is there,
/// so that no peak is lost.
pub(super) fn thin(points: &[(f64, f64)], chart: &Chart, columns: usize) -> Vec<(f64, f64)> {
    let x = &chart.x;
    let inside = points.iter().filter(|(at, _)| *at >= x.from && *at <= x.to);
    if points.len() <= 2 * columns {
        return inside.copied().collect();
    }
    let place = |at: f64| {
        let part = if chart.logarithmic {
            (at / x.from).ln() / (x.to / x.from).ln()
        } else {
            (at - x.from) / (x.to - x.from)
        };
        (part * columns as f64) as usize
    };
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut column: Option<(usize, Extremes)> = None;
    for point in inside {
        let number = place(point.0);
        match &mut column {
            Some((n, Extremes { least, greatest })) if *n == number => {
                if point.1 < least.1 {
                    *least = *point;
                }
                if point.1 >= greatest.1 {
                    *greatest = *point;
                }
            }
            _ => {
                keep(&mut kept, column.take());
                let [least, greatest] = [*point; 2];
                column = Some((number, Extremes { least, greatest }));
            }
        }
    }
    keep(&mut kept, column);
    kept
}

/// The least and the greatest point of a column of pixels.
struct Extremes {
    least: (f64, f64),
    greatest: (f64, f64),
}

fn keep(kept: &mut Vec<(f64, f64)>, column: Option<(usize, Extremes)>) {
    let Some((_, Extremes { least, greatest })) = column else {
        return;
    };
    let (first, second) = if least.0 <= greatest.0 {
        (least, greatest)
    } else {
        (greatest, least)
    };
    kept.push(first);
    if second != first {
        kept.push(second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    #[test]
    fn peaks_stay() {
        let axis = Axis::new("", 0.0, 1000.0);
        let chart = Chart {
            title: String::new(),
            x: axis.clone(),
            y: axis,
            logarithmic: false,
            lines: Vec::new(),
        };
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|n| (f64::from(n) / 100.0, 1.0)).collect();
        points[55_555].1 = 9.0;
        points[77_777].1 = -9.0;
        let kept = thin(&points, &chart, 100);
        assert!(kept.len() <= 2 * 101);
        assert!(kept.contains(&points[55_555]) && kept.contains(&points[77_777]));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
        assert_eq!(thin(&points[..50], &chart, 100), points[..50]);
    }
}
