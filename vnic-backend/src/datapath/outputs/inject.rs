//! Faults on frames to this core's receivers. The core judges each complete frame when it is about to deliver it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::counters::CoreCounter;
use vnic_fabric::fault::{Facts, Faults, Holding, Path, Rule, RuleId, Tally, Verdict};
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::frame::{Metadata, OutFrame, OwnedFrame};
use super::super::news::{CoreEvent, FaultReport, Reported, Reporter};
use super::slot::Receivers;

/// Bytes of frames that one core holds back; further frames are dropped.
const HELD_MAX: usize = 16 << 20;

/// Injections of one rule that are reported one by one in each [`WINDOW`]; the others are summed up at its end.
const REPORTS: u32 = 20;
/// Time in which at most [`REPORTS`] injections of a rule are reported one by one.
const WINDOW: Duration = Duration::from_secs(1);

/// Reports of a rule since the first one.
struct Window {
    name: String,
    until: Instant,
    reported: u32,
    more: u64,
}

/// A complete frame that is held back.
struct Delayed {
    frame: OwnedFrame,
    copies: u32,
    rules: Vec<RuleId>,
    comment: String,
}

/// Fault rules of a core, and the frames that they hold back.
pub struct Injector {
    faults: Faults,
    held: Holding<Delayed>,
    held_bytes: usize,
    /// The time of this round.
    now: Instant,
    windows: BTreeMap<RuleId, Window>,
    events: Reporter,
}

impl Injector {
    /// Makes an injector without rules. `core` is part of the seed, so that the cores draw different random numbers.
    pub fn new(core: usize, now: Instant, events: Reporter) -> Injector {
        Injector {
            faults: Faults::new(core as u64),
            held: Holding::default(),
            held_bytes: 0,
            now,
            windows: BTreeMap::new(),
            events,
        }
    }

    /// Adds a rule that was checked before.
    pub fn add(&mut self, rule: Rule, tally: Arc<Tally>) {
        let checked = self.faults.add_shared(rule, tally);
        debug_assert!(checked.is_ok(), "{checked:?}");
    }

    /// Changes the ports of a rule.
    pub fn set_ports(&mut self, id: RuleId, from: Option<PortId>, to: Option<PortId>) {
        self.faults.set_ports(id, from, to);
    }

    /// Removes a rule. The frames that it holds back leave in this round.
    pub fn remove(&mut self, id: RuleId) {
        self.faults.remove(id);
        self.held.let_go(self.now, |h| h.rules.contains(&id));
        if let Some(w) = self.windows.get_mut(&id) {
            w.until = self.now;
        }
    }

    /// Drops the frames that are held back for a removed port, and returns their number.
    pub fn forget_port(&mut self, port: PortId) -> u64 {
        let gone = self.held.take_out(|path, _| path.1 == port);
        self.held_bytes -= gone.iter().map(cost).sum::<usize>();
        gone.len() as u64
    }

    /// Whether there is no rule, no frame held back and nothing to report.
    pub fn is_idle(&self) -> bool {
        self.faults.is_empty() && self.held.is_empty() && self.windows.is_empty()
    }

    /// When [`Injector::round`] has to be called at the latest.
    pub fn next_time(&self) -> Option<Instant> {
        let windows = self.windows.values().map(|w| w.until);
        windows.chain(self.held.next_time()).min()
    }

    /// Begins a round: releases due frames and sums up what was not reported. Returns the number of released frames.
    pub fn round(&mut self, now: Instant, to: &mut Receivers<'_>) -> usize {
        self.now = now;
        self.sum_up();
        self.release(to)
    }

    /// Whether a rule could match a frame on this path.
    pub fn concerns(&self, from: PortId, to: PortId) -> bool {
        self.faults.concerns(from, to)
    }

    /// Judges a complete frame and delivers it as the verdict says.
    pub fn deliver(&mut self, path: Path, f: &OutFrame<'_>, meta: &Metadata, to: &mut Receivers<'_>) {
        let facts = facts(path, f);
        let verdict = self.faults.judge(&facts);
        if verdict.is_untouched() {
            to.put(path.1, f, meta, None);
            self.passed(path, to);
            return;
        }
        self.report(&facts, &verdict);
        let comment = self.comment(&verdict);
        if verdict.dropped().is_some() {
            to.drop(path.1, f, DropReason::FaultInjected, &comment);
            return;
        }
        let Some(mut frame) = OwnedFrame::copy(f, meta.clone()) else {
            to.drop(
                path.1,
                f,
                DropReason::FaultInjected,
                "no memory for a frame to change or hold back",
            );
            return;
        };
        verdict.apply(&mut frame.bytes);
        let held = Delayed {
            frame,
            copies: verdict.copies(),
            rules: verdict.injections.iter().map(|i| i.rule).collect(),
            comment,
        };
        match verdict.hold() {
            None => {
                leave(path, &held, to);
                self.passed(path, to);
            }
            Some(_) if self.held_bytes + cost(&held) > HELD_MAX => {
                let comment = format!("{}; dropped: too much is held back", held.comment);
                to.drop(path.1, &held.frame.whole(), DropReason::FaultInjected, &comment);
            }
            Some(hold) => {
                self.held_bytes += cost(&held);
                self.held.hold(self.now, path, &hold, held);
            }
        }
    }

    /// Releases frames that waited for a frame that has left.
    fn passed(&mut self, path: Path, to: &mut Receivers<'_>) {
        if !self.held.is_empty() {
            self.held.passed(self.now, path);
            self.release(to);
        }
    }

    fn release(&mut self, to: &mut Receivers<'_>) -> usize {
        let mut n = 0;
        while let Some((_, path, held)) = self.held.pop(self.now) {
            self.held_bytes -= cost(&held);
            leave(path, &held, to);
            self.held.passed(self.now, path);
            n += 1;
        }
        n
    }

    /// Comment of a frame in captures.
    fn comment(&self, verdict: &Verdict) -> String {
        let mut text = String::new();
        for i in &verdict.injections {
            let name = self.faults.rule(i.rule).map_or("", |r| &r.name);
            let sep = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{sep}fault {} \"{name}\": {}", i.rule.0, i.effect);
        }
        text
    }

    /// Reports injections to the control plane, a limited number per window.
    fn report(&mut self, facts: &Facts, verdict: &Verdict) {
        for i in &verdict.injections {
            let name = self.faults.rule(i.rule).map_or("", |r| &r.name);
            let window = self.windows.entry(i.rule).or_insert_with(|| Window {
                name: name.into(),
                until: self.now + WINDOW,
                reported: 0,
                more: 0,
            });
            let told = window.reported < REPORTS && {
                let what = Reported::One {
                    path: (facts.from, facts.to),
                    effect: i.effect.to_string(),
                    len: facts.len,
                    roce: facts.roce.clone(),
                };
                report(&self.events, i.rule, &window.name, what)
            };
            if told {
                window.reported += 1;
            } else {
                window.more += 1;
            }
        }
    }

    /// Ends the windows that are over. A summary for which the control plane has no room is tried again later, so that every
    /// injection is counted.
    fn sum_up(&mut self) {
        if self.windows.is_empty() {
            return;
        }
        let (now, events) = (self.now, &self.events);
        self.windows.retain(|rule, w| {
            if now < w.until {
                return true;
            }
            if w.more > 0 && !report(events, *rule, &w.name, Reported::More(w.more)) {
                w.until = now + WINDOW;
                w.reported = REPORTS;
                return true;
            }
            false
        });
    }
}

fn report(events: &Reporter, rule: RuleId, name: &str, what: Reported) -> bool {
    let name = name.into();
    let report = FaultReport { rule, name, what };
    events.report(CoreEvent::Fault(Box::new(report)))
}

fn cost(held: &Delayed) -> usize {
    held.frame.cost() + held.comment.len()
}

/// Facts of a frame that fault rules match.
fn facts(path: Path, f: &OutFrame<'_>) -> Facts {
    let mut head = [0u8; 128];
    let n = f.peek(&mut head);
    Facts::of_head(path.0, path.1, &head[..n], f.len())
}

/// Delivers a held frame and its copies.
fn leave(path: Path, held: &Delayed, to: &mut Receivers<'_>) {
    let OwnedFrame { meta, .. } = &held.frame;
    for copy in 0..=held.copies {
        to.put(path.1, &held.frame.whole(), meta, Some(&held.comment));
        if copy > 0 {
            to.round.counters.add(CoreCounter::FaultCopies as usize, 1);
        }
    }
}
