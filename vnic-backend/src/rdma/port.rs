//! The RDMA functions of a data core, and the way of their packets: to a neighbour as they are, by the switch as frames.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use vnic_engine::rdma::{Incoming, Outgoing, Payload, QpNumber, Run, Sink, work_of_pieces};
use vnic_fabric::switch::{Egress, PortId, Verdict};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::roce::{Frame, Network, Path};
use vnic_wire::transport::Headers;
use vnic_wire::{EtherType, MacAddr};

use super::account::{PACKET, RUN_PACKET, of_a_turn};
use super::function::Function;
use crate::datapath::{Core, FRAME_MAX, Inbound, Metadata, RawFrame, SNAP};
use crate::mem::Seg;

/// Packets to the function itself that wait for the end of its turn.
const LOOPBACK_MAX: usize = 64;

/// A packet of a function to itself.
struct Loopback {
    path: Path,
    headers: Headers,
    payload: Vec<u8>,
}

/// All functions of a core, by their adapters' ports.
#[derive(Default)]
pub struct Functions {
    slots: Vec<Option<Box<Function>>>,
    /// Ports that have one.
    ports: Vec<PortId>,
    loopback: VecDeque<Loopback>,
    /// Identification of the next frame over IPv4.
    next_id: u16,
    /// Where a frame is built that does not leave where it is built.
    frame: Vec<u8>,
}

impl Functions {
    /// An adapter has a function from now on.
    pub fn add(&mut self, port: PortId, function: Function) {
        let i = usize::from(port.0);
        if self.slots.len() <= i {
            self.slots.resize_with(i + 1, || None);
        }
        self.slots[i] = Some(Box::new(function));
        self.ports.push(port);
    }

    /// The adapter is gone, or its function had a bug.
    pub fn remove(&mut self, port: PortId) -> Option<Box<Function>> {
        self.ports.retain(|p| *p != port);
        self.slots.get_mut(usize::from(port.0))?.take()
    }

    /// The function of an adapter.
    pub fn get_mut(&mut self, port: PortId) -> Option<&mut Function> {
        self.slots.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    /// Ports of all functions.
    pub fn ports(&self) -> &[PortId] {
        &self.ports
    }

    /// All functions.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Function)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(i, f)| Some((PortId(i as u16), f.as_deref_mut()?)))
    }

    /// Hands over a frame that the switch brought.
    pub fn inbound(&mut self, port: PortId, frame: &Inbound, now: Instant) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        match frame {
            Inbound::Sent(head) => function.guest_sent(now, head),
            Inbound::Received(head) => function.guest_received(now, head),
            Inbound::Roce(bytes) => self.packet(port, bytes, now),
        }
    }

    /// Hands over a packet from the wire: its payload is copied from there to where the guest wants it.
    #[inline]
    pub fn packet(&mut self, port: PortId, bytes: &[u8], now: Instant) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        match Frame::parse(bytes) {
            Ok(frame) if frame.icrc_ok() => {
                let work = function.receive(now, &Incoming::from(&frame));
                function.charge(work);
            }
            Ok(_) => function.count_bad_icrc(),
            // Not RoCE after all, or cut short.
            Err(_) => function.count_malformed(),
        }
    }

    /// One function's turn; `shared`: others want to send. Answers how much there was to do.
    #[inline]
    pub fn turn(&mut self, port: PortId, core: &mut Core, now: Instant, shared: bool) -> usize {
        let Some(Some(function)) = self.slots.get_mut(usize::from(port.0)) else {
            return 0;
        };
        let Some(mut work) = function.poll(now, shared) else {
            return function.finish(now);
        };
        if std::mem::take(&mut function.asked) {
            core.turns.asks(port, now);
        }
        if function.device().wants_transmit() || function.waits != 0 {
            work += self.transmit(port, core, now, shared);
        }
        match self.get_mut(port) {
            Some(function) => work + function.finish(now),
            None => work,
        }
    }

    fn transmit(&mut self, port: PortId, core: &mut Core, now: Instant, shared: bool) -> usize {
        // Out of its place, so that its neighbours can be reached; back in it whatever happens, so that a caught panic ends
        // this function and not its adapter.
        let Some(mut function) = self.slots[usize::from(port.0)].take() else {
            return 0;
        };
        let sent = catch_unwind(AssertUnwindSafe(|| {
            self.transmit_from(&mut function, port, core, now, shared)
        }));
        self.slots[usize::from(port.0)] = Some(function);
        sent.unwrap_or_else(|panic| {
            self.loopback.clear();
            resume_unwind(panic)
        })
    }

    fn transmit_from(
        &mut self,
        function: &mut Function,
        port: PortId,
        core: &mut Core,
        now: Instant,
        shared: bool,
    ) -> usize {
        let mac = function.device().mac();
        let most = of_a_turn(shared);
        let mut wire = Wire {
            functions: &mut self.slots,
            loopback: &mut self.loopback,
            next_id: &mut self.next_id,
            frame: &mut self.frame,
            core,
            port,
            mac,
            now,
            left: most,
            taker: None,
        };
        let (device, memory) = function.sender();
        device.transmit(now, memory, &mut wire);
        let sent = most - wire.left;
        let beyond = (-wire.left).max(0);
        let ready = device.ready_priorities();
        let closed = if ready == 0 {
            0
        } else {
            ready & !core.open_priorities(port, now)
        };
        if closed != function.waits {
            function.waits = closed;
            core.rdma_waits(port, closed);
        }
        function.account.charge(beyond);
        core.flush();
        while let Some(own) = self.loopback.pop_front() {
            let packet = Incoming {
                path: own.path,
                headers: own.headers,
                payload: Payload::Bytes(&own.payload),
                telemetry: None,
            };
            let work = function.receive(now, &packet);
            function.charge(work);
        }
        sent.unsigned_abs() as usize
    }

    /// Asks guests for the addresses they have, when it is time, and tells who may find them where.
    pub fn poll_gids(&mut self, core: &mut Core, now: Instant) {
        for (port, function) in self.iter_mut() {
            function.poll_gids(now, &mut |frame| core.give_guest(port, frame));
        }
        core.flush();
    }
}

/// Takes the packets of one function away.
struct Wire<'a> {
    functions: &'a mut [Option<Box<Function>>],
    loopback: &'a mut VecDeque<Loopback>,
    next_id: &'a mut u16,
    frame: &'a mut Vec<u8>,
    core: &'a mut Core,
    port: PortId,
    mac: MacAddr,
    now: Instant,
    /// Work that may still be done.
    left: i32,
    /// Who takes the run that there was room for.
    taker: Option<PortId>,
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
            let work = neighbour.receive(self.now, &Incoming::from(packet));
            if work > 0 {
                self.charge(work);
            }
            return;
        }
        self.send_frame(packet, len, verdict);
    }

    #[inline]
    fn run_room(&mut self, path: &Path, to: QpNumber) -> usize {
        // Limits are charged packet by packet.
        if path.eth.destination == self.mac || self.core.is_limited(self.port) {
            return 0;
        }
        let (head, n) = switched_by(path);
        let verdict = self
            .core
            .switch
            .forward(self.now, self.port, &head[..n], n.max(64));
        self.taker = self.neighbour(verdict);
        let Some(port) = self.taker else { return 0 };
        // While the run is made.
        if let Some(Some(neighbour)) = self.functions.get(usize::from(port.0)) {
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
        let Some(port) = self.taker.take() else { return 0 };
        let Some(Some(neighbour)) = self.functions.get_mut(usize::from(port.0)) else {
            return 0;
        };
        let taken = neighbour.receive_run(self.now, run);
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
    #[cold]
    fn charge(&mut self, work: u32) {
        self.left = self.left.saturating_sub_unsigned(work);
    }

    /// A neighbour on this core gets the packet as it is, unless somebody wants to see or spoil frames, or frames wait for
    /// their turn there.
    #[inline]
    fn neighbour(&self, verdict: Verdict) -> Option<PortId> {
        match verdict {
            Verdict::Unicast(Egress {
                port,
                tag: TagEdit::Keep,
            }) if !self.core.out.is_watched() && !self.core.out.queues_at(port) => {
                let there = self.functions.get(usize::from(port.0))?.as_ref()?;
                there.is_live().then_some(port)
            }
            _ => None,
        }
    }

    /// Neither switches nor cables bring a frame back to where it came from: adapters do that themselves.
    #[cold]
    fn send_to_itself(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        if packet.payload.read(&mut payload).is_ok() {
            self.loopback.push_back(Loopback {
                path: *packet.path,
                headers: packet.headers,
                payload,
            });
        }
    }

    /// Builds the frame: where it leaves, or to be given to the switch's receivers.
    fn send_frame(&mut self, packet: &Outgoing<'_>, len: usize, verdict: Verdict) {
        if len > FRAME_MAX {
            return;
        }
        let numbered;
        let path = match packet.path.network {
            // One after the other, so that they can cross a kernel as one (see `uplink::packet`). To the receiver an
            // identification says nothing: nobody may cut these packets.
            Network::V4 { .. } => {
                numbered = packet.path.numbered(*self.next_id);
                *self.next_id = self.next_id.wrapping_add(1);
                &numbered
            }
            _ => packet.path,
        };
        if let Some(uplink) = self.core.out.uplink(&verdict) {
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
        // A bond wants to know whose it is.
        let meta = Metadata {
            local_qp: Some(packet.from.0),
            ..Metadata::of(self.port)
        };
        let waits =
            self.core.out.round.waiting.pressed && self.core.too_many_wait(self.port, &verdict, f.head);
        let dropped = match waits {
            // For a guest without a driver for its function, which takes no frames: what is reliable is sent again.
            true => Some(DropReason::NoRxBuffer),
            false => self.core.dispatch(&verdict, &f, &meta),
        };
        if let Some(reason) = dropped {
            self.core.count_drop(self.port, reason);
        }
    }
}

/// Makes the frame of a packet: its payload is read once, and the ICRC is that of what was read. None: there is no frame.
fn emit(packet: &Outgoing<'_>, path: &Path, frame: &mut [u8]) -> Option<()> {
    let len = packet.payload.len();
    let at = path.emit(&packet.headers, len, frame).ok()?;
    // Of the headers before the payload is copied: a load of bytes that were just written in smaller pieces waits for all
    // that was written before.
    let mut icrc = path.icrc(&frame[..at]).ok()?;
    let (body, end) = frame.get_mut(at..)?.split_last_chunk_mut()?;
    let (payload, pad) = body.split_at_mut_checked(len)?;
    // Memory that is gone meanwhile: its region has lost its key, and a repeat fails by that.
    packet.payload.read(payload).ok()?;
    pad.fill(0);
    icrc.update(body);
    *end = icrc.finish();
    Some(())
}

/// The bytes of a frame by which the switch decides, and how many they are.
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
