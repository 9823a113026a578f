//! Guards against stalled queues, and against hosts that are too slow.

use super::super::Rule;
use super::{KeyDef, field};

const HINT: &str = "WinOF-2 Ethernet Network, Explicit Congestion Notification (ECN) Hint in CQE";
const LIFETIME: &str = "WinOF-2 Ethernet Network, Head of Queue Lifetime Limit";
const STALL: &str = "WinOF-2 Ethernet Network, Receive Path Activity Monitoring";
const ONLY_MONITORED: &[Rule] = &[Rule::ChangeOnlyWhile {
    other: "CongestionMonitoringEnable",
    value: 1,
}];
const UNCONFIRMED: &str =
    "The WinOF-2 text names the key, and gives neither range nor default: these follow the register QHLL.";
const UNNAMED_TIMEOUT: &str = "The name is not in the WinOF-2 text, only the feature. Range and default are those of the \
                               register PFCC; 1 to 79 count as 80, its least.";
const UNNAMED_WATERMARK: &str = "The name is not in the WinOF-2 text, only the feature. The range is that of the register \
                                 PFCC; the default, and what counts where it is above DeviceRxStallTimeout, is 85 % of \
                                 that, as Linux has it. 1 to 79 count as 80.";

const fn hint(row: KeyDef) -> KeyDef {
    row.dynamic().source(HINT)
}

const fn lifetime(row: KeyDef) -> KeyDef {
    row.note(UNCONFIRMED).source(LIFETIME)
}

pub(super) const KEYS: &[KeyDef] = &[
    hint(
        KeyDef::switch("CongestionMonitoringEnable")
            .acts(field!("congestion_monitoring": qos.hint.enable))
            .default(0),
    )
    .help("Received packets that met a congested receive buffer are marked (ECN)."),
    hint(
        KeyDef::one_of("CongestionAction", &[(0, "off"), (1, "drop"), (2, "mark")])
            .acts(field!("congestion_action": qos.hint.action))
            .default(2),
    )
    .rules(ONLY_MONITORED)
    .help("What happens to lossy packets while the receive buffer overflows; mark leaves those of senders without ECN alone."),
    hint(
        KeyDef::one_of("CongestionMode", &[(0, "aggressive"), (1, "dynamic")])
            .acts(field!("congestion_mode": qos.hint.mode))
            .default(1),
    )
    .rules(ONLY_MONITORED)
    .help("How eagerly packets are marked or dropped."),
    lifetime(
        KeyDef::number("TCHeadOfQueueLifeTimeLimit", 0, 20)
            .acts(field!("hol_lifetime": qos.lifetimes.limit))
            .default(19)
            .unit("log2 of 4.096 us"),
    )
    .help("How long a packet may wait at the head of a traffic class before it is dropped; 20: for ever."),
    lifetime(
        KeyDef::number("TCStallCount", 0, 7)
            .acts(field!("hol_stall_count": qos.lifetimes.stall_count))
            .default(7)
            .unit("packets"),
    )
    .help("Drops in a row after which a traffic class counts as stalled; 0: never."),
    lifetime(
        KeyDef::number("TCHeadOfQueueLifeTimeLimitEnable", 0, 0xff)
            .acts(field!("hol_lifetime_classes": qos.lifetimes.enable))
            .default(0)
            .unit("bit per traffic class"),
    )
    .help("Traffic classes that have a limit."),
    KeyDef::number("DeviceRxStallTimeout", 0, 8000)
        .acts(field!("storm_critical_ms": qos.guard.critical_ms))
        .default(8000)
        .unit("ms")
        .help("How long the receive path may stand still before pause frames stop; 0: for ever.")
        .note(UNNAMED_TIMEOUT)
        .source(STALL),
    KeyDef::number("DeviceRxStallWatermark", 0, 8000)
        .acts(field!("storm_minor_ms": qos.guard.minor_ms))
        .default(6800)
        .unit("ms")
        .help("How long the receive path may stand still before it is counted; 0: for ever.")
        .note(UNNAMED_WATERMARK)
        .source(STALL),
];
