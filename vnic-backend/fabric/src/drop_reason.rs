//! Every reason for which a frame can be dropped: declared once, used by counters, captures and events.

vnic_wire::named! {
    /// Why a frame was not delivered. Each frame (each copy, for flooded frames) is delivered or counted under
    /// exactly one of these.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum DropReason {
        /// The frame is shorter than an Ethernet header.
        Runt => "runt",
        /// The frame is longer than the sender's MTU allows (after the guest's own segmentation request is taken into account).
        MtuExceeded => "mtu_exceeded",
        /// The guest's offload request contradicts the frame (virtio 1.3 section 5.1.6.2).
        MalformedOffload => "malformed_offload",
        /// The source address is a group address (IEEE 802.3 clause 3.2.3 forbids it).
        InvalidSource => "invalid_source",
        /// Anti-spoofing: the source address is not one of the adapter's own.
        SpoofedSource => "spoofed_source",
        /// The frame's VLAN is not allowed on the port it came from.
        VlanNotAllowed => "vlan_not_allowed",
        /// The destination is behind the port that the frame came from: no hairpin.
        Hairpin => "hairpin",
        /// There is no receiver: no other port is up in the frame's VLAN.
        NoDestination => "no_destination",
        /// The receiver has no driver attached or its link is down.
        ReceiverDown => "receiver_down",
        /// The receiver's driver does not want the frame: its receive mode, its addresses or its VLANs say so.
        Filtered => "filtered",
        /// The receiver's guest had no free receive buffer.
        NoRxBuffer => "no_rx_buffer",
        /// The frame does not fit the receive buffers that the guest posts (without mergeable buffers), or they are in too many pieces.
        RxBufferTooSmall => "rx_buffer_too_small",
        /// The frame is longer than the receiver's MTU allows.
        ReceiverMtu => "receiver_mtu",
        /// The receiver's ring is broken (the guest wrote something illegal) and is stopped until reset.
        RxRingBroken => "rx_ring_broken",
        /// The uplink could not take the frame (its transmit queue is full or the device refused it).
        PortTransmit => "port_transmit",
        /// The exchange ring to the data core that owns the receiver is full.
        CoreExchangeFull => "core_exchange_full",
        /// A fault rule dropped the frame, or fault rules hold back too much already.
        FaultInjected => "fault_injected",
        /// The queue of the receiving port has no room for more of this source and priority (a lossy priority).
        EgressFull => "egress_full",
        /// A lossless priority had no room although its senders were told to wait: the headroom was too small, or they did not
        /// obey.
        LosslessOverflow => "lossless_overflow",
        /// The frame waited at the head of its traffic class for longer than the head-of-queue lifetime.
        HeadOfQueue => "head_of_queue",
        /// The frame's traffic class is stalled: too many of its frames had waited too long.
        ClassStalled => "class_stalled",
        /// The send queue of its priority is full (`SendQueuePerPrio`; a lossy priority).
        SendQueueFull => "send_queue_full",
        /// A guest sent a pause frame, or a frame of a slow protocol or of link layer discovery: only links speak these. Or such a frame
        /// came from a wire and is for nobody here.
        MacControl => "mac_control",
        /// The guest does not keep up, and `CongestionAction` says so.
        CongestionHint => "congestion_hint",
        /// Random early detection picked the frame because too much waited in its traffic class, and its ends do not speak ECN or
        /// the class does not mark (WRED).
        Wred => "wred",
        /// The uplink's device had no room for a frame from the wire, because it was not read in time.
        PortReceive => "port_receive",
        /// The frame came by a member of a bond that takes no frames: another one is active, or LACP does not collect there.
        BondInactive => "bond_inactive",
        /// The guest claims an address that is none of the adapter's `allowed_addresses`, or is a DHCP server though it has such a
        /// list.
        SpoofedAddress => "spoofed_address",
        /// Storm control: the port has taken as many broadcast or unknown unicast frames from its wire as it may.
        StormControl => "storm_control",
        /// The destination is an address of the adapter that the frame came from. Where the guest means another station, that one
        /// has the same address.
        OwnAddress => "own_address",
        /// The frame comes from, or is for, the destination of a mirror session, which gets copies only.
        MirrorDestination => "mirror_destination",
        /// A rule of the adapter's access list denies the frame, or no rule matches it and the list denies the others.
        AccessList => "access_list",
    }
}
