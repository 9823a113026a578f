//! What is done by fields of headers: words that an adapter's settings and the switch share. The numbers are those of the keys
//! (WinOF-2 Ethernet Network) and of register QPTS.

/// Which field of a received frame names its priority (`RxTrustedState`; register QPTS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Trust {
    /// None: all frames have the port's default priority.
    Port = 0,
    /// The priority code point of a tag; without one, the port's default priority.
    #[default]
    Pcp = 1,
    /// The DSCP of an IP packet; otherwise the port's default priority.
    Dscp = 2,
    /// The DSCP of an IP packet, otherwise the priority code point, otherwise the port's default priority.
    Both = 3,
}

/// What happens to lossy packets for a guest that does not keep up (`CongestionAction`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintAction {
    /// Nothing.
    Off = 0,
    /// They are dropped.
    Drop = 1,
    /// They are marked (ECN congestion experienced), or dropped where they cannot be.
    #[default]
    Mark = 2,
}

/// How eagerly packets are marked or dropped for such a guest (`CongestionMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HintMode {
    /// From a low fill on, all of them.
    Aggressive = 0,
    /// More of them the fuller the receive buffer is.
    #[default]
    Dynamic = 1,
}
