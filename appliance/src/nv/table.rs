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
    /// Default, if the documents have one.
    pub default: Option<u32>,
    /// Unit of a number; may be empty.
    pub unit: &'static str,
    pub scope: NvScope,
    /// What the parameter waits for; `None`: it is built.
    pub waits_for: Option<&'static str>,
    /// Effect in words.
    pub help: &'static str,
    /// Document that has the parameter.
    pub source: &'static str,
}

/// Parameter that leaves DCQCN as the only algorithm of congestion control.
pub const LEGACY_DCQCN: &str = "ROCE_CC_LEGACY_DCQCN";
/// Parameter that allows programs of congestion control.
pub const PROGRAMMABLE: &str = "USER_PROGRAMMABLE_CC";
/// Parameter that disables RDMA functions.
pub const ROCE_CONTROL: &str = "ROCE_CONTROL";
/// Value without RDMA functions.
pub const ROCE_OFF: u32 = 1;

/// Parameter that lets magic packets wake guests.
pub const WOL_MAGIC: &str = "WOL_MAGIC_EN";
/// Parameter that lets adapters repeat selectively.
pub const SELECTIVE_REPEAT: &str = "RDMA_SELECTIVE_REPEAT_EN";

const LLDP: &[(u32, &str)] = &[(0, "off"), (1, "mandatory"), (2, "all")];
const U17: u32 = 131_071;

const CC: &str = "congestion control";
const QOS: &str = "traffic classes and PFC on ports";
const DCBX: &str = "LLDP and DCBX on ports";
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
        waits_for: Some(CC),
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

    const fn port(self) -> NvDef {
        NvDef {
            scope: NvScope::Port,
            ..self
        }
    }

    const fn default(self, value: u32) -> NvDef {
        NvDef {
            default: Some(value),
            ..self
        }
    }
}

const RX_MODE: &str = "Whether the device listens to LLDP; 2 is needed for DCBX.";
const TX_MODE: &str = "Whether the device sends LLDP; 2 is needed for DCBX.";
const NB_DCBX: &str = "DCBX by the device itself; valid while both LLDP modes are 2.";

/// All parameters, by name.
pub static PARAMETERS: &[NvDef] = &[
    number("CNP_802P_PRIO", 0, 7, "PCP").help("Priority of CNPs."),
    number("CNP_DSCP", 0, 63, "DSCP").help("DSCP of CNPs, while CNP_DSCP_MODE is 1."),
    choice(
        "CNP_DSCP_MODE",
        &[(0, "default"), (1, "fixed"), (2, "from the packet")],
    )
    .help("Where the DSCP of CNPs comes from."),
    flag("CNP_RES_PRIO_MODE").help("1: the priority of CNPs is that of the packet they answer."),
    choice("CQE_COMPRESSION", &[(0, "balanced"), (1, "aggressive")]).of(
        "compressed completions",
        DB_SW,
        "How eagerly completions are compressed.",
    ),
    flag("DCBX_CEE").of(DCBX, DB_DCBX, "DCBX in its version before IEEE 802.1Qaz."),
    flag("DCBX_IEEE").of(DCBX, DB_DCBX, "DCBX as of IEEE 802.1Qaz."),
    flag("DCBX_WILLING").of(DCBX, DB_DCBX, "Take over what the neighbour says."),
    number("DCE_TCP_G", 1, 1023, "1/1024").help("Weight of the alpha filter."),
    number("DCE_TCP_RTT", 1, U17, "us").help("Period of the alpha filter."),
    number("INITIAL_ALPHA_VALUE", 0, 1023, "1/1024").help("Alpha when a flow is first marked."),
    flag("KEEP_ETH_LINK_UP").of(
        "ports with a physical link",
        "mstflint mlxconfig_dbs host.db, nv_keep_link_up",
        "The link stays up while no driver runs.",
    ),
    flag("LLDP_NB_DCBX_P1").of(DCBX, SEED_DCBX, NB_DCBX).port(),
    flag("LLDP_NB_DCBX_P2").of(DCBX, SEED_DCBX, NB_DCBX).port(),
    choice("LLDP_NB_RX_MODE_P1", LLDP)
        .of(DCBX, SEED_DCBX, RX_MODE)
        .port(),
    choice("LLDP_NB_RX_MODE_P2", LLDP)
        .of(DCBX, SEED_DCBX, RX_MODE)
        .port(),
    choice("LLDP_NB_TX_MODE_P1", LLDP)
        .of(DCBX, SEED_DCBX, TX_MODE)
        .port(),
    choice("LLDP_NB_TX_MODE_P2", LLDP)
        .of(DCBX, SEED_DCBX, TX_MODE)
        .port(),
    number("MIN_TIME_BETWEEN_CNPS", 0, U17, "us").help("Shortest gap between CNPs of a port."),
    number("NUM_OF_PFC", 0, 8, "priorities").of(QOS, DB_QOS, "Priorities that can have PFC at a time."),
    number("NUM_OF_TC", 0, 7, "classes").of(QOS, DB_QOS, "Traffic classes; 0 stands for 8."),
    number("NUM_OF_VFS", 0, 65_535, "functions").of(PCI, DB_PCI, "Virtual functions."),
    choice("NUM_OF_VL", &[(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")]).of(
        "InfiniBand",
        DB_QOS,
        "Lanes of an InfiniBand port.",
    ),
    choice("PCI_WR_ORDERING", &[(0, "by key"), (1, "relaxed")]).of(
        PCI,
        DB_HCA,
        "Whether writes on the bus may overtake each other.",
    ),
    number("RATE_REDUCE_MONITOR_PERIOD", 1, U17, "us").help("At most one cut of the rate in this time."),
    number("RATE_TO_SET_ON_FIRST_CNP", 0, u32::MAX, "Mbit/s").help("Rate after the first CNP."),
    NvDef {
        waits_for: None,
        source: SEED_ECE,
        ..flag(SELECTIVE_REPEAT)
    }
    .help("Lost packets of READ and WRITE are repeated one by one.")
    .default(0),
    flag("REAL_TIME_CLOCK_ENABLE").of("time stamps", DB_SW, "Time stamps are in real time."),
    flag("ROCE_ADAPTIVE_ROUTING_EN").of("adaptive routing", DB_SW, "Packets may take several paths."),
    choice("ROCE_CC_ALGORITHM", &[(0, "ECN"), (1, "QCN")]).of(CC, DB_CC, "Algorithm of congestion control."),
    choice(
        "ROCE_CC_CNP_MODERATION",
        &[(0, "default"), (1, "by port"), (2, "by flow")],
    )
    .of(CC, DB_CC, "For what MIN_TIME_BETWEEN_CNPS counts."),
    NvDef {
        waits_for: None,
        source: SEED_ECE,
        ..flag(LEGACY_DCQCN)
    }
    .help("1: adapters use DCQCN, whatever algorithm they are configured for.")
    .default(0),
    number("ROCE_CC_PRIO_MASK", 0, 255, "bits").of(
        CC,
        DB_CC,
        "Priorities with congestion control, a bit each.",
    ),
    choice(
        "ROCE_CC_SHAPER_COALESCE",
        &[
            (0, "default"),
            (1, "destination"),
            (2, "source QP"),
            (3, "five-tuple"),
        ],
    )
    .of(CC, DB_CC, "Who shares a rate limiter."),
    NvDef {
        waits_for: None,
        source: DB_HCA,
        ..choice(ROCE_CONTROL, &[(0, "default"), (ROCE_OFF, "off"), (2, "on")])
    }
    .help("Whether adapters have an RDMA function; the default is on.")
    .default(0),
    number("ROCE_RTT_RESP_DSCP", 0, 63, "DSCP").of(
        CC,
        "mstflint mlxconfig_dbs host.db, nv_roce_conf",
        "DSCP of answers to round-trip probes.",
    ),
    choice(
        "ROCE_RTT_RESP_DSCP_MODE",
        &[(0, "default"), (1, "fixed"), (2, "from the packet")],
    )
    .of(
        CC,
        "mstflint mlxconfig_dbs host.db, nv_roce_conf",
        "Where the DSCP of answers to round-trip probes comes from.",
    ),
    number("RPG_AI_RATE", 0, u32::MAX, "Mbit/s").help("Additive increase."),
    number("RPG_BYTE_RESET", 0, u32::MAX, "bytes").help("Bytes between increases; 0: they do not count."),
    number("RPG_GD", 0, 15, "log2").help("Divisor of a cut."),
    number("RPG_HAI_RATE", 0, u32::MAX, "Mbit/s").help("Hyper increase."),
    number("RPG_MAX_RATE", 0, u32::MAX, "Mbit/s").help("A limiter ends at this rate; 0: that of the port."),
    number("RPG_MIN_DEC_FAC", 1, 100, "percent").help("What a cut leaves at least."),
    number("RPG_MIN_RATE", 0, u32::MAX, "Mbit/s").help("Lowest rate."),
    number("RPG_THRESHOLD", 0, 31, "stages").help("Stages of fast recovery."),
    number("RPG_TIME_RESET", 0, U17, "us").help("Time between increases."),
    flag("SRIOV_EN").of(PCI, DB_PCI, "The device has virtual functions."),
    NvDef {
        waits_for: None,
        source: SEED_ECE,
        ..flag(PROGRAMMABLE)
    }
    .help("1: congestion control of the user's own (vnicctl cc load); valid while ROCE_CC_LEGACY_DCQCN is 0.")
    .default(0),
    NvDef {
        waits_for: None,
        source: "WinOF-2 Ethernet Network, Wake-on-LAN",
        ..flag(WOL_MAGIC)
    }
    .help("1: a magic packet for a guest that does not run is an event, and wakes it as its adapter says (vnicctl adapter set --wake).")
    .default(1),
];
