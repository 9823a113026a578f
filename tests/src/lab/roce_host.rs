//! Our side of interoperation: the RDMA engine, its memory, and frames, as a [`Station`].

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::Range;

use anyhow::{Context as _, Result};
use vnic_engine::rdma::{
    Access, AddressVector, AhHandle, AttributeMask, Completion, CqHandle, Device, DeviceConfig, Event,
    GidEntry, GidKind, Incoming, Limits, Memory, Mtu, Outgoing, PdHandle, QpAttributes, QpInit, QpNumber,
    QpState, QpType, RecvWr, Registration, SendData, SendFlags, SendOp, SendWr, SgList, Sge, Sink, Span,
    UdDestination, Unmapped, state,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Frame};
use vnic_wire::time::Instant;

use super::Station;
use super::rxe;
use super::wire_port::mapped;

/// Where the memory begins for verbs: not at a page's start, but where atomics may be.
const VA: u64 = 0x7000_0000_0040;
/// Frames that wait for the port at most.
const QUEUE: usize = 64;

/// Bytes from address 0.
struct Ram(RefCell<Vec<u8>>);

impl Ram {
    fn range(&self, at: u64, len: usize) -> Result<Range<usize>, Unmapped> {
        let from = usize::try_from(at).map_err(|_| Unmapped { at })?;
        let to = from.checked_add(len).filter(|to| *to <= self.0.borrow().len());
        Ok(from..to.ok_or(Unmapped { at })?)
    }
}

impl Memory for Ram {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let range = self.range(at, into.len())?;
        into.copy_from_slice(&self.0.borrow()[range]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Unmapped> {
        let range = self.range(at, from.len())?;
        self.0.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }

    fn atomic(&self, at: u64, change: &dyn Fn(u64) -> u64) -> Result<u64, Unmapped> {
        let range = self.range(at, 8)?;
        let bytes = &mut self.0.borrow_mut()[range];
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let old = u64::from_ne_bytes(word);
        bytes.copy_from_slice(&change(old).to_ne_bytes());
        Ok(old)
    }
}

struct Queue<'a>(&'a mut VecDeque<Vec<u8>>);

impl Sink for Queue<'_> {
    fn open(&mut self) -> u8 {
        if self.0.len() < QUEUE { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).expect("own memory");
        let mut frame = Vec::new();
        roce::build(packet.path, &packet.headers, &payload, &mut frame).expect("a packet of the engine");
        self.0.push_back(frame);
    }
}

/// A queue pair and its two completion queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostQp {
    /// Its number, also on the wire.
    pub number: QpNumber,
    /// Where sends complete.
    pub send: CqHandle,
    /// Where receives complete.
    pub recv: CqHandle,
}

/// How a connected queue pair is brought from RESET to RTS.
#[derive(Debug, Clone, Copy)]
pub struct HostConnect {
    /// The peer's address.
    pub remote: IpAddr,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its queue pair.
    pub dest_qpn: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// PSN of the first request that comes.
    pub rq_psn: u32,
    /// PSN of the first request that is sent.
    pub sq_psn: u32,
    /// ACK timeout: 4.096 µs · 2^n.
    pub timeout: u8,
}

/// The engine with memory and one memory region over all of it.
pub struct RoceHost {
    device: Device,
    ram: Ram,
    pd: PdHandle,
    keys: Registration,
    out: VecDeque<Vec<u8>>,
    done: HashMap<CqHandle, VecDeque<Completion>>,
    bad_icrc: u64,
}

impl RoceHost {
    /// A device with these addresses (GID index 0, 1, …) and so much memory, all of it registered.
    pub fn new(mac: [u8; 6], addresses: &[IpAddr], memory: usize) -> Result<RoceHost> {
        let mac = MacAddr(mac);
        let mut device = Device::new(DeviceConfig {
            mac,
            limits: Limits::default(),
            mtu: Mtu::Mtu4096,
            trailers: false,
            pin_source_port: false,
            seed: 0,
            place: None,
        })?;
        for (index, address) in (0..).zip(addresses) {
            let entry = GidEntry {
                gid: gid(*address),
                kind: GidKind::RoceV2,
                vlan: None,
                mac,
            };
            device.set_gid(index, Some(entry))?;
        }
        let pd = device.alloc_pd()?;
        // In two pieces that lie the other way round.
        let half = memory as u64 / 2;
        let spans = vec![
            Span {
                at: half,
                len: memory as u64 - half,
            },
            Span { at: 0, len: half },
        ];
        let keys = device.register(pd, VA, Access::LOCAL_WRITE | Access::REMOTE, spans)?;
        Ok(RoceHost {
            device,
            ram: Ram(RefCell::new(vec![0; memory])),
            pd,
            keys,
            out: VecDeque::new(),
            done: HashMap::new(),
            bad_icrc: 0,
        })
    }

    /// The engine itself.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// Frames whose ICRC was wrong, or that are no RoCE at all.
    pub fn bad_frames(&self) -> u64 {
        self.bad_icrc
    }

    /// Address of an offset for verbs, local and remote.
    pub fn va(offset: u64) -> u64 {
        VA + offset
    }

    /// The remote key of all memory.
    pub fn rkey(&self) -> u32 {
        self.keys.rkey
    }

    // As the region has it: offsets count through both pieces.
    fn pieces(&self, offset: u64, len: usize) -> [Range<usize>; 2] {
        let all = self.ram.0.borrow().len();
        let (half, offset) = (all / 2, offset as usize);
        let upper = all - half;
        let first = len.min(upper.saturating_sub(offset));
        let second = (offset + first).saturating_sub(upper);
        [
            half + offset.min(upper)..half + offset.min(upper) + first,
            second..second + (len - first),
        ]
    }

    /// Bytes of its memory.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let ram = self.ram.0.borrow();
        self.pieces(offset, len).map(|range| &ram[range]).concat()
    }

    /// Puts bytes into its memory.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        let pieces = self.pieces(offset, bytes.len());
        let mut rest = bytes;
        for range in pieces {
            let (now, later) = rest.split_at(range.len());
            self.ram.0.borrow_mut()[range].copy_from_slice(now);
            rest = later;
        }
    }

    /// Puts the pattern of a seed into its memory, see [`rxe::fill`].
    pub fn fill(&self, seed: u64, offset: u64, len: usize) {
        let mut bytes = vec![0; len];
        rxe::fill(seed, &mut bytes);
        self.store(offset, &bytes);
    }

    /// The first byte that is not of the seed's pattern.
    pub fn difference(&self, seed: u64, offset: u64, len: usize) -> Option<usize> {
        rxe::first_difference(seed, &self.bytes(offset, len))
    }

    /// A queue pair with completion queues of its own.
    pub fn qp(&mut self, kind: rxe::Kind) -> Result<HostQp> {
        let (send, recv) = (self.device.create_cq(1024)?, self.device.create_cq(1024)?);
        let number = self.device.create_qp(&QpInit {
            qp_type: qp_type(kind),
            pd: Some(self.pd),
            send_cq: Some(send),
            recv_cq: Some(recv),
            srq: None,
            xrcd: None,
            max_send_wr: 512,
            max_recv_wr: 512,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            signal_all: true,
        })?;
        Ok(HostQp { number, send, recv })
    }

    /// Brings a queue pair to RTS.
    fn bring_up(&mut self, qp: HostQp, kind: rxe::Kind, base: &QpAttributes, now: Instant) -> Result<()> {
        let way = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for step in way.windows(2) {
            let row = state::find(qp_type(kind), step[0], step[1]).context("no such transition")?;
            let wanted = QpAttributes {
                state: step[1],
                ..*base
            };
            self.device
                .modify_qp(qp.number, &wanted, row.required | AttributeMask::STATE, now)?;
        }
        Ok(())
    }

    /// Brings an RC or UC queue pair to RTS.
    pub fn connect(&mut self, qp: HostQp, kind: rxe::Kind, to: &HostConnect, now: Instant) -> Result<()> {
        let path_mtu = Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == to.mtu);
        let base = QpAttributes {
            access: Access::LOCAL_WRITE | Access::REMOTE,
            path_mtu: path_mtu.context("no such MTU")?,
            destination_qp: QpNumber(to.dest_qpn),
            rq_psn: Psn::new(to.rq_psn),
            sq_psn: Psn::new(to.sq_psn),
            address: Some(self.way(to.remote, to.mac)?),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: to.timeout,
            retry_count: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        self.bring_up(qp, kind, &base, now)
    }

    /// Brings a UD queue pair to RTS.
    pub fn ready(&mut self, qp: HostQp, qkey: u32, sq_psn: u32, now: Instant) -> Result<()> {
        let base = QpAttributes {
            qkey,
            sq_psn: Psn::new(sq_psn),
            ..QpAttributes::default()
        };
        self.bring_up(qp, rxe::Kind::Ud, &base, now)
    }

    /// An address handle.
    pub fn ah(&mut self, remote: IpAddr, mac: [u8; 6]) -> Result<AhHandle> {
        let way = self.way(remote, mac)?;
        Ok(self.device.create_ah(self.pd, way)?)
    }

    // From the address of the same family.
    fn way(&self, remote: IpAddr, mac: [u8; 6]) -> Result<AddressVector> {
        let wanted = gid(remote).to_ipv4().is_some();
        let mut own = self.device.gids().iter();
        let own = own.find(|(_, entry)| entry.gid.to_ipv4().is_some() == wanted);
        Ok(AddressVector {
            dgid: gid(remote),
            dmac: MacAddr(mac),
            sgid_index: own.context("no own address of that family")?.0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            service_level: 0,
        })
    }

    /// `len` bytes at `offset`, in `count` elements.
    fn sges(&self, offset: u64, len: u32, count: u32) -> SgList {
        let part = len.div_ceil(count).max(1);
        let mut list = SgList::new();
        let mut at = 0;
        while at < len {
            let n = part.min(len - at);
            list.push(Sge {
                addr: VA + offset + u64::from(at),
                len: n,
                lkey: self.keys.lkey,
            });
            at += n;
        }
        list
    }

    /// Posts a request with `len` bytes at `offset`.
    pub fn post(&mut self, qp: HostQp, id: u64, op: SendOp, offset: u64, len: u32) -> Result<()> {
        self.post_to(qp, id, op, offset, len, None)
    }

    /// The same, to the destination of a datagram. Requests with an odd `id` ask for an event, those with an even one
    /// have up to three elements.
    pub fn post_to(
        &mut self,
        qp: HostQp,
        id: u64,
        op: SendOp,
        offset: u64,
        len: u32,
        ud: Option<UdDestination>,
    ) -> Result<()> {
        let odd = id % 2 == 1;
        let wr = SendWr {
            id,
            tag: 0,
            op,
            flags: if odd {
                SendFlags::SOLICITED
            } else {
                SendFlags::empty()
            },
            data: SendData::Sges(self.sges(offset, len, if odd { 1 } else { 3 })),
            ud,
            remote_srq: 0,
            access_key: 0,
        };
        Ok(self.device.post_send(qp.number, wr)?)
    }

    /// Posts a receive request of `len` bytes at `offset`.
    pub fn post_recv(&mut self, qp: HostQp, id: u64, offset: u64, len: u32) -> Result<()> {
        let wr = RecvWr {
            id,
            tag: 0,
            sges: self.sges(offset, len, 2),
        };
        Ok(self.device.post_recv(qp.number, wr)?)
    }

    /// Takes `n` completions, when so many are there.
    pub fn take(&mut self, cq: CqHandle, n: usize) -> Option<Vec<Completion>> {
        let mut new = Vec::new();
        self.device
            .poll_cq(cq, &mut new, usize::MAX)
            .expect("a CQ of its own");
        let done = self.done.entry(cq).or_default();
        done.extend(new);
        (done.len() >= n).then(|| done.drain(..n).collect())
    }

    /// Takes all completions that are there.
    pub fn take_all(&mut self, cq: CqHandle) -> Vec<Completion> {
        self.take(cq, 0);
        self.done.remove(&cq).unwrap_or_default().into()
    }

    /// Events that were not taken yet.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    /// Destroys a queue pair and its completion queues.
    pub fn destroy(&mut self, qp: HostQp) -> Result<()> {
        self.device.destroy_qp(qp.number)?;
        self.device.destroy_cq(qp.send)?;
        self.device.destroy_cq(qp.recv)?;
        self.done.remove(&qp.send);
        self.done.remove(&qp.recv);
        Ok(())
    }
}

impl Station for RoceHost {
    fn frame(&mut self, now: Instant, frame: &[u8]) {
        match Frame::parse(frame) {
            Ok(parsed) if parsed.icrc_ok() && parsed.header_checksum_ok() => {
                self.device.receive(now, &Incoming::from(&parsed), &self.ram);
            }
            Ok(_) => {
                self.bad_icrc += 1;
                self.device.count_bad_icrc();
            }
            Err(_) => self.bad_icrc += 1,
        }
    }

    fn next_frame(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.out.is_empty() {
            if self.device.next_timeout().is_some_and(|at| at <= now) {
                self.device.handle_timeout(now);
            }
            self.device.transmit(now, &self.ram, &mut Queue(&mut self.out));
        }
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.device.next_timeout()
    }
}

fn gid(address: IpAddr) -> Gid {
    Gid(mapped(address).octets())
}

fn qp_type(kind: rxe::Kind) -> QpType {
    match kind {
        rxe::Kind::Rc => QpType::Rc,
        rxe::Kind::Uc => QpType::Uc,
        rxe::Kind::Ud => QpType::Ud,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_through_both_pieces() {
        let host = RoceHost::new([2; 6], &[], 101).expect("a host");
        let bytes: Vec<u8> = (0..101).collect();
        host.store(0, &bytes);
        assert_eq!(host.ram.0.borrow()[50..], bytes[..51]);
        assert_eq!(host.ram.0.borrow()[..50], bytes[51..]);
        assert_eq!(host.bytes(40, 20), bytes[40..60]);
        assert_eq!(host.bytes(60, 41), bytes[60..]);
    }
}
