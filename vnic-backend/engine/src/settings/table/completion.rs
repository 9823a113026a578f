//! Keys of completion: notification of a guest.

use super::super::Rule;
use super::{KeyDef, field};

const POLL: &str = "WinOF-2 Ethernet Network, NDIS Poll Mode";

const DPC: &str = "The names are not in the WinOF-2 text, only the feature. Here data cores poll, and what is deferred is the interrupt: a data \
                   core does not pay for it, and the guest hears of packets a little later.";

/// Rule of a key with whose `values` the key `other` must be 0.
const fn off_while(values: &'static [u32], other: &'static str) -> Rule {
    Rule::While {
        values,
        other,
        min: 0,
        max: 0,
    }
}

pub(super) const KEYS: &[KeyDef] = &[
    KeyDef::one_of(
        "RecvCompletionMethod",
        &[(0, "polling"), (1, "adaptive"), (4, "NDIS poll")],
    )
    .acts(field!(recv_completion))
    .default(1)
    .sz()
    .rules(&[
        off_while(&[4], "AsyncReceiveIndicate"),
        off_while(&[4], "ThreadedDpcEnable"),
    ])
    .help("How a guest hears of received packets.")
    .note("2 and 3 are not described and not allowed. NDIS poll excludes burst handling.")
    .source(POLL),
    KeyDef::one_of(
        "SendCompletionMethod",
        &[(0, "polling"), (1, "interrupt"), (2, "NDIS poll")],
    )
    .acts(field!(send_completion))
    .default(1)
    .sz()
    .rules(&[
        off_while(&[2], "TxThreadedDpcEnable"),
        Rule::While {
            values: &[2],
            other: "TxMaxPostSendsCoalescing",
            min: 1,
            max: 32,
        },
    ])
    .help("How a guest hears of sent packets.")
    .source(POLL),
    KeyDef::number("TxMaxPostSendsCoalescing", 1, 256)
        .acts(field!(tx_coalescing))
        .default(32)
        .sz()
        .unit("packets")
        .help("How many sent packets are completed together at most.")
        .note(
            "Only its limit of 32 with NDIS poll is documented. 32 is taken for the default, 256 for the most; when it acts \
             is not documented: at restart, as the method that it belongs to.",
        )
        .source(POLL),
    KeyDef::switch("ThreadedDpcEnable")
        .acts(field!(threaded.receive))
        .default(0)
        .sz()
        .help("A thread beside the data cores interrupts the guest for received packets (threaded DPC).")
        .note(DPC)
        .source("WinOF-2 Ethernet Network, Threaded DPC"),
    KeyDef::switch("TxThreadedDpcEnable")
        .acts(field!(threaded.send))
        .default(0)
        .sz()
        .help("A thread beside the data cores interrupts the guest for sent packets (threaded DPC).")
        .note(DPC)
        .source("WinOF-2 Ethernet Network, Threaded DPC"),
];
