//! What the figures are to reach, and whether they do.

use serde_json::{Value, json};

use super::report::Outcome;

/// What a goal is about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    /// The figure itself.
    Figure,
    /// Its ratio to its peer.
    Ratio,
    /// Its ratio to another figure of the same bench.
    Other(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Least(f64),
    Most(f64),
}
use Bound::{Least, Most};

/// A goal of the figure of this name, or of all whose names begin so, with a `*` behind.
struct Goal(&'static str, Of, Bound);

impl Goal {
    fn is_of(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => self.0 == name,
        }
    }
}

/// All goals. A figure may have several.
const GOALS: &[Goal] = &[
    Goal("eth-drain", Of::Ratio, Least(1.0)),
    Goal("eth-loop", Of::Ratio, Least(1.0)),
    Goal("eth-loop-unicast", Of::Ratio, Least(1.0)),
    Goal("eth-qos", Of::Ratio, Least(0.7)),
    Goal("eth-rsc", Of::Ratio, Least(1.5)),
    Goal("rdma-write-bw", Of::Ratio, Least(0.5)),
    Goal("rdma-msg-rate-1qp", Of::Ratio, Least(0.3)),
    Goal("rdma-msg-rate-1024qp", Of::Ratio, Least(0.3)),
    Goal("rdma-msg-rate-1024qp", Of::Other("rdma-msg-rate-1qp"), Least(0.8)),
    Goal("rdma-write-lat-p50", Of::Figure, Most(0.8)),
    Goal("rdma-write-lat-p50", Of::Ratio, Most(5.0)),
    Goal("wire-write-bw-1500", Of::Ratio, Least(1.0)),
    Goal("wire-write-bw-9000", Of::Ratio, Least(1.0)),
    Goal("vm-write-bw", Of::Ratio, Least(50.0)),
    Goal("scale-adapter", Of::Figure, Most(1_048_576.0)),
    Goal("scale-qp", Of::Figure, Most(1024.0)),
    Goal("rdma-scale-qp", Of::Figure, Most(1024.0)),
    Goal("rdma-scale-adapter", Of::Figure, Most(1024.0)),
    Goal("cm-rate", Of::Figure, Least(20_000.0)),
    Goal("scrape", Of::Figure, Most(50.0)),
    Goal("rdma-scale-scrape", Of::Figure, Most(50.0)),
    Goal("sim-star", Of::Figure, Least(1000.0)),
    Goal("restart", Of::Figure, Most(100.0)),
    Goal("hostile-rate-*", Of::Ratio, Least(1.0)),
    Goal("hostile-tail-*", Of::Ratio, Most(1.0)),
];

/// A goal, and how far a figure came.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The goal, for people.
    pub goal: String,
    /// It is reached.
    pub met: bool,
}

/// What becomes of the goals of a figure; `all` are those measured in the same run, for goals that compare two.
pub fn verdicts(outcome: &Outcome, all: &[Outcome]) -> Vec<Verdict> {
    let mine = GOALS.iter().filter(|g| g.is_of(&outcome.name));
    mine.filter_map(|Goal(_, of, bound)| {
        let (value, unit) = match of {
            Of::Figure => (outcome.value.median, format!(" {}", outcome.unit)),
            Of::Ratio => (outcome.ratio?.median, " × peer".into()),
            Of::Other(name) => {
                let other = all.iter().find(|o| o.name == *name)?;
                (outcome.value.median / other.value.median, format!(" × {name}"))
            }
        };
        let (sign, limit, met) = match *bound {
            Least(limit) => ('≥', limit, value >= limit),
            Most(limit) => ('≤', limit, value <= limit),
        };
        Some(Verdict {
            goal: format!("{sign} {limit}{unit}"),
            met,
        })
    })
    .collect()
}

/// In a cell of a table.
pub fn cell(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return "–".into();
    }
    let one = |v: &Verdict| format!("{}: {}", v.goal, if v.met { "met" } else { "**missed**" });
    verdicts.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// For scripts.
pub fn json(verdicts: &[Verdict]) -> Value {
    verdicts
        .iter()
        .map(|v| json!({ "goal": v.goal, "met": v.met }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::Summary;
    use super::*;

    fn figure(name: &str, value: f64, ratio: Option<f64>) -> Outcome {
        let one = |v| Summary {
            median: v,
            min: v,
            max: v,
        };
        Outcome {
            name: name.into(),
            unit: "µs one way",
            value: one(value),
            peer: None,
            ratio: ratio.map(one),
            bare_exchange: None,
            rounds: 1,
            details: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn ratios_figures_and_other_figures_are_judged() {
        let lat = verdicts(&figure("rdma-write-lat-p50", 0.7, Some(5.5)), &[]);
        assert_eq!(cell(&lat), "≤ 0.8 µs one way: met; ≤ 5 × peer: **missed**");
        assert_eq!(json(&lat)[1]["met"], false);
        let [one, many] = [("rdma-msg-rate-1qp", 5.0), ("rdma-msg-rate-1024qp", 4.0)]
            .map(|(name, value)| figure(name, value, Some(0.3)));
        let met = verdicts(&many, &[one, many.clone()]);
        assert_eq!(cell(&met), "≥ 0.3 × peer: met; ≥ 0.8 × rdma-msg-rate-1qp: met");
        assert_eq!(verdicts(&many, &[]).len(), 1, "nothing to compare with");
    }

    #[test]
    fn a_figure_without_a_goal_or_a_peer_is_not_judged() {
        assert_eq!(cell(&verdicts(&figure("eth-latency-p50", 1.0, None), &[])), "–");
        assert_eq!(verdicts(&figure("eth-loop", 1.0, None), &[]), []);
    }

    #[test]
    fn a_goal_may_be_that_of_many() {
        let met = |name: &str| verdicts(&figure(name, 1.0, Some(0.9)), &[])[0].met;
        assert!(!met("hostile-rate-eth-kicks") && met("hostile-tail-eth-kicks"));
    }
}
