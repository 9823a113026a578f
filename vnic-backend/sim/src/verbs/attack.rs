//! Forged packets: right in form and ICRC, wrong in everything else. Queue pairs that are attacked need only stay safe;
//! the others get packets that must not touch them at all.

use fastrand::Rng;
use vnic_engine::rdma::{Access, AddressVector, Payload, QpType};
use vnic_wire::opcode::{Opcode, Operation, Transport};
use vnic_wire::psn::Psn;
use vnic_wire::roce::{self, Network, Path};
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{EtherType, aeth, atomiceth, bth, dcceth, dceth, deth, ethernet, reth, vlan, xrceth};

use super::capture::Seen;
use super::node::GID_COUNT;
use super::plan::percent;
use super::setup::{QKEY, gid_entry};
use super::world::World;
use crate::oracle::Judgement;

/// Number of a queue pair that no device has.
const NOBODY: u32 = 0xff_ff00;

impl World {
    /// A forged packet comes to somebody.
    pub(super) fn attack(&mut self, rng: &mut Rng) -> Judgement {
        let Some(slot) = rng.choice(self.living()) else {
            return Ok(());
        };
        let to = self.slot(slot).dev;
        let harmless = self.slot(slot).strict;
        let mut headers = self.forge(slot, rng);
        let mut path = self.forge_path(slot, rng);
        if harmless {
            self.defuse(slot, &mut headers, &mut path, rng);
        }
        let len = match rng.u32(0..4) {
            0 => 0,
            1 => rng.usize(0..64),
            2 => 256 << rng.u32(0..5),
            _ => rng.usize(0..5000),
        };
        let mut payload = vec![0; len];
        rng.fill(&mut payload);
        let mut frame = Vec::new();
        if roce::build(&path, &headers, &payload, &mut frame).is_err() {
            return Ok(());
        }
        self.ledger.forged += 1;
        let seen = Seen::of(to, to, &headers, Payload::Bytes(&payload).len());
        self.capture
            .packet(self.now, &seen, Some(&frame), || "forged".to_owned());
        // Targets of dynamic connections answer so many at a time.
        let flood = self.slot(slot).kind == QpType::DcTarget && percent(rng, 10);
        for _ in 0..if flood { 40 } else { 1 } {
            self.receive_frame(to, &frame, true)?;
        }
        Ok(())
    }

    /// A packet that could be for a queue pair.
    fn forge(&self, slot: usize, rng: &mut Rng) -> Headers {
        let s = self.slot(slot);
        let device = self.nodes[s.dev].device.as_ref();
        let attributes = device.and_then(|d| d.query_qp(s.number).ok());
        let transport = match s.kind {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud | QpType::RawPacket => Transport::Ud,
            QpType::XrcInitiator | QpType::XrcTarget => Transport::Xrc,
            QpType::DcInitiator | QpType::DcTarget => Transport::Dc,
        };
        // The last two are those of dynamic connections only.
        let dynamic = transport == Transport::Dc;
        let most = Operation::ALL.len() - if dynamic { 0 } else { 2 };
        let operation = Operation::ALL[rng.usize(0..most)];
        let opcode = if percent(rng, 5) {
            Opcode::CNP
        } else {
            Opcode::new(transport, operation)
        };
        let near = attributes.map_or(Psn::new(0), |a| {
            if operation.is_response() {
                a.sq_psn
            } else {
                a.rq_psn
            }
        });
        let psn = if percent(rng, 70) {
            Psn::new(near.value().wrapping_add(rng.u32(0..6)).wrapping_sub(3))
        } else {
            Psn::new(rng.u32(..))
        };
        let mut bth = bth::Header::new(opcode, s.number.0, psn);
        bth.ack_request = rng.bool();
        bth.solicited = rng.bool();
        bth.migrated = rng.bool();
        let srq = s.targets.first().and_then(|t| self.receives[*t].srq);
        let xrc = transport == Transport::Xrc && operation.is_request() && opcode != Opcode::CNP;
        let mut headers = Headers {
            bth,
            xrceth: xrc.then(|| xrceth::Header {
                srq: srq.map_or(rng.u32(0..1 << 24), |s| s.0),
            }),
            dceth: (dynamic && operation.is_request()).then(|| self.forge_initiator(rng)),
            extended: Extended::None,
        };
        headers.extended = self.forge_extended(slot, &headers, rng);
        headers
    }

    /// An initiator that is there, under attack, or one that is nowhere.
    fn forge_initiator(&self, rng: &mut Rng) -> dceth::Header {
        let mut all = self.living();
        all.retain(|s| self.slot(*s).kind == QpType::DcInitiator && !self.slot(*s).strict);
        let known = rng.choice(all).map(|s| self.number(s).0);
        dceth::Header {
            connection: rng.u8(..),
            initiator: known.filter(|_| rng.bool()).unwrap_or(NOBODY | rng.u32(0..8)),
        }
    }

    fn forge_extended(&self, slot: usize, headers: &Headers, rng: &mut Rng) -> Extended {
        let Some(operation) = headers.operation() else {
            return if headers.bth.opcode == Opcode::CNP {
                Extended::Cnp(vnic_wire::cnp::Header::default())
            } else {
                Extended::None
            };
        };
        let s = self.slot(slot);
        if matches!(operation, Operation::Connect | Operation::Disconnect) {
            return Extended::Connection(dcceth::Header {
                access_key: if rng.bool() { s.access_key } else { rng.u64(..) },
                connection: rng.u32(..) >> rng.u32(0..32),
            });
        }
        // A valid key for what only reads; nobody else's bytes are changed.
        let region = self.nodes[s.dev]
            .regions
            .iter()
            .find(|r| r.access.contains(Access::REMOTE_READ) && operation == Operation::ReadRequest);
        let (rkey, va) = match region {
            Some(r) if rng.bool() => (r.key, r.base.wrapping_add(rng.u64(0..r.len))),
            _ => (0xffff_ff00 | rng.u32(0..256), rng.u64(..)),
        };
        let reth = reth::Header {
            va,
            rkey,
            len: if rng.bool() {
                rng.u32(0..10_000)
            } else {
                rng.u32(..)
            },
        };
        let aeth = aeth::Header {
            syndrome: aeth::Syndrome::from_byte(rng.u8(..)),
            msn: rng.u32(0..1 << 24),
        };
        let deth = deth::Header {
            qkey: if rng.bool() { QKEY } else { rng.u32(..) },
            source_qp: rng.u32(0..1 << 24),
        };
        if headers.bth.opcode.transport() == Transport::Ud {
            return if operation.has_imm() {
                Extended::DethImm(deth, rng.u32(..))
            } else {
                Extended::Deth(deth)
            };
        }
        if operation.has_reth() {
            return if operation.has_imm() {
                Extended::RethImm(reth, rng.u32(..))
            } else {
                Extended::Reth(reth)
            };
        }
        if operation.has_atomiceth() {
            return Extended::Atomic(atomiceth::Header {
                va,
                rkey,
                swap_or_add: rng.u64(..),
                compare: rng.u64(..),
            });
        }
        if operation.has_atomicacketh() {
            return Extended::AtomicAck(aeth, rng.u64(..));
        }
        if operation.has_aeth() {
            return Extended::Aeth(aeth);
        }
        if operation.has_imm() {
            return Extended::Imm(rng.u32(..));
        }
        if operation.has_ieth() {
            return Extended::Ieth(rkey);
        }
        Extended::None
    }

    /// The way of a packet from the peer, or from nobody.
    fn forge_path(&self, slot: usize, rng: &mut Rng) -> Path {
        let s = self.slot(slot);
        let from = match s.peer {
            Some(peer) if percent(rng, 90) => self.slot(peer).dev,
            _ => rng.usize(0..self.nodes.len()),
        };
        let index = match s.attributes.address {
            Some(AddressVector { sgid_index, .. }) if percent(rng, 95) => sgid_index,
            _ => rng.u16(0..GID_COUNT),
        };
        let (source, own) = (gid_entry(from, index), gid_entry(s.dev, index));
        let network = match source.kind {
            vnic_engine::rdma::GidKind::RoceV1 => Network::v1(source.gid, own.gid),
            vnic_engine::rdma::GidKind::RoceV2 => Network::v2(source.gid, own.gid),
        };
        Path {
            eth: ethernet::Header {
                destination: own.mac,
                source: source.mac,
                ethertype: EtherType::VLAN,
            },
            vlan: own.vlan.map(|vid| vlan::Header {
                tci: vlan::Tci::new(0, false, vid),
                ethertype: EtherType::IPV4,
            }),
            network,
            source_port: rng.u16(..),
        }
    }

    /// Makes sure that nothing of it is for the queue pair.
    fn defuse(&self, slot: usize, headers: &mut Headers, path: &mut Path, rng: &mut Rng) {
        let kind = self.slot(slot).kind;
        match rng.u32(0..8) {
            0 => headers.bth.pkey = rng.u16(0..0x7fff),
            1 => headers.bth.version = rng.u8(1..16),
            2 => headers.bth.destination_qp = 0xff_fff0,
            3 => {
                *headers = Headers::cnp(headers.bth.destination_qp);
            }
            // (A target would answer somebody who is nowhere.)
            4 if !matches!(kind, QpType::Ud | QpType::DcTarget) && rng.bool() => {
                // The peer's address, of another adapter or in another VLAN.
                if rng.bool() {
                    path.eth.source.0[5] ^= 0x55;
                } else {
                    path.vlan = Some(vlan::Header {
                        tci: vlan::Tci::new(0, false, path.vid() ^ 0x55),
                        ethertype: EtherType::IPV4,
                    });
                }
            }
            4 if !matches!(kind, QpType::Ud | QpType::DcTarget) => {
                // Somebody else's address.
                let nobody = vnic_wire::gid::Gid::from_ipv4([10, 9, 9, 9]);
                path.network = match path.network {
                    Network::V1 { mut grh } => {
                        grh.source[15] ^= 0x55;
                        Network::V1 { grh }
                    }
                    Network::V6 { .. } => {
                        Network::v2(vnic_wire::gid::Gid([0xfe; 16]), path.network.destination())
                    }
                    Network::V4 { .. } => Network::v2(nobody, path.network.destination()),
                };
            }
            4..=6 if kind == QpType::DcTarget => {
                // Of an initiator that has no key, and is not connected.
                let operation = [Operation::Connect, Operation::Disconnect, Operation::SendOnly];
                let operation = operation[rng.usize(0..3)];
                headers.bth.opcode = Opcode::new(Transport::Dc, operation);
                headers.dceth = Some(dceth::Header {
                    connection: rng.u8(..),
                    initiator: NOBODY | rng.u32(0..8),
                });
                headers.extended = match operation {
                    Operation::SendOnly => Extended::None,
                    _ => Extended::Connection(dcceth::Header {
                        access_key: !self.slot(slot).access_key,
                        connection: rng.u32(..),
                    }),
                };
            }
            5 | 6 if matches!(kind, QpType::Rc | QpType::XrcInitiator | QpType::DcInitiator) => {
                // An answer to what was never sent, or was answered long ago (IBTA 9.7.5.1.1).
                let s = self.slot(slot);
                let device = self.nodes[s.dev].device.as_ref();
                let next = device
                    .and_then(|d| d.query_qp(s.number).ok())
                    .map_or(Psn::new(0), |a| a.sq_psn);
                let away = rng.u32(5_000..1 << 20);
                let psn = if rng.bool() {
                    next.add(away)
                } else {
                    next.sub(1 << 21).sub(away)
                };
                headers.bth = bth::Header::new(
                    Opcode::new(headers.bth.opcode.transport(), Operation::Acknowledge),
                    s.number.0,
                    psn,
                );
                (headers.xrceth, headers.dceth) = (None, None);
                headers.extended = Extended::Aeth(aeth::Header {
                    syndrome: aeth::Syndrome::from_byte(rng.u8(..)),
                    msn: rng.u32(0..1 << 24),
                });
            }
            _ => {
                // Another service than the queue pair's.
                let other = if kind == QpType::Ud {
                    Transport::Rc
                } else {
                    Transport::Ud
                };
                let deth = deth::Header {
                    qkey: QKEY,
                    source_qp: 7,
                };
                headers.bth.opcode = Opcode::new(other, Operation::SendOnly);
                (headers.xrceth, headers.dceth) = (None, None);
                headers.extended = if other == Transport::Ud {
                    Extended::Deth(deth)
                } else {
                    Extended::None
                };
            }
        }
    }
}
