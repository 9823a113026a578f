//! The GID table of an adapter follows its guest's addresses.

/// Where an entry of a GID table comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GidSource {
    /// The adapter's Ethernet address.
    Mac,
    /// ARP of the guest.
    Arp,
    /// Neighbour discovery of the guest.
    Nd,
    /// A DHCP server's answer to the guest.
    Dhcp,
    /// The operator.
    Operator,
    /// The driver of the RDMA function (SPEC section 5.3, SET_GID).
    Driver,
}

impl GidSource {
    /// Every source.
    pub const ALL: [GidSource; 6] = [
        GidSource::Mac,
        GidSource::Arp,
        GidSource::Nd,
        GidSource::Dhcp,
        GidSource::Operator,
        GidSource::Driver,
    ];

    /// The name for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            GidSource::Mac => "mac",
            GidSource::Arp => "arp",
            GidSource::Nd => "nd",
            GidSource::Dhcp => "dhcp",
            GidSource::Operator => "operator",
            GidSource::Driver => "driver",
        }
    }

    /// Learned from traffic: such entries age.
    pub const fn is_learned(self) -> bool {
        matches!(self, GidSource::Arp | GidSource::Nd | GidSource::Dhcp)
    }
}

/// Why an entry cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GidError {
    /// There is no such index.
    #[error("{index}; the table has {len} entries, allowed are 0 to {}", len.saturating_sub(1))]
    Index {
        /// What was asked for.
        index: u16,
        /// Entries of the table.
        len: u16,
    },
    /// Not an address that an interface can have.
    #[error("not a unicast address: unspecified, loopback and multicast addresses belong to no interface")]
    NotUnicast,
    /// No VLAN has this number.
    #[error("{0}; allowed are 1 to 4094")]
    Vlan(u16),
    /// The same GID, kind and VLAN is at another index.
    #[error("the GID is at index {0} already")]
    Exists(u16),
    /// Nothing is at the index.
    #[error("no GID is at index {0}")]
    Empty(u16),
    /// Whoever asks may not change what is at the index.
    #[error("the entry at index {index} comes from {}; {cure}", source_of.name())]
    Held {
        /// The index.
        index: u16,
        /// Who put it there.
        source_of: GidSource,
        /// What to do instead.
        cure: &'static str,
    },
    /// No index is free.
    #[error("no entry is free: all {0} are in use")]
    Full(u16),
    /// To clear an entry one must name it.
    #[error("an index is needed to clear an entry")]
    NoIndex,
}
