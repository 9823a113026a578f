//! The control virtqueue of the Ethernet function (virtio 1.3 section 5.1.6.5): what a driver may ask for, and what follows.
//! Sans-I/O: bytes of a command come in, an answer and the state that acts go out.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vnic_wire::MacAddr;

use super::feature as f;
use super::filter::{Filter, Mode};
use super::steering::{KEY_MAX, Rss, TABLE_MAX, Toeplitz, hash_type};

/// Bytes of the longest command that is read: tables of some 1,300 addresses.
pub const COMMAND_MAX: usize = 8192;
/// Acknowledgement of a command that was carried out.
pub const OK: u8 = 0;
/// Acknowledgement of a command that was refused; nothing has changed.
pub const ERR: u8 = 1;

/// Classes of commands.
pub mod class {
    /// Receive modes.
    pub const RX: u8 = 0;
    /// Addresses: table 0, own address 1.
    pub const MAC: u8 = 1;
    /// VLANs: add 0, remove 1.
    pub const VLAN: u8 = 2;
    /// Acknowledgement of an announcement: 0.
    pub const ANNOUNCE: u8 = 3;
    /// Queue pairs 0, RSS 1, hash report 2.
    pub const MQ: u8 = 4;
    /// Offloads that the driver accepts: 0.
    pub const GUEST_OFFLOADS: u8 = 5;
    /// Coalescing of notifications: all transmit queues 0, all receive queues 1, one queue 2, query 3.
    pub const NOTF_COAL: u8 = 6;
    /// Hashes over the packets in tunnels: types of tunnels 0.
    pub const HASH_TUNNEL: u8 = 7;
    /// Statistics: what there is 0, values 1.
    pub const STATS: u8 = 8;
}

/// Types of statistics (virtio 1.3 section 5.1.6.5.9), as bits; a reply has the index.
pub mod stats {
    /// Receive queue: notifications, packets, bytes, interrupts, drops, drops for want of buffers.
    pub const RX_BASIC: u64 = 1 << 0;
    /// Transmit queue: notifications, packets, bytes, interrupts, drops, malformed.
    pub const TX_BASIC: u64 = 1 << 16;
    /// Control queue: commands, commands carried out.
    pub const CVQ: u64 = 1 << 32;
}

/// Coalescing of a queue's notifications: one is sent when either is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coalescing {
    /// Frames.
    pub packets: u32,
    /// Time since the first frame without a notification, in microseconds.
    pub usecs: u32,
}

/// What a command has changed, and the device has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Filter, queue pairs, RSS, or tunnels.
    Receive,
    /// Offloads that the driver accepts.
    Offloads,
    /// Coalescing of some queues.
    Coalescing,
    /// The guest has announced itself.
    Announced,
}

/// What the rest of the device knows.
pub trait Device {
    /// Whether the guest may take this address for its own.
    fn may_be(&self, mac: MacAddr) -> bool;
    /// Six values of a queue, by its index among the virtqueues: [`stats::RX_BASIC`] or [`stats::TX_BASIC`].
    fn values(&self, queue: u16) -> [u64; 6];
}

/// State of a driver's control queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Negotiated features.
    features: u64,
    /// Queue pairs of the device.
    pairs_max: u16,
    /// Types of tunnels that the driver may have looked into.
    tunnels_max: u32,
    /// Queue pairs in use.
    pub pairs: u16,
    /// Frames that the guest wants.
    pub filter: Filter,
    /// RSS, once the driver has set it.
    pub rss: Option<Rss>,
    /// Hash that is reported with each frame, once the driver has chosen types.
    pub report: Option<Arc<Toeplitz>>,
    /// Types of tunnels whose inner packets are hashed; `None`: the driver does not know that there is a choice.
    pub tunnels: Option<u32>,
    /// GUEST_* features that act.
    pub offloads: u64,
    /// Coalescing by virtqueue.
    pub coalescing: Vec<Coalescing>,
    /// Commands, and those that were carried out.
    pub commands: [u64; 2],
}

/// Features of offloads that a driver can turn off.
const OFFLOADS: u64 =
    f::GUEST_CSUM | f::GUEST_TSO4 | f::GUEST_TSO6 | f::GUEST_ECN | f::GUEST_USO4 | f::GUEST_USO6 | f::RSC_EXT;

/// Takes bytes off a command's front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[b]| b)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A table of addresses: number, addresses.
    fn addresses(&mut self) -> Option<&'a [[u8; 6]]> {
        let n = self.u32()? as usize;
        self.bytes(n.checked_mul(6)?).map(|bytes| bytes.as_chunks().0)
    }

    /// The command must end here.
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Control {
    /// The state after a reset, for a driver with these features, that may choose among these types of tunnels.
    pub fn new(features: u64, pairs_max: u16, mac: MacAddr, tunnels_max: u32) -> Control {
        Control {
            features,
            pairs_max,
            tunnels_max,
            pairs: 1,
            filter: Filter::new(mac, features & f::CTRL_VLAN != 0),
            rss: None,
            report: None,
            tunnels: (features & f::HASH_TUNNEL != 0).then_some(0),
            offloads: features & OFFLOADS,
            coalescing: [Coalescing::default()].repeat(2 * usize::from(pairs_max)),
            commands: [0; 2],
        }
    }

    /// A driver runs whose commands were lost with an earlier life of the device: it gets all frames, on all of its queues.
    pub fn forgotten(features: u64, pairs_max: u16, mac: MacAddr, tunnels_max: u32) -> Control {
        Control {
            pairs: pairs_max,
            ..Control::new(features, pairs_max, mac, tunnels_max)
        }
    }

    /// Negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Carries out a command: class, command, data. Appends acknowledgement and result to `reply`. `None`: nothing has changed.
    pub fn command(&mut self, bytes: &[u8], device: &impl Device, reply: &mut Vec<u8>) -> Option<Change> {
        let at = reply.len();
        reply.push(OK);
        self.commands[0] += 1;
        let done = self.carry_out(&mut Fields(bytes), device, reply);
        match done {
            Some(change) => {
                self.commands[1] += 1;
                change
            }
            None => {
                reply.truncate(at);
                reply.push(ERR);
                None
            }
        }
    }

    /// `None`: refused.
    fn carry_out(
        &mut self,
        c: &mut Fields<'_>,
        device: &impl Device,
        reply: &mut Vec<u8>,
    ) -> Option<Option<Change>> {
        let change = match (c.u8()?, c.u8()?) {
            (class::RX, command) => {
                let needs = if command < 2 { f::CTRL_RX } else { f::CTRL_RX_EXTRA };
                let (mode, on) = (Mode::of(command)?, c.u8()?);
                (self.has(needs) && on < 2).then_some(())?;
                c.end()?;
                self.filter.set(mode, on == 1);
                Change::Receive
            }
            (class::MAC, 0) if self.has(f::CTRL_RX) => {
                let (unicast, multicast) = (c.addresses()?, c.addresses()?);
                c.end()?;
                let [unicast, multicast] =
                    [unicast, multicast].map(|table| table.iter().map(|a| MacAddr(*a)));
                self.filter.set_addresses(unicast, multicast);
                Change::Receive
            }
            (class::MAC, 1) if self.has(f::CTRL_MAC_ADDR) => {
                let mac = MacAddr(c.array()?);
                c.end()?;
                (!mac.is_multicast() && mac.0 != [0; 6] && device.may_be(mac)).then_some(())?;
                self.filter.mac = mac;
                Change::Receive
            }
            (class::VLAN, add @ 0..=1) if self.has(f::CTRL_VLAN) => {
                let id = c.u16()?;
                c.end()?;
                self.filter.set_vlan(id, add == 0).then_some(Change::Receive)?
            }
            (class::ANNOUNCE, 0) if self.has(f::GUEST_ANNOUNCE) => {
                c.end()?;
                Change::Announced
            }
            (class::MQ, 0) if self.has(f::MQ) => {
                let pairs = c.u16()?;
                c.end()?;
                (1..=self.pairs_max).contains(&pairs).then_some(())?;
                (self.pairs, self.rss) = (pairs, None);
                Change::Receive
            }
            (class::MQ, 1) if self.has(f::RSS) => {
                self.set_rss(c)?;
                Change::Receive
            }
            (class::MQ, 2) if self.has(f::HASH_REPORT) => {
                let types = c.u32()?;
                let _reserved: [u8; 8] = c.array()?;
                let hash = Self::hash(types, c)?;
                self.report = (types != 0).then(|| Arc::new(hash));
                Change::Receive
            }
            (class::GUEST_OFFLOADS, 0) if self.has(f::CTRL_GUEST_OFFLOADS) => {
                let offloads = c.u64()?;
                c.end()?;
                (offloads & !(self.features & OFFLOADS) == 0).then_some(())?;
                self.offloads = offloads;
                Change::Offloads
            }
            (class::NOTF_COAL, kind @ 0..=1) if self.has(f::NOTF_COAL) => {
                let all = Self::coalescing(c)?;
                c.end()?;
                // Receive queues have even indexes.
                let queues = self.coalescing.iter_mut().skip(usize::from(kind == 0)).step_by(2);
                queues.for_each(|queue| *queue = all);
                Change::Coalescing
            }
            (class::NOTF_COAL, kind @ 2..=3) if self.has(f::VQ_NOTF_COAL) => {
                let queue = c.u16()?;
                let queue = self.coalescing.get_mut(usize::from(queue))?;
                let _reserved = c.u16()?;
                if kind == 3 {
                    // (A driver may leave room for the values, which the answer has.)
                    matches!(c.0.len(), 0 | 8).then_some(())?;
                    reply.extend(queue.packets.to_le_bytes());
                    reply.extend(queue.usecs.to_le_bytes());
                    return Some(None);
                }
                let asked = Self::coalescing(c)?;
                c.end()?;
                *queue = asked;
                Change::Coalescing
            }
            (class::HASH_TUNNEL, 0) if self.has(f::HASH_TUNNEL) => {
                let types = c.u32()?;
                c.end()?;
                (types & !self.tunnels_max == 0).then_some(())?;
                self.tunnels = Some(types);
                Change::Receive
            }
            (class::STATS, 0) if self.has(f::DEVICE_STATS) => {
                c.end()?;
                reply.extend((stats::RX_BASIC | stats::TX_BASIC | stats::CVQ).to_le_bytes());
                return Some(None);
            }
            (class::STATS, 1) if self.has(f::DEVICE_STATS) => {
                while !c.0.is_empty() {
                    let queue = c.u16()?;
                    let _reserved: [u8; 6] = c.array()?;
                    self.statistics(queue, c.u64()?, device, reply)?;
                }
                return Some(None);
            }
            _ => return None,
        };
        Some(Some(change))
    }

    fn coalescing(c: &mut Fields<'_>) -> Option<Coalescing> {
        Some(Coalescing {
            packets: c.u32()?,
            usecs: c.u32()?,
        })
    }

    /// Length of the key, key: the end of a command.
    fn hash(types: u32, c: &mut Fields<'_>) -> Option<Toeplitz> {
        let n = usize::from(c.u8()?);
        let key = c.bytes(n)?;
        c.end()?;
        (types & !hash_type::ALL == 0 && n <= KEY_MAX).then(|| Toeplitz::new(types, key))
    }

    fn set_rss(&mut self, c: &mut Fields<'_>) -> Option<()> {
        let types = c.u32()?;
        let entries = usize::from(c.u16()?) + 1;
        (entries <= TABLE_MAX).then_some(())?;
        let pairs_max = self.pairs_max;
        let pair = |id: [u8; 2]| {
            let id = u16::from_le_bytes(id);
            (id < pairs_max).then_some(id as u8)
        };
        let unclassified = pair(c.array()?)?;
        let table = c.bytes(2 * entries)?.as_chunks().0;
        let table: Vec<u8> = table.iter().map(|id| pair(*id)).collect::<Option<_>>()?;
        let pairs = c.u16()?;
        (1..=pairs_max).contains(&pairs).then_some(())?;
        let rss = Rss::new(Self::hash(types, c)?, table, unclassified)?;
        if self.has(f::HASH_REPORT) {
            self.report = Some(Arc::new(rss.hash.clone()));
        }
        self.rss = Some(rss);
        // (The field names transmit queues; a pair whose receive queue is in the table runs all the same.)
        self.pairs = pairs;
        Some(())
    }

    /// Appends statistics of a queue to a reply. `None`: it has none of a type.
    fn statistics(&self, queue: u16, types: u64, device: &impl Device, reply: &mut Vec<u8>) -> Option<()> {
        let of_control = queue == 2 * self.pairs_max;
        let has = match queue {
            _ if of_control => stats::CVQ,
            q if q > 2 * self.pairs_max => return None,
            q if q.is_multiple_of(2) => stats::RX_BASIC,
            _ => stats::TX_BASIC,
        };
        (types & !has == 0).then_some(())?;
        if types == 0 {
            return Some(());
        }
        let six = device.values(queue);
        let values: &[u64] = if of_control { &self.commands } else { &six };
        let mut header = [0; 8];
        header[0] = has.trailing_zeros() as u8;
        header[2..4].copy_from_slice(&queue.to_le_bytes());
        header[6..8].copy_from_slice(&(8 + 8 * values.len() as u16).to_le_bytes());
        reply.extend(header);
        reply.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        // One command names each queue once or so: a driver cannot make replies of any length.
        (reply.len() <= COMMAND_MAX).then_some(())
    }
}

#[cfg(test)]
mod tests;
