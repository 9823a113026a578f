//! Service IDs (IBTA vol 1 annex A3), and those that RDMA CM makes of ports (annex A11).

use core::fmt;

use crate::named;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ServiceId(pub u64);

named! {
    /// Port space of RDMA CM (Linux, `enum rdma_ucm_port_space`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum PortSpace {
        /// IP over InfiniBand's own groups.
        Ipoib = 0x0002 => "IPOIB",
        /// Connections by the port numbers of TCP.
        Tcp = 0x0106 => "TCP",
        /// Datagrams by the port numbers of UDP.
        Udp = 0x0111 => "UDP",
        /// Any service of InfiniBand.
        Ib = 0x013f => "IB",
    }
}

impl ServiceId {
    /// The service ID of a port.
    pub const fn of_port(space: PortSpace, port: u16) -> ServiceId {
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// The port that the service ID is made of, if it is one of RDMA CM's.
    pub fn port(self) -> Option<(PortSpace, u16)> {
        let space = PortSpace::ALL.into_iter().find(|s| *s as u64 == self.0 >> 16)?;
        Some((space, self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) => write!(f, "{space}:{port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
