//! A QoS policy that was read. The source of all that it means is OpenSM's "QoS Management in OpenSM" (its sections are named with
//! each type).

use alloc::string::String;
use alloc::vec::Vec;

use super::ranges::Ranges;

/// A policy: what a path gets. Groups and levels are known by their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Groups of ports (`port-groups`).
    pub groups: Vec<PortGroup>,
    /// How tables are to be set up (`qos-setup`).
    pub setup: Setup,
    /// What a path may get (`qos-levels`, and a level for each service level that `qos-ulps` names).
    pub levels: Vec<Level>,
    /// Which path gets what: those of `qos-match-rules`, then those of `qos-ulps`. The first that matches counts.
    pub rules: Vec<Rule>,
    /// Level of paths that no rule matches: the one with the name DEFAULT, or that of `default` in `qos-ulps`.
    pub default: usize,
}

/// Ports that share a rule (`port-group`): those that at least one of these names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortGroup {
    /// Line of its begin.
    pub line: u32,
    /// Its name. Letters' case and blanks make no difference.
    pub name: String,
    /// What it is for (`use`).
    pub description: String,
    /// Port GUIDs (`port-guid`).
    pub guids: Ranges,
    /// NodeDescriptions and numbers of ports (`port-name`, such as `vf0/P1`).
    pub ports: Vec<(String, u8)>,
    /// P_Keys without the bit of full members (`pkey`): ports that are a member of one of them.
    pub pkeys: Ranges,
    /// Names of partitions (`partition`).
    pub partitions: Vec<String>,
    /// Channel adapters (`node-type: CA`).
    pub adapters: bool,
    /// Switches.
    pub switches: bool,
    /// Routers.
    pub routers: bool,
    /// The port of the subnet manager (`SELF`).
    pub manager: bool,
}

/// What a path gets (`qos-level`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Level {
    /// Line of its begin.
    pub line: u32,
    /// Its name, compared as that of a group.
    pub name: String,
    /// What it is for (`use`).
    pub description: String,
    /// Service level, 0 to 15 (`sl`).
    pub sl: u8,
    /// Code of the largest MTU, 1 to 5 (`mtu-limit`).
    pub mtu: Option<u8>,
    /// Code of the fastest rate, 2 to 24 (`rate-limit`).
    pub rate: Option<u8>,
    /// Packet lifetime as log2 of 4.096 µs, 0 to 63 (`packet-life`).
    pub packet_life: Option<u8>,
    /// P_Keys that a path may have, without the bit of full members (`pkey`); none: any.
    pub pkeys: Ranges,
    /// Path bits are given (`path-bits`). OpenSM and this subnet leave them out.
    pub path_bits: bool,
}

/// Which path has a level (`qos-match-rule`, or a line of `qos-ulps`): one for which all that is given holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Line of its begin.
    pub line: u32,
    /// What it is for (`use`); of a line of `qos-ulps` what it says.
    pub description: String,
    /// Groups of which the source is in one (`source`); empty: any source.
    pub sources: Vec<usize>,
    /// Groups of which the destination is in one (`destination`); empty: any.
    pub destinations: Vec<usize>,
    /// QoS classes (`qos-class`); empty: any query, also one without.
    pub classes: Ranges,
    /// Service-IDs (`service-id`), likewise.
    pub services: Ranges,
    /// P_Keys without the bit of full members (`pkey`), likewise.
    pub pkeys: Ranges,
    /// Its P_Keys are IPoIB's.
    pub ipoib: bool,
    /// The level.
    pub level: usize,
}

impl Rule {
    /// Whether it matches all paths.
    pub fn unconditional(&self) -> bool {
        let Rule {
            sources,
            destinations,
            classes,
            services,
            pkeys,
            ..
        } = self;
        sources.is_empty()
            && destinations.is_empty()
            && [classes, services, pkeys].iter().all(|ranges| ranges.is_empty())
    }
}

/// Tables of switches and channel adapters (`qos-setup`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Arbitration between virtual lanes (`vlarb-tables`).
    pub arbitration: Vec<VlArbScope>,
    /// Virtual lanes of service levels (`sl2vl-tables`).
    pub lanes: Vec<Sl2VlScope>,
}

/// Arbitration tables of some ports (`vlarb-scope`; IBTA volume 1, 7.6.9).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VlArbScope {
    /// Line of its begin.
    pub line: u32,
    /// Groups of these ports (`group`).
    pub groups: Vec<usize>,
    /// Groups of ports that these ports are linked to (`across`).
    pub across: Vec<usize>,
    /// High priority: virtual lane 0 to 14, and weight in units of 64 bytes (`vlarb-high`).
    pub high: Vec<(u8, u8)>,
    /// Low priority (`vlarb-low`).
    pub low: Vec<(u8, u8)>,
    /// Units of 4096 bytes of high priority before low priority has its turn (`vl-high-limit`); 255: no limit.
    pub high_limit: Option<u8>,
}

/// A table of virtual lanes by service level for some ports (`sl2vl-scope`; IBTA volume 1, 7.6.6).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sl2VlScope {
    /// Line of its begin.
    pub line: u32,
    /// Groups of nodes (`group`).
    pub groups: Vec<usize>,
    /// Groups at the other end of the link by which a packet comes (`across-from`, `across`).
    pub across_from: Vec<usize>,
    /// Groups at the other end of the link by which it leaves (`across-to`, `across`).
    pub across_to: Vec<usize>,
    /// Ports by which a packet comes (`from`), 0 to 127.
    pub from: Ranges,
    /// Ports by which it leaves (`to`).
    pub to: Ranges,
    /// Virtual lane by service level; 15: such packets are dropped.
    pub table: [u8; 16],
}

/// Whether two names are the same: letters' case and blanks make no difference.
pub fn same(a: &str, b: &str) -> bool {
    letters(a).eq(letters(b))
}

fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    let solid = text.chars().filter(|c| !c.is_whitespace());
    solid.map(|c| c.to_ascii_lowercase())
}
