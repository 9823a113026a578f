//! Offloads and timestamps. The offloads of a guest's driver are negotiated by virtio, and not chosen here.

use super::KeyDef;

const OFFLOADS: &str = "switches for single offloads: guests negotiate them by virtio";
const USO: &str = "WinOF-2 Ethernet Network, UDP Segmentation Offload (USO)";
const RSC: &str = "WinOF-2 Ethernet Network, Receive Segment Coalescing (RSC)";
const VXLAN: &str = "WinOF-2 Ethernet Network, VXLAN";

const fn offload(name: &'static str, help: &'static str, source: &'static str) -> KeyDef {
    KeyDef::switch(name)
        .default(1)
        .sz()
        .waits_for(OFFLOADS)
        .help(help)
        .source(source)
}

pub(super) const KEYS: &[KeyDef] = &[
    offload("*RscIPv4", "TCP packets over IPv4 are joined when received.", RSC),
    offload("*RscIPv6", "TCP packets over IPv6 are joined when received.", RSC),
    offload(
        "*UsoIPv4",
        "UDP datagrams over IPv4 are segmented when sent.",
        USO,
    )
    .alias(&["UsoIPv4"])
    .note("The WinOF-2 text writes it without the star of the standardized keyword."),
    offload(
        "*UsoIPv6",
        "UDP datagrams over IPv6 are segmented when sent.",
        USO,
    )
    .alias(&["UsoIPv6"])
    .note("The WinOF-2 text writes it without the star of the standardized keyword."),
    KeyDef::number("*VxlanUDPPortNumber", 1, 65_535)
        .default(4789)
        .sz()
        .waits_for("VXLAN")
        .help("UDP port of VXLAN packets.")
        .note("The range is that of the standardized keyword; the default is the registered port (RFC 7348).")
        .source(VXLAN),
    offload(
        "*EncapsulatedPacketTaskOffloadVxlan",
        "Offloads for what is inside VXLAN packets.",
        VXLAN,
    )
    .waits_for("VXLAN"),
    KeyDef::switch("*PtpHardwareTimestamp")
        .default(0)
        .waits_for("hardware timestamps")
        .help("Timestamps of packets by the NIC's clock.")
        .note("The WinOF-2 text gives no default; that of the standardized keyword is 0.")
        .source("WinOF-2 Ethernet Network, Hardware Timestamping"),
    KeyDef::switch("StridingRqEnabled")
        .sz()
        .waits_for("striding receive queues: guests lay out their own rings")
        .help("Receive buffers are divided into strides.")
        .note("The name is not in the WinOF-2 text, only the feature.")
        .source("WinOF-2 Ethernet Network, Striding RQ"),
];
