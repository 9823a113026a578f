//! A network in virtual time, for the simulator and for tests: links with latency and rate between any two
//! ports, and faults on them. Only the faults are random, from their seed; events of the same time happen in the
//! order in which they were caused. So the same calls give the same run.
//!
//! ```
//! use core::time::Duration;
//! use vnic_fabric::fault::{Action, Facts, Faults, Rule, RuleId};
//! use vnic_fabric::network::{Link, Network};
//! use vnic_fabric::{Instant, PortId};
//!
//! let (a, b) = (PortId(0), PortId(1));
//! let mut net: Network<Vec<u8>> = Network::new(Faults::new(7));
//! net.set_default(Link { latency: Duration::from_micros(1), bits_per_second: Some(40_000_000_000) });
//! net.faults.add(Rule { probability: 10_000, ..Rule::new(RuleId(1), Action::Drop) })?;
//!
//! let frame = vec![0; 100];
//! let verdict = net.send(Instant(0), Facts::of(a, b, &frame), frame);
//! assert_eq!(verdict.dropped(), None, "1 % of frames are, but not the first of this seed");
//!
//! let now = net.next_time().expect("one frame is on its way");
//! assert_eq!(now, Instant(1_020), "100 bytes at 40 Gbit/s, and the latency");
//! let mut arrival = net.pop(now).expect("it arrives");
//! arrival.verdict.apply(&mut arrival.item);
//! # Ok::<(), vnic_fabric::fault::RuleError>(())
//! ```

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::Instant;
use crate::fault::{Facts, Faults, Holding, Path, Verdict};
use crate::switch::PortId;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Time from the last bit in at one end to the last bit out at the other.
    pub latency: Duration,
    /// Rate at which frames enter, one after the other; `None`: they enter at once. Only the bytes of a frame's
    /// facts count: add preamble, FCS and gap to them (24 bytes, IEEE 802.3 clause 4.4.2) if they matter.
    pub bits_per_second: Option<u64>,
}

/// A frame that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival<T> {
    /// Time of arrival.
    pub at: Instant,
    /// Port that sent the frame.
    pub from: PortId,
    /// Port that the frame arrives at.
    pub to: PortId,
    /// The frame as it was sent. The caller applies marks and flipped bits of the verdict ([`Verdict::apply`]),
    /// because only the caller knows what a `T` is.
    pub item: T,
    /// Faults that the frame met. A copy has the verdict of its original.
    pub verdict: Verdict,
    /// 0 for the frame itself, 1 and so on for copies of it.
    pub copy: u32,
}

/// A frame that is held back.
#[derive(Debug)]
struct Parcel<T> {
    len: u32,
    item: T,
    verdict: Verdict,
}

/// A network in virtual time. Time never goes backwards: a call with an earlier `now` than the last counts as
/// that one.
///
/// A fault acts where the frame enters the link: a frame that is held back enters when it is let go, and later
/// frames may enter before it.
#[derive(Debug)]
pub struct Network<T> {
    /// The faults of this network: callers add and remove rules here.
    pub faults: Faults,
    default: Link,
    links: BTreeMap<Path, Link>,
    /// When a link with a rate is free again.
    busy: BTreeMap<Path, Instant>,
    held: Holding<Parcel<T>>,
    /// Frames on their way, by time and then by number.
    arriving: BTreeMap<(Instant, u64), Arrival<T>>,
    next: u64,
    now: Instant,
}

impl<T: Clone> Network<T> {
    /// A network whose links take no time.
    pub fn new(faults: Faults) -> Network<T> {
        Network {
            faults,
            default: Link::default(),
            links: BTreeMap::new(),
            busy: BTreeMap::new(),
            held: Holding::default(),
            arriving: BTreeMap::new(),
            next: 0,
            now: Instant(0),
        }
    }

    /// Sets all links that have no settings of their own. Frames that have entered a link stay as they are.
    pub fn set_default(&mut self, link: Link) {
        self.default = link;
    }

    /// Sets one direction of one link.
    pub fn set_link(&mut self, from: PortId, to: PortId, link: Link) {
        self.links.insert((from, to), link);
    }

    /// Sends a frame from `facts.from` to `facts.to`, and returns the faults' verdict.
    pub fn send(&mut self, now: Instant, facts: Facts, item: T) -> Verdict {
        self.advance(now);
        let path = (facts.from, facts.to);
        let verdict = self.faults.judge(&facts);
        if verdict.dropped().is_some() {
            return verdict;
        }
        let parcel = Parcel {
            len: facts.len,
            item,
            verdict: verdict.clone(),
        };
        match verdict.hold() {
            Some(hold) => self.held.hold(self.now, path, &hold, parcel),
            None => self.enter(self.now, path, parcel),
        }
        // Frames that waited only for this one follow at once.
        self.advance(now);
        verdict
    }

    /// When a frame arrives or is let go next: call [`Network::pop`] then. `None`: the network is empty.
    pub fn next_time(&self) -> Option<Instant> {
        let arriving = self.arriving.first_key_value().map(|((at, _), _)| *at);
        [arriving, self.held.next_time()].into_iter().flatten().min()
    }

    /// The next frame that has arrived by `now`; `None` until [`Network::next_time`].
    pub fn pop(&mut self, now: Instant) -> Option<Arrival<T>> {
        self.advance(now);
        let (at, _) = *self.arriving.first_key_value()?.0;
        if at > self.now {
            return None;
        }
        self.arriving.pop_first().map(|(_, arrival)| arrival)
    }

    /// Frames that were sent and have neither been dropped nor arrived; each copy on a link counts.
    pub fn len(&self) -> usize {
        self.arriving.len() + self.held.len()
    }

    /// Whether no frame is on its way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets frames enter their links whose time has come.
    fn advance(&mut self, now: Instant) {
        let now = now.max(self.now);
        while let Some((at, path, parcel)) = self.held.pop(now) {
            self.enter(at.max(self.now), path, parcel);
        }
        self.now = now;
    }

    fn enter(&mut self, at: Instant, path: Path, parcel: Parcel<T>) {
        self.now = at;
        let Parcel { len, item, verdict } = parcel;
        let copies = verdict.copies();
        for copy in 0..copies {
            self.carry(at, path, len, item.clone(), verdict.clone(), copy);
        }
        // The last of them need not be cloned.
        self.carry(at, path, len, item, verdict, copies);
        self.held.passed(at, path);
    }

    fn carry(&mut self, at: Instant, path: Path, len: u32, item: T, verdict: Verdict, copy: u32) {
        let link = self.links.get(&path).copied().unwrap_or(self.default);
        let sent = match link.bits_per_second {
            None => at,
            Some(rate) => {
                let bits = u128::from(len) * 8 * 1_000_000_000;
                let ns = bits.div_ceil(u128::from(rate.max(1)));
                let busy = self.busy.entry(path).or_default();
                *busy = (*busy).max(at) + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
                *busy
            }
        };
        let arrives = sent + link.latency;
        let arrival = Arrival {
            at: arrives,
            from: path.0,
            to: path.1,
            item,
            verdict,
            copy,
        };
        self.arriving.insert((arrives, self.next), arrival);
        self.next += 1;
    }
}
