//! Commands on the control queue of an Ethernet function, and frames between them: each command is acknowledged once, a refused one
//! changes nothing, and no frame finds a queue that is not there.
use vnic_backend::{EthernetDriver, MacAddr, control};
use vnic_engine::virtio_net::steering::{Tunnels, tunnel_type};

const PAIRS: u16 = 4;

struct Adapter;

impl control::Device for Adapter {
    fn may_be(&self, mac: MacAddr) -> bool {
        mac.0[0] & 4 == 0
    }

    fn values(&self, queue: u16) -> [u64; 6] {
        [queue.into(); 6]
    }
}

/// Eight bytes of features; then a byte of length each, and a command, or with the highest bit a frame's head.
pub fn run(bytes: &[u8]) {
    let Some((features, mut rest)) = bytes.split_first_chunk() else {
        return;
    };
    let features = u64::from_le_bytes(*features);
    let mut driver = EthernetDriver::new(features, PAIRS, MacAddr([2, 0, 0, 0, 0, 1]), tunnel_type::ALL);
    while let Some((len, behind)) = rest.split_first() {
        let n = usize::from(len & 0x7f).min(behind.len());
        let (part, behind) = behind.split_at(n);
        rest = behind;
        if len & 0x80 != 0 {
            driver.filter.wants(part);
            let tunnels = Tunnels {
                types: driver.tunnels.unwrap_or(tunnel_type::ALL),
                ..Tunnels::NONE
            };
            let flow = tunnels.flow(part);
            let queue = driver.rss.as_ref().map_or(0, |rss| rss.queue(flow.as_ref()));
            assert!(u16::from(queue) < PAIRS, "queue {queue}");
            continue;
        }
        let (before, mut reply) = (driver.clone(), Vec::new());
        let change = driver.command(part, &Adapter, &mut reply);
        assert!(reply[0] == control::OK || reply == [control::ERR] && change.is_none());
        if reply[0] == control::ERR {
            driver.commands = before.commands;
            assert_eq!(driver, before, "a refused command changes nothing");
        }
        assert!((1..=PAIRS).contains(&driver.pairs));
        assert_eq!(driver.offloads & !features, 0);
    }
}
