//! Configuration space of the Ethernet function (virtio 1.3 section 5.1.4).

use vnic_wire::MacAddr;

use super::steering::{KEY_MAX, TABLE_MAX, hash_type};

/// Bytes of the space.
pub const LEN: usize = 28;

/// Status bit: the link is up.
pub const LINK_UP: u16 = 1;

/// Status bit: the driver shall announce the guest, and acknowledge that by a command (virtio 1.3 section 5.1.6.5.4).
pub const ANNOUNCE: u16 = 2;

/// What the space says of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Address of the device.
    pub mac: MacAddr,
    /// [`LINK_UP`], [`ANNOUNCE`].
    pub status: u16,
    /// Queue pairs of the device.
    pub pairs: u16,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Speed of the link, Mbit/s.
    pub speed: u32,
    /// Types of tunnels that a driver may have looked into ([`tunnel_type`](super::steering::tunnel_type)).
    pub tunnels: u32,
}

impl Config {
    /// The space, little-endian; the link is full duplex.
    pub fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..6].copy_from_slice(&self.mac.0);
        out[6..8].copy_from_slice(&self.status.to_le_bytes());
        out[8..10].copy_from_slice(&self.pairs.to_le_bytes());
        out[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        out[12..16].copy_from_slice(&self.speed.to_le_bytes());
        out[16] = 1;
        out[17] = KEY_MAX as u8;
        out[18..20].copy_from_slice(&(TABLE_MAX as u16).to_le_bytes());
        out[20..24].copy_from_slice(&hash_type::ALL.to_le_bytes());
        out[24..28].copy_from_slice(&self.tunnels.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_the_space() {
        let config = Config {
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            status: LINK_UP,
            pairs: 4,
            mtu: 9000,
            speed: 100_000,
            tunnels: 0x150,
        };
        let expected = [
            2, 0, 0, 0, 0, 9, 1, 0, 4, 0, 0x28, 0x23, 0xa0, 0x86, 1, 0, 1, 40, 128, 0, 0x3f, 0, 0, 0, 0x50,
            1, 0, 0,
        ];
        assert_eq!(config.emit(), expected);
    }
}
