//! The notification point: when a marked packet makes a congestion notification packet go back (IBTA annex A17.9.3; DCQCN,
//! SIGCOMM 2015, section 3.1; DCQCN+, ICNP 2018).

use core::time::Duration;

/// What shares one spacing of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Scope {
    /// Each queue pair, as in the paper.
    #[default]
    Qp,
    /// Each pair of addresses.
    IpPair,
    /// Each address that is notified.
    DestinationIp,
    /// All of the port.
    Port,
}

/// Where a notification takes its priority from (`DcqcnCnpPrioMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CnpPriority {
    /// This one (`DcqcnCnp802pPrio`).
    Fixed(u8),
    /// That of the marked packet.
    Copied,
}

/// How marked packets are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What shares one spacing.
    pub scope: Scope,
    /// Least time between two notifications (`min_time_between_cnps`); zero: each marked packet makes one.
    pub spacing: Duration,
    /// A mark within that time makes a notification at its end (the paper's rule); otherwise it is forgotten.
    pub trailing: bool,
    /// DSCP of notifications (`DcqcnCnpDscp`).
    pub dscp: u8,
    /// Their ECN field, 0..=3.
    pub ecn: u8,
    /// Their priority.
    pub priority: CnpPriority,
    /// DCQCN+: time that it takes to make one notification; the period that is told is this times the number of congested
    /// flows, and at least 50 us. `None`: nothing is told.
    pub told: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            scope: Scope::Qp,
            spacing: Duration::from_micros(50),
            trailing: true,
            dscp: 48,
            ecn: 0,
            priority: CnpPriority::Fixed(6),
            told: None,
        }
    }
}
