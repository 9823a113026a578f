//! Treatment of frames that find no receive buffer, and addresses whose frames the guest gets.

use super::{KeyDef, field};

const BURST: &str = "WinOF-2 Ethernet Network, Packet Burst Handling";

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::one_of(
        "AsyncReceiveIndicate",
        &[(0, "off"), (1, "threaded DPC"), (2, "polling")],
    )
    .acts(field!(burst))
    .default(0)
    .dynamic()
    .help("Keeps bursts of received packets that find no receive buffer in a reserve instead of dropping them.")
    .note("When it acts is not documented. It acts at once: nothing a guest can see is built anew.")
    .source(BURST),
    KeyDef::number("RfdReservationFactor", 1, 5_000_000)
        .acts(field!(reserve))
        .default(150)
        .dynamic()
        .unit("packets")
        .help("How many received packets the reserve holds at most, all receive queues together.")
        .note(
            "10,000 is recommended with burst handling. Memory is used for packets that wait, not for the reserve as \
             such. The least value is not documented: 1, because AsyncReceiveIndicate is the switch. When it acts is not \
             documented: at once.",
        )
        .source(BURST),
    KeyDef::number("DelayDropTimeout", 0, 100)
        .acts(field!(delay_drop))
        .default(50)
        .unset(0)
        .unit("100 us")
        .dynamic()
        .illegal_is_default()
        .help(
            "How long a packet that finds no receive buffer may wait before it is dropped and dropless mode ends; 0 \
             switches dropless mode off.",
        )
        .note(
            "The section says that the adapter must be reloaded, and that the key is dynamic since 2.20: it is dynamic. It \
             calls 50 the default, and says that the feature must be switched on: while nothing is stored the mode is off, \
             and 50 is what an illegal value falls back to, which switches it on.",
        )
        .source("WinOF-2 Ethernet Network, Dropless Mode"),
    KeyDef::macs("mac-address-list", 128)
        .acts(field!(macs))
        .dynamic()
        .tool("-MacAddressList")
        .help("Further unicast addresses whose packets the adapter takes without being promiscuous.")
        .note(
            "WinOF-2 has no name for it in the registry, only the verb of its tool. How many addresses there may be is not \
             documented: 128.",
        )
        .source("WinOF-2 Ethernet Network, Additional MAC Addresses for the Network Adapter"),
];
