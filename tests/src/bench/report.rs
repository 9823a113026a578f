//! Figures: collected over rounds, shown to people and scripts.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{goals, machine};

/// Median and spread of a figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle one (the mean of the middle two).
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut v = values.to_vec();
        v.sort_by(f64::total_cmp);
        let (min, max) = (*v.first()?, *v.last()?);
        let half = v.len() / 2;
        let median = if v.len() % 2 == 1 {
            v[half]
        } else {
            (v[half - 1] + v[half]) / 2.0
        };
        Some(Summary { median, min, max })
    }
}

/// The value that so large a part of all does not exceed. They are sorted.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

/// What a bench found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Name of the figure.
    pub name: String,
    /// Unit of `value` and `peer_value`.
    pub unit: &'static str,
    /// The product.
    pub value: Summary,
    /// The peer or physical limit, with its name.
    pub peer: Option<(&'static str, Summary)>,
    /// Product over peer, round by round.
    pub ratio: Option<Summary>,
    /// Exchanges per second between the two CPUs in this run.
    pub bare_exchange: Option<f64>,
    /// Rounds measured.
    pub rounds: usize,
    /// What else belongs to the figure, by name.
    pub details: Vec<(&'static str, f64)>,
    /// Remarks, among them what disturbed the run.
    pub notes: Vec<String>,
}

impl Outcome {
    /// One line for scripts.
    pub fn json(&self) -> Value {
        let mut line = json!({
            "name": self.name,
            "value": round(self.value.median),
            "unit": self.unit,
            "peer": self.peer.map(|p| p.0),
            "peer_value": self.peer.map(|p| round(p.1.median)),
            "ratio": self.ratio.map(|r| round(r.median)),
            "bare_exchange": self.bare_exchange.map(f64::round),
            "spread": spread(&self.value),
            "peer_spread": self.peer.map(|p| spread(&p.1)),
            "ratio_spread": self.ratio.as_ref().map(spread),
            "rounds": self.rounds,
            "notes": self.notes,
            "machine": machine::describe(),
        });
        for (name, value) in &self.details {
            line[*name] = round(*value).into();
        }
        line
    }

    /// A block for people.
    pub fn text(&self) -> String {
        let mut out = format!("{} ({}, {} rounds)\n", self.name, self.unit, self.rounds);
        let mut line = |label: &str, s: &Summary| {
            let (median, min, max) = (short(s.median), short(s.min), short(s.max));
            let _ = writeln!(out, "  {label:<22} {median:>9}   {min} .. {max}");
        };
        line("vnic", &self.value);
        if let Some((peer, s)) = &self.peer {
            line(peer, s);
        }
        if let Some(r) = &self.ratio {
            line("ratio", r);
        }
        if let Some(x) = self.bare_exchange {
            let _ = writeln!(
                out,
                "  {:<22} {:>9}   million a second",
                "bare ring exchange",
                short(x / 1e6)
            );
        }
        for (name, value) in &self.details {
            let _ = writeln!(out, "  {:<22} {:>9}", name.replace('_', " "), short(*value));
        }
        for note in &self.notes {
            let _ = writeln!(out, "  note: {note}");
        }
        out
    }
}

/// A table for a README: a row for each figure, the machine, and what has no figure, with the reason.
pub fn markdown(outcomes: &[Outcome], without: &[String]) -> String {
    let mut out = String::from(
        "| bench | unit | vnic (min..max) | peer (min..max) | ratio (min..max) | bare exchange | goal |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let cell = |s: &Summary| {
        if s.min == s.max {
            short(s.median)
        } else {
            format!("{} ({}..{})", short(s.median), short(s.min), short(s.max))
        }
    };
    for o in outcomes {
        let peer = o
            .peer
            .as_ref()
            .map_or("–".into(), |(name, s)| format!("{name}: {}", cell(s)));
        let ratio = o.ratio.as_ref().map_or("–".into(), cell);
        let exchange = o
            .bare_exchange
            .map_or("–".into(), |x| format!("{} M/s", short(x / 1e6)));
        let goal = goals::cell(&goals::verdicts(o, outcomes));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {peer} | {ratio} | {exchange} | {goal} |",
            o.name,
            o.unit,
            cell(&o.value)
        );
    }
    for why in without {
        let _ = writeln!(out, "\n{why}.");
    }
    let m = machine::describe();
    let text = |key: &str| m[key].as_str().unwrap_or("unknown").to_owned();
    let _ = writeln!(
        out,
        "\nMedians. {}, {} CPUs, Linux {}, load {} at the end.",
        text("cpu"),
        m["cpus"],
        text("kernel"),
        m["load"]
    );
    out
}

fn spread(s: &Summary) -> Value {
    json!([round(s.min), round(s.max)])
}

/// Four significant digits.
fn round(v: f64) -> f64 {
    if v == 0.0 || !v.is_finite() {
        return v;
    }
    let scale = 10f64.powi(3 - v.abs().log10().floor() as i32);
    (v * scale).round() / scale
}

/// Three significant digits, as people write them.
fn short(v: f64) -> String {
    let digits = match v.abs() {
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        _ => 3,
    };
    format!("{v:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 0.5), 100.0);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert_eq!(percentile(&[], 0.99), 0.0);
    }

    fn outcome() -> Outcome {
        Outcome {
            name: "eth-drain".into(),
            unit: "Mpps",
            value: Summary {
                median: 12.345_67,
                min: 11.0,
                max: 13.0,
            },
            peer: Some((
                "testpmd",
                Summary {
                    median: 10.0,
                    min: 9.0,
                    max: 11.0,
                },
            )),
            ratio: Some(Summary {
                median: 1.234_567,
                min: 1.0,
                max: 1.4,
            }),
            bare_exchange: Some(56.4e6),
            rounds: 5,
            details: vec![("error_percent", 0.25)],
            notes: vec!["quiet".into()],
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(
            Summary::of(&[3.0, 1.0, 2.0]),
            Some(Summary {
                median: 2.0,
                min: 1.0,
                max: 3.0
            })
        );
        assert_eq!(
            Summary::of(&[4.0, 1.0]),
            Some(Summary {
                median: 2.5,
                min: 1.0,
                max: 4.0
            })
        );
    }

    #[test]
    fn scripts_find_the_promised_names() {
        let j = outcome().json();
        for key in [
            "name",
            "value",
            "unit",
            "peer",
            "peer_value",
            "ratio",
            "bare_exchange",
            "spread",
            "rounds",
        ] {
            assert!(!j[key].is_null(), "{key} in {j}");
        }
        assert_eq!(j["value"], 12.35);
        assert_eq!(j["ratio"], 1.235);
        assert_eq!(j["error_percent"], 0.25);
        assert_eq!(j["spread"], json!([11.0, 13.0]));
    }

    #[test]
    fn people_get_medians_spread_and_notes() {
        let t = outcome().text();
        for part in [
            "eth-drain",
            "12.3",
            "11.0 .. 13.0",
            "testpmd",
            "1.23",
            "56.4",
            "error percent",
            "note: quiet",
        ] {
            assert!(t.contains(part), "{part} in {t}");
        }
    }

    #[test]
    fn the_table_has_goals_the_machine_and_what_is_missing() {
        let single = Outcome {
            name: "cost-eth-64".into(),
            value: Summary {
                median: 800.0,
                min: 800.0,
                max: 800.0,
            },
            ..outcome()
        };
        let m = markdown(&[outcome(), single], &["qos: skipped: why".into()]);
        for part in [
            "| eth-drain | Mpps | 12.3 (11.0..13.0) | testpmd: 10.0 (9.00..11.0) | 1.23 (1.00..1.40) | 56.4 M/s | \
             ≥ 1 × peer: met |\n",
            "| cost-eth-64 | Mpps | 800 |",
            "\nqos: skipped: why.\n",
            " CPUs, Linux ",
            ", load ",
        ] {
            assert!(m.contains(part), "{part} in {m}");
        }
    }
}
