//! Flow control on the wire: pause frames that an uplink sends and obeys.
//!
//! ```text
//!  wire ─▶ MAC control? ─ yes ─▶ PauseRx ─▶ closed priorities of the uplink's queues
//!              │ no: switch
//!              ▼
//!  wire ◀─ PauseTx ◀─ Pauses: what receivers of all cores tell the uplink's frames
//! ```

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::Instant;
use vnic_fabric::qos::{PauseRx, PauseSettings, PauseTx};
use vnic_fabric::switch::PortId;
use vnic_wire::pause::{DESTINATION, Frame};
use vnic_wire::{EtherType, MacAddr};

use super::super::counters::LinkCounters;
use super::super::frame::OutFrame;
use super::super::qos::{PauseSpans, PauseState};
use super::{Outputs, Slot};

/// Flow control of an uplink.
pub struct Link {
    rx: PauseRx,
    tx: PauseTx,
    mac: MacAddr,
    /// What acts.
    pause: PauseSettings,
    /// Priorities that the peer has stopped.
    stopped: u8,
    /// Priorities that the peer is told to stop.
    pausing: u8,
    waits: PauseSpans,
    tells: PauseSpans,
}

impl Link {
    /// Nobody waits; pause frames come from this address.
    pub fn new(mac: MacAddr) -> Link {
        Link {
            rx: PauseRx::default(),
            tx: PauseTx::default(),
            mac,
            pause: PauseSettings::default(),
            stopped: 0,
            pausing: 0,
            waits: PauseSpans::default(),
            tells: PauseSpans::default(),
        }
    }

    /// Priorities that the peer has stopped, a bit each.
    pub fn paused(&self) -> u8 {
        self.stopped
    }

    /// Priorities that the peer is told to stop, a bit each.
    pub fn pausing(&self) -> u8 {
        self.pausing
    }

    /// Has it something to do each round?
    fn is_busy(&self) -> bool {
        self.stopped | self.pausing != 0 || self.next_time().is_some()
    }

    fn next_time(&self) -> Option<Instant> {
        let times = [self.rx.next_time(), self.tx.next_time()];
        times.into_iter().flatten().min()
    }

    fn count_waits(&mut self, now: Instant, mask: u8, pfc: u8, link: &LinkCounters) {
        self.waits.set(now, mask, |p, us, end| match pfc {
            0 if p == 0 => {
                link.link.add(L::RxPauseUs as usize, us);
                link.link.add(L::RxPauseTransitions as usize, end.into());
            }
            0 => {}
            _ => {
                link.priorities[p].add(P::RxPauseUs as usize, us);
                link.priorities[p].add(P::RxPauseTransitions as usize, end.into());
            }
        });
    }

    fn count_tells(&mut self, now: Instant, mask: u8, pfc: u8, link: &LinkCounters) {
        self.tells.set(now, mask, |p, us, _| match pfc {
            0 if p == 0 => link.link.add(L::TxPauseUs as usize, us),
            0 => {}
            _ => link.priorities[p].add(P::TxPauseUs as usize, us),
        });
    }
}

/// Is it MAC control: by its destination, which no bridge forwards, or by its EtherType (IEEE 802.3 clause 31)?
#[inline]
pub fn is_control(head: &[u8]) -> bool {
    head.starts_with(&DESTINATION.0) || head.get(12..14) == Some(&EtherType::MAC_CONTROL.0.to_be_bytes())
}

impl Outputs {
    /// MAC control came from the wire of an uplink.
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
        p.link.rx.frame(now, &frame, change.qos.pause, change.qos.rate);
        self.link_round(port, now);
    }

    /// An uplink's settings are others.
    pub(super) fn configure_link(&mut self, port: PortId, now: Instant) {
        if matches!(self.slots.get(usize::from(port.0)), Some(Slot::Uplink(_))) {
            self.link_round(port, now);
        }
    }

    /// Does any uplink of this core have to look what it is pausing, or how long it still waits?
    #[inline]
    pub fn links_busy(&self) -> bool {
        self.links_busy || self.round.waiting.pauses().any()
    }

    /// One look at the flow control of the uplinks.
    #[cold]
    pub fn links_round(&mut self, now: Instant) {
        self.links_busy = false;
        for i in 0..self.slots.len() {
            if matches!(self.slots[i], Slot::Uplink(_)) {
                self.link_round(PortId(i as u16), now);
            }
        }
    }

    fn link_round(&mut self, port: PortId, now: Instant) {
        let change = self.acting(port);
        let (pause, rate) = (change.qos.pause, change.qos.rate);
        let xoff = match self.round.waiting.pauses().of(port) {
            PauseState { global: true, .. } => 0xff,
            PauseState { priorities, .. } => priorities,
        };
        // What this uplink may say at all.
        let xoff = match pause.pfc {
            0 if pause.global_tx && xoff != 0 => 0xff,
            0 => 0,
            pfc => xoff & pfc,
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
        let counters = p.counters.clone();
        if pause != p.link.pause {
            p.link.pause = pause;
            p.link.rx.configure(pause);
            p.link.tx.configure();
        }
        if xoff != p.link.pausing {
            p.link.pausing = xoff;
            p.link.tx.set(now, xoff);
        }
        p.link.count_tells(now, xoff, pause.pfc, &counters.link);
        while let Some(frame) = p.link.tx.poll(now, pause, rate) {
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
            round.offer(port, &OutFrame::of(&bytes), None, None);
        }
        let stopped = p.link.rx.paused(now);
        p.link.count_waits(now, stopped, pause.pfc, &counters.link);
        *links_busy |= p.link.is_busy() || stopped != 0;
        if stopped != p.link.stopped {
            p.link.stopped = stopped;
            self.set_up_receiver(port, stopped, now);
        }
    }

    /// When an uplink of this core has to repeat itself, or may go on.
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
