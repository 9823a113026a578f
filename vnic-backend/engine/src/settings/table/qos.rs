//! Flow control, priorities and hardware QoS.

use super::{KeyDef, field};

const HARDWARE: &str = "WinOF-2 Ethernet Network, Hardware QoS Offload";

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::one_of(
        "*FlowControl",
        &[
            (0, "off"),
            (1, "transmit"),
            (2, "receive"),
            (3, "both"),
            (4, "negotiated"),
        ],
    )
    .acts(field!("pause_tx", "pause_rx": qos.flow_control))
    .default(3)
    .sz()
    .help("Global pause (IEEE 802.3 annex 31B): pause frames are sent (transmit), obeyed (receive), or both.")
    .note(
        "Documents differ on the default: 3 for clients, 0 for servers. With 3 a frame without a receive buffer is dropped: on by \
         default, pause must not let a guest that is busy stop all that send to it. With 4 it waits, and pause goes to its senders and \
         to the wire. (A link here has nobody to negotiate with.) Without effect while priority flow control is on.",
    )
    .source("WinOF-2 Ethernet Network, Global Pause (Flow Control)"),
    KeyDef::number("DefaultUntaggedPriority", 0, 7)
        .acts(field!("default_priority": qos.priorities.default_priority))
        .default(0)
        .unit("PCP")
        .dynamic()
        .illegal_is_default()
        .tool("-QosConfig -DefaultUntaggedPriority")
        .help("Priority of packets without a tag.")
        .source("WinOF-2 Ethernet Network, RCM with Untagged Traffic"),
    KeyDef::number("DcbxMode", 2, 2)
        .acts(field!(dcbx))
        .help("2: ports run DCBX for which the NV parameters LLDP_NB_DCBX say so. Without the key they do not.")
        .note("No other value is documented. A port serves all adapters: the key of one is enough. DCBX of a port that the operator gave it (`vnicctl port set --dcbx`) does without.")
        .source("WinOF-2 Ethernet Network, Data Center Bridging Exchange (DCBX)"),
    KeyDef::switch("*QoSOffload")
        .acts(field!(qos.sending.offload))
        .default(1)
        .sz()
        .help("Transmit bandwidth of virtual machines is managed by the NIC.")
        .note("0: schedule queues that are stored stay, and do not act.")
        .source(HARDWARE),
    KeyDef::number("*QosOffloadSupportedTCs", 0, 0xff)
        .acts(field!(qos.sending.offload_classes))
        .default(0xff)
        .sz()
        .unit("bit per traffic class")
        .help("Traffic classes that *QoSOffload manages.")
        .source(HARDWARE),
    KeyDef::switch("SendQueuePerPrio")
        .acts(field!("send_queue_per_priority": qos.sending.queue_per_priority))
        .default(0)
        .sz()
        .help("1: a send queue for each priority.")
        .note("When it acts is not documented: at restart, as the keys beside it.")
        .source(HARDWARE),
];
