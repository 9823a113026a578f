//! Names of virtio feature bits (virtio 1.3 sections 5.1.3 and 6) and of the two that vhost adds.

const NAMES: [(u8, &str); 46] = [
    (0, "CSUM"),
    (1, "GUEST_CSUM"),
    (2, "CTRL_GUEST_OFFLOADS"),
    (3, "MTU"),
    (5, "MAC"),
    (7, "GUEST_TSO4"),
    (8, "GUEST_TSO6"),
    (9, "GUEST_ECN"),
    (10, "GUEST_UFO"),
    (11, "HOST_TSO4"),
    (12, "HOST_TSO6"),
    (13, "HOST_ECN"),
    (14, "HOST_UFO"),
    (15, "MRG_RXBUF"),
    (16, "STATUS"),
    (17, "CTRL_VQ"),
    (18, "CTRL_RX"),
    (19, "CTRL_VLAN"),
    (21, "GUEST_ANNOUNCE"),
    (22, "MQ"),
    (23, "CTRL_MAC_ADDR"),
    (24, "NOTIFY_ON_EMPTY"),
    (26, "VHOST_LOG_ALL"),
    (27, "ANY_LAYOUT"),
    (28, "RING_INDIRECT_DESC"),
    (29, "RING_EVENT_IDX"),
    (30, "VHOST_PROTOCOL_FEATURES"),
    (32, "VERSION_1"),
    (33, "ACCESS_PLATFORM"),
    (34, "RING_PACKED"),
    (35, "IN_ORDER"),
    (36, "ORDER_PLATFORM"),
    (37, "SR_IOV"),
    (38, "NOTIFICATION_DATA"),
    (39, "NOTIF_CONFIG_DATA"),
    (40, "RING_RESET"),
    (41, "ADMIN_VQ"),
    (54, "GUEST_USO4"),
    (55, "GUEST_USO6"),
    (56, "HOST_USO"),
    (57, "HASH_REPORT"),
    (59, "GUEST_HDRLEN"),
    (60, "RSS"),
    (61, "RSC_EXT"),
    (62, "STANDBY"),
    (63, "SPEED_DUPLEX"),
];

/// The names of the bits that are set, lowest bit first.
pub fn names(features: u64) -> Vec<String> {
    (0..64u8)
        .filter(|bit| features >> bit & 1 == 1)
        .map(|bit| match NAMES.iter().find(|(b, _)| *b == bit) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("BIT_{bit}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_and_unknown_bits_have_names() {
        assert_eq!(
            super::names(1 << 32 | 1 << 15 | 1 << 50),
            ["MRG_RXBUF", "VERSION_1", "BIT_50"]
        );
        assert!(super::names(0).is_empty());
    }
}
