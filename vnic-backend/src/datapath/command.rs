//! What the control plane asks of a data core.

use std::fs::File;
use std::sync::Arc;

use crossbeam_channel::Sender;
use vnic_engine::gids::GidError;
use vnic_engine::offload::Accepts;
use vnic_engine::rdma::{FlowStatus, VerbsError};
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::fault::{Rule, RuleId, Tally};
use vnic_fabric::lag::{Affinity, Bond, LagError, Member, View};
use vnic_fabric::switch::{AllowedAddresses, PortConfig, PortId};
use vnic_wire::MacAddr;
use vnic_wire::vlan::Tci;

use super::calls::Call;
use super::congestion::CongestionChange;
use super::counters::{AdapterCounters, PortCounters};
use super::qos::QosChange;
use crate::capture::Sink;
use crate::mem::MemMap;
use crate::rdma::{Attachment, Function};
use crate::ring::SplitRing;
use crate::types::{Budget, FdbEntry, GidRow, GidSetting, GuestFlow, QpRate, QueueStatus, ResourceRow};
use crate::uplink::{Opened, RxHalf, TxHalf};

/// Who serves a port.
pub enum Side {
    /// This core; an adapter, and what its guest may claim (`None`: anything).
    Adapter(Arc<AdapterCounters>, Option<AllowedAddresses>),
    /// This core; an uplink.
    Uplink(Box<Opened>, Arc<PortCounters>),
    /// Another core.
    Remote(usize),
}

/// A ring that a guest has enabled.
pub struct RingStart {
    /// vhost-user index: 2·pair for receive, 2·pair+1 for transmit.
    pub index: u16,
    /// The ring.
    pub ring: SplitRing,
    /// The guest's kick; none if its driver polls.
    pub kick: Option<Arc<File>>,
    /// The guest's interrupt.
    pub call: Option<Arc<Call>>,
    /// Bytes of the virtio header.
    pub hdr_len: usize,
    /// The driver merges receive buffers.
    pub mergeable: bool,
    /// The driver may ask for checksums and segmentation. Otherwise headers of its frames say nothing (virtio 1.3 section
    /// 5.1.6.2), and they are not read.
    pub asks: bool,
    /// What the driver accepts unfinished.
    pub accepts: Accepts,
    /// The adapter's MTU.
    pub mtu: u16,
}

/// An RDMA function, as its core sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaSnapshot {
    /// Why it takes no driver.
    pub off: Option<&'static str>,
    /// Filled entries of the GID table, by index.
    pub gids: Vec<GidRow>,
    /// Objects in use, by type.
    pub resources: Vec<ResourceRow>,
    /// Memory of ours for them.
    pub memory: Budget,
}

/// Virtqueues of an RDMA function that were set up.
pub struct RdmaRings {
    /// Commands.
    pub control: Option<SplitRing>,
    /// Events, by event queue.
    pub events: Vec<Option<SplitRing>>,
    /// The guest's memory, in which they are.
    pub map: Arc<MemMap>,
}

/// Members of a bond at the core that serves them.
pub struct BondSetup {
    /// The machine, its links down; affinities are set.
    pub bond: Bond,
    /// The members, in its order.
    pub members: Vec<PortId>,
    /// VLAN identifier and priority on the wire: all that is sent gets this tag, what comes must have the VLAN and loses it.
    pub tag: Option<Tci>,
    /// Members whose link is up.
    pub up: Vec<Member>,
}

/// Who serves a bond.
pub enum BondSide {
    /// This core.
    Local(Box<BondSetup>),
    /// Another core.
    Remote(usize),
}

/// Commands are carried out between two bursts.
pub enum Command {
    /// A port exists from now on.
    AddPort {
        /// Its number.
        id: PortId,
        /// For the switch.
        config: PortConfig,
        /// Who serves it.
        side: Side,
    },
    /// A port has other settings from now on; answered when it has.
    SetPort {
        /// Its number.
        id: PortId,
        /// For the switch.
        config: PortConfig,
        /// Answer.
        done: Sender<()>,
    },
    /// Settings of an adapter that this core serves act from now on; answered when they do.
    Configure {
        /// The adapter.
        id: PortId,
        /// What acts on it, all of it.
        settings: Arc<AdapterSettings>,
        /// Answer.
        done: Sender<()>,
    },
    /// The operator switches an adapter's dropless mode on or off; answered when it is.
    SetDropless {
        /// The adapter.
        id: PortId,
        /// How long a frame may wait, 1..=100 in 100 µs; 0: off.
        timeout: u8,
        /// Answer.
        done: Sender<()>,
    },
    /// Quality of service of a port, whoever serves it, is this from now on; answered when it is.
    Qos {
        /// The port.
        id: PortId,
        /// All of it.
        change: Arc<QosChange>,
        /// Answer.
        done: Sender<()>,
    },
    /// What waits at a port that this core serves.
    QosQuery {
        /// The port.
        id: PortId,
        /// Answer.
        reply: Sender<QueueStatus>,
    },
    /// Congestion control of an adapter that this core serves is this from now on; answered when it is.
    Congestion {
        /// The adapter.
        id: PortId,
        /// All of it.
        change: Arc<CongestionChange>,
        /// Answer.
        done: Sender<()>,
    },
    /// Queue pairs that congestion control limits now.
    CongestionFlows {
        /// The adapter.
        id: PortId,
        /// Answer; dropped without one when the adapter has no RDMA function here.
        reply: Sender<Vec<FlowStatus>>,
    },
    /// Flows of a guest's own RoCE that congestion control limits now.
    GuestFlows {
        /// The adapter.
        id: PortId,
        /// Answer.
        reply: Sender<Vec<GuestFlow>>,
    },
    /// A port is gone; answered when the core holds nothing of it.
    RemovePort {
        /// Its number.
        id: PortId,
        /// Answer.
        done: Sender<()>,
    },
    /// A bond exists from now on, or has other members and settings. Its members are no ports of the switch any more.
    /// Answered when that is so.
    SetBond {
        /// Its number.
        id: PortId,
        /// For the switch.
        config: PortConfig,
        /// Its members, for a core that does not serve it.
        members: Vec<PortId>,
        /// Who serves it.
        side: BondSide,
        /// Answer.
        done: Sender<()>,
    },
    /// A bond lost these members, which are ports of the switch again, with these settings; with its last member it is gone.
    /// Answered when that is so. Who has a link follows with [`Command::SetLink`].
    Unbond {
        /// The bond.
        id: PortId,
        /// The ports.
        members: Vec<(PortId, PortConfig)>,
        /// Answer.
        done: Sender<()>,
    },
    /// Link of a member of a bond that this core serves; answered with how many frames waited there and were dropped when
    /// its flows have moved.
    BondLink {
        /// The bond.
        id: PortId,
        /// The member.
        member: Member,
        /// Up?
        up: bool,
        /// Answer.
        done: Sender<u64>,
    },
    /// What link aggregation control says of a member of a bond that this core serves.
    BondLacp {
        /// The bond.
        id: PortId,
        /// The member.
        member: Member,
        /// It takes frames.
        collecting: bool,
        /// It sends frames.
        distributing: bool,
    },
    /// Sets or takes away an affinity of a bond that this core serves.
    BondAffinity {
        /// The bond.
        id: PortId,
        /// What it is about.
        what: Affinity,
        /// The member; none: take it away.
        member: Option<Member>,
        /// Answer.
        reply: Sender<Result<(), LagError>>,
    },
    /// How a bond that this core serves looks.
    BondView {
        /// The bond.
        id: PortId,
        /// Answer.
        reply: Sender<View>,
    },
    /// Sends a frame of the NIC's own by an uplink that this core serves, past all queues.
    SendControl {
        /// The uplink.
        id: PortId,
        /// The frame, without FCS.
        frame: Box<[u8]>,
    },
    /// A port's link went up or down.
    SetLink {
        /// Its number.
        id: PortId,
        /// Up?
        up: bool,
        /// Announce this address to the local uplinks.
        announce: Option<MacAddr>,
    },
    /// The device of an uplink that this core serves was opened again.
    Reopened {
        /// The port.
        id: PortId,
        /// From the wire.
        rx: RxHalf,
        /// Index of the network interface.
        index: u32,
        /// To the wire.
        tx: Box<TxHalf>,
    },
    /// Poll this ring from now on.
    StartRing {
        /// The adapter.
        id: PortId,
        /// The ring.
        start: Box<RingStart>,
    },
    /// Stop polling a ring; answered, with the place to resume, when nothing of it is under way any more.
    StopRing {
        /// The adapter.
        id: PortId,
        /// vhost-user index.
        index: u16,
        /// Answer; nothing when the ring was not running.
        done: Sender<Option<u16>>,
    },
    /// Interrupt the guest through another descriptor; answered when the old one is no longer used.
    SetCall {
        /// The adapter.
        id: PortId,
        /// vhost-user index.
        index: u16,
        /// The guest's interrupt.
        call: Option<Arc<Call>>,
        /// Answer.
        done: Sender<()>,
    },
    /// List this core's address table.
    Fdb {
        /// Answer.
        reply: Sender<Vec<(PortId, FdbEntry)>>,
    },
    /// Start a capture.
    CaptureStart(Arc<Sink>),
    /// End a capture.
    CaptureStop(u64),
    /// Put a fault rule into force, behind the others; answered when it is.
    FaultAdd {
        /// The rule, checked.
        rule: Box<Rule>,
        /// What it has done, on all cores together.
        tally: Arc<Tally>,
        /// Answer.
        done: Sender<()>,
    },
    /// The ports that a fault rule is about have other numbers now.
    FaultPorts {
        /// The rule.
        id: RuleId,
        /// As in the rule.
        from: Option<PortId>,
        /// As in the rule.
        to: Option<PortId>,
    },
    /// Take a fault rule out of force; answered when it is.
    FaultRemove {
        /// The rule.
        id: RuleId,
        /// Answer.
        done: Sender<()>,
    },
    /// An adapter has an RDMA function from now on.
    RdmaAdd {
        /// The adapter.
        id: PortId,
        /// The function.
        function: Box<Function>,
    },
    /// A driver has set up an RDMA function.
    RdmaAttach {
        /// The adapter.
        id: PortId,
        /// What it gave.
        attachment: Box<Attachment>,
    },
    /// The driver shares other memory; answered when the old one is not used any more.
    RdmaRemap {
        /// The adapter.
        id: PortId,
        /// Its virtqueues, in the new memory.
        rings: Box<RdmaRings>,
        /// Answer.
        done: Sender<()>,
    },
    /// The driver has stopped the function: all it made is ended. Answered with the places of the control and the event
    /// virtqueues, when nothing of its memory is used any more.
    RdmaDetach {
        /// The adapter.
        id: PortId,
        /// Answer.
        done: Sender<Vec<u16>>,
    },
    /// Interrupt the driver through another descriptor; answered when the old one is no longer used.
    RdmaCall {
        /// The adapter.
        id: PortId,
        /// Virtqueue: control or an event queue.
        index: u16,
        /// The driver's interrupt.
        call: Option<Arc<Call>>,
        /// Answer.
        done: Sender<()>,
    },
    /// Describe an adapter's RDMA function.
    RdmaQuery {
        /// The adapter.
        id: PortId,
        /// Answer; dropped without one when the adapter has no such function here.
        reply: Sender<RdmaSnapshot>,
    },
    /// Fill an entry of an adapter's GID table for the operator, or clear it.
    RdmaSetGid {
        /// The adapter.
        id: PortId,
        /// Which entry; `None`: the first free one.
        index: Option<u16>,
        /// With what; `None` clears it.
        gid: Option<GidSetting>,
        /// Answer: the index; dropped without one when the adapter has no RDMA function here.
        reply: Sender<Result<u16, GidError>>,
    },
    /// The operator sets the most that a queue pair may send.
    RdmaSetRate {
        /// The adapter.
        id: PortId,
        /// The queue pair.
        qp: u32,
        /// In kbit/s; 0: any.
        kbps: u32,
        /// Answer; dropped without one when the adapter has no RDMA function here.
        reply: Sender<Result<(), VerbsError>>,
    },
    /// Queue pairs that have a rate.
    RdmaRates {
        /// The adapter.
        id: PortId,
        /// Answer; dropped without one when the adapter has no RDMA function here.
        reply: Sender<Vec<QpRate>>,
    },
    /// Are you there?
    Ping {
        /// Answer.
        reply: Sender<()>,
    },
    /// End.
    Shutdown,
}

impl Command {
    /// Does it only ask? Then it may wait for others' turns.
    pub fn asks(&self) -> bool {
        matches!(
            self,
            Command::QosQuery { .. }
                | Command::CongestionFlows { .. }
                | Command::GuestFlows { .. }
                | Command::BondView { .. }
                | Command::Fdb { .. }
                | Command::RdmaQuery { .. }
                | Command::RdmaRates { .. }
        )
    }
}
