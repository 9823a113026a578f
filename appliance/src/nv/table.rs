//! Table of NV parameters.

/// Type of a parameter's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvKind {
    /// A number in this range, both ends included.
    Number {
        /// Least value.
        min: u32,
        /// Greatest value.
        max: u32,
    },
    /// One of these numbers, each with its word.
    Enum(&'static [(u32, &'static str)]),
    /// 0 or 1.
    Bool,
}

/// Scope of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvScope {
    Device,
    /// A port; the name has its number.
    Port,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct NvDef {
    /// Name in mlxconfig.
    pub name: &'static str,
    /// Type of the values.
    pub kind: NvKind,
    /// Default. One that is built and has none: while nothing is set, presets of congestion control say what acts.
    pub default: Option<u32>,
    /// Unit of a number; may be empty.
    pub unit: &'static str,
    pub scope: NvScope,
    /// What the parameter waits for; `None`: it is built.
    pub waits_for: Option<&'static str>,
    /// Parameter of congestion control that it sets for adapters that have none of their own.
    pub sets: Option<Sets>,
    /// Effect in words.
    pub help: &'static str,
    /// Document that has the parameter.
    pub source: &'static str,
}

/// A parameter of congestion control that an NV parameter sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sets {
    /// Its name.
    pub parameter: &'static str,
    /// How its value follows from that of the NV parameter.
    pub value: Follows,
}

/// How a value follows from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// It is the same.
    Same,
    /// Blocks of 64 bytes, rounded up, of bytes.
    Blocks,
    /// The weight of what is new, of the weight of what was (1024 in all).
    NewWeight,
    /// Nothing is set by 0.
    UnlessZero,
    /// Scope of notifications: 1 is the port, 2 the flow.
    CnpScope,
    /// Ways of packets: 1 are all that there can be, 0 leaves them as they are.
    Ways,
}

/// Most ways that packets of a queue pair can take (`roce_multipath_ways`).
const WAYS: u32 = 16;

impl Sets {
    /// Value of the parameter, if any is set.
    pub fn value(self, nv: u32) -> Option<u32> {
        match self.value {
            Follows::Same => Some(nv),
            Follows::Blocks => Some(nv.div_ceil(64)),
            Follows::NewWeight => Some(1024 - nv.min(1023)),
            Follows::UnlessZero => Some(nv).filter(|nv| *nv != 0),
            Follows::Ways => (nv != 0).then_some(WAYS),
            // Choices of `np_cnp_scope`: 0 is the queue pair, 3 the port.
            Follows::CnpScope => match nv {
                1 => Some(3),
                2 => Some(0),
                _ => None,
            },
        }
    }
}

/// Parameter that makes the DSCP of notifications that of [`CNP_DSCP`].
pub const CNP_DSCP_MODE: &str = "CNP_DSCP_MODE";
/// Parameter with the DSCP of notifications.
pub const CNP_DSCP: &str = "CNP_DSCP";
/// Parameter with the priorities that have congestion control.
pub const PRIORITIES: &str = "ROCE_CC_PRIO_MASK";
/// Parameter that leaves DCQCN as the only algorithm of congestion control.
pub const LEGACY_DCQCN: &str = "ROCE_CC_LEGACY_DCQCN";
/// Parameter that allows programs of congestion control.
pub const PROGRAMMABLE: &str = "USER_PROGRAMMABLE_CC";
/// Parameter that disables RDMA functions.
pub const ROCE_CONTROL: &str = "ROCE_CONTROL";
/// Value without RDMA functions.
pub const ROCE_OFF: u32 = 1;

/// Parameter with the most traffic classes of adapters and ports; 0 stands for 8.
pub const CLASSES: &str = "NUM_OF_TC";
/// Parameter with the most virtual lanes of ports, by its choices.
pub const LANES: &str = "NUM_OF_VL";
/// Parameter with the most priorities with flow control of adapters and ports at a time.
pub const PFC: &str = "NUM_OF_PFC";
/// Parameter that lets magic packets wake guests.
pub const WOL_MAGIC: &str = "WOL_MAGIC_EN";
/// Parameter that makes time stamps those of the NIC's clock.
pub const REAL_TIME: &str = "REAL_TIME_CLOCK_ENABLE";
/// Parameter that lets adapters repeat selectively.
pub const SELECTIVE_REPEAT: &str = "RDMA_SELECTIVE_REPEAT_EN";

const LLDP: &[(u32, &str)] = &[(0, "off"), (1, "mandatory"), (2, "all")];
const U17: u32 = 131_071;

const PROBES: &str = "round-trip probes on the wire";
const PCI: &str = "a PCI function of its own";

const DB_ECN: &str = "mstflint mlxconfig_dbs host.db, nv_roce_cc_ecn";
const DB_CC: &str = "mstflint mlxconfig_dbs host.db, nv_roce_cc";
const DB_QOS: &str = "mstflint mlxconfig_dbs host.db, nv_qos_conf";
const DB_SW: &str = "mstflint mlxconfig_dbs host.db, nv_sw_offload_conf";
const DB_HCA: &str = "mstflint mlxconfig_dbs host.db, nv_hca_conf";
const DB_PCI: &str = "mstflint mlxconfig_dbs host.db, nv_global_pci_conf";
const DB_DCBX: &str = "mstflint mlxconfig_dbs host.db, nv_lldp_nb_dcbx";
const SEED_DCBX: &str = "WinOF-2 Ethernet Network, DCBX";
const SEED_ECE: &str = "WinOF-2 Ethernet Network, Enhanced Connection Establishment (ECE)";

const fn number(name: &'static str, min: u32, max: u32, unit: &'static str) -> NvDef {
    NvDef {
        name,
        kind: NvKind::Number { min, max },
        default: None,
        unit,
        scope: NvScope::Device,
        waits_for: None,
        sets: None,
        help: "",
        source: DB_ECN,
    }
}

const fn choice(name: &'static str, choices: &'static [(u32, &'static str)]) -> NvDef {
    NvDef {
        kind: NvKind::Enum(choices),
        ..number(name, 0, 0, "")
    }
}

const fn flag(name: &'static str) -> NvDef {
    NvDef {
        kind: NvKind::Bool,
        ..number(name, 0, 0, "")
    }
}

impl NvDef {
    const fn of(self, waits_for: &'static str, source: &'static str, help: &'static str) -> NvDef {
        NvDef {
            waits_for: Some(waits_for),
            source,
            help,
            ..self
        }
    }

    const fn help(self, help: &'static str) -> NvDef {
        NvDef { help, ..self }
    }

    const fn sets(self, parameter: &'static str) -> NvDef {
        self.follows(parameter, Follows::Same)
    }

    const fn follows(self, parameter: &'static str, value: Follows) -> NvDef {
        NvDef {
            sets: Some(Sets { parameter, value }),
            ..self
        }
    }

    /// A parameter that acts, with its default.
    const fn acts(self, source: &'static str, default: u32, help: &'static str) -> NvDef {
        NvDef {
            source,
            default: Some(default),
            help,
            ..self
        }
    }

    const fn port(self) -> NvDef {
        NvDef {
            scope: NvScope::Port,
            ..self
        }
    }
}

const RX_MODE: &str = "What the port reads of LLDP, while its own `lldp` is disabled: nothing, what a message must have, all. 2 is needed for DCBX.";
const TX_MODE: &str = "What the port tells by LLDP, while its own `lldp` is disabled: nothing, what a message must have, all. 2 is needed for DCBX.";
const NB_DCBX: &str = "DCBX by the device itself; valid while both LLDP modes are 2, and with DcbxMode 2 in the registry of an adapter.";
const IEEE_HELP: &str =
    "The port has DCBX of IEEE 802.1Qaz. With CEE, too, it has what its peer speaks, and IEEE first.";
const WILLING_HELP: &str = "Take over what the neighbour says.";
const CEE_HELP: &str = "The port has DCBX of CEE, from before IEEE 802.1Qaz.";

/// All parameters, by name.
pub static PARAMETERS: &[NvDef] = &[
    number("CNP_802P_PRIO", 0, 7, "PCP").sets("DcqcnCnp802pPrio").help("Priority of CNPs."),
    number(CNP_DSCP, 0, 63, "DSCP").sets("DcqcnCnpDscp").help("DSCP of CNPs, while CNP_DSCP_MODE is 1."),
    choice(CNP_DSCP_MODE, &[(0, "default"), (1, "fixed")]).acts(
        DB_ECN,
        0,
        "Where the DSCP of CNPs comes from: a preset, or CNP_DSCP. (2, the packet, is not built.)",
    ),
    flag("CNP_RES_PRIO_MODE").sets("DcqcnCnpPrioMode").help("1: the priority of CNPs is that of the packet they answer."),
    choice("CQE_COMPRESSION", &[(0, "balanced"), (1, "aggressive")]).of(
        "compressed completions",
        DB_SW,
        "How eagerly completions are compressed.",
    ),
    flag("DCBX_CEE_P1").acts(DB_DCBX, 1, CEE_HELP).port(),
    flag("DCBX_CEE_P2").acts(DB_DCBX, 1, CEE_HELP).port(),
    flag("DCBX_IEEE_P1").acts(DB_DCBX, 1, IEEE_HELP).port(),
    flag("DCBX_IEEE_P2").acts(DB_DCBX, 1, IEEE_HELP).port(),
    flag("DCBX_WILLING_P1").acts(DB_DCBX, 1, WILLING_HELP).port(),
    flag("DCBX_WILLING_P2").acts(DB_DCBX, 1, WILLING_HELP).port(),
    number("DCE_TCP_G", 1, 1023, "1/1024").follows("DcqcnDceTcpG", Follows::NewWeight).help("Weight of what alpha was in its filter."),
    number("DCE_TCP_RTT", 1, U17, "us").sets("DcqcnDceTcpRtt").help("Period of the alpha filter."),
    number("INITIAL_ALPHA_VALUE", 0, 1023, "1/1024").sets("DcqcnInitialAlphaValue").help("Alpha when a flow is first marked."),
    flag("KEEP_ETH_LINK_UP").of(
        "ports with a physical link",
        "mstflint mlxconfig_dbs host.db, nv_keep_link_up",
        "The link stays up while no driver runs.",
    ),
    flag("LLDP_NB_DCBX_P1").acts(SEED_DCBX, 0, NB_DCBX).port(),
    flag("LLDP_NB_DCBX_P2").acts(SEED_DCBX, 0, NB_DCBX).port(),
    choice("LLDP_NB_RX_MODE_P1", LLDP).acts(SEED_DCBX, 0, RX_MODE).port(),
    choice("LLDP_NB_RX_MODE_P2", LLDP).acts(SEED_DCBX, 0, RX_MODE).port(),
    choice("LLDP_NB_TX_MODE_P1", LLDP).acts(SEED_DCBX, 0, TX_MODE).port(),
    choice("LLDP_NB_TX_MODE_P2", LLDP).acts(SEED_DCBX, 0, TX_MODE).port(),
    number("MIN_TIME_BETWEEN_CNPS", 0, U17, "us").sets("np_min_time_between_cnps").help("Shortest gap between CNPs."),
    number(PFC, 0, 8, "priorities").acts(DB_QOS, 8, "Priorities that can have PFC at a time; of more, the lowest ones have it."),
    number(CLASSES, 0, 7, "classes").acts(DB_QOS, 0, "Traffic classes; 0 stands for 8. Priorities of classes beyond have the last one."),
    number("NUM_OF_VFS", 0, 65_535, "functions").of(PCI, DB_PCI, "Virtual functions."),
    choice(LANES, &[(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")]).acts(
        DB_QOS,
        5,
        "Virtual lanes of ports with arbitration tables. Service levels of lanes beyond have the last one.",
    ),
    choice("PCI_WR_ORDERING", &[(0, "by key"), (1, "relaxed")]).of(
        PCI,
        DB_HCA,
        "Whether writes on the bus may overtake each other.",
    ),
    number("RATE_REDUCE_MONITOR_PERIOD", 1, U17, "us").sets("DcqcnRateReduceMonitorPeriod").help("At most one cut of the rate in this time."),
    number("RATE_TO_SET_ON_FIRST_CNP", 0, u32::MAX, "Mbit/s").sets("DcqcnRateToSetOnFirstCnp").help("Rate after the first CNP."),
    flag(SELECTIVE_REPEAT)
        .follows("selective_repeat_forced_en", Follows::UnlessZero)
        .acts(SEED_ECE, 0, "Lost packets of READ and WRITE are repeated one by one."),
    flag(REAL_TIME).acts(DB_SW, 1, "1: times of RDMA completions are of the NIC's clock (vnicctl clock); 0: of a counter that runs since the start of the daemon."),
    flag("ROCE_ADAPTIVE_ROUTING_EN")
        .follows("roce_multipath_ways", Follows::Ways)
        .acts(DB_SW, 0, "1: packets of a queue pair take up to 16 ways, between adapters that repeat selectively."),
    choice("ROCE_CC_ALGORITHM", &[(0, "ECN"), (1, "QCN")]).of("QCN (IEEE 802.1Qau)", DB_CC, "Algorithm of congestion control."),
    choice(
        "ROCE_CC_CNP_MODERATION",
        &[(0, "default"), (1, "by port"), (2, "by flow")],
    )
    .follows("np_cnp_scope", Follows::CnpScope)
    .acts(DB_CC, 0, "For what MIN_TIME_BETWEEN_CNPS counts."),
    flag(LEGACY_DCQCN).acts(SEED_ECE, 0, "1: adapters use DCQCN, whatever algorithm they are configured for."),
    NvDef {
        source: DB_CC,
        ..number(PRIORITIES, 0, 255, "bits")
    }
    .help("Priorities with congestion control, a bit each, where DcqcnEnablePrio is not set."),
    choice(
        "ROCE_CC_SHAPER_COALESCE",
        &[
            (0, "default"),
            (1, "destination"),
            (2, "source QP"),
            (3, "five-tuple"),
        ],
    )
    .of("rate limiters that flows share", DB_CC, "Who shares a rate limiter."),
    choice(ROCE_CONTROL, &[(0, "default"), (ROCE_OFF, "off"), (2, "on")]).acts(DB_HCA, 0, "Whether adapters have an RDMA function; the default is on."),
    number("ROCE_RTT_RESP_DSCP", 0, 63, "DSCP").of(
        PROBES,
        "mstflint mlxconfig_dbs host.db, nv_roce_conf",
        "DSCP of answers to round-trip probes.",
    ),
    choice(
        "ROCE_RTT_RESP_DSCP_MODE",
        &[(0, "default"), (1, "fixed"), (2, "from the packet")],
    )
    .of(
        PROBES,
        "mstflint mlxconfig_dbs host.db, nv_roce_conf",
        "Where the DSCP of answers to round-trip probes comes from.",
    ),
    number("RPG_AI_RATE", 1, u32::MAX, "Mbit/s").sets("DcqcnRpgAiRate").help("Additive increase."),
    number("RPG_BYTE_RESET", 0, u32::MAX, "bytes").follows("DcqcnRpgByteReset", Follows::Blocks).help("Bytes between increases; 0: they do not count."),
    number("RPG_GD", 0, 11, "log2").sets("DcqcnAlphaToRateShift").help("Divisor of a cut."),
    number("RPG_HAI_RATE", 1, u32::MAX, "Mbit/s").sets("DcqcnRpgHaiRate").help("Hyper increase."),
    number("RPG_MAX_RATE", 0, u32::MAX, "Mbit/s").sets("rp_max_rate").help("A limiter ends at this rate; 0: that of the port."),
    number("RPG_MIN_DEC_FAC", 1, 100, "percent").sets("DcqcnRpgMinDecFac").help("What a cut leaves at least."),
    number("RPG_MIN_RATE", 0, u32::MAX, "Mbit/s").sets("DcqcnRpgMinRate").help("Lowest rate."),
    number("RPG_THRESHOLD", 1, 31, "stages").sets("DcqcnRpgThreshold").help("Stages of fast recovery."),
    number("RPG_TIME_RESET", 0, U17, "us").sets("DcqcnRpgTimeReset").help("Time between increases."),
    flag("SRIOV_EN").of(PCI, DB_PCI, "The device has virtual functions."),
    flag(PROGRAMMABLE).acts(SEED_ECE, 0, "1: congestion control of the user's own (vnicctl cc load); valid while ROCE_CC_LEGACY_DCQCN is 0."),
    flag(WOL_MAGIC).acts("WinOF-2 Ethernet Network, Wake-on-LAN", 1, "1: a magic packet for a guest that does not run is an event, and wakes it as its adapter says (vnicctl adapter set --wake)."),
];
