//! Link layer discovery of one port (IEEE 802.1AB-2016): it tells the other end of its link what it is, and keeps what others say.
//!
//! | of clause 9.2 | here |
//! |---|---|
//! | transmit machine, timers | message every 30 s, four a second apart when a neighbour is new or what is said has changed, holds for 121 s; at most five at once, one a second more |
//! | shutdown | a message with time to live 0 when the port stops to speak; it cannot be sent by a link that is down |
//! | receive machine | neighbours by chassis and port; a shutdown, the end of their time and the end of the link remove them |
//! | tooManyNeighbors | [`NEIGHBOURS_MAX`]; others are counted, and come when there is room |
//!
//! Time, frames and the link go in; [`Agent::poll`] gives what has to be done, [`Agent::next_time`] when to call [`Agent::tick`].

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::MacAddr;
use vnic_wire::dcbx::Exchange;
use vnic_wire::dcbx::cee::Cee;
use vnic_wire::lldp::{self, Id, Lldpdu, capability, kind, text};

use crate::Instant;
use crate::dcbx::{self, Administrative, Negotiation, Outcome, Station};

/// Time between messages (msgTxInterval).
pub const INTERVAL: Duration = Duration::from_secs(30);
/// Time between messages while a neighbour is new (msgFastTx), and until another message may be sent (txCreditMax).
pub const FAST_INTERVAL: Duration = Duration::from_secs(1);
/// Messages at that pace (txFastInit).
const FAST: u8 = 4;
/// Most messages that may be sent at once (txCreditMax).
const CREDIT_MAX: u8 = 5;
/// For how long a message holds, seconds: msgTxHold times the interval, and one more (clause 9.2.5.22).
pub const TTL: u16 = 4 * 30 + 1;
/// Most neighbours that are kept.
pub const NEIGHBOURS_MAX: usize = 16;

/// What a port tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Its address: source of frames, and identifier of the chassis, as of a card whose firmware speaks.
    pub mac: MacAddr,
    /// Name of the port.
    pub port: String,
    /// Description of the port.
    pub description: String,
    /// Name of the system; empty: it is not told.
    pub system_name: String,
    /// Description of the system.
    pub system_description: String,
}

/// A station that is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Source address of its frames.
    pub source: MacAddr,
    /// Identifier of its chassis, for people.
    pub chassis: String,
    /// Identifier of its port, for people.
    pub port: String,
    /// Description of its port.
    pub port_description: String,
    /// Name of the system.
    pub system_name: String,
    /// Description of the system.
    pub system_description: String,
    /// [`capability`] that are on.
    pub capabilities: u16,
    /// Its management address, for people.
    pub management: String,
    /// What it says of priorities, as of IEEE 802.1Qaz.
    pub exchange: Exchange,
    /// What it says of priorities, as of CEE.
    pub cee: Option<Cee>,
    /// For how long its last message holds, seconds.
    pub ttl: u16,
    /// When it was heard first.
    pub since: Instant,
    /// When its last message ceases to hold.
    pub until: Instant,
}

/// A neighbour, and what names it.
#[derive(Debug, Clone)]
struct Entry {
    chassis: (u8, Vec<u8>),
    port: (u8, Vec<u8>),
    neighbour: Neighbour,
}

impl Entry {
    fn is(&self, pdu: &Lldpdu<'_>) -> bool {
        let same =
            |id: &Id<'_>, (subtype, bytes): &(u8, Vec<u8>)| id.subtype == *subtype && id.bytes == &bytes[..];
        same(&pdu.chassis, &self.chassis) && same(&pdu.port, &self.port)
    }
}

/// Why a neighbour is not heard any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It said so.
    Shutdown,
    /// It was silent for too long.
    Aged,
    /// The link went down, or the port does not listen any more.
    Link,
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a frame.
    Send(Vec<u8>),
    /// A neighbour is new.
    Found(Neighbour),
    /// A neighbour is gone.
    Lost(Neighbour, Lost),
    /// DCBX has come to something else; this is what it was before.
    Negotiated(Outcome),
}

/// Counters (clause 9.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent (statsFramesOutTotal).
    pub sent: u64,
    /// Messages received (statsFramesInTotal).
    pub received: u64,
    /// Of them: not to be read (statsFramesInErrorsTotal).
    pub errors: u64,
    /// Of them: of a neighbour for whom there was no room (statsFramesDiscardedTotal, without errors).
    pub discarded: u64,
    /// Neighbours whose time was over (statsAgeoutsTotal).
    pub ageouts: u64,
}

/// Link layer discovery of a port.
#[derive(Debug, Clone)]
pub struct Agent {
    local: Local,
    transmits: bool,
    receives: bool,
    /// Whether it tells more than a message must have, and reads more.
    optional: (bool, bool),
    /// Data center bridging exchange, while the port has it. It acts while the port speaks and listens.
    dcbx: Option<Negotiation>,
    up: bool,
    neighbours: Vec<Entry>,
    counters: Counters,
    /// When the next message is due; `None`: none is.
    due: Option<Instant>,
    /// Messages that are still to come at the fast pace.
    fast: u8,
    /// Messages that may be sent at once, and since when.
    credit: (u8, Instant),
    outputs: VecDeque<Output>,
}

impl Agent {
    /// An agent whose link is down.
    pub fn new(local: Local, transmits: bool, receives: bool) -> Agent {
        Agent {
            local,
            transmits,
            receives,
            optional: (true, true),
            dcbx: None,
            up: false,
            neighbours: Vec::new(),
            counters: Counters::default(),
            due: None,
            fast: 0,
            credit: (CREDIT_MAX, Instant(0)),
            outputs: VecDeque::new(),
        }
    }

    /// Sets whether the port speaks, and whether it listens.
    pub fn configure(&mut self, now: Instant, transmits: bool, receives: bool) {
        if self.transmits && !transmits {
            self.shut_down();
        }
        let begins = transmits && !self.transmits;
        (self.transmits, self.receives) = (transmits, receives);
        if begins && self.up {
            self.hurry(now);
        }
        if !transmits {
            self.due = None;
        }
        if !receives {
            self.forget_all();
        }
        self.negotiate(now);
    }

    /// Sets whether the port tells more than a message must have, and whether it reads more of a neighbour.
    pub fn set_optional(&mut self, tells: bool, reads: bool) {
        self.optional = (tells, reads);
    }

    /// Sets what the operator wants of data center bridging exchange; `None`: the port has none, and the operator's values act.
    pub fn set_dcbx(&mut self, now: Instant, wanted: Option<Administrative>) {
        let said = self.dcbx.as_ref().map(Negotiation::says);
        match (&mut self.dcbx, wanted) {
            (Some(dcbx), Some(wanted)) => dcbx.set(wanted),
            (dcbx, wanted) => *dcbx = wanted.map(|wanted| Negotiation::new(self.local.mac, wanted)),
        }
        self.negotiate(now);
        if said != self.dcbx.as_ref().map(Negotiation::says) {
            self.changed(now);
        }
    }

    /// Data center bridging exchange, if the port has it.
    pub fn dcbx(&self) -> Option<&Negotiation> {
        self.dcbx.as_ref()
    }

    /// Counters of data center bridging exchange since they were taken last.
    pub fn take_dcbx_counters(&mut self) -> dcbx::Counters {
        let counters = self.dcbx.as_mut().map(|dcbx| &mut dcbx.counters);
        counters.map(core::mem::take).unwrap_or_default()
    }

    /// Sets whether the link is up.
    pub fn set_link(&mut self, now: Instant, up: bool) {
        if self.up == up {
            return;
        }
        self.up = up;
        match up {
            true if self.transmits => self.hurry(now),
            true => {}
            false => {
                self.due = None;
                self.forget_all();
                self.negotiate(now);
            }
        }
    }

    /// The port ends: the others are told so, if it speaks and the link is up.
    pub fn end(&mut self) {
        self.dcbx = None;
        if self.transmits {
            self.shut_down();
        }
        (self.transmits, self.receives, self.due) = (false, false, None);
        self.forget_all();
    }

    /// Takes a frame.
    pub fn receive(&mut self, now: Instant, frame: &[u8]) {
        if !self.receives || !self.up {
            return;
        }
        self.counters.received += 1;
        let Ok(mut pdu) = Lldpdu::parse(frame) else {
            self.counters.errors += 1;
            return;
        };
        if !self.optional.1 {
            pdu = pdu.mandatory();
        }
        let known = self.neighbours.iter().position(|entry| entry.is(&pdu));
        let (new, unread) = Neighbour::of(&pdu, now);
        if let Some(dcbx) = self.dcbx.as_mut() {
            dcbx.counters.received += u64::from(new.bridges());
            dcbx.counters.errors += u64::from(unread);
        }
        match (known, pdu.ttl) {
            (Some(i), 0) => {
                let entry = self.neighbours.remove(i);
                self.outputs
                    .push_back(Output::Lost(entry.neighbour, Lost::Shutdown));
            }
            (None, 0) => {}
            (Some(i), _) => {
                if let Some(entry) = self.neighbours.get_mut(i) {
                    let since = entry.neighbour.since;
                    entry.neighbour = Neighbour { since, ..new };
                }
            }
            (None, _) if self.neighbours.len() >= NEIGHBOURS_MAX => self.counters.discarded += 1,
            (None, _) => {
                let id = |id: Id<'_>| (id.subtype, id.bytes.to_vec());
                self.neighbours.push(Entry {
                    chassis: id(pdu.chassis),
                    port: id(pdu.port),
                    neighbour: new.clone(),
                });
                self.outputs.push_back(Output::Found(new));
                if self.transmits {
                    self.hurry(now);
                }
            }
        }
        self.negotiate(now);
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Instant) {
        let (outputs, counters) = (&mut self.outputs, &mut self.counters);
        self.neighbours.retain(|entry| {
            let holds = entry.neighbour.until > now;
            if !holds {
                counters.ageouts += 1;
                outputs.push_back(Output::Lost(entry.neighbour.clone(), Lost::Aged));
            }
            holds
        });
        self.negotiate(now);
        let Some(due) = self.due.filter(|due| *due <= now) else {
            return;
        };
        let earned = now.since(self.credit.1).as_secs();
        if earned > 0 {
            let credit = u64::from(self.credit.0) + earned;
            self.credit = (credit.min(CREDIT_MAX.into()) as u8, now);
        }
        if self.credit.0 == 0 {
            self.due = Some(self.credit.1 + FAST_INTERVAL);
            return;
        }
        self.credit.0 -= 1;
        self.say(TTL);
        self.fast = self.fast.saturating_sub(1);
        let pace = if self.fast > 0 { FAST_INTERVAL } else { INTERVAL };
        // A late call delays no later message, unless it was later than a pace.
        self.due = Some((due + pace).max(now));
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When time has to pass next.
    pub fn next_time(&self) -> Option<Instant> {
        let ends = self.neighbours.iter().map(|entry| entry.neighbour.until);
        ends.chain(self.due).min()
    }

    /// The neighbours, in the order in which they were found.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.iter().map(|entry| &entry.neighbour)
    }

    /// Counters since the agent was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A message now, and more at the fast pace.
    fn hurry(&mut self, now: Instant) {
        (self.fast, self.due) = (FAST, Some(now));
    }

    /// What is told has changed.
    fn changed(&mut self, now: Instant) {
        if self.transmits && self.up {
            self.hurry(now);
        }
    }

    /// Decides anew what acts by DCBX.
    fn negotiate(&mut self, now: Instant) {
        let Some(dcbx) = &mut self.dcbx else { return };
        let acts = self.transmits && self.receives;
        let all = self.neighbours.iter().map(|entry| &entry.neighbour);
        let station = |n| Neighbour::station(n).filter(|_| acts);
        let stations: Vec<_> = all.filter_map(station).collect();
        let said = dcbx.says();
        let Some(before) = dcbx.hear(&stations) else {
            return;
        };
        let news = dcbx.says() != said;
        self.outputs.push_back(Output::Negotiated(before));
        if news {
            self.changed(now);
        }
    }

    fn forget_all(&mut self) {
        for entry in core::mem::take(&mut self.neighbours) {
            self.outputs.push_back(Output::Lost(entry.neighbour, Lost::Link));
        }
    }

    fn shut_down(&mut self) {
        if self.up {
            self.say(0);
        }
    }

    fn say(&mut self, ttl: u16) {
        let l = &self.local;
        let mut more = Vec::new();
        // A shutdown has nothing else (clause 9.2.7.3).
        if ttl > 0 && self.optional.0 {
            lldp::put(&mut more, kind::PORT_DESCRIPTION, &[l.description.as_bytes()]);
            if !l.system_name.is_empty() {
                lldp::put(&mut more, kind::SYSTEM_NAME, &[l.system_name.as_bytes()]);
            }
            lldp::put(
                &mut more,
                kind::SYSTEM_DESCRIPTION,
                &[l.system_description.as_bytes()],
            );
            let bridge = capability::BRIDGE.to_be_bytes();
            lldp::put(&mut more, kind::CAPABILITIES, &[&bridge, &bridge]);
            if let Some(dcbx) = self.dcbx.as_mut().filter(|_| self.receives) {
                dcbx.says().emit(&mut more);
                dcbx.counters.sent += 1;
            }
        }
        let id = |subtype, bytes| Id { subtype, bytes };
        let (chassis, port) = (
            id(Id::CHASSIS_MAC, &l.mac.0),
            id(Id::PORT_NAME, l.port.as_bytes()),
        );
        self.counters.sent += 1;
        self.outputs
            .push_back(Output::Send(Lldpdu::frame(l.mac, chassis, port, ttl, &more)));
    }
}

impl Neighbour {
    /// What it says of priorities, in the terms of IEEE 802.1Qaz; nothing: it says nothing.
    pub fn priorities(&self) -> Exchange {
        match &self.cee {
            Some(cee) if self.exchange == Exchange::default() => cee.exchange(),
            _ => self.exchange.clone(),
        }
    }

    /// Whether it speaks DCBX, in one version or the other.
    fn bridges(&self) -> bool {
        self.cee.is_some() || self.exchange != Exchange::default()
    }

    fn station(&self) -> Option<Station<'_>> {
        self.bridges().then_some(Station {
            mac: self.source,
            ieee: &self.exchange,
            cee: self.cee.as_ref(),
        })
    }

    /// The station of a message, and how many TLVs of DCBX in it cannot be read.
    fn of(pdu: &Lldpdu<'_>, now: Instant) -> (Neighbour, u32) {
        let mut unread = 0;
        let string = |bytes: Option<&[u8]>| text(bytes.unwrap_or_default());
        // Families 1 and 2 of IANA are IPv4 and IPv6; management addresses are written as an identifier of a port is.
        let management = match pdu.management {
            Some((2, bytes)) => match <[u8; 16]>::try_from(bytes) {
                Ok(v6) => alloc::format!("{}", core::net::Ipv6Addr::from(v6)),
                Err(_) => text(bytes),
            },
            Some((1, bytes)) => match <[u8; 4]>::try_from(bytes) {
                Ok(v4) => alloc::format!("{}", core::net::Ipv4Addr::from(v4)),
                Err(_) => text(bytes),
            },
            Some((6, bytes)) => alloc::format!("{}", Id { subtype: 3, bytes }),
            Some((_, bytes)) => text(bytes),
            None => String::new(),
        };
        let new = Neighbour {
            source: pdu.source,
            chassis: alloc::format!("{}", pdu.chassis),
            port: alloc::format!("{}", pdu.port),
            port_description: string(pdu.port_description),
            system_name: string(pdu.system_name),
            system_description: string(pdu.system_description),
            capabilities: pdu.capabilities.map_or(0, |(_, on)| on),
            management,
            exchange: Exchange::parse(pdu.more, &mut unread),
            cee: Cee::parse(pdu.more, &mut unread),
            ttl: pdu.ttl,
            since: now,
            until: now + Duration::from_secs(pdu.ttl.into()),
        };
        (new, unread)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString as _;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn agent(n: u8, transmits: bool, receives: bool) -> Agent {
        let local = Local {
            mac: MacAddr([2, 0, 0, 0, 0, n]),
            port: "p0".to_string(),
            description: "a wire".to_string(),
            system_name: std::format!("host{n}"),
            system_description: "vnic".to_string(),
        };
        let mut agent = Agent::new(local, transmits, receives);
        agent.set_link(Instant(0), true);
        agent
    }

    /// Two agents on a wire, told the time in steps of a quarter of a second: what each has done, in words.
    fn talk(agents: &mut [Agent; 2], from: u64, to: u64) -> Vec<String> {
        let mut story = Vec::new();
        for quarter in 4 * from..4 * to {
            let now = Instant(quarter * S / 4);
            for i in 0..2 {
                agents[i].tick(now);
                while let Some(output) = agents[i].poll() {
                    let what = match output {
                        Output::Send(frame) => {
                            agents[1 - i].receive(now, &frame);
                            "sends".to_string()
                        }
                        Output::Found(n) => std::format!("finds {}", n.system_name),
                        Output::Lost(n, why) => std::format!("loses {}: {why:?}", n.system_name),
                        Output::Negotiated(_) => "negotiates".to_string(),
                    };
                    story.push(std::format!("{:.2} {i} {what}", quarter as f64 / 4.0));
                }
            }
        }
        story
    }

    #[test]
    fn two_stations_meet_and_part() {
        let mut both = [agent(0, true, true), agent(1, true, true)];
        let story = talk(&mut both, 0, 70);
        expect_test::expect![[r#"
            0.00 0 sends
            0.00 1 finds host0
            0.00 1 sends
            0.25 0 finds host1
            0.25 0 sends
            1.00 0 sends
            1.00 1 sends
            2.00 0 sends
            2.00 1 sends
            3.00 0 sends
            3.00 1 sends
            33.00 0 sends
            33.00 1 sends
            63.00 0 sends
            63.00 1 sends"#]]
        .assert_eq(&story.join("\n"));
        let heard: Vec<_> = both[0].neighbours().cloned().collect();
        assert_eq!(heard.len(), 1);
        let n = &heard[0];
        assert_eq!(
            (&n.chassis[..], &n.port[..], n.ttl),
            ("02:00:00:00:00:01", "p0", TTL)
        );
        assert_eq!(
            (&n.port_description[..], n.capabilities),
            ("a wire", capability::BRIDGE)
        );
        // One that leaves says so; it hears nothing more.
        both[1].end();
        let story = talk(&mut both, 70, 71);
        assert_eq!(
            story,
            [
                "70.00 1 sends",
                "70.00 1 loses host0: Link",
                "70.25 0 loses host1: Shutdown"
            ]
        );
    }

    #[test]
    fn a_silent_neighbour_is_forgotten() {
        let mut both = [agent(0, true, true), agent(1, true, true)];
        talk(&mut both, 0, 10);
        // The wire is cut without a sign: the last message was sent at 3.00.
        assert_eq!(both[0].next_time(), Some(Instant(33 * S)));
        let mut alone = [both[0].clone(), agent(2, false, false)];
        let story = talk(&mut alone, 10, 130);
        assert!(
            story.contains(&"124.00 0 loses host1: Aged".to_string()),
            "{story:?}"
        );
        assert_eq!(alone[0].counters().ageouts, 1);
    }

    #[test]
    fn directions_are_separate() {
        let mut both = [agent(0, true, false), agent(1, false, true)];
        let story = talk(&mut both, 0, 5);
        assert_eq!(story[..2], ["0.00 0 sends", "0.00 1 finds host0"]);
        assert!(
            !story
                .iter()
                .any(|line| line.contains("1 sends") || line.contains("0 finds"))
        );
        both[1].configure(Instant(5 * S), false, false);
        assert_eq!(talk(&mut both, 5, 6), ["5.00 1 loses host0: Link"]);
    }

    #[test]
    fn no_more_is_told_or_read_than_a_message_must_have() {
        for (tells, reads) in [(true, false), (false, true), (true, true)] {
            let mut both = [agent(0, true, false), agent(1, false, true)];
            both[0].set_optional(tells, true);
            both[1].set_optional(true, reads);
            talk(&mut both, 0, 1);
            let n = both[1].neighbours().next().cloned().expect("a neighbour");
            assert_eq!((&n.port[..], n.ttl), ("p0", TTL));
            let all = if tells && reads { "host0" } else { "" };
            assert_eq!((&n.system_name[..], n.capabilities != 0), (all, tells && reads));
        }
    }

    #[test]
    fn links_that_flap_send_no_more_than_the_credit() {
        let mut one = agent(0, true, true);
        let mut sent = 0;
        for i in 0..100 {
            let now = Instant(S + i * S / 100);
            one.set_link(now, false);
            one.set_link(now, true);
            one.tick(now);
            sent += core::iter::from_fn(|| one.poll()).count();
        }
        assert_eq!(sent, usize::from(CREDIT_MAX));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut one = agent(0, false, true);
        let from = |n: u8| {
            let mut other = agent(n, true, true);
            other.tick(Instant(0));
            match other.poll() {
                Some(Output::Send(frame)) => frame,
                other => panic!("{other:?}"),
            }
        };
        for n in 1..=20 {
            one.receive(Instant(0), &from(n));
        }
        one.receive(Instant(0), &[0; 60]);
        assert_eq!(one.neighbours().count(), NEIGHBOURS_MAX);
        let c = one.counters();
        assert_eq!((c.received, c.discarded, c.errors), (21, 4, 1));
        // Those that are known are heard.
        let mut changed = from(1);
        let at = changed
            .windows(2)
            .position(|w| w == TTL.to_be_bytes())
            .expect("its time");
        changed[at + 1] = 9;
        one.receive(Instant(S), &changed);
        assert_eq!(
            one.neighbours().next().map(|n| (n.since, n.until)),
            Some((Instant(0), Instant(10 * S)))
        );
    }
}
