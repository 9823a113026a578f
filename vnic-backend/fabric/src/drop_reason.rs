//! Every reason for which a frame can be dropped: declared once, used by counters, captures and events.

/// Why a frame was not delivered. Each frame (each copy, for flooded frames) is delivered or counted under
/// exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The frame is shorter than an Ethernet header.
    Runt,
    /// The frame is longer than the sender's MTU allows (after the guest's own segmentation request is taken into account).
    MtuExceeded,
    /// The guest's offload request contradicts the frame (virtio 1.3 section 5.1.6.2).
    MalformedOffload,
    /// The source address is a group address (IEEE 802.3 clause 3.2.3 forbids it).
    InvalidSource,
    /// Anti-spoofing: the source address is not one of the adapter's own.
    SpoofedSource,
    /// The frame's VLAN is not allowed on the port it came from.
    VlanNotAllowed,
    /// The destination is behind the port that the frame came from: no hairpin.
    Hairpin,
    /// There is no receiver: no other port is up in the frame's VLAN.
    NoDestination,
    /// The receiver has no driver attached or its link is down.
    ReceiverDown,
    /// The receiver's guest had no free receive buffer.
    NoRxBuffer,
    /// The frame does not fit the receive buffers that the guest posts (without mergeable buffers), or they are in too many pieces.
    RxBufferTooSmall,
    /// The frame is longer than the receiver's MTU allows.
    ReceiverMtu,
    /// The receiver's ring is broken (the guest wrote something illegal) and is stopped until reset.
    RxRingBroken,
    /// The uplink could not take the frame (its transmit queue is full or the device refused it).
    PortTransmit,
    /// The exchange ring to the data core that owns the receiver is full.
    CoreExchangeFull,
    /// A fault rule dropped the frame, or fault rules hold back too much already.
    FaultInjected,
    /// The queue of the receiving port has no room for more of this source and priority (a lossy priority).
    EgressFull,
    /// A lossless priority had no room although its senders were told to wait: the headroom was too small, or they did not
    /// obey.
    LosslessOverflow,
    /// The frame waited at the head of its traffic class for longer than the head-of-queue lifetime.
    HeadOfQueue,
    /// The frame's traffic class is stalled: too many of its frames had waited too long.
    ClassStalled,
    /// The send queue of its priority is full (`SendQueuePerPrio`; a lossy priority).
    SendQueueFull,
    /// A guest sent a pause frame or a frame of a slow protocol: only links speak these.
    MacControl,
    /// The guest does not keep up, and `CongestionAction` says so.
    CongestionHint,
    /// Random early detection picked the frame because too much waited in its traffic class, and its ends do not speak ECN or
    /// the class does not mark (WRED).
    Wred,
    /// The uplink's device had no room for a frame from the wire, because it was not read in time.
    PortReceive,
    /// The frame came by a member of a bond that takes no frames: another one is active, or LACP does not collect there.
    BondInactive,
    /// The guest claims an address that is none of the adapter's `allowed_addresses`, or is a DHCP server though it has such a
    /// list.
    SpoofedAddress,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [DropReason; 27] = [
        DropReason::Runt,
        DropReason::MtuExceeded,
        DropReason::MalformedOffload,
        DropReason::InvalidSource,
        DropReason::SpoofedSource,
        DropReason::VlanNotAllowed,
        DropReason::Hairpin,
        DropReason::NoDestination,
        DropReason::ReceiverDown,
        DropReason::NoRxBuffer,
        DropReason::RxBufferTooSmall,
        DropReason::ReceiverMtu,
        DropReason::RxRingBroken,
        DropReason::PortTransmit,
        DropReason::CoreExchangeFull,
        DropReason::FaultInjected,
        DropReason::EgressFull,
        DropReason::LosslessOverflow,
        DropReason::HeadOfQueue,
        DropReason::ClassStalled,
        DropReason::SendQueueFull,
        DropReason::MacControl,
        DropReason::CongestionHint,
        DropReason::Wred,
        DropReason::PortReceive,
        DropReason::BondInactive,
        DropReason::SpoofedAddress,
    ];

    /// Name of the reason in the label `reason` of counters and in captures.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Runt => "runt",
            DropReason::MtuExceeded => "mtu_exceeded",
            DropReason::MalformedOffload => "malformed_offload",
            DropReason::InvalidSource => "invalid_source",
            DropReason::SpoofedSource => "spoofed_source",
            DropReason::VlanNotAllowed => "vlan_not_allowed",
            DropReason::Hairpin => "hairpin",
            DropReason::NoDestination => "no_destination",
            DropReason::ReceiverDown => "receiver_down",
            DropReason::NoRxBuffer => "no_rx_buffer",
            DropReason::RxBufferTooSmall => "rx_buffer_too_small",
            DropReason::ReceiverMtu => "receiver_mtu",
            DropReason::RxRingBroken => "rx_ring_broken",
            DropReason::PortTransmit => "port_transmit",
            DropReason::CoreExchangeFull => "core_exchange_full",
            DropReason::FaultInjected => "fault_injected",
            DropReason::EgressFull => "egress_full",
            DropReason::LosslessOverflow => "lossless_overflow",
            DropReason::HeadOfQueue => "head_of_queue",
            DropReason::ClassStalled => "class_stalled",
            DropReason::SendQueueFull => "send_queue_full",
            DropReason::MacControl => "mac_control",
            DropReason::CongestionHint => "congestion_hint",
            DropReason::Wred => "wred",
            DropReason::PortReceive => "port_receive",
            DropReason::BondInactive => "bond_inactive",
            DropReason::SpoofedAddress => "spoofed_address",
        }
    }
}
