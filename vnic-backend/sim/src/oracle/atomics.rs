//! Atomics: what a cell went through is a chain, and each request is one link of it.

use vnic_engine::rdma::{SendOp, Span};

use super::bytes;
use super::keys::Side;
use super::{Judgement, Oracle, Rule, Seq};

/// One replacement of a cell's value.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    at: Seq,
    old: u64,
    new: u64,
    /// A request has completed with it.
    taken: bool,
}

impl Step {
    pub(super) fn new(at: Seq, old: u64, new: u64) -> Step {
        Step {
            at,
            old,
            new,
            taken: false,
        }
    }
}

/// The step that only this operation can have made: the workload gives each its own value to add or to swap in.
fn made_by(op: &SendOp, step: &Step) -> bool {
    match *op {
        SendOp::FetchAdd { add, .. } => step.new == step.old.wrapping_add(add),
        SendOp::CompareSwap { compare, swap, .. } => step.old == compare && step.new == swap,
        _ => false,
    }
}

impl Oracle {
    /// A completed atomic: carried out once, and its answer is what was there.
    pub(super) fn check_atomic(&mut self, index: usize, what: &str) -> Judgement {
        let send = &self.sends[index];
        let Some(remote) = send.leaves.iter().find(|l| l.ask.side == Side::Remote) else {
            return Ok(());
        };
        let (_, cell) = self.keys.ask(&remote.ask, send.posted, self.now);
        let Some(at) = cell.first().map(|s| s.at) else {
            return Ok(());
        };
        let here: Vec<Span> = send
            .leaves
            .iter()
            .filter(|l| l.ask.side == Side::Local)
            .flat_map(|l| self.keys.ask(&l.ask, send.posted, self.now).1)
            .collect();
        let dev = self.qps[send.qp].dev;
        let bytes = bytes::read(&self.memories[dev], &here);
        let Ok(answer) = bytes.as_slice().try_into().map(u64::from_ne_bytes) else {
            return Ok(());
        };
        let (op, posted, now) = (send.op, send.posted, self.now);
        let steps = self.cells.entry((remote.ask.dev, at)).or_default();
        let mut mine = steps.iter_mut().filter(|s| made_by(&op, s));
        let judgement = match (mine.next(), mine.next()) {
            (Some(_), Some(_)) => Rule::Integrity.broken(format!("{what} was carried out twice")),
            (Some(step), None) if step.taken || step.at < posted => {
                Rule::Integrity.broken(format!("{what} completed, but what it did was done by another"))
            }
            (Some(step), None) => {
                step.taken = true;
                if step.old == answer {
                    Ok(())
                } else {
                    Rule::Integrity.broken(format!(
                        "{what} answers {answer:#x}, but {:#x} was there",
                        step.old
                    ))
                }
            }
            (None, _) => match op {
                SendOp::FetchAdd { add: 0, .. } => Ok(()),
                SendOp::FetchAdd { .. } => {
                    Rule::Integrity.broken(format!("{what} completed and was never carried out"))
                }
                SendOp::CompareSwap { compare, .. } if answer == compare => {
                    Rule::Integrity.broken(format!("{what} answers what it compared with, but did not swap"))
                }
                _ if !steps.is_empty() && !was_there(steps, answer, posted, now) => Rule::Integrity.broken(
                    format!("{what} answers {answer:#x}, which was not there meanwhile"),
                ),
                _ => Ok(()),
            },
        };
        self.bytes[dev].scatter(&here, Some(&bytes));
        judgement
    }

    /// Each cell is a chain, and its end is what memory holds.
    pub(super) fn check_cells(&self) -> Judgement {
        for ((dev, at), steps) in &self.cells {
            for pair in steps.windows(2) {
                if pair[0].new != pair[1].old && !self.terms.hostile {
                    return Rule::Integrity.broken(format!(
                        "dev{dev}: the cell at {at:#x} changed between two atomics"
                    ));
                }
            }
            let end = u64::from_ne_bytes(
                bytes::read(&self.memories[*dev], &[Span { at: *at, len: 8 }])
                    .try_into()
                    .unwrap_or_default(),
            );
            if steps.last().is_some_and(|s| s.new != end) && !self.terms.hostile {
                return Rule::Integrity.broken(format!(
                    "dev{dev}: the cell at {at:#x} holds {end:#x}, not what the last atomic left"
                ));
            }
        }
        Ok(())
    }
}

/// Did the cell hold this value at some time between?
fn was_there(steps: &[Step], value: u64, from: Seq, to: Seq) -> bool {
    let before = steps.iter().rfind(|s| s.at <= from).map(|s| s.new);
    let first = steps.first().map(|s| s.old);
    before.or(first) == Some(value)
        || steps
            .iter()
            .any(|s| s.at > from && s.at <= to && (s.new == value || s.old == value))
}
