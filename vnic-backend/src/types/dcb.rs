//! Data center bridging exchange of uplink ports.

use std::fmt;

pub use vnic_fabric::dcbx::{
    Counters as DcbxCounters, Outcome as DcbxOutcome, Parameters as DcbxParameters, Source as DcbxSource,
    Sources as DcbxSources, Version as DcbxVersion, Versions as DcbxVersions, Willing as DcbxWilling,
};
pub use vnic_wire::dcbx;

vnic_wire::named! {
    /// Version of data center bridging exchange that a port speaks (IEEE 802.1Q clause 38).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum DcbxMode {
        /// None.
        #[default]
        Off => "off",
        /// That of IEEE 802.1Qaz.
        Ieee => "ieee",
        /// That of CEE, from before.
        Cee => "cee",
        /// The peer's of both, IEEE first.
        Auto => "auto",
    }
}

impl DcbxMode {
    /// The mode of this name.
    pub fn of(name: &str) -> Option<DcbxMode> {
        DcbxMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The versions that it stands for; `None`: none.
    pub fn versions(self) -> Option<DcbxVersions> {
        match self {
            DcbxMode::Off => None,
            DcbxMode::Ieee => Some(DcbxVersions::Only(DcbxVersion::Ieee)),
            DcbxMode::Cee => Some(DcbxVersions::Only(DcbxVersion::Cee)),
            DcbxMode::Auto => Some(DcbxVersions::Both),
        }
    }
}

/// Most rows of a port's table of applications.
pub const APPLICATIONS_MAX: usize = 64;

/// What the operator wants of data center bridging exchange on a port. It acts while the port speaks and listens by link layer
/// discovery, and has quality of service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DcbxSpec {
    /// Version.
    pub mode: DcbxMode,
    /// Attributes for which the peer's values are taken.
    pub willing: DcbxWilling,
    /// Priorities of applications, of which the port tells; at most [`APPLICATIONS_MAX`].
    pub applications: Vec<dcbx::Application>,
}

/// Data center bridging exchange of a port, while it acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DcbxStatus {
    /// Attributes for which the peer's values are taken.
    pub willing: DcbxWilling,
    /// The operator's values.
    pub administrative: DcbxParameters,
    /// Values that act, and whose they are.
    pub outcome: DcbxOutcome,
    /// What the peer says, if there is one and no other.
    pub peer: Option<dcbx::Exchange>,
    /// Counters since the port was made.
    pub counters: DcbxCounters,
}

/// A row of a table of applications, as operators write it: `udp:4791=3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationRow(pub dcbx::Application);

/// Names of selectors, 1 to 5.
const SELECTORS: [&str; 5] = ["ethertype", "tcp", "udp", "port", "dscp"];

impl std::str::FromStr for ApplicationRow {
    type Err = String;

    fn from_str(text: &str) -> Result<ApplicationRow, String> {
        let wrong = || {
            let names = SELECTORS.join(", ");
            format!(
                "{text:?} is no row: SELECTOR:PROTOCOL=PRIORITY, such as udp:4791=3; selectors are {names}"
            )
        };
        let (protocol, priority) = text.split_once('=').ok_or_else(wrong)?;
        let (selector, protocol) = protocol.split_once(':').ok_or_else(wrong)?;
        let at = SELECTORS
            .iter()
            .position(|name| *name == selector)
            .ok_or_else(wrong)?;
        let most = if selector == "dscp" { 63 } else { u16::MAX };
        let number = match protocol.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok(),
            None => protocol.parse().ok(),
        };
        let protocol = number
            .filter(|n| *n <= most)
            .ok_or_else(|| format!("{protocol:?} is out of range: {selector} 0 to {most}"))?;
        let priority = priority.parse().ok().filter(|p| *p < 8);
        Ok(ApplicationRow(dcbx::Application {
            selector: at as u8 + 1,
            protocol,
            priority: priority.ok_or_else(|| format!("{text:?}: the priority is out of range: 0 to 7"))?,
        }))
    }
}

impl fmt::Display for ApplicationRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = &self.0;
        let selector = usize::from(row.selector)
            .checked_sub(1)
            .and_then(|at| SELECTORS.get(at));
        match selector {
            Some(name) if *name == "ethertype" => write!(f, "{name}:{:#06x}={}", row.protocol, row.priority),
            Some(name) => write!(f, "{name}:{}={}", row.protocol, row.priority),
            None => write!(f, "{}:{}={}", row.selector, row.protocol, row.priority),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_read() {
        for text in [
            "udp:4791=3",
            "tcp:3260=4",
            "ethertype:0x8906=3",
            "port:445=7",
            "dscp:26=3",
        ] {
            let row: ApplicationRow = text.parse().expect("a row");
            assert_eq!(row.to_string(), text);
        }
        for (text, why) in [
            ("udp:4791", "SELECTOR:PROTOCOL=PRIORITY"),
            ("roce:4791=3", "selectors are ethertype"),
            ("udp:70000=3", "0 to 65535"),
            ("dscp:64=3", "0 to 63"),
            ("udp:4791=8", "0 to 7"),
        ] {
            let refused = text.parse::<ApplicationRow>().expect_err("no row");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
