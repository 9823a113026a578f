//! The way of frames from raw packet queue pairs: through the switch, by the rules for frames of the adapter's guest.

use vnic_engine::checksums;
use vnic_engine::congestion::proxy::Fate;
use vnic_engine::offload::{HEAD_MAX, Request, check, program};
use vnic_engine::rdma::OutgoingFrame;
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::steering::Tunnels;
use vnic_fabric::DropReason;
use vnic_fabric::qos::Decision;
use vnic_fabric::switch::{PortId, Verdict};

use super::super::core::Core;
use super::super::counters::{BY_TAG, priority_of};
use super::super::frame::{FRAME_MAX, Metadata, OutFrame, RawFrame, SNAP, on_wire};
use super::super::outputs::see;
use super::wire::Wire;
use crate::mem::Seg;
use crate::rdma::{PACKET, of_bytes};

impl Wire<'_> {
    /// Sends a frame. The error is its priority, which may not send now.
    pub(super) fn send_raw(&mut self, packet: &OutgoingFrame<'_>) -> Result<(), u8> {
        let len = packet.bytes.len();
        let pieces = packet.bytes.pieces() as u32;
        self.left = self
            .left
            .saturating_sub_unsigned(of_bytes(len).saturating_add(pieces));
        if len > FRAME_MAX {
            return Ok(());
        }
        // All decisions are about this copy, and it is what receivers get.
        self.frame.resize(len, 0);
        if packet.bytes.read(self.frame).is_err() {
            // The memory is gone: the region has lost its key, and what is posted behind fails by that.
            return Ok(());
        }
        let mut hdr = NetHdr::default();
        if let Some(size) = packet.segment {
            let adapter = self.core.adapter(self.port);
            let tunnels = adapter.map_or(Tunnels::NONE, |a| a.settings.offloads.tunnels.tunnels());
            match program::request(self.frame, size, &tunnels) {
                Ok(request) => hdr = request,
                Err(_) => {
                    self.core.count_drop(self.port, DropReason::MalformedOffload);
                    return Ok(());
                }
            }
        } else if packet.checksum {
            checksums::fill(self.frame);
        }
        let decision = classified(self.core, self.port, self.frame);
        if self.core.open_priorities(self.port, self.now) >> decision.priority & 1 == 0 {
            return Err(decision.priority);
        }
        self.forward(decision, hdr);
        Ok(())
    }

    /// Sends the frame that was read, or drops and counts it.
    fn forward(&mut self, decision: Decision, hdr: NetHdr) {
        let (port, now, len) = (self.port, self.now, self.frame.len());
        let mut head = [0; HEAD_MAX];
        let known = len.min(HEAD_MAX);
        head[..known].copy_from_slice(&self.frame[..known]);
        let looked_at = if hdr.is_plain() { known.min(SNAP) } else { known };
        // (All segments are made in this turn.)
        let (segments, bytes) = match check(&hdr, &head[..known], len) {
            Ok(Request::Tso(tso)) => {
                let segments = tso.segments(len).max(1);
                (segments as u32, len + (segments - 1) * tso.head_len)
            }
            _ => (1, len),
        };
        self.left = self
            .left
            .saturating_sub_unsigned((segments - 1) * PACKET.unsigned_abs());
        let f = RawFrame {
            head: &head[..looked_at],
            len,
            hdr,
            segs: &[Seg::of(self.frame)],
            skip: 0,
        };
        let mut verdict = match f.admissible(self.mtu) {
            Ok(()) => self.core.switch.forward(now, port, f.head, len),
            Err(reason) => Verdict::Drop(reason),
        };
        if let Some(pcp) = decision.pcp {
            verdict = self.core.switch.assign(port, f.head, verdict, pcp, true);
        }
        let adapter = self.core.adapter(port);
        let claim = adapter.and_then(|a| a.allowed.as_ref()?.refused(&head[..known]));
        let forged = matches!(
            verdict,
            Verdict::Drop(DropReason::InvalidSource | DropReason::SpoofedSource)
        );
        if let Some(claim) = claim.filter(|_| !forged) {
            verdict = Verdict::Drop(DropReason::SpoofedAddress);
            self.core.report_claim(port, claim);
        }
        if !matches!(verdict, Verdict::Drop(_)) {
            self.core
                .sent(port, now, decision.priority, segments, bytes as u64);
            if held(self.core, port, decision.priority, &f) {
                verdict = Verdict::Drop(DropReason::SendQueueFull);
            }
        }
        if let Verdict::Flood(flood) = verdict {
            let copies = self.core.switch.flood_targets(port, flood).count();
            self.left = self.left.saturating_sub(PACKET * copies as i32);
        }
        if self.core.out.round.waiting.pressed && self.core.too_many_wait(port, &verdict, f.head) {
            verdict = Verdict::Drop(DropReason::NoRxBuffer);
        }
        let meta = Metadata {
            arrived: self.core.out.round.arrival(),
            ..Metadata::of(port)
        };
        let dropped = self.core.dispatch(&verdict, &f, &meta);
        if let Some(reason) = dropped {
            self.core.count_drop(port, reason);
            if reason == DropReason::SpoofedSource {
                self.core.report_spoof(port, f.head);
            }
        }
    }
}

/// Classifies a frame by the adapter's rules, which may rewrite it.
fn classified(core: &mut Core, port: PortId, frame: &mut [u8]) -> Decision {
    let Some(change) = core.out.qos.get(port) else {
        return Decision {
            priority: priority_of(BY_TAG, frame) & 7,
            ..Decision::default()
        };
    };
    let n = frame.len().min(HEAD_MAX);
    let rules = &change.qos.classification;
    let mut decision = rules.decide(&frame[..n], false);
    if decision.rewrites() {
        decision.apply(&mut frame[..n], None);
    }
    decision.priority &= 7;
    decision
}

/// Whether the limits of the guest's own RoCE hold the frame up. There is no place where it could wait.
fn held(core: &mut Core, port: PortId, priority: u8, f: &RawFrame<'_>) -> bool {
    if core.sender(port).is_none_or(|sender| !sender.guest_roce) {
        return false;
    }
    let now = core.now;
    match (see(&f.whole() as &OutFrame<'_>), core.out.guest_roce(port)) {
        (Some(seen), Some(roce)) => {
            matches!(
                roce.proxy.sending(now, priority, &seen, on_wire(f)),
                Fate::Waits(_)
            )
        }
        _ => false,
    }
}
