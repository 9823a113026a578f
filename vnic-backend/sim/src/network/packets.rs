//! Packets under way: a slab, by number. What each hop needs is small and lies together; what only the receiver needs lies
//! elsewhere and is written and read once.

use std::collections::BTreeMap;

use vnic_wire::int::Telemetry;
use vnic_wire::transport::Headers;

/// No telemetry.
pub const NONE: u32 = u32::MAX;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A request, with payload or without.
    Data,
    /// An acknowledge.
    Ack,
    /// A congestion notification.
    Cnp,
}

/// What each hop needs.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// The direction of a flow that it belongs to.
    pub lane: u32,
    /// Where in the list of all routes its next way is.
    pub next: u32,
    /// Bytes of the frame with FCS: what it takes in a buffer. On the wire it takes 20 more.
    pub bytes: u32,
    /// Where its telemetry is, or [`NONE`].
    pub telemetry: u32,
    /// Bytes of payload.
    pub payload: u16,
    /// Number of the port that it came by, among those of its switch.
    pub ingress: u16,
    /// ECN field.
    pub ecn: u8,
    /// Priority.
    pub priority: u8,
    /// What it is.
    pub kind: Kind,
    /// Which of its lane's ways it takes.
    pub way: u8,
}

/// Bytes that a frame takes on the wire beside its own and its FCS: preamble, start delimiter and gap (IEEE 802.3 clause 4).
pub const GAP: u32 = 20;
/// Bytes of the FCS.
pub const FCS: u32 = 4;

/// All packets.
#[derive(Debug, Default)]
pub struct Packets {
    packets: Vec<Packet>,
    headers: Vec<Headers>,
    free: Vec<u32>,
    telemetry: Vec<Telemetry>,
    telemetry_free: Vec<u32>,
    /// Payload of acknowledges, which say by it what is missing. (That of requests is the same everywhere.)
    missing: BTreeMap<u32, Vec<u8>>,
}

impl Packets {
    /// A packet begins.
    #[inline]
    pub fn add(&mut self, packet: Packet, headers: Headers) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.packets[at as usize] = packet;
                self.headers[at as usize] = headers;
                at
            }
            None => {
                self.packets.push(packet);
                self.headers.push(headers);
                (self.packets.len() - 1) as u32
            }
        }
    }

    /// A packet ends.
    #[inline]
    pub fn remove(&mut self, at: u32) {
        let telemetry = self.packets[at as usize].telemetry;
        if telemetry != NONE {
            self.telemetry_free.push(telemetry);
        }
        let packet = self.get(at);
        if packet.kind == Kind::Ack && packet.payload > 0 {
            self.missing.remove(&at);
        }
        self.free.push(at);
    }

    /// Payload of an acknowledge.
    pub fn set_missing(&mut self, at: u32, payload: Vec<u8>) {
        self.missing.insert(at, payload);
    }

    /// Payload of an acknowledge.
    pub fn missing(&self, at: u32) -> &[u8] {
        self.missing.get(&at).map_or(&[], Vec::as_slice)
    }

    /// What each hop needs.
    #[inline]
    pub fn get(&self, at: u32) -> &Packet {
        &self.packets[at as usize]
    }

    /// What each hop needs.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut Packet {
        &mut self.packets[at as usize]
    }

    /// What the receiver needs.
    #[inline]
    pub fn headers(&self, at: u32) -> &Headers {
        &self.headers[at as usize]
    }

    /// Room for telemetry.
    pub fn add_telemetry(&mut self, telemetry: Telemetry) -> u32 {
        match self.telemetry_free.pop() {
            Some(at) => {
                self.telemetry[at as usize] = telemetry;
                at
            }
            None => {
                self.telemetry.push(telemetry);
                (self.telemetry.len() - 1) as u32
            }
        }
    }

    /// Telemetry, if there is some.
    #[inline]
    pub fn telemetry(&self, at: u32) -> Option<&Telemetry> {
        self.telemetry.get(at as usize)
    }

    /// Telemetry, if there is some.
    #[inline]
    pub fn telemetry_mut(&mut self, at: u32) -> Option<&mut Telemetry> {
        self.telemetry.get_mut(at as usize)
    }

    /// Packets under way.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}
