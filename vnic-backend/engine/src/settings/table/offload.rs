//! Offloads, timestamps, and what wakes. What a key switches off is not offered to the guest's driver.

use super::{KeyDef, field};

const NDIS: &str =
    "WinOF-2 Ethernet Network, Offload Registry Keys (which are Microsoft's standardized INF keywords)";
const USO: &str = "WinOF-2 Ethernet Network, UDP Segmentation Offload (USO)";
const RSC: &str = "WinOF-2 Ethernet Network, Receive Segment Coalescing (RSC)";
const VXLAN: &str = "WinOF-2 Ethernet Network, VXLAN";
const TUNNELS: &str = "WinOF-2 Ethernet Network, VXLAN (by a standardized INF keyword of Microsoft's that the text does not name)";

const fn offload(name: &'static str, help: &'static str, source: &'static str) -> KeyDef {
    KeyDef::switch(name).default(1).sz().help(help).source(source)
}

const fn coalescing(name: &'static str, help: &'static str) -> KeyDef {
    offload(name, help, RSC).note(
        "Joined are packets that arrive together, of a flow and in order, from a port or another adapter, for a guest whose driver takes \
         long TCP packets of this IP version (virtio's GUEST_TSO). With 0 that is not offered: the guest gets no long TCP packets, \
         those that other guests send as such included.",
    )
}

/// 1: when sent; 2: when received.
const fn checksum(name: &'static str, help: &'static str) -> KeyDef {
    KeyDef::number(name, 0, 3)
        .default(3)
        .sz()
        .help(help)
        .note(
            "0: none, 1: of sent packets, 2: of received ones, 3: both. Virtio has one feature for all protocols in each direction: it is \
             offered while all of these keys allow it. Without that of sent packets there is no segmentation either.",
        )
        .source(NDIS)
}

const WAKE: &str = "WinOF-2 Ethernet Network, Wake-on-LAN (by a standardized INF keyword of Microsoft's that the text does not name)";

const fn wakes(name: &'static str, help: &'static str) -> KeyDef {
    KeyDef::switch(name).default(1).sz().help(help).source(WAKE)
}

pub(super) const KEYS: &[KeyDef] = &[
    wakes("*WakeOnMagicPacket", "A magic packet wakes a guest that does not run.")
        .acts(field!(wake_on_magic))
        .note("As NV parameter WOL_MAGIC_EN 0 has it, no adapter's guest is woken so."),
    wakes("*WakeOnPattern", "Frames with a pattern wake a guest that does not run.")
        .acts(field!(wake_on_pattern))
        .note("The operator gives the patterns (`vnicctl adapter set --wake-pattern`): virtio has no place for those of an operating system."),
    checksum("*TCPChecksumOffloadIPv4", "Checksums of TCP over IPv4 are the NIC's work.").acts(field!(offloads.tcp4)),
    checksum("*TCPChecksumOffloadIPv6", "Checksums of TCP over IPv6 are the NIC's work.").acts(field!(offloads.tcp6)),
    checksum("*UDPChecksumOffloadIPv4", "Checksums of UDP over IPv4 are the NIC's work.").acts(field!(offloads.udp4)),
    checksum("*UDPChecksumOffloadIPv6", "Checksums of UDP over IPv6 are the NIC's work.").acts(field!(offloads.udp6)),
    offload("*LsoV2IPv4", "TCP over IPv4 is segmented when sent.", NDIS).acts(field!(offloads.lso4)),
    offload("*LsoV2IPv6", "TCP over IPv6 is segmented when sent.", NDIS).acts(field!(offloads.lso6)),
    offload("*RSS", "The guest may spread received packets over its queues by a hash (RSS).", NDIS)
        .acts(field!(offloads.rss))
        .note("Of adapters with control_queue: others have no RSS."),
    KeyDef::number("*NumRSSQueues", 1, 16)
        .default(16)
        .sz()
        .acts(field!(offloads.rss_queues))
        .unit("queues")
        .help("Queue pairs that the guest's driver is told of, at most those that the adapter has.")
        .note("Of adapters with control_queue: of others the VMM says how many there are.")
        .source(NDIS),
    coalescing("*RscIPv4", "TCP packets over IPv4 are joined when received.").acts(field!(offloads.rsc4)),
    coalescing("*RscIPv6", "TCP packets over IPv6 are joined when received.").acts(field!(offloads.rsc6)),
    offload(
        "*UsoIPv4",
        "UDP datagrams over IPv4 are segmented when sent.",
        USO,
    )
    .acts(field!(offloads.uso4))
    .alias(&["UsoIPv4"])
    .note("The WinOF-2 text writes it without the star of the standardized keyword. Virtio has one feature for IPv4 and IPv6: it is offered \
           while both keys allow it."),
    offload(
        "*UsoIPv6",
        "UDP datagrams over IPv6 are segmented when sent.",
        USO,
    )
    .acts(field!(offloads.uso6))
    .alias(&["UsoIPv6"])
    .note("The WinOF-2 text writes it without the star of the standardized keyword. Virtio has one feature for IPv4 and IPv6: it is offered \
           while both keys allow it."),
    offload("*EncapsulatedPacketTaskOffload", "Offloads for what is inside tunnels.", TUNNELS)
        .acts(field!(offloads.tunnels.any))
        .note(
            "Queues are chosen by the packet inside (VXLAN, NVGRE, GENEVE, GRE, IPv4 in IP), whatever port of the NIC it came by. With 0 those \
             that carry it decide. A driver that has negotiated HASH_TUNNEL says itself which tunnels, among those of the keys. Inner checksums need no key: \
             virtio's checksum request is not tied to a header. Inner TCP is cut for raw packet queue pairs (IBV_WR_TSO), not \
             for guests: virtio has the features for it beyond bit 63, which vhost-user does not carry.",
        ),
    offload(
        "*EncapsulatedPacketTaskOffloadVxlan",
        "Offloads for what is inside VXLAN packets.",
        VXLAN,
    )
    .acts(field!(offloads.tunnels.vxlan))
    .note("Acts while *EncapsulatedPacketTaskOffload is 1."),
    offload(
        "*EncapsulatedPacketTaskOffloadNvgre",
        "Offloads for what is inside NVGRE packets.",
        TUNNELS,
    )
    .acts(field!(offloads.tunnels.nvgre))
    .note("Acts while *EncapsulatedPacketTaskOffload is 1."),
    KeyDef::number("*VxlanUDPPortNumber", 1, 65_535)
        .default(4789)
        .sz()
        .acts(field!(offloads.tunnels.vxlan_port))
        .help("UDP port of VXLAN packets.")
        .note("The range is that of the standardized keyword; the default is the registered port (RFC 7348). It holds for frames of all ports.")
        .source(VXLAN),
    KeyDef::switch("*PtpHardwareTimestamp")
        .default(0)
        .acts(field!(ptp))
        .help("PTP messages from and to the adapter are timed by the NIC, a transparent clock.")
        .note(
            "Virtio has no field for a time (1.3 section 5.1), so that no guest's driver can be given one. With 1 the time for which the \
             NIC holds an event message of PTP is added to its correctionField, over Ethernet, UDP/IPv4 and UDP/IPv6: what waits in the NIC \
             is not in the offset that a guest measures by its own timestamps. RDMA completions have times of the NIC's clock in any case. \
             The WinOF-2 text gives no default; that of the standardized keyword is 0.",
        )
        .source("WinOF-2 Ethernet Network, Hardware Timestamping"),
    KeyDef::switch("StridingRqEnabled")
        .sz()
        .waits_for("striding receive queues: a buffer of a virtqueue holds one frame")
        .help("Receive buffers are divided into strides.")
        .note(
            "The name is not in the WinOF-2 text, only the feature. What it saves, memory of buffers that are larger than their packets, a \
             driver saves by MRG_RXBUF.",
        )
        .source("WinOF-2 Ethernet Network, Striding RQ"),
];
