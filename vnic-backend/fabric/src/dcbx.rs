//! Negotiation of data center bridging exchange on one port (IEEE 802.1Q clause 38, first in 802.1Qaz; `cee` is what came before):
//! which traffic classes, flow control and priorities of applications act, from those of the operator and those of the station at the
//! other end of the link.
//!
//! | attribute | kind | the peer's act while |
//! |---|---|---|
//! | traffic classes (ETS) | asymmetric | the port is willing, and the peer recommends some |
//! | flow control (PFC) | symmetric | the port is willing, the peer has some, and is not willing or has the higher address |
//! | applications | asymmetric | the port is willing, and the peer has some |
//!
//! While several stations speak DCBX on the link, the port acts as if none did. Values that the port cannot realise are not taken. With
//! its peer all that the operator gave comes back.
//!
//! A port that has both versions begins with that of IEEE, changes to CEE when it hears that only, and back when nobody speaks CEE any
//! more (lldptool-dcbx(8) changes so, too, but goes back with the link only).

use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::dcbx::cee::Cee;
use vnic_wire::dcbx::{Algorithm, Application, Classes, Ets, Exchange, Pfc};

use crate::qos::{self, Limits, Tsa};
use cee::Machine;

mod cee;
#[cfg(test)]
mod tests;

/// Number of the scheduler that is a vendor's own (dcbnl.h of Linux, IEEE_8021QAZ_TSA_VENDOR).
const VENDOR: Algorithm = Algorithm::Other(255);

/// Attributes for which a port takes the peer's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Willing {
    /// Traffic classes.
    pub ets: bool,
    /// Flow control by priority.
    pub pfc: bool,
    /// Priorities of applications.
    pub applications: bool,
}

impl Default for Willing {
    /// All, as a host is (WinOF-2 Ethernet Network, Data Center Bridging Exchange).
    fn default() -> Willing {
        Willing {
            ets: true,
            pfc: true,
            applications: true,
        }
    }
}

/// Values of the attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters {
    /// Traffic classes.
    pub classes: Classes,
    /// Priorities with flow control, a bit each.
    pub pfc: u8,
    /// Priorities of applications.
    pub applications: Vec<Application>,
}

/// Whose value of an attribute acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Source {
    /// The operator's.
    #[default]
    Local,
    /// The peer's.
    Peer,
}

/// Whose values act, by attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sources {
    /// Traffic classes.
    pub ets: Source,
    /// Flow control by priority.
    pub pfc: Source,
    /// Priorities of applications.
    pub applications: Source,
}

/// The state machine of an asymmetric attribute, by the port's willing bit and whether the peer has a value.
pub fn asymmetric(willing: bool, peer: bool) -> Source {
    match willing && peer {
        true => Source::Peer,
        false => Source::Local,
    }
}

/// The state machine of a symmetric attribute, by the port's willing bit, the peer's (`None`: it has no value), and
/// whether the port's address is lower than the peer's: of two willing ports the lower one yields.
pub fn symmetric(willing: bool, peer: Option<bool>, lower: bool) -> Source {
    match (willing, peer) {
        (true, Some(false)) => Source::Peer,
        (true, Some(true)) if lower => Source::Peer,
        _ => Source::Local,
    }
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Version {
    /// That of IEEE 802.1Qaz.
    #[default]
    Ieee,
    /// That of CEE, from before.
    Cee,
}

impl Version {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Version::Ieee => "ieee",
            Version::Cee => "cee",
        }
    }
}

/// Versions that a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versions {
    /// One.
    Only(Version),
    /// Both: the peer's, IEEE first.
    Both,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions::Only(Version::Ieee)
    }
}

/// A station on the link, and what it says.
#[derive(Debug, Clone, Copy)]
pub struct Station<'a> {
    /// Its address.
    pub mac: MacAddr,
    /// What it says in the version of IEEE; it may be nothing.
    pub ieee: &'a Exchange,
    /// What it says in that of CEE.
    pub cee: Option<&'a Cee>,
}

/// What a port says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// In the version of IEEE.
    Ieee(Exchange),
    /// In that of CEE.
    Cee(Cee),
}

impl Said {
    /// Appends the TLVs.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Said::Ieee(exchange) => exchange.emit(out),
            Said::Cee(cee) => cee.emit(out),
        }
    }
}

/// What the negotiation has come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Version that the port speaks.
    pub version: Version,
    /// Values that act.
    pub operational: Parameters,
    /// Whose they are.
    pub sources: Sources,
    /// Stations on the link that speak DCBX. Of several none counts.
    pub peers: usize,
    /// Why a value of the peer is not taken although the port is willing, or why both ends cannot agree; `None`: there is no such
    /// reason.
    pub problem: Option<&'static str>,
}

/// What the operator wants of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Administrative {
    /// Versions that the port has.
    pub versions: Versions,
    /// Attributes for which the peer's values are taken.
    pub willing: Willing,
    /// The operator's values.
    pub parameters: Parameters,
    /// Traffic classes that the port has, and priorities that it can pause at a time.
    pub limits: Limits,
}

/// Counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent with the port's attributes.
    pub sent: u64,
    /// Messages received with attributes of a station.
    pub received: u64,
    /// Attributes received that cannot be read: they are there twice, or have another length than they have.
    pub errors: u64,
    /// Changes of what acts.
    pub changes: u64,
}

/// Negotiation on one port.
#[derive(Debug, Clone)]
pub struct Negotiation {
    mac: MacAddr,
    administrative: Administrative,
    /// The state machines of CEE, while the port speaks that.
    cee: Option<Machine>,
    outcome: Outcome,
    /// What was counted since they were taken last.
    pub(crate) counters: Counters,
}

impl Negotiation {
    /// That of a port with this address, which has not heard anybody.
    pub fn new(mac: MacAddr, administrative: Administrative) -> Negotiation {
        let mut new = Negotiation {
            mac,
            administrative,
            cee: None,
            outcome: Outcome::default(),
            counters: Counters::default(),
        };
        new.outcome = new.decide(&[]);
        new
    }

    /// Changes what the operator wants. It acts from the next [`Negotiation::hear`] on.
    pub fn set(&mut self, administrative: Administrative) {
        if let Some(cee) = &mut self.cee {
            cee.set(&administrative);
        }
        self.administrative = administrative;
    }

    /// What the operator wants.
    pub fn administrative(&self) -> &Administrative {
        &self.administrative
    }

    /// What acts.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Decides anew, from what all stations on the link that speak DCBX say now. Returns the outcome before, if it was another one.
    pub fn hear(&mut self, stations: &[Station<'_>]) -> Option<Outcome> {
        let new = self.decide(stations);
        if new == self.outcome {
            return None;
        }
        self.counters.changes += 1;
        Some(core::mem::replace(&mut self.outcome, new))
    }

    fn decide(&mut self, stations: &[Station<'_>]) -> Outcome {
        let mut new = Outcome {
            version: self.version(stations),
            operational: self.administrative.parameters.clone(),
            peers: stations.len(),
            ..Outcome::default()
        };
        let alone = match stations {
            [one] => Some(one),
            _ => None,
        };
        match new.version {
            Version::Ieee => self.cee = None,
            Version::Cee => {
                let wanted = &self.administrative;
                let machine = self.cee.get_or_insert_with(|| Machine::new(wanted));
                machine.hear(alone.and_then(|station| station.cee));
                machine.take(&mut new);
            }
        }
        if let Some(station) = alone {
            match new.version {
                Version::Ieee if *station.ieee == Exchange::default() => {
                    new.problem = Some("the peer speaks DCBX of CEE only, the port that of IEEE");
                }
                Version::Ieee => self.decide_ieee(station, &mut new),
                Version::Cee if station.cee.is_none() => {
                    new.problem = Some("the peer speaks DCBX of IEEE only, the port that of CEE");
                }
                Version::Cee => {}
            }
        }
        new
    }

    /// The version that the port speaks, with these stations on the link.
    fn version(&self, stations: &[Station<'_>]) -> Version {
        let cee = stations.iter().any(|station| station.cee.is_some());
        let ieee = stations
            .iter()
            .any(|station| *station.ieee != Exchange::default());
        match self.administrative.versions {
            Versions::Only(version) => version,
            Versions::Both if cee && (self.cee.is_some() || !ieee) => Version::Cee,
            Versions::Both => Version::Ieee,
        }
    }

    fn decide_ieee(&self, station: &Station<'_>, new: &mut Outcome) {
        let (willing, said, limits) = (
            self.administrative.willing,
            station.ieee,
            self.administrative.limits,
        );
        if let Some(classes) = said.recommendation.filter(|_| willing.ets) {
            new.problem = unfit(&classes, limits).err();
            new.sources.ets = asymmetric(willing.ets, new.problem.is_none());
            if new.sources.ets == Source::Peer {
                new.operational.classes = classes;
            }
        }
        let lower = self.mac < station.mac;
        new.sources.pfc = symmetric(willing.pfc, said.pfc.map(|pfc| pfc.willing), lower);
        if let (Source::Peer, Some(pfc)) = (new.sources.pfc, said.pfc) {
            match pausable(pfc.priorities, limits) {
                Ok(()) => new.operational.pfc = pfc.priorities,
                Err(why) => {
                    (new.sources.pfc, new.problem) = (Source::Local, Some(new.problem.unwrap_or(why)))
                }
            }
        }
        new.sources.applications = asymmetric(willing.applications, !said.applications.is_empty());
        if new.sources.applications == Source::Peer {
            new.operational.applications.clone_from(&said.applications);
        }
    }

    /// What the port says. Configurations of IEEE are those that act. A willing port recommends no classes: two of them would only
    /// exchange theirs. The applications are the operator's, for the TLV has no willing bit: two willing ports that told each other
    /// what they have taken would exchange it for ever. Of CEE all values are the operator's, but for applications that a peer misses.
    pub fn says(&self) -> Said {
        if let Some(cee) = &self.cee {
            return Said::Cee(cee.says());
        }
        let Administrative {
            willing,
            parameters,
            limits,
            ..
        } = &self.administrative;
        let acts = &self.outcome.operational;
        Said::Ieee(Exchange {
            ets: Some(Ets {
                willing: willing.ets,
                classes_max: limits.classes,
                classes: acts.classes,
            }),
            recommendation: (!willing.ets).then_some(parameters.classes),
            pfc: Some(Pfc {
                willing: willing.pfc,
                capability: limits.pfc,
                priorities: acts.pfc,
            }),
            applications: parameters.applications.clone(),
        })
    }
}

/// Whether a port can have flow control of these priorities, a bit each; the error says why it cannot.
fn pausable(priorities: u8, limits: Limits) -> Result<(), &'static str> {
    match priorities.count_ones() <= limits.pfc.into() {
        true => Ok(()),
        false => Err(
            "the peer's flow control is not taken: it has more priorities than the port can pause at a time",
        ),
    }
}

/// Whether a port can have these classes; the error says why it cannot.
fn unfit(c: &Classes, limits: Limits) -> Result<(), &'static str> {
    if c.of_priority.iter().any(|class| *class >= limits.classes) {
        return Err("the peer's classes are not taken: a priority has a class that the port does not have");
    }
    let known = |a: &Algorithm| matches!(a, Algorithm::Strict | Algorithm::Ets | &VENDOR);
    if !c.algorithm.iter().all(known) {
        return Err("the peer's classes are not taken: a class has a scheduler that the port does not have");
    }
    let of_ets = |(a, share): (&Algorithm, &u8)| (*a == Algorithm::Ets).then_some(u32::from(*share));
    let shares: Vec<u32> = c.algorithm.iter().zip(&c.share).filter_map(of_ets).collect();
    match shares.iter().sum() {
        100u32 => Ok(()),
        _ if shares.is_empty() => Ok(()),
        _ => Err("the peer's classes are not taken: the shares of ETS classes are not 100 % together"),
    }
}

/// Classes of a port, as they are told: shares are 100 % together, which are only weights for the port. Arbitration tables of virtual
/// lanes are a vendor's own scheduler there.
pub fn told(classes: &qos::Classes) -> Classes {
    if classes.arbitration.is_some() {
        return Classes {
            of_priority: classes.of_priority,
            share: [0; 8],
            algorithm: [VENDOR; 8],
        };
    }
    let sum: u32 = classes.share.iter().map(|share| u32::from(*share)).sum();
    let mut share = classes.share;
    if sum > 0 {
        share = share.map(|share| u8::try_from(u32::from(share) * 100 / sum).unwrap_or(100));
        let rest = 100u8.saturating_sub(share.iter().sum());
        if let Some(most) = share.iter_mut().max() {
            *most += rest;
        }
    }
    Classes {
        of_priority: classes.of_priority,
        share,
        algorithm: classes.tsa.map(|tsa| match tsa {
            Tsa::Vendor => VENDOR,
            Tsa::Strict => Algorithm::Strict,
            Tsa::Ets => Algorithm::Ets,
        }),
    }
}

/// Classes of a port, as they were told, with the limits that the port has.
pub fn taken(told: &Classes, limit: [u64; qos::PRIORITIES]) -> qos::Classes {
    let tsa = told.algorithm.map(|algorithm| match algorithm {
        Algorithm::Strict => Tsa::Strict,
        Algorithm::Ets => Tsa::Ets,
        Algorithm::CreditBased | Algorithm::Other(_) => Tsa::Vendor,
    });
    let mut share = told.share;
    for (share, tsa) in share.iter_mut().zip(tsa) {
        if tsa != Tsa::Ets {
            *share = 0;
        }
    }
    qos::Classes {
        of_priority: told.of_priority,
        tsa,
        share,
        limit,
        arbitration: None,
        of_upper: None,
        by_source: Vec::new(),
    }
}
