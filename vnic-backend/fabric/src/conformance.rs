//! What reliable connections (RC and XRC) must do on a wire, checked frame by frame: go-back-N, negative acknowledgements, marks and
//! congestion notifications. [`Checker`] is given the frames of the responder's wire in the order of time: those that reach it, and
//! its answers.
//!
//! A responder that misses a packet says so once, with the number that it expects, and takes nothing else until that comes (IBTA volume
//! 1, section 9.7.5.2.8); a requester that is told goes back to this number and sends all from there again (section 9.7.5.1.3). A packet
//! with a wrong ICRC counts as one that did not come (section 7.8). The numbers behind an RDMA READ depend on its length and the path
//! MTU, which the wire does not say: the first packet behind one is believed.

use alloc::vec::Vec;

use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::gid::Gid;
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::Ecn;
use vnic_wire::{EtherType, bth, icrc};

use crate::fault::Facts;
use crate::switch::PortId;

vnic_wire::named! {
    /// A rule that was broken.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Broken {
        /// Packets were missing, and the responder did not say so before they came.
        NakMissing => "nak_missing",
        /// The responder said again what it had said of the same packets.
        NakTwice => "nak_twice",
        /// The responder missed a packet that was not missing, or named another one than the first.
        NakWrong => "nak_wrong",
        /// The responder acknowledged a packet that had not come.
        AckEarly => "ack_early",
        /// The requester went back to another packet than the one that it was told.
        WentElsewhere => "went_elsewhere",
        /// The requester sent the missing packet again, and not those behind it.
        NotGoBackN => "not_go_back_n",
        /// Packets were marked, and the responder notified nobody.
        NoNotification => "no_notification",
    }
}

/// A rule that was broken, when and at which packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Time of the frame that shows it, in nanoseconds.
    pub at: u64,
    /// Number of the packet that it is about.
    pub psn: Psn,
    /// The rule.
    pub broken: Broken,
}

/// Least and greatest of some times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread(pub Option<(u64, u64)>);

impl Spread {
    fn add(&mut self, ns: u64) {
        let (least, most) = self.0.unwrap_or((ns, ns));
        self.0 = Some((least.min(ns), most.max(ns)));
    }
}

/// Packets that are missing.
#[derive(Debug, Clone, Copy)]
struct Gap {
    since: u64,
    told: Option<u64>,
}

/// The requests from one address to a queue pair of another, and what was found.
// Wide: counts of one report, and where it stands.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Address of the requester.
    pub source: Gid,
    /// Address of the responder.
    pub destination: Gid,
    /// Queue pair of the responder.
    pub qp: u32,
    /// Packets that came.
    pub packets: u64,
    /// Packets that came again, or late.
    pub again: u64,
    /// Packets with a wrong ICRC.
    pub corrupt: u64,
    /// Packets that were marked "congestion experienced".
    pub marked: u64,
    /// Times that packets were missing.
    pub gaps: u64,
    /// Negative acknowledgements of a sequence error.
    pub naks: u64,
    /// Times that the requester went back without being told: its timer ran out.
    pub timeouts: u64,
    /// Time from the packet that shows a gap to the negative acknowledgement.
    pub told_after: Spread,
    /// Time from the negative acknowledgement to the packet that was missing.
    pub back_after: Spread,
    /// Rules that were broken, in order; the first [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Number of the packet that the responder expects.
    expected: Psn,
    /// The packet before was an RDMA READ: the next number is not known.
    loose: bool,
    gap: Option<Gap>,
    /// Number of the request before.
    last: Psn,
    /// Behind the greatest number that has come.
    highest: Psn,
    /// The packet before closed a gap of which the responder had not spoken.
    untold: Option<Psn>,
    /// The first of these packets behind which others came again, too.
    resent_untold: Option<(u64, Psn)>,
    /// Gaps that were told and closed, and packets that came twice.
    told_closed: u64,
    twice: u64,
    /// What the responder has missed last, and what came without its word.
    missed: [Option<Psn>; 4],
    late: [Option<Psn>; 4],
}

/// Congestion notifications from one address to a queue pair of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notifications {
    /// Address that notifies: the responder's.
    pub source: Gid,
    /// Address that is notified.
    pub destination: Gid,
    /// Its queue pair.
    pub qp: u32,
    /// How many.
    pub count: u64,
    /// Times between two of them.
    pub interval: Spread,
    last: u64,
}

impl Notifications {
    /// Whether one came sooner after another than a notification point with this interval, in nanoseconds, sends them.
    pub fn are_early(&self, interval: u64) -> bool {
        self.interval.0.is_some_and(|(least, _)| least < interval)
    }
}

/// Most findings that are kept of a flow.
pub const FINDINGS_MAX: usize = 100;
/// Most flows that are followed; frames of further ones are not looked at.
pub const FLOWS_MAX: usize = 65_536;

/// Checks the frames of a responder's wire.
#[derive(Debug, Clone, Default)]
pub struct Checker {
    flows: Vec<Flow>,
    notifications: Vec<Notifications>,
}

/// A RoCE packet of a frame.
struct Packet {
    source: Gid,
    destination: Gid,
    opcode: Opcode,
    qp: u32,
    psn: Psn,
    marked: bool,
    /// `None`: the frame is not whole.
    sound: Option<bool>,
    /// Of an acknowledgement.
    syndrome: Option<Syndrome>,
}

impl Packet {
    fn parse(frame: &[u8], len: usize) -> Option<Packet> {
        let facts = Facts::of_head(PortId(0), PortId(0), frame, len);
        let roce = facts.roce?;
        let packet = frame.get(usize::try_from(facts.header).ok()?..)?;
        let gid = |at: usize| Some(Gid(*packet.get(at..)?.first_chunk()?));
        let v4 = |at: usize| Some(Gid::from_ipv4(*packet.get(at..)?.first_chunk()?));
        let (kind, source, destination) = match facts.ethertype {
            EtherType::IPV4 => (icrc::Kind::V4, v4(12)?, v4(16)?),
            EtherType::IPV6 => (icrc::Kind::V6, gid(8)?, gid(24)?),
            _ => (icrc::Kind::V1, gid(8)?, gid(24)?),
        };
        let (first, last) = (
            usize::try_from(roce.packet.start).ok()?,
            usize::try_from(roce.packet.end).ok()?,
        );
        let whole = frame.get(usize::try_from(facts.header).ok()?..last);
        let sound = whole.filter(|_| frame.len() >= len).and_then(|whole| {
            let (packet, sum) = whole.split_last_chunk::<{ icrc::LEN }>()?;
            Some(icrc::compute(kind, packet).ok()? == *sum)
        });
        let opcode = Opcode(roce.opcode);
        let answer = opcode.operation() == Some(Operation::Acknowledge);
        let aeth = frame.get(first + bth::HEADER_LEN..).filter(|_| answer);
        Some(Packet {
            source,
            destination,
            opcode,
            qp: roce.destination_qp,
            psn: Psn::new(roce.psn),
            marked: facts.ecn == Some(Ecn::Ce),
            sound,
            syndrome: aeth.and_then(|b| aeth::Header::parse(b).ok()).map(|h| h.syndrome),
        })
    }
}

impl Checker {
    /// Looks at a frame of `len` bytes, of which `frame` was captured, at a time in nanoseconds. True: it is a RoCE packet.
    pub fn frame(&mut self, at: u64, frame: &[u8], len: usize) -> bool {
        let Some(packet) = Packet::parse(frame, len) else {
            return false;
        };
        if packet.opcode == Opcode::CNP {
            self.notification(at, &packet);
            return true;
        }
        if !matches!(packet.opcode.transport(), Transport::Rc | Transport::Xrc) {
            return true;
        }
        match packet.opcode.operation() {
            Some(Operation::Acknowledge) => self.answer(at, &packet),
            Some(
                Operation::ReadResponseFirst
                | Operation::ReadResponseMiddle
                | Operation::ReadResponseLast
                | Operation::ReadResponseOnly
                | Operation::AtomicAcknowledge,
            )
            | None => {}
            Some(operation) => {
                if let Some(flow) = self.flow(&packet) {
                    flow.request(at, &packet, operation);
                }
            }
        }
        true
    }

    fn flow(&mut self, packet: &Packet) -> Option<&mut Flow> {
        let key = (packet.source, packet.destination, packet.qp);
        let found = self
            .flows
            .iter()
            .position(|f| (f.source, f.destination, f.qp) == key);
        let i = match found {
            Some(i) => i,
            None if self.flows.len() >= FLOWS_MAX => return None,
            None => {
                self.flows.push(Flow::new(packet));
                self.flows.len() - 1
            }
        };
        self.flows.get_mut(i)
    }

    /// An answer does not name the queue pair that it comes from: its number says which of the connections between two addresses
    /// it is about.
    fn answer(&mut self, at: u64, packet: &Packet) {
        let ends = (packet.destination, packet.source);
        let flows = self
            .flows
            .iter_mut()
            .filter(|f| (f.source, f.destination) == ends);
        let far = |f: &&mut Flow| packet.psn.distance(f.expected).unsigned_abs();
        if let Some(flow) = flows.min_by_key(far) {
            flow.answer(at, packet);
        }
    }

    fn notification(&mut self, at: u64, packet: &Packet) {
        let key = (packet.source, packet.destination, packet.qp);
        let found = self
            .notifications
            .iter_mut()
            .find(|n| (n.source, n.destination, n.qp) == key);
        if let Some(one) = found {
            one.interval.add(at.saturating_sub(one.last));
            one.count += 1;
            one.last = at;
        } else if self.notifications.len() < FLOWS_MAX {
            self.notifications.push(Notifications {
                source: packet.source,
                destination: packet.destination,
                qp: packet.qp,
                count: 1,
                interval: Spread::default(),
                last: at,
            });
        }
    }

    /// What was found, of each flow in the order in which they began. `notifies`: whether marks must be answered by notifications.
    pub fn finish(mut self, notifies: bool) -> (Vec<Flow>, Vec<Notifications>) {
        for flow in &mut self.flows {
            flow.finish();
            let ends = (flow.destination, flow.source);
            let mut told = self.notifications.iter().map(|n| (n.source, n.destination));
            if notifies && flow.marked > 0 && !told.any(|of| of == ends) {
                flow.found(0, flow.expected, Broken::NoNotification);
            }
        }
        (self.flows, self.notifications)
    }
}

/// Puts a number in front of those before it.
fn note(last: &mut [Option<Psn>; 4], psn: Option<Psn>) {
    last.rotate_right(1);
    last[0] = psn;
}

impl Flow {
    fn new(first: &Packet) -> Flow {
        Flow {
            source: first.source,
            destination: first.destination,
            qp: first.qp,
            packets: 0,
            again: 0,
            corrupt: 0,
            marked: 0,
            gaps: 0,
            naks: 0,
            timeouts: 0,
            told_after: Spread::default(),
            back_after: Spread::default(),
            findings: Vec::new(),
            expected: first.psn,
            loose: false,
            gap: None,
            last: first.psn,
            highest: first.psn,
            untold: None,
            resent_untold: None,
            told_closed: 0,
            twice: 0,
            missed: [None; 4],
            late: [None; 4],
        }
    }

    fn found(&mut self, at: u64, psn: Psn, broken: Broken) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { at, psn, broken });
        }
    }

    /// What only the whole shows: where packets overtake each other, one that was missing may be late, and not sent again.
    fn finish(&mut self) {
        if let Some((at, psn)) = self.resent_untold
            && self.naks == 0
        {
            self.found(at, psn, Broken::NakMissing);
        }
        // Each gap is shown by a packet behind it, which must come again.
        if self.told_closed > 1 && self.twice == 0 {
            self.found(0, self.expected, Broken::NotGoBackN);
        }
    }

    fn request(&mut self, at: u64, packet: &Packet, operation: Operation) {
        self.packets += 1;
        self.marked += u64::from(packet.marked);
        if packet.sound == Some(false) {
            self.corrupt += 1;
            return;
        }
        let psn = packet.psn;
        let ahead = psn.distance(self.expected);
        if ahead == 0 || (self.loose && ahead > 0) {
            self.in_order(at, psn, operation);
        } else if ahead > 0 {
            self.untold = None;
            if self.gap.is_none() {
                self.gaps += 1;
                self.gap = Some(Gap {
                    since: at,
                    told: None,
                });
            }
        } else {
            self.again += 1;
            self.twice += 1;
            // A series of packets that came before begins here. It may be for an older word of the responder.
            let asked = self.missed.contains(&Some(psn));
            match self.gap {
                _ if psn == self.last.next() || asked => {}
                Some(Gap { told: Some(_), .. }) => self.found(at, psn, Broken::WentElsewhere),
                _ => self.timeouts += 1,
            }
        }
        self.last = psn;
        if self.highest.before(psn.next()) {
            self.highest = psn.next();
        }
    }

    fn in_order(&mut self, at: u64, psn: Psn, operation: Operation) {
        let before = self.untold.take();
        if let Some(gap) = self.gap.take() {
            match gap.told {
                Some(told) => {
                    self.back_after.add(at.saturating_sub(told));
                    self.told_closed += 1;
                }
                // It may be the packet itself, late. If those behind it come again, too, it is not.
                None => {
                    self.untold = Some(psn);
                    note(&mut self.late, Some(psn));
                }
            }
            self.again += 1;
        } else if psn.before(self.highest) {
            self.twice += 1;
            self.again += 1;
            if let Some(missing) = before {
                self.resent_untold.get_or_insert((at, missing));
            }
        }
        self.expected = psn.next();
        self.loose = operation == Operation::ReadRequest;
    }

    fn answer(&mut self, at: u64, packet: &Packet) {
        match packet.syndrome {
            Some(Syndrome::Nak(NakCode::SequenceError)) => {
                self.naks += 1;
                match &mut self.gap {
                    // It was said while the packet was missing.
                    _ if self.late.contains(&Some(packet.psn)) => {
                        note(&mut self.late, None);
                        note(&mut self.missed, Some(packet.psn));
                    }
                    _ if packet.psn != self.expected && !self.loose => {
                        self.found(at, packet.psn, Broken::NakWrong);
                    }
                    None => self.found(at, packet.psn, Broken::NakWrong),
                    Some(Gap { told: Some(_), .. }) => self.found(at, packet.psn, Broken::NakTwice),
                    Some(gap) => {
                        gap.told = Some(at);
                        note(&mut self.missed, Some(packet.psn));
                        let since = gap.since;
                        self.told_after.add(at.saturating_sub(since));
                    }
                }
            }
            Some(Syndrome::Ack { .. }) if !self.loose && !packet.psn.before(self.expected) => {
                self.found(at, packet.psn, Broken::AckEarly);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
