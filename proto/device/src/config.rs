//! Configuration space, and the virtqueues.

/// First bytes of the configuration space of an RDMA function. They identify the function; the virtio device id
/// does not.
pub const MAGIC: [u8; 4] = *b"VROC";
/// Major version of the contract. Different major versions do not understand each other.
pub const ABI_MAJOR: u16 = 1;
/// Newest minor version. Minor versions only add.
pub const ABI_MINOR: u16 = 9;
/// Virtio device id (virtio 1.3, section 5: reserved for RDMA).
pub const VIRTIO_ID: u16 = 42;
/// Virtio device id of the function for a VMM that has no name for [`VIRTIO_ID`].
pub const VIRTIO_ID_ALIAS: u16 = 38;

/// Bit of the protocol features of vhost-user by which a process says that it shares the function with others.
pub const PROTOCOL_SHARES: u32 = 63;

/// Virtqueue of the commands.
pub const CONTROL_QUEUE: u16 = 0;
/// Virtqueue of the first event queue; those that carry only wake-ups follow the event queues.
pub const FIRST_EVENT_QUEUE: u16 = 1;

layouts! {
    /// Configuration space: read once, before the driver says that it is ready.
    struct Config: 64 {
        /// [`MAGIC`].
        0 magic: [u8; 4],
        /// [`ABI_MAJOR`].
        4 abi_major: u16,
        /// Newest minor version the device speaks.
        6 abi_minor: u16,
        /// Bytes of this structure that mean something: 20 in 1.0.
        8 config_len: u16,
        /// Event virtqueues: at least 1.
        10 event_queues: u16,
        /// Wake-up virtqueues: at least 1.
        12 wake_queues: u16,
        /// Ethernet address of the adapter.
        14 mac: [u8; 6],
        /// Zero.
        20 reserved: [u8; 44],
    }
}

/// [`Config::config_len`] of version 1.0.
pub const CONFIG_LEN: u16 = 20;

impl Config {
    /// Number of the virtqueue of an event queue, if there is such a queue.
    pub const fn event_virtqueue(&self, event_queue: u16) -> Option<u16> {
        if event_queue < self.event_queues {
            FIRST_EVENT_QUEUE.checked_add(event_queue)
        } else {
            None
        }
    }

    /// Number of the virtqueue of a wake-up queue, if there is such a queue.
    pub const fn wake_virtqueue(&self, wake_queue: u16) -> Option<u16> {
        if wake_queue >= self.wake_queues {
            return None;
        }
        match FIRST_EVENT_QUEUE.checked_add(self.event_queues) {
            Some(first) => first.checked_add(wake_queue),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_follow_the_events() {
        let config = Config {
            event_queues: 2,
            wake_queues: 3,
            ..Config::default()
        };
        assert_eq!(
            [0, 1, 2].map(|e| config.event_virtqueue(e)),
            [Some(1), Some(2), None]
        );
        assert_eq!(
            [0, 2, 3].map(|w| config.wake_virtqueue(w)),
            [Some(3), Some(5), None]
        );
        let wild = Config {
            event_queues: u16::MAX,
            wake_queues: u16::MAX,
            ..config
        };
        assert_eq!(wild.wake_virtqueue(0), None);
    }
}
