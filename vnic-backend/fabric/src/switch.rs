//! The embedded switch: MAC learning with ageing, VLANs, flooding, anti-spoofing (IEEE 802.1Q clause 8,
//! VLAN-aware bridge, independent learning).
//!
//! Every data core owns a copy. The copy of the core that owns a port learns the addresses behind it and tells the others
//! ([`Switch::poll_update`], [`Switch::apply_update`]). Every copy gets all settings.

mod claims;
mod fdb;
mod learn;
mod moves;
mod port;
#[cfg(test)]
mod tests;
mod updates;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use vnic_wire::{EtherType, MacAddr};

use crate::vlan::{Marking, VID_MASK, VLAN_MAX};
use crate::wake::Wakes;
use crate::{DropReason, Instant, PriorityTags, TagEdit, VlanMode};
use fdb::{Fdb, Key, Kind};
use learn::{Ageing, stamp};
use moves::Moves;
use port::{FlowId, LastFlow, Port, Role};
use updates::Updates;

pub use claims::{AllowedAddresses, Claim};
pub use fdb::CAPACITY as FDB_CAPACITY;
pub use moves::Loop;
pub use updates::FdbUpdate;

/// Number of a port of the switch, an adapter or an uplink. Numbers are small and dense: they are indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// Settings of the whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Time after which a learned address that was not seen is forgotten (IEEE 802.1Q clause 8.8.3: 300 s).
    pub ageing: Duration,
    /// Most learned addresses of one port, so that one hostile guest cannot push out the others.
    pub learn_limit_per_port: usize,
    /// Whether link layer discovery of guests and of wires is forwarded as any multicast. A bridge does not (IEEE 802.1Q table 8-1).
    pub forward_lldp: bool,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig {
            ageing: Duration::from_secs(300),
            learn_limit_per_port: 1024,
            forward_lldp: false,
        }
    }
}

/// Settings of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortConfig {
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Own addresses of the port: never aged, never moved by learning, known in the native/access VLAN.
    pub macs: Vec<MacAddr>,
    /// Whether only own addresses are accepted as source.
    pub anti_spoofing: bool,
    /// Whether source addresses of frames from this port are learned.
    pub learning: bool,
    /// Priority (PCP, 0..=7) of frames without a tag from this port, where they leave tagged (IEEE 802.1Q clause 6.9.4).
    pub default_priority: u8,
    /// What becomes of priority tags.
    pub priority_tags: PriorityTags,
    /// Frames that are of interest while it cannot receive.
    pub wakes: Wakes,
    /// Whether the NIC is a transparent clock for PTP messages from and to it.
    pub times_ptp: bool,
}

/// The receiver of a frame, and what becomes of the frame's tag there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// The port that gets the frame.
    pub port: PortId,
    /// What to do with the outer tag.
    pub tag: TagEdit,
}

/// A frame for all ports of its VLAN: what decides about its receivers and its tag on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flood {
    /// The frame's VLAN.
    pub vlan: u16,
    /// TCI of the frame's outer 802.1Q tag, if it came with one (VID 0: a priority tag).
    pub tci: Option<u16>,
    /// How the frame is marked, if rules assign it a priority ([`Switch::assign`]); otherwise as its port marks it.
    pub(crate) assigned: Option<Marking>,
}

/// The switch's decision for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// One receiver.
    Unicast(Egress),
    /// Every other port of the frame's VLAN that is up: iterate [`Switch::flood_targets`].
    Flood(Flood),
    /// The frame is dropped.
    Drop(DropReason),
}

/// Grounds of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// VLAN of the frame; `None`: the frame may not enter, or goes past the switch to the port that its own is joined to.
    pub vlan: Option<u16>,
    /// Entry of the address table for the destination: the port, and whether the address is the port's own (static).
    pub entry: Option<(PortId, bool)>,
    /// The decision.
    pub verdict: Verdict,
}

/// Counters of the switch. Callers count drops themselves, by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchStats {
    /// Addresses that this copy learned or moved to another port.
    pub learned: u64,
    /// Times that an address was not learned because the table or the port's share of it was full. A source that keeps
    /// sending counts again every few milliseconds, not with every frame.
    pub refused: u64,
    /// Updates for the other copies that were given up because nobody fetched them.
    pub updates_lost: u64,
}

/// One data core's copy of the embedded switch.
pub struct Switch {
    config: SwitchConfig,
    ports: Vec<Option<Port>>,
    /// Ports that are up, in ascending order.
    up: Vec<PortId>,
    /// Ports that are no members.
    roles: Vec<(PortId, Role)>,
    /// Members among the ports that are up, for each VLAN.
    up_members: Box<[u16]>,
    fdb: Fdb,
    ageing: Ageing,
    moves: Moves,
    updates: Updates,
    /// Coarse time of the last call that had a time.
    now: u32,
    /// Number of changes that could alter a decision.
    generation: u64,
    /// Whether a port that can be woken cannot receive.
    asleep: bool,
    learned: u64,
    refused: u64,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch")
            .field("config", &self.config)
            .field("up", &self.up)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Fields of a frame that the decision needs.
struct Header {
    destination: u64,
    source: u64,
    tci: Option<u16>,
}

impl Header {
    /// Reads the fields. `None`: the frame is too short for its own headers.
    #[inline]
    fn parse(head: &[u8], frame_len: usize) -> Option<Header> {
        let head = head.get(..frame_len).unwrap_or(head);
        let h = head.first_chunk::<14>()?;
        let tci = if h[12] == 0x81 && h[13] == 0x00 {
            let t = head.first_chunk::<18>()?;
            Some(u16::from_be_bytes([t[14], t[15]]))
        } else {
            None
        };
        Some(Header {
            destination: u64::from_be_bytes([0, 0, h[0], h[1], h[2], h[3], h[4], h[5]]),
            source: u64::from_be_bytes([0, 0, h[6], h[7], h[8], h[9], h[10], h[11]]),
            tci,
        })
    }
}

/// The I/G bit of an address as a number.
const GROUP: u64 = 1 << 40;

/// EtherType of MAC control (IEEE 802.3 annex 31A).
const MAC_CONTROL: [u8; 2] = EtherType::MAC_CONTROL.0.to_be_bytes();

/// Destination of slow protocols (IEEE 802.3 annex 57A), which no bridge forwards (IEEE 802.1Q table 8-1).
const SLOW_PROTOCOLS: u64 = 0x0180_c200_0002;

/// Whether the destination is one of link layer discovery (IEEE 802.1AB-2016 table 7-1): nearest customer bridge, non-TPMR bridge,
/// bridge.
#[inline]
fn is_for_lldp(head: &[u8; 18]) -> bool {
    matches!(head, [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00 | 0x03 | 0x0e, ..])
}

/// Whether a frame's EtherType is that of link layer discovery, behind a tag or not.
#[cold]
fn has_lldp(head: &[u8]) -> bool {
    let ethertype = match head.get(12..14) {
        Some([0x81, 0x00]) => head.get(16..18),
        ethertype => ethertype,
    };
    ethertype == Some(&EtherType::LLDP.0.to_be_bytes())
}

/// Whether a frame is MAC control, or would be once its priority tag is removed behind the switch.
#[inline]
fn is_mac_control(head: &[u8]) -> bool {
    match head.get(12..14) {
        Some([0x81, 0x00]) => head.get(16..18) == Some(&MAC_CONTROL),
        ethertype => ethertype == Some(&MAC_CONTROL),
    }
}

impl Switch {
    /// A switch without ports. Anyone can compute where its table places addresses; see [`Switch::with_seed`].
    pub fn new(config: SwitchConfig) -> Switch {
        Switch::with_seed(config, 0)
    }

    /// A switch without ports whose table nobody can crowd on purpose: with a random seed for each copy, no guest can
    /// pick source addresses that keep another's address from being learned.
    pub fn with_seed(config: SwitchConfig, seed: u64) -> Switch {
        Switch {
            ageing: Ageing::new(config.ageing),
            config,
            ports: Vec::new(),
            up: Vec::new(),
            roles: Vec::new(),
            up_members: vec![0; usize::from(VLAN_MAX) + 1].into_boxed_slice(),
            fdb: Fdb::new(seed),
            moves: Moves::new(),
            updates: Updates::new(),
            now: 0,
            generation: 1,
            asleep: false,
            learned: 0,
            refused: 0,
        }
    }

    /// Adds a port with its link down. A port of the same number is removed first.
    pub fn add_port(&mut self, port: PortId, config: PortConfig) {
        self.remove_port(port);
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        let mut new = Port::new(config);
        new.role = self.role(port);
        self.ports[index] = Some(new);
        self.enter_static(port);
        self.ports_changed();
    }

    /// Changes the settings of a port; its link stays as it is. Learned addresses stay unless the port's VLANs change.
    /// Does nothing if there is no such port.
    pub fn set_port(&mut self, port: PortId, config: PortConfig) {
        let Some(old) = self.port(port) else { return };
        let (link, role) = (old.link, old.role);
        let same_vlans = old.same_vlans(&config);
        self.set_link(port, false);
        self.remove_entries(port, |k| k == Kind::Static, false);
        if !same_vlans {
            self.flush_port(port);
        }
        if let Some(p) = self.port_mut(port) {
            let learned = p.learned;
            *p = Port::new(config);
            p.learned = learned;
            p.role = role;
        }
        self.enter_all_static(port);
        self.set_link(port, link);
        self.ports_changed();
    }

    /// Removes a port and all addresses behind it. Call it on every copy.
    pub fn remove_port(&mut self, port: PortId) {
        if self.port(port).is_none() {
            return;
        }
        self.set_link(port, false);
        self.remove_entries(port, |_| true, false);
        if let Some(p) = self.ports.get_mut(usize::from(port.0)) {
            *p = None;
        }
        self.enter_all_static(port);
        self.ports_changed();
    }

    /// Enters the own addresses of `first`, then those of the other ports that had to stand back for an equal address.
    fn enter_all_static(&mut self, first: PortId) {
        self.enter_static(first);
        for i in 0..self.ports.len() {
            self.enter_static(PortId(i as u16));
        }
    }

    /// Sets whether a port can receive. The caller decides whether to take frames from a port whose link is down: here
    /// they are switched like any other. Addresses learned on the port stay; see [`Switch::flush_port`].
    pub fn set_link(&mut self, port: PortId, link: bool) {
        let Some(Some(p)) = self.ports.get_mut(usize::from(port.0)) else {
            return;
        };
        let turned = core::mem::replace(&mut p.link, link) != link;
        let up = link && p.role == Role::Member;
        if p.up == up {
            if turned {
                self.ports_changed();
            }
            return;
        }
        p.up = up;
        for (vlan, n) in (0..).zip(self.up_members.iter_mut()) {
            if p.member(vlan) {
                *n = if up { *n + 1 } else { n.saturating_sub(1) };
            }
        }
        self.up.retain(|q| *q != port);
        if up {
            let at = self.up.partition_point(|q| *q < port);
            self.up.insert(at, port);
        }
        self.ports_changed();
    }

    /// Isolates these ports and no others: the switch drops what comes from them and what is for them
    /// ([`DropReason::MirrorDestination`]). What such a port gets, it gets past the switch. Ports may be added later.
    pub fn isolate(&mut self, ports: Vec<PortId>) {
        self.roles.retain(|(_, role)| *role != Role::Destination);
        self.roles
            .extend(ports.into_iter().map(|port| (port, Role::Destination)));
        self.enter_roles();
    }

    /// Joins these ports to others, and no more: each frame from one goes to the other as it is, whatever it is (IEEE 802.1Q
    /// would filter link-local addresses), and neither is a member of the switch. A port that is joined to `None` sends nothing
    /// ([`DropReason::ReceiverDown`]). Ports may be added later.
    pub fn bridge(&mut self, ports: &[(PortId, Option<PortId>)]) {
        self.roles.retain(|(_, role)| !matches!(role, Role::Bridged(_)));
        self.roles
            .extend(ports.iter().map(|&(port, other)| (port, Role::Bridged(other))));
        self.enter_roles();
    }

    fn role(&self, port: PortId) -> Role {
        let found = self.roles.iter().find(|(of, _)| *of == port);
        found.map_or(Role::Member, |(_, role)| *role)
    }

    fn enter_roles(&mut self) {
        for i in 0..self.ports.len() {
            let port = PortId(i as u16);
            let role = self.role(port);
            let Some(p) = self.port_mut(port).filter(|p| p.role != role) else {
                continue;
            };
            p.role = role;
            let link = p.link;
            self.set_link(port, link);
            self.flush_port(port);
            self.ports_changed();
        }
    }

    /// Decides about one frame from `ingress`. `head` holds at least the first `min(frame_len, 18)` bytes.
    ///
    /// The order is: length, MAC control and slow protocols (only links speak them: no bridge forwards them, IEEE 802.1Q
    /// clause 8.6.3), source address, anti-spoofing, VLAN of the frame, learning, destination. A frame of a flow that
    /// does not change costs two comparisons (and a look into the table every 17 ms, for ageing).
    #[inline]
    pub fn forward(&mut self, now: Instant, ingress: PortId, head: &[u8], frame_len: usize) -> Verdict {
        let stamp = stamp(now);
        if frame_len >= 18
            && let Some(h) = head.first_chunk::<18>()
            && let Some(Some(port)) = self.ports.get(usize::from(ingress.0))
            && port.flow.id == FlowId::of(h)
            && port.flow.generation == self.generation
            && port.flow.stamp == stamp
        {
            return port.flow.verdict;
        }
        self.forward_new(stamp, ingress, head, frame_len)
    }

    #[inline(never)]
    fn forward_new(&mut self, stamp: u32, ingress: PortId, head: &[u8], frame_len: usize) -> Verdict {
        self.now = stamp;
        let verdict = self.decide(ingress, head, frame_len);
        let generation = self.generation;
        // (The EtherType is no part of a flow's name; for these addresses it decides.)
        if frame_len >= 18
            && let Some(h) = head.first_chunk::<18>()
            && !is_for_lldp(h)
            && let Some(port) = self.port_mut(ingress)
        {
            port.flow = LastFlow {
                id: FlowId::of(h),
                generation,
                stamp,
                verdict,
            };
        }
        verdict
    }

    #[inline]
    fn decide(&mut self, ingress: PortId, head: &[u8], frame_len: usize) -> Verdict {
        if let Some(verdict) = self.across(ingress, head, frame_len) {
            return verdict;
        }
        let (frame, vlan) = match self.admit(ingress, head, frame_len) {
            Ok(admitted) => admitted,
            Err(reason) => return Verdict::Drop(reason),
        };
        let source = Key::new(vlan, frame.source);
        if let Some(port) = self.port(ingress)
            && port.learning
            && !port.source.holds(source, self.now, self.generation)
        {
            self.learn(source, ingress);
        }
        self.route(ingress, &frame, vlan)
    }

    /// The decision about a frame from a port that is joined to another one.
    #[inline]
    fn across(&self, ingress: PortId, head: &[u8], frame_len: usize) -> Option<Verdict> {
        let Role::Bridged(other) = self.port(ingress)?.role else {
            return None;
        };
        let there = other.filter(|other| self.port(*other).is_some_and(|p| p.link));
        Some(match there {
            _ if Header::parse(head, frame_len).is_none() => Verdict::Drop(DropReason::Runt),
            None => Verdict::Drop(DropReason::ReceiverDown),
            Some(port) => Verdict::Unicast(Egress {
                port,
                tag: TagEdit::Keep,
            }),
        })
    }

    /// Whether a frame may enter the switch: its fields, and its VLAN.
    #[inline]
    fn admit(&self, ingress: PortId, head: &[u8], frame_len: usize) -> Result<(Header, u16), DropReason> {
        let frame = Header::parse(head, frame_len).ok_or(DropReason::Runt)?;
        if is_mac_control(head) || frame.destination == SLOW_PROTOCOLS {
            return Err(DropReason::MacControl);
        }
        let for_lldp = head.first_chunk().is_some_and(is_for_lldp);
        if for_lldp && !self.config.forward_lldp && has_lldp(head) {
            return Err(DropReason::MacControl);
        }
        if frame.source & GROUP != 0 {
            return Err(DropReason::InvalidSource);
        }
        let port = self.port(ingress).ok_or(DropReason::NoDestination)?;
        if port.role == Role::Destination {
            return Err(DropReason::MirrorDestination);
        }
        if !port.may_send_as(frame.source) {
            return Err(DropReason::SpoofedSource);
        }
        let vlan = port.classify(frame.tci).ok_or(DropReason::VlanNotAllowed)?;
        Ok((frame, vlan))
    }

    /// Receivers of a frame that may enter.
    #[inline]
    fn route(&self, ingress: PortId, frame: &Header, vlan: u16) -> Verdict {
        let Some(port) = self.port(ingress) else {
            return Verdict::Drop(DropReason::NoDestination);
        };
        let (ingress_up, marking) = (port.up, port.marking);
        if frame.destination & GROUP == 0
            && let Some(slot) = self.fdb.find(Key::new(vlan, frame.destination))
        {
            let to = self.fdb.entry(slot).port;
            if to == ingress {
                let own = self.fdb.entry(slot).kind == Kind::Static;
                return Verdict::Drop(if own {
                    DropReason::OwnAddress
                } else {
                    DropReason::Hairpin
                });
            }
            if let Some(receiver) = self.port(to)
                && receiver.member(vlan)
            {
                return if receiver.up {
                    Verdict::Unicast(Egress {
                        port: to,
                        tag: receiver.tag_edit(vlan, frame.tci, marking),
                    })
                } else if receiver.role == Role::Destination {
                    Verdict::Drop(DropReason::MirrorDestination)
                } else {
                    Verdict::Drop(DropReason::ReceiverDown)
                };
            }
        }
        let members = self.up_members.get(usize::from(vlan)).copied();
        if members.unwrap_or(0) > u16::from(ingress_up) {
            Verdict::Flood(Flood {
                vlan,
                tci: frame.tci,
                assigned: None,
            })
        } else {
            Verdict::Drop(DropReason::NoDestination)
        }
    }

    /// What [`Switch::forward`] would decide about a frame, and on which grounds. Nothing is learned by it.
    pub fn explain(&self, ingress: PortId, head: &[u8], frame_len: usize) -> Explanation {
        if let Some(verdict) = self.across(ingress, head, frame_len) {
            return Explanation {
                vlan: None,
                entry: None,
                verdict,
            };
        }
        match self.admit(ingress, head, frame_len) {
            Err(reason) => Explanation {
                vlan: None,
                entry: None,
                verdict: Verdict::Drop(reason),
            },
            Ok((frame, vlan)) => {
                let key = Key::new(vlan, frame.destination);
                let slot = (frame.destination & GROUP == 0).then(|| self.fdb.find(key));
                let entry = slot.flatten().map(|slot| self.fdb.entry(slot));
                Explanation {
                    vlan: Some(vlan),
                    entry: entry.map(|e| (e.port, e.kind == Kind::Static)),
                    verdict: self.route(ingress, &frame, vlan),
                }
            }
        }
    }

    /// The verdict for a frame to which rules of its sender assign a priority (0..=7). The tag that the frame gets on its way
    /// out has it, whatever the default of its port is. `tags`: where the frame would leave without a tag, it gets a priority
    /// tag, unless its port strips those or the receiver is an access port. A tag that the frame has is its own.
    #[must_use]
    pub fn assign(
        &self,
        ingress: PortId,
        head: &[u8],
        verdict: Verdict,
        priority: u8,
        tags: bool,
    ) -> Verdict {
        let from = self.port(ingress).map_or(Marking::default(), |p| p.marking);
        let marking = Marking {
            pcp: (u16::from(priority) & 7) << 13,
            priority_tags: match from.priority_tags {
                PriorityTags::Keep if tags => PriorityTags::Add,
                as_port => as_port,
            },
        };
        match verdict {
            Verdict::Flood(flood) if flood.tci.is_none() => {
                let assigned = Some(marking);
                Verdict::Flood(Flood { assigned, ..flood })
            }
            Verdict::Unicast(egress) => {
                let adds = marking.priority_tags == PriorityTags::Add;
                let takes = || self.port(egress.port).is_some_and(|to| !to.access);
                let bare = || head.get(12..14) != Some(&[0x81, 0x00]);
                let tag = match egress.tag {
                    TagEdit::Push(tci) => TagEdit::Push(tci & VID_MASK | marking.pcp),
                    TagEdit::Keep if adds && bare() && takes() => TagEdit::Push(marking.pcp),
                    other => other,
                };
                Verdict::Unicast(Egress { tag, ..egress })
            }
            other => other,
        }
    }

    /// Whether a port that can be woken cannot receive.
    #[inline]
    pub fn is_any_asleep(&self) -> bool {
        self.asleep
    }

    /// The port that a magic packet for this address wakes: it cannot receive, the address is its own, and the packet's VLAN
    /// reaches it. `head`: the first bytes of the packet.
    pub fn wakes(&self, ingress: PortId, head: &[u8], mac: MacAddr) -> Option<PortId> {
        let (_, vlan) = self.admit(ingress, head, head.len().max(64)).ok()?;
        let number = mac.to_u64();
        let ports = (0..).map(PortId).zip(&self.ports);
        let mut asleep = ports.filter_map(|(id, port)| Some((id, port.as_ref()?)));
        let found = asleep.find(|(_, p)| p.wakes.magic && !p.link && p.member(vlan) && p.has(number));
        found.map(|(id, _)| id)
    }

    /// The ports that a frame wakes by a pattern, and the first such pattern of each: they cannot receive, the frame is for them, and
    /// its VLAN reaches them. `frame`: its bytes, with its tag.
    pub fn woken(&self, ingress: PortId, frame: &[u8]) -> impl Iterator<Item = (PortId, usize)> {
        let admitted = self.admit(ingress, frame, frame.len().max(64));
        let vlan = admitted.ok().map(|(_, vlan)| vlan);
        let untagged = match frame.get(12..14) {
            Some([0x81, 0x00]) => Some([&frame[..12], frame.get(16..).unwrap_or_default()].concat()),
            _ => None,
        };
        let to = frame.first_chunk().map(|to| MacAddr(*to));
        let for_it = move |p: &Port| to.is_some_and(|to| to.is_multicast() || p.has(to.to_u64()));
        let ports = (0..).map(PortId).zip(&self.ports);
        ports.filter_map(move |(id, port)| {
            let p = port.as_ref()?;
            if !p.wakes.by_any() || p.link || !p.member(vlan?) || !for_it(p) {
                return None;
            }
            let bytes = untagged.as_deref().unwrap_or(frame);
            let first = p
                .wakes
                .patterns
                .iter()
                .position(|pattern| pattern.matches(bytes))?;
            Some((id, first))
        })
    }

    /// Ports that are up, in ascending order.
    #[inline]
    pub fn up_ports(&self) -> &[PortId] {
        &self.up
    }

    /// The edit of a flooded frame's tag at `to`; `None` when `to` is no receiver of it. The fast path loops with it:
    /// [`Switch::flood_targets`] in single steps, with nothing kept in memory between them.
    #[inline]
    pub fn flood_to(&self, to: PortId, ingress: PortId, flood: &Flood) -> Option<TagEdit> {
        if to == ingress {
            return None;
        }
        let port = self.port(to)?;
        let of_port = || self.port(ingress).map_or(Marking::default(), |p| p.marking);
        let marking = flood.assigned.unwrap_or_else(of_port);
        port.member(flood.vlan)
            .then(|| port.tag_edit(flood.vlan, flood.tci, marking))
    }

    /// The receivers of a frame with the verdict [`Verdict::Flood`]: every port of the VLAN that is up, except
    /// the one the frame came from.
    pub fn flood_targets(&self, ingress: PortId, flood: Flood) -> impl Iterator<Item = Egress> {
        self.up.iter().filter_map(move |&port| {
            let tag = self.flood_to(port, ingress, &flood)?;
            Some(Egress { port, tag })
        })
    }

    /// The table, in no order: VLAN, address, port, whether it is a port's own address, and the time since it was last
    /// seen (for an address that another core learned: since that core last spoke of it).
    pub fn entries(&self, now: Instant) -> impl Iterator<Item = (u16, MacAddr, PortId, bool, Duration)> {
        self.fdb.iter().map(move |(key, e)| {
            let is_static = e.kind == Kind::Static;
            let age = if is_static {
                Duration::ZERO
            } else {
                learn::age(now, e.seen)
            };
            (key.vlan(), MacAddr::from_u64(key.mac()), e.port, is_static, age)
        })
    }

    /// Counters since the switch was made.
    pub fn stats(&self) -> SwitchStats {
        SwitchStats {
            learned: self.learned,
            refused: self.refused,
            updates_lost: self.updates.lost,
        }
    }

    /// Makes all earlier decisions void.
    #[inline]
    fn changed(&mut self) {
        self.generation += 1;
    }

    fn ports_changed(&mut self) {
        self.changed();
        let mut ports = self.ports.iter().flatten();
        self.asleep = ports.any(|p| p.wakes.by_any() && !p.link);
    }

    #[inline]
    fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id.0))?.as_ref()
    }

    #[inline]
    fn port_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(id.0))?.as_mut()
    }
}
