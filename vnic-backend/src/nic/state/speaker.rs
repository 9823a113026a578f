//! LACP of a bond.

use std::time::{Duration, Instant as Moment};

use vnic_fabric::Instant;
use vnic_fabric::lag::lacp::LacpSettings;
use vnic_fabric::lag::{Lacp, Member};
use vnic_wire::lacp::{Port, State as Flags, System};

use super::port::PortEntry;
use crate::types::lag::LacpView;
use crate::types::*;
use crate::uplink::{Links, own_address};

/// Priority of each port (IEEE 802.1AX-2014 clause 6.3.4): all ports have the same.
const PORT_PRIORITY: u16 = 0x8000;

/// LACP of a bond: its state machine and clock.
pub struct Speaker {
    /// The machine of link aggregation control.
    pub machine: Lacp,
    system: System,
    key: u16,
    /// The members, as their partners see them.
    pub members: Vec<Voice>,
    /// Start of the clock.
    began: Moment,
}

/// A member, as its partner sees it.
pub struct Voice {
    /// Source address of its frames.
    pub mac: MacAddr,
    /// The current partner, if there is one.
    pub partner: Option<MacAddr>,
}

impl Speaker {
    /// LACP of a bond with these ports, if it is configured.
    pub fn new(spec: &BondSpec, ports: &[&PortEntry]) -> Result<Option<Speaker>, NicError> {
        let Some(lacp) = spec.lacp else { return Ok(None) };
        let mut links = Links::open().ok();
        let own = |port: &&PortEntry| {
            let mac = links.as_mut()?.find(port.spec.kind.ifname()).ok()??.mac?;
            (mac != MacAddr::default() && !mac.is_multicast()).then_some(mac)
        };
        // Addresses of the devices, which differ from host to host; without one the address comes from the name.
        let macs: Vec<Option<MacAddr>> = ports.iter().map(own).collect();
        let first = macs.first().copied().flatten();
        let system = System {
            priority: lacp.system_priority,
            address: spec.mac.or(first).unwrap_or_else(|| own_address(&spec.name)),
        };
        let port = |p: &&PortEntry| Port {
            priority: PORT_PRIORITY,
            number: p.id.0 + 1,
        };
        let machine = Lacp::new(&LacpSettings {
            system,
            key: lacp.key,
            active: lacp.active,
            short_timeout: lacp.short_timeout,
            ports: ports.iter().map(port).collect(),
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

    /// Applies other settings for the same members, if the partners need not notice. False: they would.
    pub fn adopt(&mut self, spec: &BondSpec) -> bool {
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

    /// Time by the bond's clock.
    pub fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sets the link of a member.
    pub fn set_link(&mut self, member: Member, up: bool) {
        let now = self.now();
        self.machine.set_link(now, member, up);
    }

    /// State of a member and its partner.
    pub fn view(&self, member: Member) -> Option<LacpView> {
        self.machine.port(member)
    }

    /// Whether a member receives and sends frames.
    pub fn is_aggregated(&self, member: Member) -> bool {
        let both = Flags::COLLECTING | Flags::DISTRIBUTING;
        self.view(member).is_some_and(|v| v.actor.state.has(both))
    }

    /// Time until the machine has to be told the time.
    pub fn wait(&self) -> Option<Duration> {
        let at = self.machine.next_time()?;
        Some(at.since(self.now()))
    }
}
