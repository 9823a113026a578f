//! State machines of data center bridging exchange of CEE ("DCB Capability Exchange Protocol Base Specification", revision 1.01), on one
//! port.
//!
//! Control: what a station tells has a sequence number, and the other one acknowledges it. What has changed is told with the next
//! number, and not before the last one is acknowledged.
//!
//! Each feature, once the peer has acknowledged what the port says of it:
//!
//! | the port | the peer | acts | error |
//! |---|---|---|---|
//! | | says nothing of it | the operator's | yes |
//! | | has no rows of applications | the operator's | no |
//! | | has not enabled it | the operator's | no |
//! | willing | not willing | the peer's, unless it has an error or the port cannot have it | if it cannot have it |
//! | not willing | willing | the operator's | no |
//! | both, or neither | | the operator's | if they differ |
//!
//! Groups never differ: each end serves its own. A feature with an error leaves the operator's value, as without a peer.
//!
//! A peer may tell an error of applications because the port names no priority for one of them: lldpad does, by protocol. From that error
//! on, a willing port tells the rows of a peer that is not willing beside those of its operator, who wins for a protocol of both.

use alloc::vec::Vec;

use vnic_wire::dcbx::cee::{Cee, Control, Feature, Groups, Pause, Row, applications, rows};

use super::{Administrative, Outcome, Parameters, Source, pausable, unfit};
use crate::qos::Limits;

/// A feature's state.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Whether the peer has acknowledged what is told of it.
    synced: bool,
    /// Sequence number with which that was told first.
    sequence: u32,
    /// Whether the peer's value acts.
    peers: bool,
    /// Why it is in error.
    problem: Option<&'static str>,
}

/// What a feature came to.
enum Step {
    /// What it was: it waits for the peer.
    Stays,
    /// The operator's value.
    Own,
    /// The peer's.
    Peers,
    /// The operator's, for the peer does not have the feature.
    Silent,
    /// The operator's, with an error.
    Error(&'static str),
}

/// The state machines of a port.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// What is told, with the sequence number and what is acknowledged of the peer (`SeqNo`, `AckNo`).
    told: Cee,
    /// What is to be told next.
    wanted: Cee,
    /// The operator's rows of applications.
    own: Vec<Row>,
    /// Rows of the peer that are told beside them.
    named: Vec<Row>,
    /// The sequence number that the peer has acknowledged (`MyAckNo`).
    confirmed: u32,
    /// Whether there is a peer.
    heard: bool,
    groups: State,
    pause: State,
    applications: State,
    /// The peer's values that act, where the states say so.
    taken: Parameters,
    /// What the port can have.
    limits: Limits,
}

impl Machine {
    /// That of a port that has heard nobody. What it says has the number 1.
    pub(super) fn new(wanted: &Administrative) -> Machine {
        let limits = wanted.limits;
        let wanted = features(wanted);
        let first = State {
            sequence: 1,
            ..State::default()
        };
        let control = Control {
            sequence: 1,
            ..Control::default()
        };
        let own = wanted.applications.as_ref();
        Machine {
            own: own.map(|own| own.value.clone()).unwrap_or_default(),
            named: Vec::new(),
            told: Cee {
                control,
                ..wanted.clone()
            },
            wanted,
            confirmed: 0,
            heard: false,
            groups: first,
            pause: first,
            applications: first,
            taken: Parameters::default(),
            limits,
        }
    }

    /// Changes what the operator wants.
    pub(super) fn set(&mut self, wanted: &Administrative) {
        if !self.heard {
            *self = Machine::new(wanted);
            return;
        }
        self.limits = wanted.limits;
        let mut new = features(wanted);
        let willing = wanted.willing;
        for (state, willing) in [
            (&mut self.groups, willing.ets),
            (&mut self.pause, willing.pfc),
            (&mut self.applications, willing.applications),
        ] {
            state.peers &= willing;
        }
        keep(&mut new.groups, &self.wanted.groups);
        keep(&mut new.pause, &self.wanted.pause);
        keep(&mut new.applications, &self.wanted.applications);
        if let Some(rows) = &mut new.applications {
            self.own.clone_from(&rows.value);
            if !rows.willing {
                self.named.clear();
            }
            rows.value = table(&self.own, &self.named);
        }
        self.wanted = new;
        self.advance();
    }

    /// Names rows of the peer that it misses.
    fn name(&mut self, peer: Option<&Feature<Vec<Row>>>) {
        let Some(rows) = &mut self.wanted.applications else {
            return;
        };
        let missed = |peer: &&Feature<Vec<Row>>| {
            rows.willing && peer.enabled && !peer.willing && (peer.error || !self.named.is_empty())
        };
        self.named = peer
            .filter(missed)
            .map(|peer| peer.value.clone())
            .unwrap_or_default();
        rows.value = table(&self.own, &self.named);
    }

    /// Looks at what the peer says now; `None`: there is no peer.
    pub(super) fn hear(&mut self, peer: Option<&Cee>) {
        let Some(peer) = peer else {
            self.forget();
            return;
        };
        self.heard = true;
        if peer.control.operating != 0 {
            // It goes back to version 0 when it has read this port's greatest one.
            return;
        }
        let acknowledged = peer.control.acknowledged;
        let turn = |state: &mut State, changed: bool| {
            if changed || !state.synced && acknowledged != state.sequence {
                return false;
            }
            state.synced = true;
            true
        };
        self.name(peer.applications.as_ref());
        let (told, wanted, limits) = (&self.told, &mut self.wanted, self.limits);
        if turn(&mut self.groups, told.groups != wanted.groups) {
            let fits = |groups: &Groups| unfit(&groups.classes(limits.classes), limits);
            let step = step(wanted.groups.as_ref(), peer.groups.as_ref(), fits, |_, _| Ok(()));
            if settle(&mut self.groups, &mut wanted.groups, step)
                && let Some(groups) = peer.groups
            {
                self.taken.classes = groups.value.classes(limits.classes);
            }
        }
        if turn(&mut self.pause, told.pause != wanted.pause) {
            let same = |own: &Pause, peer: &Pause| match own.priorities == peer.priorities {
                true => Ok(()),
                false => {
                    Err("flow control: both ends are willing, or neither is, and their priorities differ")
                }
            };
            let fits = |pause: &Pause| pausable(pause.priorities, limits);
            let step = step(wanted.pause.as_ref(), peer.pause.as_ref(), fits, same);
            if settle(&mut self.pause, &mut wanted.pause, step)
                && let Some(pause) = peer.pause
            {
                self.taken.pfc = pause.value.priorities;
            }
        }
        if turn(&mut self.applications, told.applications != wanted.applications) {
            let (own, peers) = (wanted.applications.as_ref(), peer.applications.as_ref());
            let some = peers.is_none_or(|peer| !peer.value.is_empty());
            let step = match some {
                true => step(own, peers, |_| Ok(()), |own, peer| alike(own, peer)),
                false => Step::Own,
            };
            if settle(&mut self.applications, &mut wanted.applications, step)
                && let Some(rows) = peers
            {
                self.taken.applications = applications(&rows.value).collect();
            }
        }
        self.confirmed = acknowledged;
        self.told.control.acknowledged = peer.control.sequence;
        self.advance();
    }

    /// The peer is gone: all begins anew.
    fn forget(&mut self) {
        if !self.heard {
            return;
        }
        clear(&mut self.wanted.groups);
        clear(&mut self.wanted.pause);
        clear(&mut self.wanted.applications);
        self.name(None);
        let first = State {
            sequence: 1,
            ..State::default()
        };
        (self.groups, self.pause, self.applications) = (first, first, first);
        (self.confirmed, self.heard) = (0, false);
        self.told = self.wanted.clone();
        self.told.control.sequence = 1;
    }

    /// Tells what has changed, if the peer has acknowledged what was told before.
    fn advance(&mut self) {
        let changed = [
            self.told.groups != self.wanted.groups,
            self.told.pause != self.wanted.pause,
            self.told.applications != self.wanted.applications,
        ];
        let control = &mut self.told.control;
        if control.sequence != self.confirmed || !changed.contains(&true) {
            return;
        }
        control.sequence = control.sequence.wrapping_add(1);
        let control = *control;
        let states = [&mut self.groups, &mut self.pause, &mut self.applications];
        for (state, _) in states.into_iter().zip(changed).filter(|(_, changed)| *changed) {
            (state.synced, state.sequence) = (false, control.sequence);
        }
        self.told = Cee {
            control,
            ..self.wanted.clone()
        };
    }

    /// What the port says.
    pub(super) fn says(&self) -> Cee {
        self.told.clone()
    }

    /// Puts what acts into an outcome that has the operator's values.
    pub(super) fn take(&self, new: &mut Outcome) {
        let whose = |state: State| match state.peers {
            true => Source::Peer,
            false => Source::Local,
        };
        new.sources.ets = whose(self.groups);
        new.sources.pfc = whose(self.pause);
        new.sources.applications = whose(self.applications);
        if self.groups.peers {
            new.operational.classes = self.taken.classes;
        }
        if self.pause.peers {
            new.operational.pfc = self.taken.pfc;
        }
        if self.applications.peers {
            new.operational.applications.clone_from(&self.taken.applications);
        }
        let all = [self.pause, self.groups, self.applications];
        new.problem = all.iter().find_map(|state| state.problem);
    }
}

/// Features as the operator wants them.
fn features(wanted: &Administrative) -> Cee {
    fn feature<T>(willing: bool, value: T) -> Option<Feature<T>> {
        Some(Feature {
            operating: 0,
            enabled: true,
            willing,
            error: false,
            value,
        })
    }
    let (willing, own) = (wanted.willing, &wanted.parameters);
    let pause = Pause {
        priorities: own.pfc,
        classes_max: wanted.limits.pfc,
    };
    let groups = Groups {
        classes_max: wanted.limits.classes,
        ..Groups::of(&own.classes)
    };
    Cee {
        control: Control::default(),
        groups: feature(willing.ets, groups),
        pause: feature(willing.pfc, pause),
        applications: feature(willing.applications, rows(&own.applications)),
    }
}

/// The state machine of a feature whose own values are acknowledged.
fn step<T>(
    own: Option<&Feature<T>>,
    peer: Option<&Feature<T>>,
    fits: impl Fn(&T) -> Result<(), &'static str>,
    alike: impl Fn(&T, &T) -> Result<(), &'static str>,
) -> Step {
    let Some(own) = own else { return Step::Own };
    let Some(peer) = peer else { return Step::Silent };
    if peer.operating != 0 {
        return Step::Stays;
    }
    if !own.enabled || !peer.enabled {
        return Step::Own;
    }
    let verdict = match (own.willing, peer.willing) {
        (true, false) if peer.error => return Step::Own,
        (true, false) => match fits(&peer.value) {
            Ok(()) => return Step::Peers,
            unfit => unfit,
        },
        (false, true) => Ok(()),
        _ => alike(&own.value, &peer.value),
    };
    verdict.map_or_else(Step::Error, |()| Step::Own)
}

/// Notes what a feature came to. Returns whether the peer's value is to be taken.
fn settle<T>(state: &mut State, own: &mut Option<Feature<T>>, step: Step) -> bool {
    let (peers, error, problem) = match step {
        Step::Stays => return false,
        Step::Own => (false, false, None),
        Step::Peers => (true, false, None),
        Step::Silent => (false, true, None),
        Step::Error(why) => (false, true, Some(why)),
    };
    (state.peers, state.problem) = (peers, problem);
    if let Some(own) = own {
        own.error = error;
    }
    peers
}

/// The row of a protocol.
fn row_of<'a>(row: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    rows.iter()
        .find(|other| (other.selector, other.protocol) == (row.selector, row.protocol))
}

/// The operator's rows, and those of other protocols.
fn table(own: &[Row], named: &[Row]) -> Vec<Row> {
    let others = named.iter().filter(|row| row_of(row, own).is_none());
    own.iter().chain(others).copied().collect()
}

/// Whether rows of the same protocol have the same priorities.
fn alike(own: &[Row], peer: &[Row]) -> Result<(), &'static str> {
    let differs = |row: &Row| row_of(row, peer).is_some_and(|other| other.priorities != row.priorities);
    match own.iter().any(differs) {
        false => Ok(()),
        true => Err("applications: both ends are willing, or neither is, and their priorities differ"),
    }
}

fn clear<T>(feature: &mut Option<Feature<T>>) {
    if let Some(feature) = feature {
        feature.error = false;
    }
}

/// The operator's new value keeps the error of the old one, until it is seen whether it is one.
fn keep<T>(new: &mut Option<Feature<T>>, old: &Option<Feature<T>>) {
    if let (Some(new), Some(old)) = (new, old) {
        new.error = old.error;
    }
}
