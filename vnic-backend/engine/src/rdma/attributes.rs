//! Ranges of QP attributes and of addresses (IBTA 11.2.5 and 11.2.2; `ibv_modify_qp(3)`, `ibv_create_ah(3)`).

use vnic_wire::gid::Gid;
use vnic_wire::pkey::PkeyTable;

use super::gid::GidTable;
use super::limits::{Limits, in_range};
use super::types::{AddressVector, AttributeMask, QpAttributes, SOURCE_PORT_FIRST, VerbsError};

/// Checks that the values that `mask` names are within their ranges. [`super::qp::state::transition`] decides
/// which attributes belong to which transition.
pub fn check_values(
    values: &QpAttributes,
    mask: AttributeMask,
    limits: &Limits,
    gids: &GidTable,
    pkeys: &PkeyTable,
) -> Result<(), VerbsError> {
    let rd_atomic = u64::from(limits.max_rd_atomic);
    // 0xffffff is the multicast QP (IBTA 9.2): nobody is connected to it.
    let rows = [
        (
            AttributeMask::DESTINATION_QP,
            "destination QP",
            u64::from(values.destination_qp.0),
            0,
            0xff_fffe,
        ),
        (
            AttributeMask::PKEY_INDEX,
            "P_Key index",
            values.pkey_index.into(),
            0,
            u64::from(pkeys.len()) - 1,
        ),
        (
            AttributeMask::MAX_RD_ATOMIC,
            "max_rd_atomic",
            values.max_rd_atomic.into(),
            0,
            rd_atomic,
        ),
        (
            AttributeMask::MAX_DEST_RD_ATOMIC,
            "max_dest_rd_atomic",
            values.max_dest_rd_atomic.into(),
            0,
            rd_atomic,
        ),
        (
            AttributeMask::MIN_RNR_TIMER,
            "min_rnr_timer",
            values.min_rnr_timer.into(),
            0,
            31,
        ),
        (AttributeMask::PORT, "port", values.port.into(), 1, 1),
        (AttributeMask::TIMEOUT, "timeout", values.timeout.into(), 0, 31),
        (
            AttributeMask::RETRY_COUNT,
            "retry_count",
            values.retry_count.into(),
            0,
            7,
        ),
        (
            AttributeMask::RNR_RETRY,
            "rnr_retry",
            values.rnr_retry.into(),
            0,
            7,
        ),
    ];
    for (attribute, what, value, min, max) in rows {
        if mask.contains(attribute) {
            in_range(what, value, min, max)?;
        }
    }
    if mask.contains(AttributeMask::ADDRESS) {
        let address = values.address.as_ref();
        let address = address.ok_or(VerbsError::Invalid("the address is missing"))?;
        if address.dgid.is_multicast() || address.dmac.is_multicast() {
            return Err(VerbsError::Invalid("a connection's peer has a unicast address"));
        }
        check_address(address, gids)?;
    }
    if mask.contains(AttributeMask::UDP_SOURCE_PORT)
        && let Some(port) = values.udp_source_port
    {
        in_range("UDP source port", port, SOURCE_PORT_FIRST, u16::MAX)?;
    }
    Ok(())
}

/// Checks an address that packets are to be sent to. Multicast is allowed.
pub fn check_address(address: &AddressVector, gids: &GidTable) -> Result<(), VerbsError> {
    gids.get(address.sgid_index)?;
    in_range("flow label", address.flow_label, 0, 0xf_ffff)?;
    // The service level becomes the priority of a VLAN tag (annex A16): three bits.
    in_range("service level", address.service_level, 0, 15)?;
    if address.dgid == Gid::UNSPECIFIED {
        return Err(VerbsError::Invalid("the destination GID is missing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::gid::{GidEntry, GidKind};
    use super::super::types::QpNumber;
    use super::*;

    use vnic_wire::MacAddr;

    fn gids() -> GidTable {
        let mut gids = GidTable::new(4);
        let entry = GidEntry {
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            kind: GidKind::RoceV2,
            vlan: None,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
        };
        gids.set(1, Some(entry)).expect("the table is empty");
        gids
    }

    fn address() -> AddressVector {
        AddressVector {
            dgid: Gid::from_ipv4([10, 0, 0, 2]),
            dmac: MacAddr([2, 0, 0, 0, 0, 2]),
            sgid_index: 1,
            traffic_class: 255,
            flow_label: 0xf_ffff,
            hop_limit: 255,
            service_level: 7,
        }
    }

    #[test]
    fn each_value_has_a_range() {
        type Set = fn(&mut QpAttributes, u32);
        let rows: [(AttributeMask, Set, u32, u32); 9] = [
            (
                AttributeMask::DESTINATION_QP,
                |a, v| a.destination_qp = QpNumber(v),
                0,
                0xff_fffe,
            ),
            (AttributeMask::PKEY_INDEX, |a, v| a.pkey_index = v as u16, 0, 1),
            (
                AttributeMask::MAX_RD_ATOMIC,
                |a, v| a.max_rd_atomic = v as u8,
                0,
                16,
            ),
            (
                AttributeMask::MAX_DEST_RD_ATOMIC,
                |a, v| a.max_dest_rd_atomic = v as u8,
                0,
                16,
            ),
            (
                AttributeMask::MIN_RNR_TIMER,
                |a, v| a.min_rnr_timer = v as u8,
                0,
                31,
            ),
            (AttributeMask::PORT, |a, v| a.port = v as u8, 1, 1),
            (AttributeMask::TIMEOUT, |a, v| a.timeout = v as u8, 0, 31),
            (AttributeMask::RETRY_COUNT, |a, v| a.retry_count = v as u8, 0, 7),
            (AttributeMask::RNR_RETRY, |a, v| a.rnr_retry = v as u8, 0, 7),
        ];
        let limits = Limits::default();
        let pkeys = PkeyTable::new(&[0xffff, 0x8001]).expect("a table");
        for (mask, set, min, max) in rows {
            for (value, good) in [(min, true), (max, true), (max + 1, false), (0, min == 0)] {
                let mut values = QpAttributes::default();
                set(&mut values, value);
                let got = check_values(&values, mask, &limits, &gids(), &pkeys);
                assert_eq!(got.is_ok(), good, "{mask:?} {value}: {got:?}");
                // What is not meant is not looked at.
                let other = check_values(&values, AttributeMask::QKEY, &limits, &gids(), &pkeys);
                assert_eq!(other, Ok(()));
            }
        }
    }

    #[test]
    fn a_peer_has_a_unicast_address() {
        let check = |address| {
            let values = QpAttributes {
                address,
                ..QpAttributes::default()
            };
            check_values(
                &values,
                AttributeMask::ADDRESS,
                &Limits::default(),
                &gids(),
                &PkeyTable::default(),
            )
        };
        let good = address();
        let group = Gid::from_ipv4([239, 0, 0, 1]);
        assert_eq!(check(Some(good)), Ok(()));
        assert!(check(None).is_err());
        assert!(check(Some(AddressVector { dgid: group, ..good })).is_err());
        assert!(
            check(Some(AddressVector {
                dmac: MacAddr([1, 0, 0x5e, 0, 0, 1]),
                ..good
            }))
            .is_err()
        );
        assert_eq!(
            check_address(&AddressVector { dgid: group, ..good }, &gids()),
            Ok(())
        );
    }

    #[test]
    fn an_address_is_checked() {
        let good = address();
        for bad in [
            AddressVector {
                sgid_index: 0,
                ..good
            },
            AddressVector {
                sgid_index: 4,
                ..good
            },
            AddressVector {
                flow_label: 1 << 20,
                ..good
            },
            AddressVector {
                service_level: 16,
                ..good
            },
            AddressVector {
                dgid: Gid::UNSPECIFIED,
                ..good
            },
        ] {
            assert!(check_address(&bad, &gids()).is_err(), "{bad:?}");
        }
        assert_eq!(check_address(&good, &gids()), Ok(()));
    }
}
