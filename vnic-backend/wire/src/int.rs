//! In-band network telemetry as HPCC carries it: what each switch on the way wrote down about the queue that the packet left
//! by (Li et al., HPCC, SIGCOMM 2019, section 4.1 and figure 7). It is behind the UDP header and before the BTH.

/// Most hops that are written down.
pub const HOPS_MAX: usize = 5;

/// What one switch wrote down when it sent the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hop {
    /// When, in ns; 24 bits, wraps.
    pub timestamp: u32,
    /// Bytes that the port had sent, in units of 128; 20 bits, wraps.
    pub sent: u32,
    /// Bytes that waited at the port, in units of 80; 16 bits.
    pub queue: u16,
    /// Speed of the link, a code of 4 bits: see [`Hop::speed`].
    pub speed: u8,
}

/// What a packet gathers on its way; an acknowledge carries it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Telemetry {
    /// How many of `hops` count.
    pub count: u8,
    /// Numbers of the switches, XORed; 12 bits. Another one: another path.
    pub path: u16,
    /// In the order of the way.
    pub hops: [Hop; HOPS_MAX],
    /// Time that the packet waited in its receiver, in ns, of Swift's acknowledges (Kumar et al., SIGCOMM 2020, section 3.2).
    /// It is not part of HPCC's header.
    pub endpoint: u32,
}

impl Telemetry {
    /// Nothing yet.
    pub const EMPTY: Telemetry = Telemetry {
        count: 0,
        path: 0,
        hops: [Hop {
            timestamp: 0,
            sent: 0,
            queue: 0,
            speed: 0,
        }; HOPS_MAX],
        endpoint: 0,
    };

    /// A switch writes down what it knows. With no room left, only the path says so.
    pub fn push(&mut self, switch: u16, hop: Hop) {
        self.path = (self.path ^ switch) & 0xfff;
        if let Some(place) = self.hops.get_mut(usize::from(self.count)) {
            *place = hop;
            self.count += 1;
        }
    }

    /// What was written down.
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..usize::from(self.count).min(HOPS_MAX)]
    }
}
