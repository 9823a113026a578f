//! Runs that came: many packets for which everything is looked at once.

use vnic_wire::psn::Psn;

use super::super::super::memory::Memory;
use super::super::super::region::OneRegion;
use super::super::super::run::{Carried, Run};
use super::super::super::shared::Shared;
use super::super::super::types::{Access, MESSAGE_MAX, QpState, QpType};
use super::super::Qp;
use super::{Message, ahead};

/// How far a run was carried out.
#[derive(Debug, Clone, Copy)]
struct Progress {
    taken: u32,
    begun: u64,
    ended: u32,
    /// The newest packet that asked for an acknowledge.
    asked: Option<Psn>,
    message: Message,
}

/// Bytes on their way from memory to memory.
#[derive(Debug, Clone, Copy)]
struct Copying {
    to: u64,
    from: u64,
    len: u64,
}

impl Qp {
    /// Carries out what is not special of a run that came, and answers how many packets that are. The next one has to be
    /// [received](Qp::receive) by itself.
    pub(in super::super::super) fn receive_run(
        &mut self,
        shared: &mut Shared,
        run: &Run<'_>,
        memory: &dyn Memory,
    ) -> usize {
        let responder = &self.responder;
        let plain = self.init.qp_type == QpType::Rc
            && self.permissions().receive
            && (self.attributes.state != QpState::Rtr || responder.established)
            && !responder.told
            && !ahead::has_gaps(self)
            && responder.expected == run.psn
            && responder.reply.is_none_or(|reply| reply.refusal.is_none())
            && self.attributes.access.contains(Access::REMOTE_WRITE)
            && self.is_peers(run.path)
            && self.takes(run.pkey)
            && shared.notes.is_none();
        let (true, Ok(target)) = (plain, self.own_target(shared)) else {
            return 0;
        };
        let mtu = self.attributes.path_mtu.bytes();
        let mut region = OneRegion::default();
        let mut done = Progress {
            taken: 0,
            begun: 0,
            ended: 0,
            asked: None,
            message: responder.message,
        };
        // Packets whose bytes lie side by side at both ends are copied together, and `before` is how far it was without
        // those that are put off for that.
        let mut before = done;
        let mut put_off: Option<Copying> = None;
        let land = |put_off: &mut Option<Copying>| {
            let copied = put_off
                .take()
                .map(|c| memory.copy_from(c.to, run.memory, c.from, c.len));
            !matches!(copied, Some(Err(_)))
        };
        for packet in run.packets {
            let bytes = packet.len;
            let (rkey, addr, left, total) = match done.message {
                Message::None if packet.begins => {
                    let reth = &packet.reth;
                    // All of the message is looked at before anything of it lands: below, if it is one packet.
                    let allowed = packet.ends
                        || region.allows_write(&shared.regions, target.pd, reth.rkey, reth.va, reth.len);
                    if reth.len > MESSAGE_MAX || !allowed {
                        break;
                    }
                    (reth.rkey, reth.va, reth.len, reth.len)
                }
                Message::Write {
                    rkey,
                    addr,
                    left,
                    total,
                } if !packet.begins => (rkey, addr, left, total),
                _ => break,
            };
            let fits = match packet.ends {
                true => bytes <= mtu && bytes == left,
                false => bytes == mtu && bytes <= left,
            };
            if !fits || bytes == 0 {
                break;
            }
            let Some(at) = region.remote(&shared.regions, target.pd, rkey, addr, bytes) else {
                break;
            };
            match (packet.carried, &mut put_off) {
                (Carried::Span(from), Some(c)) if c.to + c.len == at && c.from + c.len == from.at => {
                    c.len += from.len;
                }
                (carried, put_off) => {
                    if !land(put_off) {
                        done = before;
                        break;
                    }
                    match carried {
                        Carried::Bytes(from) if memory.write(at, from).is_err() => break,
                        Carried::Bytes(_) => {}
                        Carried::Span(from) => {
                            before = done;
                            *put_off = Some(Copying {
                                to: at,
                                from: from.at,
                                len: from.len,
                            });
                        }
                    }
                }
            }
            done.begun += u64::from(packet.begins);
            done.ended += u32::from(packet.ends);
            done.message = if packet.ends {
                Message::None
            } else {
                Message::Write {
                    rkey,
                    addr: addr.wrapping_add(bytes.into()),
                    left: left - bytes,
                    total,
                }
            };
            if packet.asks {
                done.asked = Some(run.psn.add(done.taken));
            }
            done.taken += 1;
        }
        if !land(&mut put_off) {
            done = before;
        }
        let Progress {
            taken,
            begun,
            ended,
            asked,
            message,
        } = done;
        if taken == 0 {
            return 0;
        }
        let counters = &mut shared.counters;
        counters.rx_write_requests += begun;
        counters.rx_vport_rdma_unicast_packets += u64::from(taken);
        counters.rx_vport_rdma_unicast_bytes += run.frame_bytes(taken as usize);
        let responder = &mut self.responder;
        responder.message = message;
        responder.expected = run.psn.add(taken);
        responder.msn = Psn::new(responder.msn).add(ended).value();
        if let Some(psn) = asked {
            self.reply(shared, psn, None);
        }
        taken as usize
    }
}
