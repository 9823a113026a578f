//! Link layer discovery of a port.

use std::time::{Instant as Moment, SystemTime};

use vnic_fabric::Instant;
use vnic_fabric::dcbx::{Administrative, told};
use vnic_fabric::lldp::{Agent, Local, Neighbour};

use super::PortEntry;
use crate::datapath::PortCounters;
use crate::types::*;
use crate::uplink::{Links, own_address};

/// Link layer discovery of a port.
pub struct Discovery {
    /// Its state machine.
    pub agent: Agent,
    /// Start of its clock.
    began: Moment,
}

impl Discovery {
    /// That of a port in this mode, whose link is up or not.
    pub fn new(spec: &PortSpec, mode: LldpMode, up: bool) -> Discovery {
        let mut agent = Agent::new(local(spec), mode.transmits(), mode.receives());
        agent.set_link(Instant(0), up);
        Discovery {
            agent,
            began: Moment::now(),
        }
    }

    /// Time by its clock.
    pub fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What the port hears; `pfc`: its own priorities with flow control, a bit each.
    pub fn status(&self, pfc: u8, counters: &PortCounters) -> LldpStatus {
        let (now, date) = (self.now(), SystemTime::now());
        let neighbour = |said: &Neighbour| LldpNeighbour {
            since: date - now.since(said.since),
            until: date + said.until.since(now),
            said: said.clone(),
        };
        LldpStatus {
            neighbours: self.agent.neighbours().map(neighbour).collect(),
            counters: self.agent.counters(),
            problem: self.agent.neighbours().find_map(|n| contradiction(n, pfc)),
            dcbx: self.dcbx(counters),
        }
    }

    /// Data center bridging exchange, while it acts.
    fn dcbx(&self, counters: &PortCounters) -> Option<DcbxStatus> {
        let dcbx = self.agent.dcbx()?;
        let wanted = dcbx.administrative();
        let mut said = self.agent.neighbours().map(Neighbour::priorities);
        let peer = said.find(|said| *said != dcbx::Exchange::default());
        Some(DcbxStatus {
            willing: wanted.willing,
            administrative: wanted.parameters.clone(),
            outcome: dcbx.outcome().clone(),
            peer: peer.filter(|_| dcbx.outcome().peers == 1),
            counters: counters.dcbx(),
        })
    }
}

/// What the agent of a port shall do.
pub struct Wanted {
    /// Whether it speaks and listens.
    pub mode: LldpMode,
    /// Whether it tells, and reads, more than a message must have.
    pub optional: (bool, bool),
    /// What it brings into data center bridging exchange; `None`: it has no part in it.
    pub dcbx: Option<Administrative>,
}

/// What the agent of a port shall do: what the operator wants of the port; while its link layer discovery is disabled, what the NV
/// configuration wants.
pub fn wanted(entry: &PortEntry) -> Wanted {
    let (spec, qos, preset) = (&entry.spec, &entry.qos, entry.preset);
    let own = spec.lldp != LldpMode::Disabled;
    let mode = if own { spec.lldp } else { preset.mode() };
    let full = |extent| own || extent == LldpExtent::All;
    let optional = (full(preset.transmit), full(preset.receive));
    let (version, willing) = match (spec.dcbx.mode, own) {
        (DcbxMode::Off, false) => {
            let willing = DcbxWilling {
                ets: preset.willing,
                pfc: preset.willing,
                applications: preset.willing,
            };
            (preset.dcbx, willing)
        }
        (mode, _) => (mode, spec.dcbx.willing),
    };
    let acts = mode == LldpMode::RxAndTx && optional == (true, true) && !qos.disabled;
    let dcbx = version
        .versions()
        .filter(|_| acts)
        .map(|versions| Administrative {
            versions,
            willing,
            parameters: DcbxParameters {
                classes: told(&entry.limits.fold(&qos.classes)),
                pfc: entry.limits.paused(qos.pfc),
                applications: spec.dcbx.applications.clone(),
            },
            limits: entry.limits,
        });
    Wanted { mode, optional, dcbx }
}

/// What contradicts a port with flow control of these priorities, if a station says anything of it.
fn contradiction(n: &Neighbour, pfc: u8) -> Option<String> {
    let theirs = n.priorities().pfc?.priorities;
    let words = |bits: u8| {
        let all: Vec<String> = (0..8)
            .filter(|p| bits & 1 << p != 0)
            .map(|p| p.to_string())
            .collect();
        match &all[..] {
            [] => "no priority".to_owned(),
            [one] => format!("priority {one}"),
            _ => format!("priorities {}", all.join(", ")),
        }
    };
    (theirs != pfc).then(|| {
        let (port, chassis) = (&n.port, &n.chassis);
        format!(
            "port {port} of {chassis} has flow control for {}, this port for {}",
            words(theirs),
            words(pfc)
        )
    })
}

/// What a port says of itself.
fn local(spec: &PortSpec) -> Local {
    let device = || Links::open().ok()?.find(spec.kind.ifname()).ok()??.mac;
    let mac = device().filter(|mac| *mac != MacAddr::default() && !mac.is_multicast());
    let kind = spec.kind.name();
    Local {
        mac: mac.unwrap_or_else(|| own_address(&spec.name)),
        port: spec.name.clone(),
        description: format!("{kind} {}", spec.kind.ifname()).trim_end().to_owned(),
        system_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        system_description: concat!("vnic ", env!("CARGO_PKG_VERSION"), ", virtual RoCE NIC").to_owned(),
    }
}
