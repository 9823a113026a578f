//! Uplink ports of the control plane, and their devices.

mod follow;

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use super::state::{PortEntry, State, limited, not_found};
use super::{Inner, Nic, acting, bridges, lldp, mirrors, qos};
use crate::check;
use crate::datapath::{PortCounters, Side};
use crate::rehearsal::acts;
use crate::types::*;
use crate::uplink::{self, Facts, Links, Opened, PortEnd, Stamping, Watch};
use follow::Pace;

/// A port whose device is looked at: the port of this name may be another one afterwards.
struct Watched {
    counters: Arc<PortCounters>,
    spec: PortSpec,
    index: Option<u32>,
    stamping: Option<Arc<Stamping>>,
}

impl Nic {
    /// Adds an uplink port.
    pub fn add_port(&self, spec: PortSpec) -> Result<PortStatus, NicError> {
        let mut state = self.room_for_port(&spec)?;
        let mut links = links()?;
        state.free_device(&spec, facts(&mut links, &spec).map(|f| f.index))?;
        acts()?;
        self.watch_ports()?;
        let opened = uplink::open(&spec, &mut links)?;
        let up = facts(&mut links, &spec).is_some_and(|f| f.up);
        let status = self.new_port(&mut state, spec, (opened, up), PortCounters::default())?;
        drop(state);
        self.inner.hub.publish(&status.spec.name, NicEventKind::PortAdded);
        Ok(status.with_device(&mut links))
    }

    /// Adds an uplink port whose other end the caller holds. Its link is down until [`Nic::set_port_link`] sets it up.
    pub fn add_port_exchange(&self, spec: PortSpec) -> Result<(PortStatus, PortEnd), NicError> {
        let mut state = self.room_for_port(&spec)?;
        acts()?;
        let (opened, end) = uplink::open_exchange(&spec)?;
        let counters = PortCounters::of_mesh(end.counters.clone());
        let status = self.new_port(&mut state, spec, (opened, false), counters)?;
        drop(state);
        self.inner.hub.publish(&status.spec.name, NicEventKind::PortAdded);
        Ok((status, end))
    }

    /// Sets the link of a port that [`Nic::add_port_exchange`] made, and the reason why it is down.
    pub fn set_port_link(&self, name: &str, up: bool, problem: Option<String>) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        let port = state.port(name)?;
        if !matches!(port.spec.kind, PortKind::Mesh { .. }) {
            return invalid("name", format!("the link of port {name} is that of its device"));
        }
        let id = port.id;
        self.inner.port_is(&mut state, id, Some((0, up)), problem);
        Ok(())
    }

    /// Locks the state of a NIC that has room for this port.
    fn room_for_port(&self, spec: &PortSpec) -> Result<MutexGuard<'_, State>, NicError> {
        check::port(spec, &self.inner.config)?;
        let state = self.inner.state()?;
        state.free_name("port", &spec.name)?;
        if state.ports.len() >= PORTS_MAX {
            return Err(NicError::Limit(format!("a NIC has at most {PORTS_MAX} ports")));
        }
        if let Some(other) = &spec.bridge {
            state.may_bridge(&spec.name, other)?;
        }
        Ok(state)
    }

    /// Adds an uplink port for an open device, which is up or not.
    fn new_port(
        &self,
        state: &mut State,
        mut spec: PortSpec,
        (mut opened, up): (Opened, bool),
        counters: PortCounters,
    ) -> Result<PortStatus, NicError> {
        let core = self.inner.core_for(spec.data_core, |core| core);
        spec.data_core = Some(self.inner.config.data_cores[core]);
        let (index, mode) = (opened.index, opened.mode.clone());
        let id = state.free_id();
        let counters = Arc::new(counters);
        let limits = state.imposed.limits;
        let name = spec.name.clone();
        if spec.lldp != LldpMode::Disabled {
            self.inner.set_alarm(state)?;
        }
        self.inner.alarm_for_presets(state)?;
        let mut entry = PortEntry {
            spec,
            id,
            core,
            counters,
            up,
            qos: QosSpec::default(),
            limits,
            lldp: None,
            preset: PortPreset::default(),
            index: Some(index),
            problem: None,
            mode,
            stamping: opened.stamping.take().map(Arc::new),
        };
        let change = match (entry.spec.speed_mbps, limits == QosLimits::default()) {
            (None, true) => None,
            _ => Some(acting::of_port(&entry)?),
        };
        let side = Side::Uplink(Box::new(opened), entry.counters.clone());
        self.inner.add_to_cores(id, core, &entry.config(), side);
        self.inner.set_storm(&entry);
        self.inner.set_link(id, up);
        if let Some(change) = change {
            self.inner.send_qos(id, change);
        }
        lldp::discover(&self.inner.lldp(), &mut entry);
        let status = entry.status();
        state.names.insert(id, name.clone());
        state.ports.insert(name.clone(), entry);
        self.inner.bind_faults(state, &name);
        mirrors::bind(&self.inner, state);
        qos::bind(&self.inner, state);
        if state.bridged_with(&name).is_some() {
            bridges::bind(&self.inner, state);
        }
        self.inner.preset(state);
        Ok(status)
    }

    /// Removes an uplink port that is in no bond.
    pub fn remove_port(&self, name: &str) -> Result<(), NicError> {
        let entry = {
            let mut state = self.inner.state()?;
            let id = state.ports.get(name).map(|p| p.id);
            if let Some(bond) = id.and_then(|id| state.bond_of(id)) {
                let problem = format!("{name} is a member of {bond}; take it out of that first");
                return invalid("name", problem);
            }
            state.port(name)?;
            acts()?;
            self.inner.alarm_for_presets(&mut state)?;
            let bridged = state.bridged_with(name).is_some();
            let mut entry = state.ports.remove(name).ok_or_else(|| not_found("port", name))?;
            lldp::part(&self.inner.lldp(), &mut entry);
            if bridged {
                bridges::bind(&self.inner, &state);
            }
            self.inner.preset(&mut state);
            qos::bind(&self.inner, &mut state);
            entry
        };
        self.inner.remove_from_cores(entry.id);
        self.inner.forget(entry.id, name);
        self.inner.hub.publish(name, NicEventKind::PortRemoved);
        Ok(())
    }

    /// Sets the speed of a port, at once and under traffic; `None`: the device's own, without a limit.
    pub fn set_port_speed(&self, name: &str, mbps: Option<u32>) -> Result<PortStatus, NicError> {
        check::speed(mbps)?;
        {
            let mut state = self.inner.state()?;
            let entry = state.ports.get_mut(name).ok_or_else(|| not_found("port", name))?;
            acting::change(&limited(&entry.qos, mbps), &entry.qos.keys)?;
            acts()?;
            entry.spec.speed_mbps = mbps;
            let change = acting::of_port(entry)?;
            self.inner.send_qos(entry.id, change);
        }
        self.port(name)
    }

    /// Sets the limits of storm control of a port, at once and under traffic.
    pub fn set_port_storm(&self, name: &str, limits: StormControl) -> Result<PortStatus, NicError> {
        check::storm(limits)?;
        {
            let mut state = self.inner.state()?;
            let entry = state.ports.get_mut(name).ok_or_else(|| not_found("port", name))?;
            acts()?;
            entry.spec.storm = limits;
            self.inner.set_storm(entry);
        }
        self.port(name)
    }

    /// Joins a port to another one, at once and under traffic; `None`: both are ports of the switch again.
    pub fn set_port_bridge(&self, name: &str, other: Option<String>) -> Result<PortStatus, NicError> {
        {
            let mut state = self.inner.state()?;
            state.port(name)?;
            if let Some(other) = &other {
                state.may_bridge(name, other)?;
            }
            self.inner.alarm_for_presets(&mut state)?;
            if let Some(entry) = state.ports.get_mut(name)
                && entry.spec.bridge != other
            {
                acts()?;
                entry.spec.bridge = other;
                bridges::bind(&self.inner, &state);
            }
            self.inner.preset(&mut state);
        }
        self.port(name)
    }

    /// Sets whether a port speaks and listens by link layer discovery, at once and under traffic.
    pub fn set_port_lldp(&self, name: &str, mode: LldpMode) -> Result<PortStatus, NicError> {
        {
            let mut state = self.inner.state()?;
            state.port(name)?;
            if let Some(other) = state.bridged_with(name).filter(|_| mode != LldpMode::Disabled) {
                let problem =
                    format!("{name} is bridged with {other}: what links say to each other is for that one");
                return invalid("lldp", problem);
            }
            acts()?;
            if mode != LldpMode::Disabled {
                self.inner.set_alarm(&mut state)?;
            }
            let entry = state.ports.get_mut(name).ok_or_else(|| not_found("port", name))?;
            entry.spec.lldp = mode;
            lldp::discover(&self.inner.lldp(), entry);
            self.inner.silence(&mut state);
            state.ring_alarm();
        }
        self.port(name)
    }

    /// Sets what the operator wants of data center bridging exchange on a port, at once and under traffic.
    pub fn set_port_dcbx(&self, name: &str, wanted: DcbxSpec) -> Result<PortStatus, NicError> {
        check::dcbx(&wanted)?;
        {
            let mut state = self.inner.state()?;
            let entry = state.ports.get_mut(name).ok_or_else(|| not_found("port", name))?;
            acts()?;
            if entry.spec.dcbx != wanted {
                entry.spec.dcbx = wanted;
                lldp::discover(&self.inner.lldp(), entry);
                state.ring_alarm();
            }
        }
        self.port(name)
    }

    /// Sets what the NV configuration wants of the first ports by name, also of those that come later. What the operator wants of a
    /// port goes before it.
    pub fn preset_ports(&self, presets: [PortPreset; PRESETS]) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        state.presets = presets;
        self.inner.alarm_for_presets(&mut state)?;
        self.inner.preset(&mut state);
        Ok(())
    }

    /// Status of an uplink port.
    pub fn port(&self, name: &str) -> Result<PortStatus, NicError> {
        let status = self.inner.state()?.port(name)?.status();
        Ok(match links() {
            Ok(mut links) => status.with_device(&mut links),
            Err(_) => status,
        })
    }

    /// Status of all uplink ports, by name.
    pub fn ports(&self) -> Vec<PortStatus> {
        let all: Vec<_> = self.inner.lock().ports.values().map(PortEntry::status).collect();
        match links() {
            Ok(mut links) if !all.is_empty() => all.into_iter().map(|p| p.with_device(&mut links)).collect(),
            _ => all,
        }
    }

    /// Begins to follow the devices of ports, if it has not begun.
    fn watch_ports(&self) -> Result<(), NicError> {
        if self.inner.watched.load(Ordering::Relaxed) {
            return Ok(());
        }
        let watch = Watch::open()?;
        let nic = Arc::downgrade(&self.inner);
        let mut pace = Pace::default();
        watch.start(move |watch| nic.upgrade()?.follow(watch, &mut pace))?;
        self.inner.watched.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Inner {
    /// Starts the thread that tells the time, if the NV configuration wants link layer discovery of ports.
    fn alarm_for_presets(self: &Arc<Inner>, state: &mut State) -> Result<(), NicError> {
        match state.presets == <[PortPreset; PRESETS]>::default() {
            true => Ok(()),
            false => self.set_alarm(state),
        }
    }

    /// Gives ports what the NV configuration wants of them. A bump in the wire has nothing of its own to say.
    pub(super) fn preset(&self, state: &mut State) {
        let driver = state
            .adapters
            .values()
            .any(|e| e.adapter.settings().dcbx.is_some());
        let free = |name: &String| state.bridged_with(name).is_none();
        let free: Vec<bool> = state.ports.keys().map(free).collect();
        let presets = state
            .presets
            .into_iter()
            .chain(std::iter::repeat_with(PortPreset::default));
        for ((entry, preset), free) in state.ports.values_mut().zip(presets).zip(free) {
            let mut new = if free { preset } else { PortPreset::default() };
            if !driver {
                new.dcbx = DcbxMode::Off;
            }
            if entry.preset != new {
                entry.preset = new;
                lldp::discover(&self.lldp(), entry);
            }
        }
        self.silence(state);
        state.ring_alarm();
    }

    /// Looks once at the devices of all ports. False: the NIC has ended.
    fn look_at_ports(&self, watch: &mut Watch) -> bool {
        let watched: Vec<Watched> = {
            let state = self.lock();
            if state.ended {
                return false;
            }
            let ports = state.ports.values().filter(|p| !p.spec.kind.ifname().is_empty());
            ports
                .map(|p| Watched {
                    counters: p.counters.clone(),
                    spec: p.spec.clone(),
                    index: p.index,
                    stamping: p.stamping.clone(),
                })
                .collect()
        };
        for port in watched {
            // A look can take long; a link that goes down cannot wait.
            self.hear(watch);
            self.look_at_port(&mut watch.links, &port);
        }
        true
    }

    fn look_at_port(&self, links: &mut Links, port: &Watched) {
        if let Some(stamping) = &port.stamping {
            stamping.look();
        }
        let ifname = port.spec.kind.ifname();
        let Some(facts) = facts(links, &port.spec) else {
            self.port_became(
                port,
                None,
                Some(format!("there is no network device {ifname} any more")),
            );
            return;
        };
        if port.index == Some(facts.index) {
            self.port_became(port, Some((facts.index, facts.up)), None);
            return;
        }
        if let Some(stamping) = &port.stamping {
            stamping.lost();
        }
        match uplink::reopen(&port.spec, facts.index, links) {
            Ok(opened) => self.port_reopened(port, opened, facts.up),
            Err(error) => self.port_became(port, None, Some(error.to_string())),
        }
    }

    /// Replaces the device of a port that came back and was opened.
    fn port_reopened(&self, port: &Watched, opened: Opened, up: bool) {
        let mut state = self.lock();
        let Some((id, core)) = state.same_port(port).map(|p| (p.id, p.core)) else {
            return;
        };
        let Opened {
            rx,
            tx,
            index,
            mode,
            stamping,
            ..
        } = opened;
        if let Some(entry) = state.same_port(port) {
            entry.mode = mode;
            entry.stamping = stamping.map(Arc::new);
        }
        self.workers[core].post(move |w| w.reopen_uplink(id, (rx, index), tx));
        self.port_is(&mut state, id, Some((index, up)), None);
    }

    fn port_became(&self, port: &Watched, device: Option<(u32, bool)>, problem: Option<String>) {
        let mut state = self.lock();
        if let Some(id) = state
            .same_port(port)
            .filter(|p| p.index == port.index)
            .map(|p| p.id)
        {
            self.port_is(&mut state, id, device, problem);
        }
    }

    /// Handles a core's report that it could not read the device with this index.
    pub(super) fn port_gone(&self, state: &mut State, id: PortId, index: u32) {
        let port = state.ports.values().find(|p| p.id == id);
        if port.is_some_and(|p| p.index == Some(index)) {
            self.port_is(state, id, None, Some("its device is gone".into()));
        }
    }

    /// Records the state of a port's device (its index, and whether it is up), and reports a change of its link.
    pub(super) fn port_is(
        &self,
        state: &mut State,
        id: PortId,
        device: Option<(u32, bool)>,
        problem: Option<String>,
    ) {
        self.port_is_since(state, id, device, problem, Instant::now());
    }

    /// As [`Inner::port_is`], with the time at which the change was noticed.
    fn port_is_since(
        &self,
        state: &mut State,
        id: PortId,
        device: Option<(u32, bool)>,
        problem: Option<String>,
        noticed: Instant,
    ) {
        let Some((name, port)) = state.ports.iter_mut().find(|(_, p)| p.id == id) else {
            return;
        };
        port.index = device.map(|(index, _)| index);
        port.problem = problem;
        let up = device.is_some_and(|(_, up)| up);
        if port.up != up {
            port.up = up;
            let name = name.clone();
            if !self.member_link(state, id, up, noticed) {
                self.set_link(id, up);
            }
            lldp::link(&self.lldp(), state, id, up);
            self.hub.publish(&name, NicEventKind::PortLink { up });
        }
    }
}

impl State {
    /// Refuses a port whose network device, with this index if there is one, another port has: each would get all frames of
    /// the device, and send again what the other has sent.
    fn free_device(&self, spec: &PortSpec, index: Option<u32>) -> Result<(), NicError> {
        let ifname = spec.kind.ifname();
        let has = |p: &&PortEntry| {
            let other = p.spec.kind.ifname();
            !other.is_empty() && (other == ifname || (index.is_some() && p.index == index))
        };
        match self.ports.values().find(has) {
            None => Ok(()),
            Some(other) => {
                let name = &other.spec.name;
                let problem = format!(
                    "port {name} has the network device {ifname}: a device is one port; take another device, or remove {name} first"
                );
                invalid("ifname", problem)
            }
        }
    }

    /// The port that was looked at, if it still exists.
    fn same_port(&mut self, port: &Watched) -> Option<&mut PortEntry> {
        self.ports
            .get_mut(&port.spec.name)
            .filter(|p| Arc::ptr_eq(&p.counters, &port.counters))
    }
}

impl PortStatus {
    fn with_device(mut self, links: &mut Links) -> PortStatus {
        self.device = facts(links, &self.spec).map(|f| {
            let ifname = self.spec.kind.ifname();
            let kernel = f
                .statistics
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            PortDevice {
                index: f.index,
                mtu: f.mtu,
                mac: f.mac,
                speed_mbps: uplink::speed_mbps(ifname),
                statistics: kernel.chain(uplink::device_statistics(ifname)).collect(),
            }
        });
        self
    }
}

fn links() -> Result<Links, NicError> {
    Links::open().map_err(NicError::os("opening a netlink socket"))
}

fn facts(links: &mut Links, spec: &PortSpec) -> Option<Facts> {
    let ifname = spec.kind.ifname();
    if ifname.is_empty() {
        return None;
    }
    links.find(ifname).ok().flatten()
}
