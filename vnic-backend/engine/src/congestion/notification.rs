//! The notification point: which marked packets make a congestion notification packet go back, and when (IBTA annex A17.9.3;
//! DCQCN, SIGCOMM 2015, section 3.1; DCQCN+, ICNP 2018).
//!
//! ```text
//!  mark, no window open ──▶ CNP, a window of `spacing` opens
//!  mark in a window     ──▶ owed (where `trailing`): CNP at the window's end, and the next window
//! ```
//!
//! A point that gives its period (DCQCN+) keeps a list of congested flows instead and visits one of them at a time, so that
//! all share its notifications equally: see `list.rs`.

mod list;
mod windows;

use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

use list::List;
use windows::Windows;

/// Most flows that a point remembers. A sender of marked packets from ever new addresses makes it forget the oldest, and takes
/// no more memory than this.
pub const CAPACITY: usize = 8192;

/// Flows that share one spacing of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Scope {
    /// Each queue pair has its own, as in the paper.
    #[default]
    Qp,
    /// Flows of a pair of addresses share one.
    IpPair,
    /// Flows of a notified address share one.
    DestinationIp,
    /// All flows of the port share one.
    Port,
}

/// Priority of a notification (`DcqcnCnpPrioMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CnpPriority {
    /// This priority (`DcqcnCnp802pPrio`).
    Fixed(u8),
    /// The priority of the marked packet.
    Copied,
}

/// Settings of a notification point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Flows that share one spacing.
    pub scope: Scope,
    /// Least time between two notifications (`min_time_between_cnps`); zero: each marked packet makes one (with `told`: at
    /// each visit of the list).
    pub spacing: Duration,
    /// Whether a mark within that time makes a notification at its end (the paper's rule); otherwise it is forgotten.
    pub trailing: bool,
    /// DSCP of notifications (`DcqcnCnpDscp`).
    pub dscp: u8,
    /// ECN field of notifications, 0..=3.
    pub ecn: u8,
    /// Priority of notifications.
    pub priority: CnpPriority,
    /// DCQCN+: time to make one notification. The period in a notification is this times the number of congested flows, and at
    /// least 50 us. `None`: notifications give no period.
    pub told: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            scope: Scope::Qp,
            spacing: Duration::from_micros(50),
            trailing: true,
            dscp: 48,
            ecn: 0,
            priority: CnpPriority::Fixed(6),
            told: None,
        }
    }
}

impl Settings {
    /// Settings of DCQCN+: 45 us between two notifications of a flow, one notification each 1 us (`told`). The 45 us are the
    /// paper's (ICNP 2018), the 1 us is that of a public re-implementation.
    pub fn dcqcn_plus() -> Settings {
        Settings {
            spacing: Duration::from_micros(45),
            told: Some(Duration::from_micros(1)),
            ..Settings::default()
        }
    }
}

/// A flow as its receiver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// Queue pair that is notified.
    pub qp: u32,
    /// Address of that queue pair: where the marked packet came from.
    pub peer: Gid,
    /// Ethernet address that the packet came from: a sender that forges `peer` is another flow.
    pub mac: MacAddr,
    /// Address that the marked packet was sent to.
    pub own: Gid,
}

impl Key {
    /// The part of the key that flows with a common spacing share.
    fn scoped(self, scope: Scope) -> Key {
        let own = Gid::default();
        match scope {
            Scope::Qp => Key { own, ..self },
            Scope::IpPair => Key { qp: 0, ..self },
            Scope::DestinationIp => Key { qp: 0, own, ..self },
            Scope::Port => Key::default(),
        }
    }
}

/// A notification that is to leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cnp<T> {
    /// What came with the mark; if flows share a spacing, with the last of their marks.
    pub to: T,
    /// Time between two notifications, for the sender (DCQCN+).
    pub period: Option<Duration>,
}

/// The notification point of a port. `T` is what its owner needs to send a notification. Time never goes back between calls.
#[derive(Debug)]
pub struct NotificationPoint<T> {
    settings: Settings,
    pacing: Pacing<T>,
}

#[derive(Debug)]
enum Pacing<T> {
    Windows(Windows<T>),
    List(List<T>),
}

impl<T> NotificationPoint<T> {
    /// A point that has seen no mark.
    pub fn new(settings: Settings) -> NotificationPoint<T> {
        let pacing = match settings.told {
            None => Pacing::Windows(Windows::default()),
            Some(each) => Pacing::List(List::new(each)),
        };
        NotificationPoint { settings, pacing }
    }

    /// Settings of the point.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. If pacing changes (`scope`, `spacing`, `trailing`, `told`), owed notifications are forgotten: the
    /// next mark notifies.
    pub fn set(&mut self, settings: Settings) {
        let pacing = |s: &Settings| (s.scope, s.spacing, s.trailing, s.told);
        if pacing(&settings) == pacing(&self.settings) {
            self.settings = settings;
        } else {
            *self = NotificationPoint::new(settings);
        }
    }

    /// A marked packet came. Returns a notification that is to leave now: often that flow's own, but the list of DCQCN+ may
    /// have come to another one; ask [`due`](NotificationPoint::due) for more.
    pub fn marked(&mut self, now: Instant, key: Key, to: T) -> Option<Cnp<T>> {
        let key = key.scoped(self.settings.scope);
        match &mut self.pacing {
            Pacing::Windows(windows) => windows.marked(now, key, to, &self.settings),
            Pacing::List(list) => {
                list.marked(now, key, to, &self.settings);
                list.due(now, &self.settings)
            }
        }
    }

    /// Takes a notification that was owed and whose time has come; call it until there is none.
    pub fn due(&mut self, now: Instant) -> Option<Cnp<T>> {
        match &mut self.pacing {
            Pacing::Windows(windows) => windows.due(now, &self.settings),
            Pacing::List(list) => list.due(now, &self.settings),
        }
    }

    /// Before this time [`due`](NotificationPoint::due) has none, if no further mark comes; at this time it usually has one.
    pub fn next_time(&self) -> Option<Instant> {
        match &self.pacing {
            Pacing::Windows(windows) => windows.next_time(),
            Pacing::List(list) => list.next_time(),
        }
    }

    /// Flows that the point remembers now.
    pub fn remembered(&self) -> usize {
        match &self.pacing {
            Pacing::Windows(windows) => windows.len(),
            Pacing::List(list) => list.len(),
        }
    }
}

#[cfg(test)]
mod tests;
