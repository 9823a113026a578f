//! RoCEv2 congestion management (DCQCN).
//!
//! The defaults are those that the example of `-Get` shows. Current firmware and Linux drivers have others; a profile
//! chooses them when congestion control is built.

use super::{KeyDef, family};

const SECTION: &str = "WinOF-2 Ethernet Network, RCM Parameters";

const fn dcqcn(row: KeyDef) -> KeyDef {
    row.dynamic()
        .tool("-QosConfig -Dcqcn")
        .waits_for("congestion control")
        .source(SECTION)
}

const fn enable(name: &'static str, default: u32) -> KeyDef {
    dcqcn(KeyDef::switch(name).default(default))
        .help("Congestion control of this priority, at both ends: reaction point and notification point.")
        .note(
            "The tool shows it as DcqcnRPEnablePrioN and DcqcnNPEnablePrioN and sets both. The example shows 0; other \
             documents say on by default.",
        )
}

pub(super) const ENABLE: &[KeyDef] = &family!(
    "DcqcnEnablePrio", "", enable,
    0 => 0, 1 => 0, 2 => 0, 3 => 0, 4 => 0, 5 => 0, 6 => 0, 7 => 0,
);

pub(super) const PARAMETERS: &[KeyDef] = &[
    dcqcn(KeyDef::switch("DcqcnClampTgtRate").default(0))
        .help("1: every congestion notification makes the current rate the target rate."),
    dcqcn(KeyDef::switch("DcqcnClampTgtRateAfterTimeInc").default(1))
        .help("1: a congestion notification makes the current rate the target rate also after an increase by the timer."),
    dcqcn(KeyDef::number("DcqcnCnpDscp", 0, 63).default(0).unit("DSCP"))
        .alias(&["fCnpDscp"])
        .help("DSCP of congestion notification packets."),
    dcqcn(KeyDef::number("DcqcnCnp802pPrio", 0, 7).default(7).unit("PCP"))
        .help("Priority of congestion notification packets, where DcqcnCnpPrioMode is 0."),
    dcqcn(
        KeyDef::one_of(
            "DcqcnCnpPrioMode",
            &[(0, "DcqcnCnp802pPrio"), (1, "of the marked packet")],
        )
        .default(1),
    )
    .help("Where congestion notification packets take their priority from."),
    dcqcn(KeyDef::number("DcqcnRpgTimeReset", 0, 131_071).default(100).unit("us"))
        .help("Time between increases of the rate."),
    dcqcn(KeyDef::number("DcqcnRpgByteReset", 0, 32_767).default(400).unit("64 bytes"))
        .help("Bytes sent between increases of the rate.")
        .note("The firmware's settings count bytes; here the unit is that of the WinOF-2 table."),
    dcqcn(KeyDef::number("DcqcnRpgThreshold", 1, 31).default(5).unit("stages"))
        .help("Increases of one kind before the next kind."),
    dcqcn(KeyDef::rate("DcqcnRpgAiRate", 1).default(10)).help("Step of the target rate in additive increase."),
    dcqcn(KeyDef::rate("DcqcnRpgHaiRate", 1).default(100)).help("Step of the target rate in hyper increase."),
    dcqcn(KeyDef::number("DcqcnAlphaToRateShift", 0, 11).default(11).unit("log2"))
        .help("A cut takes alpha / 2^shift of the rate."),
    dcqcn(KeyDef::number("DcqcnRpgMinDecFac", 0, 100).default(50).unit("percent"))
        .help("What one cut leaves of the rate at least.")
        .note(
            "The text divides the rate by it, which would cut to 2 % by default. All other documents read a percentage, and \
             so does its range.",
        ),
    dcqcn(KeyDef::rate("DcqcnRpgMinRate", 0).default(1)).help("Least rate of a flow."),
    dcqcn(KeyDef::rate("DcqcnRateToSetOnFirstCnp", 0).default(3000))
        .help("Rate at the first congestion notification of a flow."),
    dcqcn(KeyDef::number("DcqcnDceTcpG", 0, 1023).default(32).unit("1/1024"))
        .alias(&["DcqcnDecTcpG"])
        .help("Weight g of a new sample in alpha: (1 - g) alpha + g with a notification, (1 - g) alpha without.")
        .note("Documents with a default of 1019 give the weight of the old alpha, 1 - g."),
    dcqcn(KeyDef::number("DcqcnDceTcpRtt", 0, 131_071).default(4).unit("us")).help("Time between updates of alpha."),
    dcqcn(
        KeyDef::number("DcqcnRateReduceMonitorPeriod", 0, u32::MAX - 1)
            .default(32)
            .unit("us"),
    )
    .help("Time in which the rate is cut at most once."),
    dcqcn(KeyDef::number("DcqcnInitialAlphaValue", 0, 1023).default(0).unit("1/1024"))
        .help("Alpha at the first congestion notification of a flow."),
];
