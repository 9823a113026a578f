//! Uplinks of a data core: frames from the wire.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::counters::PortCounter as P;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::bond::{InBond, SlowLimit, is_slow};
use super::core::CoreEvent;
use super::counters::{BY_TAG, PortCounters, Priorities, Way};
use super::frame::{Metadata, RawFrame, SNAP};
use super::outputs::Slot;
use super::qos::is_control;
use super::sleep::Source;
use super::worker::{Worker, free_index};
use crate::mem::Seg;
use crate::uplink::{Arrived, RxHalf, TxHalf};

/// Frames read from an uplink before other work gets its turn.
const UPLINK_BURST: usize = 32;
/// While its core is busy with other work, a quiet uplink is looked at this often: a look is a system call.
const UPLINK_PAUSE: Duration = Duration::from_micros(20);
/// An uplink, from the wire.
pub(super) struct UplinkRx {
    pub(super) port: PortId,
    pub(super) device: RxHalf,
    index: u32,
    counters: Arc<PortCounters>,
    mtu: usize,
    next_look: Instant,
    alive: bool,
    /// It belongs to this bond.
    pub(super) bond: Option<InBond>,
    slow: SlowLimit,
    /// A frame that was read and waits for a receiver's buffer: nothing is read behind it.
    pub(super) kept: Option<(Box<[u8]>, NetHdr)>,
}

impl UplinkRx {
    /// The core was woken for it.
    pub(super) fn woken(&mut self) {
        self.next_look = Instant(0);
        self.device.woken();
    }
}

impl Worker {
    pub(super) fn poll_uplink(&mut self, i: usize, now: Instant) -> usize {
        let Some(up) = &mut self.uplinks[i] else { return 0 };
        if now < up.next_look || !up.alive {
            return 0;
        }
        let (mut work, mut failed) = (0, None);
        while work < UPLINK_BURST {
            let kept = up.kept.take();
            let fresh = kept.is_none();
            let read = match kept {
                Some((kept, hdr)) => {
                    let bytes = &mut self.frame[..kept.len()];
                    bytes.copy_from_slice(&kept);
                    Ok(Some(Arrived { bytes, hdr }))
                }
                None => up.device.next(&mut self.frame),
            };
            let Arrived { mut bytes, mut hdr } = match read {
                Ok(Some(arrived)) => arrived,
                Ok(None) => break,
                Err(_) => {
                    // The device is gone. Its descriptor is ready for ever from now on: waiting on it would be spinning.
                    up.alive = false;
                    self.sleeper.remove(up.device.fd());
                    self.core.switch.set_link(up.port, false);
                    self.core.switch.flush_port(up.port);
                    if let Some(of) = &up.bond {
                        self.core.member_gone(of, now);
                    }
                    self.core.report(CoreEvent::PortGone {
                        port: up.port,
                        index: up.index,
                    });
                    break;
                }
            };
            let mut ingress = up.port;
            let mut refused = None;
            if fresh {
                let len = bytes.len();
                if is_control(bytes) {
                    self.core.control_frame(up.port, bytes, now);
                    work += 1;
                    continue;
                }
                if is_slow(bytes) {
                    if up.slow.allows(now, bytes.len()) {
                        self.core.report(CoreEvent::SlowFrame {
                            port: up.port,
                            frame: bytes[..].into(),
                        });
                    } else {
                        up.counters.drops.add(DropReason::MacControl as usize, 1);
                    }
                    work += 1;
                    continue;
                }
                let priority = match self.core.qos.get(up.port) {
                    Some(change) => change.qos.classification.priority(bytes),
                    None => BY_TAG,
                };
                let mut sums = Priorities::default();
                sums.frame(priority, bytes, len as u64);
                sums.flush(&up.counters.link, Way::Received);
                up.counters.io.add(P::RxFrames as usize, 1);
                up.counters.io.add(P::RxBytes as usize, len as u64);
            }
            if let Some(of) = &up.bond {
                ingress = of.bond;
                if fresh {
                    refused = self.core.refused_by_bond(of, &mut bytes, &mut hdr);
                }
            }
            let len = bytes.len();
            // As for a guest's frame: only the first bytes may be edited.
            let mut head = [0; HEAD_MAX];
            let known = len.min(if hdr.is_plain() { SNAP } else { HEAD_MAX });
            head[..known].copy_from_slice(&bytes[..known]);
            let f = RawFrame {
                head: &head[..known],
                len,
                hdr,
                segs: &[Seg::of(bytes)],
                skip: 0,
            };
            let verdict = match (refused, f.admissible(up.mtu)) {
                (None, Ok(())) => self.core.switch.forward(now, ingress, f.head, len),
                (Some(reason), _) | (None, Err(reason)) => Verdict::Drop(reason),
            };
            if self.core.out.round.waiting.pressed
                && (self.core.must_wait(ingress, &verdict, f.head) || !self.core.links_have_room())
            {
                up.kept = Some((bytes[..].into(), hdr));
                break;
            }
            work += 1;
            if !matches!(verdict, Verdict::Drop(_)) {
                up.counters.io.add(P::RxForwarded as usize, 1);
            }
            if let Some(port) = self.core.out.roce_function(&verdict, &f) {
                let functions = &mut self.functions;
                if catch_unwind(AssertUnwindSafe(|| functions.packet(port, bytes, now))).is_err() {
                    failed = Some(port);
                    break;
                }
                continue;
            }
            let meta = Metadata {
                ingress,
                ..Metadata::of(up.port)
            };
            if let Some(reason) = self.core.dispatch(&verdict, &f, &meta) {
                up.counters.drops.add(reason as usize, 1);
            }
        }
        if work > 0 {
            self.core.flush();
        } else if up.device.looks_cost() {
            up.next_look = now + UPLINK_PAUSE;
        }
        let lost = up.device.lost();
        if lost > 0 {
            up.counters.drops.add(DropReason::PortReceive as usize, lost);
        }
        if let Some(port) = failed {
            self.fail_function(port);
        }
        work
    }

    /// The core is about to sleep; true: an uplink has a frame for it after all.
    pub(super) fn request_frames(&self) -> bool {
        let all = self.uplinks.iter().flatten();
        all.fold(false, |more, up| more | up.kept.is_some() | up.device.rest())
    }

    /// The device of an uplink was opened again.
    pub(super) fn reopen_uplink(&mut self, id: PortId, (rx, index): (RxHalf, u32), tx: TxHalf) {
        for (i, up) in (0u32..).zip(&mut self.uplinks) {
            if let Some(up) = up.as_mut().filter(|u| u.port == id) {
                if up.alive {
                    self.sleeper.remove(up.device.fd());
                }
                (up.device, up.index) = (rx, index);
                up.alive = true;
                up.next_look = Instant(0);
                let _ = self.sleeper.add(up.device.fd(), Source::Uplink(i));
                if let Slot::Uplink(p) = self.core.slot(id) {
                    p.replace(tx);
                }
                return;
            }
        }
    }

    pub(super) fn add_uplink(
        &mut self,
        port: PortId,
        (device, index): (RxHalf, u32),
        mtu: u16,
        counters: Arc<PortCounters>,
    ) {
        let i = free_index(&mut self.uplinks);
        let _ = self.sleeper.add(device.fd(), Source::Uplink(i as u32));
        self.uplinks[i] = Some(UplinkRx {
            port,
            device,
            index,
            counters,
            mtu: usize::from(mtu),
            next_look: Instant(0),
            alive: true,
            bond: None,
            slow: SlowLimit::default(),
            kept: None,
        });
    }
}
