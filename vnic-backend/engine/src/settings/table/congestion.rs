//! RoCEv2 congestion management (DCQCN), and zero touch RoCE.
//!
//! The defaults of DCQCN are those of the example of `-Get`: preset `winof2-doc`. With another preset, its values act while nothing
//! is stored. Zero touch RoCE is the same in all presets.

use super::super::congestion::{self, PARAMETER};
use super::KeyDef;
use crate::congestion::zero_touch::{WAYS_MAX, WINDOW_MAX};

/// Tool of zero touch RoCE.
pub(in super::super) const ZERO_TOUCH: &str = "-ZtRoce";

const SECTION: &str = "WinOF-2 Ethernet Network, RCM Parameters";

const fn dcqcn(row: KeyDef) -> KeyDef {
    row.dynamic().tool("-QosConfig -Dcqcn").source(SECTION)
}

macro_rules! enable {
    ($($priority:literal),+) => {
        [$(dcqcn(KeyDef::switch(concat!("DcqcnEnablePrio", $priority)).default(0))
            .acts(congestion::ENABLE)
            .help("Congestion control of this priority, at both ends: reaction point and notification point.")
            .note(
                "The tool shows it as DcqcnRPEnablePrioN and DcqcnNPEnablePrioN and sets both; `vnicctl cc` switches one end \
                 alone, too. The example shows 0; other documents say on by default.",
            )),+]
    };
}

pub(in super::super) const ENABLE: &[KeyDef] = &enable!(0, 1, 2, 3, 4, 5, 6, 7);

const fn parameter(row: KeyDef) -> KeyDef {
    dcqcn(row).acts(PARAMETER)
}

/// Parameters that are keys. The other spellings are those of sysfs (`ecn/roce_rp`, `ecn/roce_np`) and debugfs (`cc_params`) of Linux.
pub(in super::super) const PARAMETERS: &[KeyDef] = &[
    parameter(KeyDef::switch("DcqcnClampTgtRate").default(0))
        .alias(&["rp_clamp_tgt_rate", "clamp_tgt_rate"])
        .help("1: every congestion notification makes the current rate the target rate."),
    parameter(KeyDef::switch("DcqcnClampTgtRateAfterTimeInc").default(1))
        .alias(&["rp_clamp_tgt_rate_ati", "clamp_tgt_rate_after_time_inc"])
        .help("1: a congestion notification makes the current rate the target rate also after an increase by the timer."),
    parameter(KeyDef::number("DcqcnCnpDscp", 0, 63).default(0).unit("DSCP"))
        .alias(&["fCnpDscp", "np_cnp_dscp", "cnp_dscp"])
        .help("DSCP of congestion notification packets."),
    parameter(KeyDef::number("DcqcnCnp802pPrio", 0, 7).default(7).unit("PCP"))
        .alias(&["np_cnp_prio", "cnp_802p_prio"])
        .help("Priority of congestion notification packets, where DcqcnCnpPrioMode is 0."),
    parameter(
        KeyDef::one_of(
            "DcqcnCnpPrioMode",
            &[(0, "DcqcnCnp802pPrio"), (1, "of the marked packet")],
        )
        .default(1),
    )
    .alias(&["np_cnp_prio_mode"])
    .help("Where congestion notification packets take their priority from."),
    parameter(KeyDef::number("DcqcnRpgTimeReset", 0, 131_071).default(100).unit("us"))
        .alias(&["rp_time_reset", "rpg_time_reset"])
        .help("Time between increases of the rate; 0: the timer does not count."),
    parameter(KeyDef::number("DcqcnRpgByteReset", 0, 32_767).default(400).unit("64 bytes"))
        .alias(&["rp_byte_reset", "rpg_byte_reset"])
        .help("Bytes sent between increases of the rate; 0: they do not count.")
        .note("The firmware's settings count bytes; here the unit is that of the WinOF-2 table."),
    parameter(KeyDef::number("DcqcnRpgThreshold", 1, 31).default(5).unit("stages"))
        .alias(&["rp_threshold", "rpg_threshold"])
        .help("Increases of one kind before the next kind."),
    parameter(KeyDef::rate("DcqcnRpgAiRate", 1).default(10))
        .alias(&["rp_ai_rate", "rpg_ai_rate"])
        .help("Step of the target rate in additive increase."),
    parameter(KeyDef::rate("DcqcnRpgHaiRate", 1).default(100))
        .alias(&["rp_hai_rate", "rpg_hai_rate"])
        .help("Step of the target rate in hyper increase."),
    parameter(KeyDef::number("DcqcnAlphaToRateShift", 0, 11).default(11).unit("log2"))
        .alias(&["rp_gd", "rpg_gd"])
        .help("A cut takes alpha / 2^shift of the rate."),
    parameter(KeyDef::number("DcqcnRpgMinDecFac", 0, 100).default(50).unit("percent"))
        .alias(&["rp_min_dec_fac", "rpg_min_dec_fac"])
        .help("What one cut leaves of the rate at least.")
        .note(
            "The text divides the rate by it, which would cut to 2 % by default. All other documents read a percentage, and \
             so does its range.",
        ),
    parameter(KeyDef::rate("DcqcnRpgMinRate", 0).default(1))
        .alias(&["rp_min_rate", "rpg_min_rate"])
        .help("Least rate of a flow. The line rate switches congestion control off in effect."),
    parameter(KeyDef::rate("DcqcnRateToSetOnFirstCnp", 0).default(3000))
        .alias(&["rp_rate_to_set_on_first_cnp", "rate_to_set_on_first_cnp"])
        .help("Rate at the first congestion notification of a flow; 0: as it was."),
    parameter(KeyDef::number("DcqcnDceTcpG", 0, 1023).default(32).unit("1/1024"))
        .alias(&["DcqcnDecTcpG"])
        .help("Weight g of a new sample in alpha: (1 - g) alpha + g with a notification, (1 - g) alpha without.")
        .note(
            "Documents with a default of 1019 give the weight of the old alpha, 1 - g: `rp_dce_tcp_g` of `vnicctl cc` is that \
             one.",
        ),
    parameter(KeyDef::number("DcqcnDceTcpRtt", 0, 131_071).default(4).unit("us"))
        .alias(&["rp_dce_tcp_rtt", "dce_tcp_rtt"])
        .help("Time between updates of alpha."),
    parameter(
        KeyDef::number("DcqcnRateReduceMonitorPeriod", 0, u32::MAX - 1)
            .default(32)
            .unit("us"),
    )
    .alias(&["rp_rate_reduce_monitor_period", "rate_reduce_monitor_period"])
    .help("Time in which the rate is cut at most once."),
    parameter(KeyDef::number("DcqcnInitialAlphaValue", 0, 1023).default(0).unit("1/1024"))
        .alias(&["rp_initial_alpha_value", "initial_alpha_value"])
        .help("Alpha at the first congestion notification of a flow."),
    facility("AdpRetrans", &["roce_adp_retrans_en"])
        .help("The ACK timer of RDMA follows measured round trips.")
        .note(
            "By RFC 6298, from roce_adp_retrans_floor to the queue pair's own timeout. It uses no retry before that timeout has \
             passed, so that a program waits as long as it asked for.",
        ),
    facility("TxWindow", &["roce_tx_window_en"])
        .help("A queue pair has no more than roce_tx_window_size packets unacknowledged.")
        .note("A ConnectX-5 shows 0. What the tool calls automatic is the growth to that size after a restart."),
    facility("SlowStart", &["SlowRestart", "roce_slow_restart_en"])
        .help("RDMA begins again with a small window, or at a low rate, after a retransmission.")
        .note(
            "A queue pair that congestion control limits restarts as if it had been notified; any other one with 16 packets, \
             and what is acknowledged makes them more.",
        ),
];

/// Facility of zero touch RoCE.
const fn facility(name: &'static str, aliases: &'static [&'static str]) -> KeyDef {
    KeyDef::switch(name)
        .default(1)
        .dynamic()
        .alias(aliases)
        .tool(ZERO_TOUCH)
        .acts(PARAMETER)
        .source("WinOF-2 Ethernet Network, Zero Touch RoCE")
}

const fn own(row: KeyDef) -> KeyDef {
    row.dynamic().tool("-QosConfig -Dcqcn").acts(PARAMETER)
}

const MLX5: &str = "MLNX_OFED Documentation, Explicit Congestion Notification (ECN)";
const LOSSY: &str = "NVIDIA, How-to Enable/Disable Lossy RoCE Accelerations: register ROCE_ACCL";
const DIFFER: &str = "where sources of DCQCN differ";

/// Parameters that are not keys of WinOF-2: `vnicctl cc` and the service have them beside the keys, the registry does not.
pub(in super::super) const OWN: &[KeyDef] = &[
    own(KeyDef::rate("rp_max_rate", 0))
        .alias(&["rpg_max_rate"])
        .help("Rate at which a flow is not limited any more; 0: the line rate.")
        .source(MLX5),
    own(KeyDef::one_of("rp_alpha_clock", &[(0, "notification"), (1, "period")]))
        .help("Alpha follows each notification (paper), or whether there was one in each DcqcnDceTcpRtt (firmware).")
        .source(DIFFER),
    own(KeyDef::one_of("rp_cut_order", &[(0, "cut-first"), (1, "alpha-first")]))
        .help("What comes first at a notification: the cut by the old alpha (paper), or alpha (ns3-rdma).")
        .source(DIFFER),
    own(KeyDef::one_of("rp_hyper_step", &[(0, "growing"), (1, "constant")]))
        .help("Hyper increase adds DcqcnRpgHaiRate times the number of such increases (paper), or once.")
        .source(DIFFER),
    own(KeyDef::switch("rp_fixed_point"))
        .help("1: alpha is a whole number of 1/1024, as in firmware.")
        .source(DIFFER),
    own(KeyDef::switch("rp_qcn_relics"))
        .help("1: the rules that the ns3-rdma code has from QCN (IEEE 802.1Qau).")
        .source(DIFFER),
    own(KeyDef::number("rp_idle_credit", 0, 1_000_000).unit("us"))
        .help("Credit that a flow gathers at its rate while it sends nothing.")
        .source("ours"),
    own(KeyDef::number("np_min_time_between_cnps", 0, 131_071).unit("us"))
        .alias(&["min_time_between_cnps"])
        .help("Least time between two notifications; 0: each marked packet makes one.")
        .source(MLX5),
    own(KeyDef::one_of(
        "np_cnp_scope",
        &[(0, "qp"), (1, "ip-pair"), (2, "destination-ip"), (3, "port")],
    ))
    .help("What shares one spacing of notifications.")
    .source("a property of devices, which differ"),
    own(KeyDef::switch("np_cnp_trailing"))
        .help("1: a mark within the spacing makes a notification at its end (paper); 0: it is forgotten.")
        .source("DCQCN, SIGCOMM 2015, section 3.1"),
    own(KeyDef::number("np_cnp_ecn", 0, 3))
        .help("ECN field of notifications.")
        .source("IBTA annex A17.9"),
    own(KeyDef::number("np_told_interval", 0, 131_071).unit("ns"))
        .help("Time to make one notification, of which the period follows that is told (DCQCN+); 0: nothing is told.")
        .source("DCQCN+, ICNP 2018"),
    own(KeyDef::number("roce_adp_retrans_floor", 4, 1_000_000).unit("us"))
        .tool(ZERO_TOUCH)
        .help("Shortest time of the adaptive ACK timer.")
        .source("NVIDIA, Adaptive Retransmission: Parameters Control: adp_retx_base_timeout_min"),
    own(KeyDef::number("roce_adp_retrans_ceiling", 0, 100_000_000).unit("us"))
        .tool(ZERO_TOUCH)
        .help("Longest time of the adaptive ACK timer; 0: the queue pair's own timeout.")
        .source("RFC 6298, 2.5"),
    own(KeyDef::number("roce_tx_window_size", 1, WINDOW_MAX).unit("packets"))
        .tool(ZERO_TOUCH)
        .help("Request packets of a queue pair that may be unacknowledged, where TxWindow is 1.")
        .source("ours"),
    own(KeyDef::switch("roce_slow_restart_idle_en"))
        .tool(ZERO_TOUCH)
        .help("1: RDMA restarts slowly after an idle time, too.")
        .source(LOSSY),
    own(KeyDef::switch("soft_roce"))
        .help("1: RoCE of the guest's own, over the Ethernet function, is limited, too.")
        .source("ours"),
    own(KeyDef::switch("roce_pin_source_port"))
        .help(
            "1: queue pairs that are connected from now on send from UDP port 49152, all of them, as with some drivers: hashing \
             by ports then sees one flow. Ports that a program chose count as little.",
        )
        .source("Linux, IB_ROCE_UDP_ENCAP_VALID_PORT_MIN"),
    own(KeyDef::switch("selective_repeat_forced_en"))
        .tool(ZERO_TOUCH)
        .help(
            "1: lost packets of WRITEs and READs are sent again one by one, to a peer that does so, too; 0: all behind them are. \
             Without a value as NV parameter RDMA_SELECTIVE_REPEAT_EN says.",
        )
        .source("mstflint roce_accl_reg_ext"),
    own(KeyDef::number("roce_multipath_ways", 1, WAYS_MAX).unit("ways"))
        .tool(ZERO_TOUCH)
        .help(
            "Packets of a queue pair's WRITEs take so many ways at a time, each with a UDP source port of its own. More than one \
             needs selective_repeat_forced_en, at both sides.",
        )
        .source("ours"),
];
