//! LACP of bonds: each bond has a state machine, under the lock of the state. Received frames and link changes go to the
//! machine where they are noticed; a thread tells it the time.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant as Moment};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use vnic_fabric::lag::Member;
use vnic_fabric::lag::lacp::Output;
use vnic_wire::lacp::Frame;

use crate::nic::state::{BondEntry, Speaker, State};
use crate::nic::{Inner, lldp};
use crate::types::lag::LacpReceive;
use crate::types::*;

/// Tells the machines the time until there is none.
fn tell_the_time(nic: &Weak<Inner>, woken: &Receiver<()>) {
    let mut wait = None;
    loop {
        let news = match wait {
            Some(wait) => woken.recv_timeout(wait),
            None => woken.recv().map_err(RecvTimeoutError::from),
        };
        if news == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let Some(nic) = nic.upgrade() else { return };
        wait = nic.time_passed();
    }
}

impl Inner {
    /// Starts the thread that tells the machines the time, if there is none.
    pub(in crate::nic) fn set_alarm(self: &Arc<Inner>, state: &mut State) -> Result<(), NicError> {
        if state.alarm.is_some() {
            return Ok(());
        }
        let (wake, woken) = bounded(1);
        let nic = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("vnic-neighbours".into());
        let thread = thread.spawn(move || tell_the_time(&nic, &woken));
        thread.map_err(NicError::os("starting a thread"))?;
        state.alarm = Some(wake);
        Ok(())
    }

    /// Ends the thread that tells the machines the time, if no bond runs LACP and no port link layer discovery any more.
    pub(in crate::nic) fn silence(&self, state: &mut State) {
        let spoken = state.bonds.values().any(|b| b.lacp.is_some());
        if !spoken && !state.ports.values().any(|p| p.lldp.is_some()) {
            state.alarm = None;
            // Nobody is told the time any more, and no peer names a priority of RDMA.
            lldp::prefer(&self.lldp(), state);
        }
    }

    /// Runs the machines whose time has come. Returns how long the next one can wait.
    fn time_passed(&self) -> Option<Duration> {
        let noticed = Moment::now();
        let mut state = self.lock();
        let lldp = lldp::time_passed(&self.lldp(), &mut state);
        let bonds = state.bonds.iter_mut().filter(|(_, b)| b.lacp.is_some());
        let mut next: Option<Duration> = lldp;
        for (name, bond) in bonds {
            if let Some(speaker) = &mut bond.lacp
                && speaker.wait().is_some_and(|w| w.is_zero())
            {
                let now = speaker.now();
                speaker.machine.tick(now);
                self.speak(name, bond);
                self.settle(name, bond, noticed, None);
            }
            let wait = bond.lacp.as_ref().and_then(Speaker::wait);
            next = next.into_iter().chain(wait).min();
        }
        next
    }

    /// Handles a frame of a slow protocol from a port.
    pub(in crate::nic) fn slow_frame(&self, state: &mut State, port: PortId, frame: &[u8]) {
        let noticed = Moment::now();
        let Ok(frame) = Frame::parse(frame) else { return };
        let Some((name, bond, member)) = state.membership(port) else {
            return;
        };
        let Some(speaker) = &mut bond.lacp else { return };
        let now = speaker.now();
        speaker.machine.receive(now, member, &frame);
        self.speak(name, bond);
        self.settle(name, bond, noticed, None);
        state.ring_alarm();
    }

    /// Executes the outputs of a bond's machine.
    pub(super) fn speak(&self, name: &str, bond: &mut BondEntry) {
        let Some(speaker) = &mut bond.lacp else { return };
        let now = speaker.now();
        while let Some(output) = speaker.machine.poll(now) {
            match output {
                Output::State {
                    member,
                    collecting,
                    distributing,
                } => {
                    if let Some(m) = bond.members.get_mut(usize::from(member.0)) {
                        m.aggregated = collecting && distributing;
                    }
                    let id = bond.id;
                    self.workers[bond.core].post(move |w| {
                        w.core
                            .out
                            .bond_lacp(id, member, collecting, distributing, w.core.now);
                    });
                }
                Output::Send { member, frame } => {
                    let i = usize::from(member.0);
                    if let (Some(m), Some(voice)) = (bond.members.get(i), speaker.members.get(i)) {
                        let (id, frame) = (m.id, frame.emit(voice.mac));
                        self.workers[bond.core].post(move |w| w.core.out.send_control(id, &frame));
                    }
                }
            }
        }
        for (i, (voice, port)) in (0..).zip(speaker.members.iter_mut().zip(&bond.spec.members)) {
            let view = speaker.machine.port(Member(i));
            let current = view.filter(|v| v.receive == LacpReceive::Current);
            let partner = current.map(|v| v.partner.system.address);
            if partner == voice.partner {
                continue;
            }
            voice.partner = partner;
            let bond = name.to_owned();
            let kind = match partner {
                Some(partner) => NicEventKind::LacpPartnerFound { bond, partner },
                None => NicEventKind::LacpPartnerLost { bond },
            };
            self.hub.publish(port, kind);
        }
    }
}
