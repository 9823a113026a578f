//! What a scenario does, and when.

use std::fmt;
use std::time::Duration;

use vnic_backend::{FaultSpec, RdmaEvent, VerbsFaultSpec};

/// A scenario, as a file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is about, for people.
    pub description: String,
    /// What is done, by time.
    pub moments: Vec<Moment>,
    /// When it ends, counted from its begin: at its last moment, or later.
    pub length: Duration,
}

/// Something that is done at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Rule of the scenario whose first hit the time is counted from; `None`: the begin of the scenario.
    pub after: Option<String>,
    /// Time since then.
    pub at: Duration,
    /// What is done.
    pub act: Act,
}

/// What a scenario does to an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// No frame passes between the adapter and others, or all do again.
    Cut {
        /// The adapter.
        adapter: String,
        /// Whether frames are lost.
        cut: bool,
    },
    /// The port of the RDMA function says something else.
    Port {
        /// The adapter.
        adapter: String,
        /// What it says.
        change: PortChange,
    },
    /// The RDMA function fails.
    Fail {
        /// The adapter.
        adapter: String,
    },
    /// The RDMA function is taken away, or given back.
    Away {
        /// The adapter.
        adapter: String,
        /// Whether it is taken away.
        away: bool,
    },
    /// The RDMA function is given back, and is another device for processes.
    Renumber {
        /// The adapter.
        adapter: String,
        /// Number of the device; `None`: that of its place.
        number: Option<u32>,
    },
    /// An operator's GID is moved to another index, or taken out.
    MoveGid {
        /// The adapter.
        adapter: String,
        /// Its index; `None`: that of the operator's first one.
        index: Option<u16>,
        /// Where it is then; `None`: nowhere.
        to: Option<u16>,
    },
    /// A GID that was moved or taken out is where it was.
    ReturnGid {
        /// The adapter.
        adapter: String,
        /// Index of [`Act::MoveGid`].
        index: Option<u16>,
        /// Where it was meanwhile.
        to: Option<u16>,
    },
    /// A fault rule is made.
    AddFault(Box<FaultSpec>),
    /// A fault rule is removed.
    RemoveFault(Box<FaultSpec>),
    /// A rule for completions or commands is made.
    AddVerbsFault(Box<VerbsFaultSpec>),
    /// A rule for completions or commands is removed.
    RemoveVerbsFault(Box<VerbsFaultSpec>),
    /// The link of the adapter has another rate.
    Rate {
        /// The adapter.
        adapter: String,
        /// Rate in Mbit/s; `None`: what it was.
        mbps: Option<u32>,
    },
    /// The adapter pauses all others, or no more.
    PauseStorm {
        /// The adapter.
        adapter: String,
        /// Priorities by priority flow control, a bit each; 0: all, by global pause.
        priorities: u8,
        /// Whether it does.
        storm: bool,
    },
    /// Drivers hear of an event that has not happened.
    Tell {
        /// The adapter.
        adapter: String,
        /// The event.
        event: RdmaEvent,
        /// The port, or the index of a GID.
        object: u32,
    },
    /// The processes that have the RDMA function are killed.
    Kill {
        /// The adapter.
        adapter: String,
    },
}

/// What the port of an RDMA function says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortChange {
    /// That it is down, or up; drivers hear of it.
    Down(bool),
    /// Its MTU, as a code; `None`: the adapter's.
    Mtu(Option<u8>),
    /// Its speed in Mbit/s; `None`: what it is.
    Speed(Option<u32>),
}

impl Act {
    /// What puts things back; `None`: nothing does.
    pub fn inverse(&self) -> Option<Act> {
        Some(match self.clone() {
            Act::Cut { adapter, cut } => Act::Cut { adapter, cut: !cut },
            Act::Port { adapter, change } => {
                let change = match change {
                    PortChange::Down(down) => PortChange::Down(!down),
                    PortChange::Mtu(_) => PortChange::Mtu(None),
                    PortChange::Speed(_) => PortChange::Speed(None),
                };
                Act::Port { adapter, change }
            }
            Act::Away { adapter, away } => Act::Away { adapter, away: !away },
            Act::Renumber { adapter, .. } => Act::Renumber {
                adapter,
                number: None,
            },
            Act::MoveGid { adapter, index, to } => Act::ReturnGid { adapter, index, to },
            Act::ReturnGid { adapter, index, to } => Act::MoveGid { adapter, index, to },
            Act::AddFault(spec) => Act::RemoveFault(spec),
            Act::RemoveFault(spec) => Act::AddFault(spec),
            Act::AddVerbsFault(spec) => Act::RemoveVerbsFault(spec),
            Act::RemoveVerbsFault(spec) => Act::AddVerbsFault(spec),
            Act::Rate { adapter, .. } => Act::Rate { adapter, mbps: None },
            Act::PauseStorm {
                adapter,
                priorities,
                storm,
            } => Act::PauseStorm {
                adapter,
                priorities,
                storm: !storm,
            },
            Act::Fail { .. } | Act::Tell { .. } | Act::Kill { .. } => return None,
        })
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |to: &Option<u16>| to.map_or("gone".to_owned(), |to| format!("at index {to}"));
        let gid = |index: &Option<u16>| match index {
            Some(index) => format!("the GID of index {index}"),
            None => "the operator's first GID".to_owned(),
        };
        match self {
            Act::Cut { adapter, cut: true } => write!(f, "{adapter}: no frame passes"),
            Act::Cut { adapter, cut: false } => write!(f, "{adapter}: frames pass again"),
            Act::Port { adapter, change } => match change {
                PortChange::Down(true) => write!(f, "{adapter}: the port says that it is down"),
                PortChange::Down(false) => write!(f, "{adapter}: the port says that it is up"),
                PortChange::Mtu(Some(code)) => write!(f, "{adapter}: the MTU is {}", 128_u32 << code),
                PortChange::Mtu(None) => write!(f, "{adapter}: the MTU is the adapter's"),
                PortChange::Speed(Some(mbps)) => write!(f, "{adapter}: the speed is {mbps} Mbit/s"),
                PortChange::Speed(None) => write!(f, "{adapter}: the speed is what it was"),
            },
            Act::Fail { adapter } => write!(f, "{adapter}: the device fails"),
            Act::Away { adapter, away: true } => write!(f, "{adapter}: the device is gone"),
            Act::Away { adapter, away: false } => write!(f, "{adapter}: the device is back"),
            Act::Renumber {
                adapter,
                number: Some(number),
            } => write!(f, "{adapter}: the device is back as number {number}"),
            Act::Renumber {
                adapter,
                number: None,
            } => write!(f, "{adapter}: the device has its own number"),
            Act::MoveGid { adapter, index, to } => write!(f, "{adapter}: {} is {}", gid(index), place(to)),
            Act::ReturnGid { adapter, index, .. } => {
                write!(f, "{adapter}: {} is where it was", gid(index))
            }
            Act::AddFault(spec) => write!(f, "fault {} is made: {}", spec.name, spec.action.name()),
            Act::RemoveFault(spec) => write!(f, "fault {} is removed", spec.name),
            Act::AddVerbsFault(spec) => {
                write!(f, "verbs fault {} is made: {}", spec.name, spec.action.name())
            }
            Act::RemoveVerbsFault(spec) => write!(f, "verbs fault {} is removed", spec.name),
            Act::Rate { adapter, mbps } => match mbps {
                Some(mbps) => write!(f, "{adapter}: the rate is {mbps} Mbit/s"),
                None => write!(f, "{adapter}: the rate is what it was"),
            },
            Act::PauseStorm {
                adapter,
                priorities,
                storm,
            } => match (*storm, *priorities) {
                (true, 0) => write!(f, "{adapter}: pauses all others"),
                (true, mask) => {
                    let all = (0..8).filter(|p| mask >> p & 1 != 0).map(|p| p.to_string());
                    let all: Vec<String> = all.collect();
                    write!(f, "{adapter}: pauses priorities {} of all others", all.join(", "))
                }
                (false, _) => write!(f, "{adapter}: pauses nobody any more"),
            },
            Act::Tell {
                adapter,
                event,
                object,
            } => write!(f, "{adapter}: is told {event:?} {object}"),
            Act::Kill { adapter } => write!(f, "{adapter}: its processes are killed"),
        }
    }
}
