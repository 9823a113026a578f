//! Link aggregation control of bonds: their machines live with them, under the lock of the state. What comes from the wire
//! and what becomes of links is told them where it is heard; a thread tells them the time.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant as Moment};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use vnic_fabric::Instant;
use vnic_fabric::lag::lacp::{LacpSettings, Output};
use vnic_fabric::lag::{Lacp, Member};
use vnic_wire::lacp::{Frame, Port, State as Flags, System};

use super::{BondEntry, MemberEntry};
use crate::nic::{Inner, Nic, State};
use crate::types::lag::{LacpReceive, LacpView};
use crate::types::*;
use crate::uplink::{Links, own_address};

/// Priority of each port (802.1AX-2014 clause 6.3.4): all are the same to us.
const PORT_PRIORITY: u16 = 0x8000;

/// What speaks for a bond.
pub(super) struct Speaker {
    machine: Lacp,
    system: System,
    key: u16,
    members: Vec<Voice>,
    /// Its clock begins.
    began: Moment,
}

/// A member, as its partner hears it.
struct Voice {
    /// From this address.
    mac: MacAddr,
    /// The partner that is heard.
    partner: Option<MacAddr>,
}

/// Wakes the thread that tells machines the time. Without it that thread ends.
pub(in crate::nic) struct Alarm(Sender<()>);

impl Speaker {
    /// For a bond that speaks.
    pub(super) fn new(
        spec: &BondSpec,
        members: &[MemberEntry],
        state: &State,
    ) -> Result<Option<Speaker>, NicError> {
        let Some(lacp) = spec.lacp else { return Ok(None) };
        let mut links = Links::open().ok();
        let mut own = |name: &String| {
            let ifname = state.ports.get(name)?.spec.kind.ifname();
            let mac = links.as_mut()?.find(ifname).ok()??.mac?;
            (mac != MacAddr::default() && !mac.is_multicast()).then_some(mac)
        };
        // Of the devices, as each host has others; a device without an address leaves the name.
        let macs: Vec<Option<MacAddr>> = spec.members.iter().map(&mut own).collect();
        let first = macs.first().copied().flatten();
        let system = System {
            priority: lacp.system_priority,
            address: spec.mac.or(first).unwrap_or_else(|| own_address(&spec.name)),
        };
        let port = |m: &MemberEntry| Port {
            priority: PORT_PRIORITY,
            number: m.id.0 + 1,
        };
        let machine = Lacp::new(&LacpSettings {
            system,
            key: lacp.key,
            active: lacp.active,
            short_timeout: lacp.short_timeout,
            ports: members.iter().map(port).collect(),
        });
        let machine = machine.map_err(|error| NicError::Invalid {
            field: match error.field {
                "system" => "mac",
                "ports" => "members",
                field => field,
            },
            problem: error.problem,
        })?;
        let voice = |(name, mac): (&String, Option<MacAddr>)| Voice {
            mac: mac.unwrap_or_else(|| own_address(name)),
            partner: None,
        };
        Ok(Some(Speaker {
            machine,
            system,
            key: lacp.key,
            members: spec.members.iter().zip(macs).map(voice).collect(),
            began: Moment::now(),
        }))
    }

    /// Speaks for the same members with other settings from now on, if a partner need not notice.
    pub(super) fn adopt(&mut self, spec: &BondSpec) -> bool {
        let Some(lacp) = spec.lacp else { return false };
        let system = System {
            priority: lacp.system_priority,
            address: spec.mac.unwrap_or(self.system.address),
        };
        if (system, lacp.key) != (self.system, self.key) {
            return false;
        }
        let now = self.now();
        self.machine.configure(now, lacp.active, lacp.short_timeout);
        true
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A member's link is up, or down.
    pub(super) fn set_link(&mut self, member: Member, up: bool) {
        let now = self.now();
        self.machine.set_link(now, member, up);
    }

    /// For people.
    pub(super) fn view(&self, member: Member) -> Option<LacpView> {
        self.machine.port(member)
    }

    /// A member takes and sends frames.
    pub(super) fn is_aggregated(&self, member: Member) -> bool {
        let both = Flags::COLLECTING | Flags::DISTRIBUTING;
        self.view(member).is_some_and(|v| v.actor.state.has(both))
    }

    /// How long until its machine wants to be told the time.
    fn wait(&self) -> Option<Duration> {
        let at = self.machine.next_time()?;
        Some(at.since(self.now()))
    }
}

impl Nic {
    /// Starts the thread, if there is none.
    pub(super) fn set_alarm(&self, state: &mut State) -> Result<(), NicError> {
        if state.alarm.is_some() {
            return Ok(());
        }
        let (wake, woken) = bounded(1);
        let nic = Arc::downgrade(&self.inner);
        let thread = std::thread::Builder::new().name("vnic-lacp".into());
        let thread = thread.spawn(move || tell_the_time(&nic, &woken));
        thread.map_err(|source| NicError::Os {
            what: "starting a thread".into(),
            source,
        })?;
        state.alarm = Some(Alarm(wake));
        Ok(())
    }
}

/// Until there is nobody to be told.
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
    /// Ends the thread when nobody speaks any more.
    pub(super) fn silence(&self, state: &mut State) {
        if !state.bonds.values().any(|b| b.lacp.is_some()) {
            state.alarm = None;
        }
    }

    /// Machines whose time has come do what is due. Answers how long they can wait.
    fn time_passed(&self) -> Option<Duration> {
        let noticed = Moment::now();
        let mut state = self.lock();
        let bonds = state.bonds.iter_mut().filter(|(_, b)| b.lacp.is_some());
        let mut next: Option<Duration> = None;
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

    /// A port received a frame of a slow protocol.
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

    /// Does what the machine of a bond wants done.
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

impl State {
    /// The thread looks anew at when it has to do something.
    pub(super) fn ring_alarm(&self) {
        if let Some(Alarm(wake)) = &self.alarm {
            // If it cannot be rung, it has been already.
            let _ = wake.try_send(());
        }
    }
}
