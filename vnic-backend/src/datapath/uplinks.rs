//! Receiving sides of a data core's uplinks.

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::counters::PortCounter as P;
use vnic_engine::offload::HEAD_MAX;
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::core::Core;
use super::counters::{BY_TAG, PortCounters, Priorities, Way, priority_of};
use super::frame::{Arrival, FRAME_MAX, Metadata, OwnedFrame, RawFrame, SNAP};
use super::news::CoreEvent;
use super::outputs::{BondSetup, InBond, SlowLimit, is_control, is_lldp, is_slow};
use super::rdma::Functions;
use super::rings::free_index;
use super::sleep::{Sleeper, Source};
use super::storm::Storm;
use crate::StormControl;
use crate::mem::Seg;
use crate::uplink::{Arrived, RxHalf};

/// Frames read from an uplink before other work gets its turn.
const UPLINK_BURST: usize = 32;
/// While its core is busy with other work, a quiet uplink is read this often: each look is a system call.
const UPLINK_PAUSE: Duration = Duration::from_micros(20);
/// The receiving side of an uplink.
struct UplinkRx {
    port: PortId,
    device: RxHalf,
    index: u32,
    counters: Arc<PortCounters>,
    mtu: usize,
    next_look: Instant,
    alive: bool,
    /// Bond of the uplink, if it is a member.
    bond: Option<InBond>,
    slow: SlowLimit,
    storm: Storm,
    /// Whether link layer discovery is for the control plane.
    lldp: bool,
    /// Whether the port is joined to another one: what links say to each other is for that one.
    bridged: bool,
    /// A frame that was read and waits for a receiver's buffer: no frame behind it is read.
    kept: Option<OwnedFrame>,
    /// Its priority, of which the wire was told, a bit.
    held: u8,
}

impl UplinkRx {
    /// Tells the wire whether a frame waits: the frames behind it would fill the device's queue, and be lost there.
    #[inline]
    fn tell(&mut self, core: &mut Core, now: Instant) {
        let held = self.kept.as_ref().map_or(0, |kept| {
            let change = core.out.qos.get(self.port);
            1 << change.map_or(0, |change| change.qos.classification.priority(&kept.bytes))
        });
        if held != self.held {
            self.held = held;
            core.out.hold_link(self.port, held, now);
        }
    }
}

/// The uplinks of a data core, by the index with which their devices wake it.
pub struct Uplinks {
    all: Vec<Option<UplinkRx>>,
    /// Buffer of the frame that was read last.
    frame: Box<[u8]>,
}

impl Default for Uplinks {
    fn default() -> Uplinks {
        Uplinks {
            all: Vec::new(),
            frame: vec![0; FRAME_MAX].into_boxed_slice(),
        }
    }
}

impl Uplinks {
    /// Reads a burst of each uplink. Returns how much was done.
    #[inline(always)]
    pub fn round(
        &mut self,
        core: &mut Core,
        functions: &mut Functions,
        sleeper: &Sleeper,
        now: Instant,
    ) -> usize {
        let mut work = 0;
        for i in 0..self.all.len() {
            let polled = core.guarded(|core| self.poll(i, core, functions, sleeper, now));
            work += polled.unwrap_or(1);
        }
        work
    }

    fn poll(
        &mut self,
        i: usize,
        core: &mut Core,
        functions: &mut Functions,
        sleeper: &Sleeper,
        now: Instant,
    ) -> usize {
        let Some(up) = &mut self.all[i] else { return 0 };
        if now < up.next_look || !up.alive {
            return 0;
        }
        let (mut work, mut failed) = (0, None);
        while work < UPLINK_BURST {
            let kept = up.kept.take();
            let fresh = kept.is_none();
            let mut arrived = Arrival::Unknown;
            let read = match kept {
                Some(kept) => {
                    let bytes = &mut self.frame[..kept.bytes.len()];
                    bytes.copy_from_slice(&kept.bytes);
                    arrived = kept.meta.arrived;
                    Ok(Some(Arrived {
                        bytes,
                        hdr: kept.hdr,
                        lasts: None,
                        stamp: 0,
                    }))
                }
                None => up.device.next(&mut self.frame),
            };
            let Arrived {
                mut bytes,
                mut hdr,
                lasts,
                stamp,
            } = match read {
                Ok(Some(arrived)) => arrived,
                Ok(None) => break,
                Err(_) => {
                    // The device is gone. Its descriptor stays ready for ever: to wait on it would be to poll.
                    up.alive = false;
                    sleeper.remove(up.device.fd());
                    core.switch.set_link(up.port, false);
                    core.switch.flush_port(up.port);
                    if let Some(of) = &up.bond {
                        core.out.member_gone(of, now);
                    }
                    core.report(CoreEvent::PortGone {
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
                if is_control(bytes) && !up.bridged {
                    core.out.control_frame(up.port, bytes, now);
                    work += 1;
                    continue;
                }
                if (is_slow(bytes) || up.lldp && is_lldp(bytes)) && !up.bridged {
                    if up.slow.allows(now, bytes.len()) {
                        core.report(CoreEvent::SlowFrame {
                            port: up.port,
                            frame: bytes[..].into(),
                        });
                    } else {
                        up.counters.drops.add(DropReason::MacControl as usize, 1);
                    }
                    work += 1;
                    continue;
                }
                let priority = match core.out.qos.get(up.port) {
                    Some(change) => {
                        if !change.qos.tpid.is_plain() && !change.qos.tpid.take(bytes) {
                            refused = Some(DropReason::VlanNotAllowed);
                        }
                        change.qos.classification.priority(bytes)
                    }
                    None => BY_TAG,
                };
                if core.out.listens(up.port) {
                    core.out.hears(up.port, priority_of(priority, bytes), now);
                }
                let mut sums = Priorities::default();
                sums.frame(priority, bytes, len as u64);
                sums.flush(&up.counters.link, Way::Received);
                up.counters.io.add(P::RxFrames as usize, 1);
                up.counters.io.add(P::RxBytes as usize, len as u64);
            }
            if let Some(of) = &up.bond {
                ingress = of.bond;
                if fresh {
                    refused = refused.or(core.out.refused_by_bond(of, &mut bytes, &mut hdr));
                }
            }
            let len = bytes.len();
            // As for a guest's frame, only the first bytes may be edited.
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
            let mut verdict = match (refused, f.admissible(up.mtu)) {
                (None, Ok(())) => core.switch.forward(now, ingress, f.head, len),
                (Some(reason), _) | (None, Err(reason)) => Verdict::Drop(reason),
            };
            if matches!(verdict, Verdict::Flood(_)) && fresh && !up.storm.allows(now, f.head) {
                verdict = Verdict::Drop(DropReason::StormControl);
            }
            let meta = Metadata {
                ingress,
                lasts,
                arrived: if fresh {
                    core.out.round.arrival_at(stamp)
                } else {
                    arrived
                },
                ..Metadata::of(up.port)
            };
            if core.out.round.waiting.pressed
                && (core.must_wait(ingress, &verdict, f.head) || !core.links_have_room())
            {
                // Without memory for it the frame does not wait: it is delivered where there is room, and dropped elsewhere.
                up.kept = OwnedFrame::copy(&f.whole(), meta.clone());
                if up.kept.is_some() {
                    break;
                }
            }
            work += 1;
            if !matches!(verdict, Verdict::Drop(_)) {
                up.counters.io.add(P::RxForwarded as usize, 1);
            }
            if let Some(port) = core.out.roce_function(up.port, &verdict, &f) {
                if core.guarded(|_| functions.packet(port, bytes, now)).is_none() {
                    failed = Some(port);
                    break;
                }
                continue;
            }
            if let Some(reason) = core.dispatch(&verdict, &f, &meta) {
                up.counters.drops.add(reason as usize, 1);
            }
        }
        core.out.end_burst();
        up.device.release();
        up.tell(core, now);
        if work > 0 {
            core.flush();
        } else if up.device.looks_cost() {
            up.next_look = now + UPLINK_PAUSE;
        }
        let stamped = up.device.stamped();
        if stamped.frames > 0 {
            up.counters.io.add(P::RxHwtstamp as usize, stamped.frames);
            up.counters.io.add(P::RxHwtstampWaitNs as usize, stamped.wait);
        }
        let lost = up.device.lost();
        if lost > 0 {
            up.counters.drops.add(DropReason::PortReceive as usize, lost);
        }
        if let Some(port) = failed {
            functions.fail(core, sleeper, port);
        }
        work
    }

    /// Prepares for sleep. True: an uplink has a frame already.
    pub fn request_frames(&self) -> bool {
        let all = self.all.iter().flatten();
        all.fold(false, |more, up| more | up.kept.is_some() | up.device.rest())
    }

    /// Ends the pause of an uplink that has woken the core.
    pub fn woken(&mut self, i: u32) {
        if let Some(Some(up)) = self.all.get_mut(i as usize) {
            up.next_look = Instant(0);
            up.device.woken();
        }
    }

    /// Adds an uplink.
    pub fn add(
        &mut self,
        sleeper: &Sleeper,
        port: PortId,
        (device, index): (RxHalf, u32),
        mtu: u16,
        counters: Arc<PortCounters>,
    ) {
        let i = free_index(&mut self.all);
        let _ = sleeper.add(device.fd(), Source::Uplink(i as u32));
        self.all[i] = Some(UplinkRx {
            port,
            device,
            index,
            counters,
            mtu: usize::from(mtu),
            next_look: Instant(0),
            alive: true,
            bond: None,
            slow: SlowLimit::default(),
            storm: Storm::new(StormControl::default()),
            lldp: false,
            bridged: false,
            kept: None,
            held: 0,
        });
    }

    /// Replaces the device of an uplink. False: there is no such uplink.
    pub fn reopen(&mut self, sleeper: &Sleeper, id: PortId, (rx, index): (RxHalf, u32)) -> bool {
        let mut all = (0u32..).zip(&mut self.all);
        let Some((i, up)) = all.find_map(|(i, up)| Some((i, up.as_mut().filter(|up| up.port == id)?))) else {
            return false;
        };
        if up.alive {
            sleeper.remove(up.device.fd());
        }
        (up.device, up.index) = (rx, index);
        up.alive = true;
        up.next_look = Instant(0);
        let _ = sleeper.add(up.device.fd(), Source::Uplink(i));
        true
    }

    /// Notes which uplinks are joined to another port.
    pub fn set_bridged(&mut self, joined: &[(PortId, Option<PortId>)]) {
        for up in self.all.iter_mut().flatten() {
            up.bridged = joined.iter().any(|(port, _)| *port == up.port);
        }
    }

    /// Sets whether link layer discovery of an uplink is for the control plane, if it is one of this core.
    pub fn set_lldp(&mut self, id: PortId, on: bool) {
        for up in self.all.iter_mut().flatten().filter(|up| up.port == id) {
            up.lldp = on;
        }
    }

    /// Sets the limits of storm control of an uplink, if it is one of this core.
    pub fn set_storm(&mut self, id: PortId, limits: StormControl) {
        for up in self.all.iter_mut().flatten().filter(|up| up.port == id) {
            up.storm = Storm::new(limits);
        }
    }

    /// Removes an uplink.
    pub fn remove(&mut self, sleeper: &Sleeper, id: PortId) {
        for up in &mut self.all {
            if let Some(up) = up.take_if(|up| up.port == id) {
                sleeper.remove(up.device.fd());
            }
        }
    }

    /// Makes uplinks members of a bond, and removes all others from it.
    pub fn join(&mut self, bond: PortId, setup: &BondSetup) {
        for up in self.all.iter_mut().flatten() {
            match InBond::of(bond, setup, up.port) {
                None => drop(up.bond.take_if(|of| of.bond == bond)),
                member => up.bond = member,
            }
        }
    }

    /// Removes an uplink from a bond.
    pub fn leave(&mut self, bond: PortId, port: PortId) {
        for up in self.all.iter_mut().flatten().filter(|up| up.port == port) {
            up.bond.take_if(|of| of.bond == bond);
        }
    }
}
