//! Pause frames that uplinks of a core send and obey.

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::PauseSettings;
use vnic_fabric::switch::PortId;
use vnic_wire::pause::Frame;

use super::super::super::frame::OutFrame;
use super::super::super::qos::PauseState;
use super::super::Outputs;
use super::super::slot::Slot;
use crate::types::Direction;

impl Outputs {
    /// Handles MAC control from the wire of an uplink.
    #[cold]
    pub fn control_frame(&mut self, port: PortId, bytes: &[u8], now: Instant) {
        let change = self.acting(port);
        let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        let link = &p.counters.link;
        link.link.add(L::RxControlFrames as usize, 1);
        let Ok(frame) = Frame::parse(bytes) else { return };
        match frame {
            Frame::Global(_) => link.link.add(L::RxPause as usize, 1),
            Frame::Priorities { enabled, .. } => {
                for (_, block) in (0..).zip(&link.priorities).filter(|(i, _)| enabled >> i & 1 != 0) {
                    block.add(P::RxPause as usize, 1);
                }
            }
        }
        let frame = change.qos.classification.tags.decoded(&frame);
        p.link.rx.frame(now, &frame, change.qos.pause, change.qos.rate);
        self.link_round(port, now);
    }

    /// Whether an uplink has told its peer something that the peer may not have heard.
    #[inline]
    pub fn listens(&self, port: PortId) -> bool {
        let slot = self.slots.get(usize::from(port.0));
        matches!(slot, Some(Slot::Uplink(p)) if p.link.tx.next_time().is_some())
    }

    /// A frame of this priority came from the wire of an uplink.
    #[cold]
    pub fn hears(&mut self, port: PortId, priority: u8, now: Instant) {
        let change = self.acting(port);
        if let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) {
            let tags = &change.qos.classification.tags;
            p.link.tx.heard(now, tags.code_points(1 << (priority & 7)));
        }
    }

    /// Applies changed settings to the flow control of an uplink.
    pub(in super::super) fn configure_link(&mut self, port: PortId, now: Instant) {
        if matches!(self.slots.get(usize::from(port.0)), Some(Slot::Uplink(_))) {
            self.link_round(port, now);
        }
    }

    /// Whether an uplink of this core has to be asked which priorities it pauses, or how long it is paused.
    #[inline]
    pub fn links_busy(&self) -> bool {
        self.links_busy || self.round.waiting.pauses().any()
    }

    /// Looks once at the flow control of all uplinks.
    #[cold]
    pub fn links_round(&mut self, now: Instant) {
        self.links_busy = false;
        for i in 0..self.slots.len() {
            if matches!(self.slots[i], Slot::Uplink(_)) {
                self.link_round(PortId(i as u16), now);
            }
        }
    }

    /// Tells the wire of an uplink that frames of these priorities wait for their receiver, a bit each; 0: none does any more.
    #[cold]
    pub fn hold_link(&mut self, port: PortId, held: u8, now: Instant) {
        if let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) {
            p.link.held = held;
            self.link_round(port, now);
        }
    }

    fn link_round(&mut self, port: PortId, now: Instant) {
        let change = self.acting(port);
        let (pause, rate) = (change.qos.pause, change.qos.rate);
        let told = match self.round.waiting.pauses().of(port) {
            PauseState { global: true, .. } => 0xff,
            PauseState { priorities, .. } => priorities,
        };
        let Outputs {
            slots,
            round,
            links_busy,
            ..
        } = self;
        let Some(Slot::Uplink(p)) = slots.get_mut(usize::from(port.0)) else {
            return;
        };
        // Priorities that the settings let this uplink pause.
        let xoff = match (pause.pfc, told | p.link.held) {
            (0, xoff) if pause.global_tx && xoff != 0 => 0xff,
            (pfc, xoff) => xoff & pfc,
        };
        let counters = p.counters.clone();
        p.set_tpid(change.qos.tpid);
        let tags = &change.qos.classification.tags;
        // As the wire has it: by code points.
        let told = PauseSettings {
            pfc: tags.code_points(pause.pfc),
            ..pause
        };
        if (pause, told) != p.link.pause {
            p.link.pause = (pause, told);
            p.link.rx.configure(pause);
            p.link.tx.configure();
            p.link.tx.set(tags.code_points(xoff));
        }
        if xoff != p.link.pausing {
            p.link.pausing = xoff;
            p.link.tx.set(tags.code_points(xoff));
        }
        p.link.count_tells(now, xoff, pause.pfc, &counters.link);
        while let Some(frame) = p.link.tx.poll(now, told, rate) {
            let bytes = frame.emit(p.link.mac);
            p.send_control(&bytes);
            match frame {
                Frame::Global(_) => counters.link.link.add(L::TxPause as usize, 1),
                Frame::Priorities { enabled, .. } => {
                    for (_, block) in (0..)
                        .zip(&counters.link.priorities)
                        .filter(|(i, _)| enabled >> i & 1 != 0)
                    {
                        block.add(P::TxPause as usize, 1);
                    }
                }
            }
            round.capture((port, Direction::Egress, None), &OutFrame::of(&bytes), None, None);
        }
        let stopped = p.link.rx.paused(now);
        p.link.count_waits(now, stopped, pause.pfc, &counters.link);
        *links_busy |= p.link.is_busy() || stopped != 0;
        if stopped != p.link.stopped {
            p.link.stopped = stopped;
            self.set_up_receiver(port, stopped, now);
        }
    }

    /// When an uplink of this core has to repeat a pause frame, or may send again.
    pub fn links_due(&self) -> Option<Instant> {
        if !self.links_busy {
            return None;
        }
        let times = self.slots.iter().filter_map(|slot| match slot {
            Slot::Uplink(p) => p.link.next_time(),
            _ => None,
        });
        times.min()
    }
}
