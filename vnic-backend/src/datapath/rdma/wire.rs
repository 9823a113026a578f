//! The way of packets from RDMA functions: directly to a neighbour on the core, or as frames through the switch.

use std::collections::VecDeque;

use vnic_engine::rdma::cm::Heading;
use vnic_engine::rdma::{Incoming, Outgoing, OutgoingFrame, Place, QpNumber, Run, Sink, work_of_pieces};
use vnic_fabric::switch::{Egress, PortId, Verdict};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::bth::MULTICAST_QP;
use vnic_wire::int::Telemetry;
use vnic_wire::mad::{self, GSI_QP};
use vnic_wire::qos::Trust;
use vnic_wire::roce::{Network, Path};
use vnic_wire::transport::Headers;
use vnic_wire::{EtherType, MacAddr};

use super::super::core::Core;
use super::super::frame::{FRAME_MAX, Metadata, RawFrame, SNAP};
use super::seats::Seats;
use crate::mem::Seg;
use crate::rdma::{Function, PACKET, RUN_PACKET};

/// Packets of a function to itself that may wait for the end of its turn.
const LOOPBACK_MAX: usize = 64;

/// A packet of a function to itself.
pub struct Loopback {
    pub path: Path,
    pub headers: Headers,
    pub payload: Vec<u8>,
}

/// Sends the packets of one function.
pub struct Wire<'a> {
    /// The functions of the core, without the sending one.
    pub functions: &'a mut [Option<Box<Function>>],
    /// Seats beside the functions, without a sending one.
    pub seats: &'a mut Seats,
    /// Packets of the function to itself.
    pub loopback: &'a mut VecDeque<Loopback>,
    /// Identification of the next frame over IPv4.
    pub next_id: &'a mut u16,
    /// Buffer for a frame that is not built in an uplink's memory.
    pub frame: &'a mut Vec<u8>,
    pub core: &'a mut Core,
    /// The function that sends.
    pub port: PortId,
    /// The seat of it that sends.
    pub place: Place,
    pub mac: MacAddr,
    /// Bytes that a frame of the adapter may have behind the Ethernet header.
    pub mtu: usize,
    pub now: Instant,
    /// Work that the function may still do in this turn.
    pub left: i32,
    /// Work of a packet that leaves through an uplink.
    pub leaving: i32,
    /// Receiver of the run for which [`Sink::run_room`] found room.
    pub taker: Option<(PortId, Place)>,
}

impl Sink for Wire<'_> {
    #[inline]
    fn open(&mut self) -> u8 {
        if self.left > 0 && self.loopback.len() < LOOPBACK_MAX && self.core.links_have_room() {
            self.core.open_priorities(self.port, self.now)
        } else {
            0
        }
    }

    #[inline]
    fn send(&mut self, packet: &Outgoing<'_>) {
        self.left -= PACKET;
        if packet.payload.pieces() > 1 {
            self.charge(work_of_pieces(packet.payload.pieces() as u32));
        }
        let path = packet.path;
        let len = path.frame_len(&packet.headers, packet.payload.len());
        self.core
            .sent(self.port, self.now, packet.priority, 1, len as u64);
        if path.eth.destination == self.mac {
            return self.send_to_itself(packet);
        }
        let (head, n) = switched_by(path);
        let verdict = self.core.switch.forward(self.now, self.port, &head[..n], len);
        if let Some(port) = self.neighbour(verdict)
            && let Some(Some(neighbour)) = self.functions.get_mut(usize::from(port.0))
        {
            if is_of_a_seat(packet.headers.bth.destination_qp) && self.seats.any(port) {
                return self.send_to_seats(port, packet);
            }
            let work = neighbour.receive(self.now, &Incoming::from(packet));
            if work > 0 {
                self.charge(work);
            }
            return;
        }
        self.send_frame(packet, len, verdict);
    }

    fn send_frame(&mut self, frame: &OutgoingFrame<'_>) -> Result<(), u8> {
        self.send_raw(frame)
    }

    #[inline]
    fn run_room(&mut self, path: &Path, to: QpNumber) -> usize {
        // Limits are charged packet by packet.
        if self.core.is_limited(self.port) {
            return 0;
        }
        if path.eth.destination == self.mac {
            self.taker = self.beside(to.0).map(|place| (self.port, place));
        } else {
            let (head, n) = switched_by(path);
            let verdict = self
                .core
                .switch
                .forward(self.now, self.port, &head[..n], n.max(64));
            let there = self.neighbour(verdict);
            self.taker = there.map(|port| match is_of_a_seat(to.0) && self.seats.any(port) {
                true => (port, Place::of(to.0)),
                false => (port, Place::default()),
            });
        }
        let Some(taker) = self.taker else { return 0 };
        // Prefetched while the run is made.
        if let Some(neighbour) = self.seat(taker) {
            neighbour.fetch_qp(to);
        }
        (self
            .left
            .max(0)
            .cast_unsigned()
            .div_ceil(RUN_PACKET.cast_unsigned())) as usize
    }

    #[inline]
    fn send_run(&mut self, run: &Run<'_>) -> usize {
        let (Some(taker), now) = (self.taker.take(), self.now) else {
            return 0;
        };
        let Some(neighbour) = self.seat(taker) else {
            return 0;
        };
        let taken = neighbour.receive_run(now, run);
        if taken > 0 {
            self.left -= RUN_PACKET * taken as i32;
            let bytes = if run.priority() == 0 {
                0
            } else {
                run.frame_bytes(taken)
            };
            self.core
                .sent(self.port, self.now, run.priority(), taken as u32, bytes);
        }
        taken
    }
}

impl Wire<'_> {
    /// What a seat of a function on this core has.
    #[inline]
    fn seat(&mut self, (port, place): (PortId, Place)) -> Option<&mut Function> {
        match place == Place::default() {
            true => self.functions.get_mut(usize::from(port.0))?.as_deref_mut(),
            false => self.seats.get_mut(port, place),
        }
    }

    /// The place of another process that shares the sending function and has this queue pair.
    fn beside(&mut self, to: u32) -> Option<Place> {
        let place = Place::of(to);
        if place == self.place || matches!(to, MULTICAST_QP | GSI_QP) {
            return None;
        }
        // (There is a seat: the one that is asked for, or the one that asks.)
        self.seats.any(self.port).then_some(())?;
        self.seat((self.port, place))?.is_live().then_some(place)
    }

    /// Hands a packet to those of a function's seats that it is for.
    #[cold]
    fn send_to_seats(&mut self, port: PortId, packet: &Outgoing<'_>) {
        let (now, mut charged) = (self.now, 0);
        let packet = Incoming::from(packet);
        to_seats(self.functions, self.seats, port, &packet, |seat, nth| {
            charged += seat.receive(now, &packet) + nth * PACKET.cast_unsigned();
        });
        self.charge(charged);
    }

    /// Hands a datagram for a group to the members that other seats of the sending function have.
    #[cold]
    fn send_to_group(&mut self, packet: &Outgoing<'_>) {
        let (now, mut charged) = (self.now, 0);
        let function = self.functions.get_mut(usize::from(self.port.0));
        let function = function.into_iter().filter_map(Option::as_deref_mut);
        let group = packet.path.network.destination();
        for seat in function.chain(self.seats.of_mut(self.port)) {
            if !seat.device().members(group).is_empty() {
                charged += seat.receive(now, &Incoming::from(packet)) + PACKET.cast_unsigned();
            }
        }
        self.charge(charged);
    }

    #[cold]
    fn charge(&mut self, work: u32) {
        self.left = self.left.saturating_sub_unsigned(work);
    }

    /// The neighbour on this core that takes the packet directly: nothing watches the frames between the two, and none waits before it.
    #[inline]
    fn neighbour(&self, verdict: Verdict) -> Option<PortId> {
        match verdict {
            Verdict::Unicast(Egress {
                port,
                tag: TagEdit::Keep,
            }) if !self.core.out.is_watched(self.port, port) && !self.core.out.queues_at(port) => {
                let there = self.functions.get(usize::from(port.0))?.as_ref()?;
                (there.is_live() || self.seats.any(port)).then_some(port)
            }
            _ => None,
        }
    }

    /// Neither switches nor links return a frame to its source: adapters loop such packets back.
    #[cold]
    fn send_to_itself(&mut self, packet: &Outgoing<'_>) {
        if packet.headers.bth.destination_qp == GSI_QP
            && self.seats.any(self.port)
            && let (now, packet) = (self.now, Incoming::from(packet))
            && let function = self.functions.get_mut(usize::from(self.port.0)).into_iter()
            && let others = function.filter_map(Option::as_deref_mut)
            && let Some(seat) = addressee(others.chain(self.seats.of_mut(self.port)), &packet)
        {
            let work = seat.receive(now, &packet);
            return self.charge(work);
        }
        if let Some(place) = self.beside(packet.headers.bth.destination_qp)
            && let now = self.now
            && let Some(seat) = self.seat((self.port, place))
        {
            let work = seat.receive(now, &Incoming::from(packet));
            return self.charge(work);
        }
        let mut payload = vec![0; packet.payload.len()];
        if packet.payload.read(&mut payload).is_ok() {
            self.loopback.push_back(Loopback {
                path: *packet.path,
                headers: packet.headers,
                payload,
            });
        }
    }

    /// The verdict with a tag of the packet's priority. Priority 0 is none of its own: a tag that the NIC inserts has that of the
    /// adapter (`VlanPrio`) then. A priority that the DSCP names is in the DSCP, and needs no tag.
    fn prioritized(&self, packet: &Outgoing<'_>, verdict: Verdict) -> Verdict {
        if packet.priority == 0 {
            return verdict;
        }
        let qos = self.core.out.qos.get(self.port);
        let by_dscp = |trust| matches!(trust, Trust::Dscp | Trust::Both);
        let tags = !qos.is_some_and(|change| by_dscp(change.qos.classification.priorities.trust));
        let (head, n) = switched_by(packet.path);
        let switch = &self.core.switch;
        switch.assign(self.port, &head[..n], verdict, packet.priority, tags)
    }

    /// Builds the frame of a packet: in an uplink's memory, or for the switch's receivers.
    fn send_frame(&mut self, packet: &Outgoing<'_>, len: usize, verdict: Verdict) {
        if len > FRAME_MAX {
            return;
        }
        let verdict = self.prioritized(packet, verdict);
        if packet.headers.bth.destination_qp == MULTICAST_QP && self.seats.any(self.port) {
            self.send_to_group(packet);
        }
        let numbered;
        let path = match packet.path.network {
            // Consecutive numbers, so that frames can cross a kernel as one (see `uplink::packet`). The identification means
            // nothing to the receiver: these packets may not be fragmented.
            Network::V4 { .. } => {
                numbered = packet.path.numbered(*self.next_id);
                *self.next_id = self.next_id.wrapping_add(1);
                &numbered
            }
            _ => packet.path,
        };
        if let Some(uplink) = self.core.out.uplink(self.port, &verdict) {
            self.left += PACKET - self.leaving;
            return uplink.build(len, |frame| emit(packet, path, frame));
        }
        self.frame.resize(len, 0);
        if emit(packet, path, self.frame).is_none() {
            return;
        }
        let mut head = [0; SNAP];
        let known = len.min(SNAP);
        head[..known].copy_from_slice(&self.frame[..known]);
        let f = RawFrame {
            head: &head[..known],
            len,
            hdr: Default::default(),
            segs: &[Seg::of(self.frame)],
            skip: 0,
        };
        // A bond selects the member by the queue pair.
        let meta = Metadata {
            local_qp: Some(packet.from.0),
            ..Metadata::of(self.port)
        };
        let waits =
            self.core.out.round.waiting.pressed && self.core.too_many_wait(self.port, &verdict, f.head);
        let dropped = match waits {
            // For a guest without a driver for its function, which posts no buffers: reliable packets are sent again.
            true => Some(DropReason::NoRxBuffer),
            false => self.core.dispatch(&verdict, &f, &meta),
        };
        if let Some(reason) = dropped {
            self.core.count_drop(self.port, reason);
        }
    }
}

/// Whether a number is one that seats beside a function give to queue pairs, if it has any, that of a group, or queue pair 1,
/// which each seat has.
#[inline]
fn is_of_a_seat(qp: u32) -> bool {
    qp >> 23 == 1 || qp == GSI_QP
}

/// Whoever a datagram to queue pair 1 is for. `None`: nobody knows what it is about.
#[cold]
fn addressee<'a>(
    mut seats: impl Iterator<Item = &'a mut Function>,
    packet: &Incoming<'_>,
) -> Option<&'a mut Function> {
    let mut bytes = [0; mad::LEN];
    if packet.payload.len() != bytes.len() || packet.payload.read(&mut bytes).is_err() {
        return None;
    }
    let heading = Heading::of(&bytes)?;
    let source = packet.path.network.source();
    seats.find(|seat| seat.is_live() && seat.device().takes_datagram(source, &heading))
}

/// Whether a packet may be for a seat beside its function.
#[inline]
pub fn routed(packet: &Incoming<'_>) -> bool {
    is_of_a_seat(packet.headers.bth.destination_qp)
}

/// Finds those for whom a packet is that came for a function with seats beside it: the one that has the queue pair, or that a
/// datagram of communication management is about, or all with members of the group; without any it is the function itself, which
/// counts that. `give` gets each, and how many were before.
pub fn to_seats(
    functions: &mut [Option<Box<Function>>],
    seats: &mut Seats,
    port: PortId,
    packet: &Incoming<'_>,
    mut give: impl FnMut(&mut Function, u32),
) {
    let to = packet.headers.bth.destination_qp;
    let Some(Some(function)) = functions.get_mut(usize::from(port.0)) else {
        return;
    };
    if to == GSI_QP {
        let all = std::iter::once(&mut **function).chain(seats.of_mut(port));
        return match addressee(all, packet) {
            Some(seat) => give(seat, 0),
            None => give(function, 0),
        };
    }
    if to != MULTICAST_QP {
        return give(seats.get_mut(port, Place::of(to)).unwrap_or(function), 0);
    }
    let group = packet.path.network.destination();
    let mut given = 0;
    let all = std::iter::once(&mut **function).chain(seats.of_mut(port));
    for seat in all.filter(|seat| !seat.device().members(group).is_empty()) {
        give(seat, given);
        given += 1;
    }
    if given == 0 {
        give(function, 0);
    }
}

/// Builds the frame of a packet: its payload is read once, and the ICRC covers the bytes that were read. `None`: no frame.
fn emit(packet: &Outgoing<'_>, path: &Path, frame: &mut [u8]) -> Option<()> {
    let len = packet.payload.len();
    let sign = packet.headers.bth.telemetry;
    let (frame, behind) = frame.split_at_mut_checked(frame.len().checked_sub(sign.behind_len())?)?;
    if !behind.is_empty() {
        behind.copy_from_slice(&packet.telemetry.unwrap_or(&Telemetry::EMPTY).emit_trailer());
    }
    let at = path.emit(&packet.headers, len, frame).ok()?;
    // The ICRC of the headers is computed before the payload is copied: a load of bytes that were just written in smaller
    // pieces waits for all earlier stores.
    let mut icrc = path.icrc(&frame[..at]).ok()?;
    let (body, end) = frame.get_mut(at..)?.split_last_chunk_mut()?;
    let (payload, rest) = body.split_at_mut_checked(len)?;
    // The memory may be gone meanwhile: its region has lost its key, and a repeated packet fails by that.
    packet.payload.read(payload).ok()?;
    let (trailer, pad) = rest.split_at_mut_checked(sign.trailer_len())?;
    if !trailer.is_empty() {
        trailer.copy_from_slice(&packet.telemetry.unwrap_or(&Telemetry::EMPTY).emit_trailer());
    }
    pad.fill(0);
    icrc.update(body);
    *end = icrc.finish();
    Some(())
}

/// The bytes of a frame by which the switch decides, and their number.
#[inline]
fn switched_by(path: &Path) -> ([u8; 18], usize) {
    let mut head = [0; 18];
    head[..6].copy_from_slice(&path.eth.destination.0);
    head[6..12].copy_from_slice(&path.eth.source.0);
    let inner = match path.network {
        Network::V1 { .. } => EtherType::ROCE,
        Network::V4 { .. } => EtherType::IPV4,
        Network::V6 { .. } => EtherType::IPV6,
    };
    match path.vlan {
        None => head[12..14].copy_from_slice(&inner.0.to_be_bytes()),
        Some(tag) => {
            let tpid = if path.eth.ethertype.is_vlan() {
                path.eth.ethertype
            } else {
                EtherType::VLAN
            };
            head[12..14].copy_from_slice(&tpid.0.to_be_bytes());
            head[14..18].copy_from_slice(&tag.emit());
            head[16..18].copy_from_slice(&inner.0.to_be_bytes());
        }
    }
    (head, 18)
}
