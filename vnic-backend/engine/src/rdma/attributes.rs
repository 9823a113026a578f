//! Ranges of QP attributes and of addresses (IBTA 11.2.5 and 11.2.2; `ibv_modify_qp(3)`, `ibv_create_ah(3)`).

use vnic_wire::gid::Gid;

use super::gid::GidTable;
use super::limits::{Limits, in_range};
use super::types::{AddressVector, AttributeMask, QpAttributes, VerbsError};

/// Are the values that `mask` means within their ranges? What belongs to which transition is another question
/// ([`super::qp::state::transition`]).
pub fn check_values(
    values: &QpAttributes,
    mask: AttributeMask,
    limits: &Limits,
    gids: &GidTable,
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
            u64::from(limits.pkeys).saturating_sub(1),
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
    // RFC 768: 0 means that there is none, and equal-cost routing needs one.
    if mask.contains(AttributeMask::UDP_SOURCE_PORT) && values.udp_source_port == Some(0) {
        return Err(VerbsError::Invalid("UDP source port 0"));
    }
    Ok(())
}

/// Is this an address that packets can be sent to? Multicast is.
pub fn check_address(address: &AddressVector, gids: &GidTable) -> Result<(), VerbsError> {
    gids.get(address.sgid_index)?;
    in_range("flow label", address.flow_label.into(), 0, 0xf_ffff)?;
    // It becomes the priority of a VLAN tag (annex A16): three bits.
    in_range("service level", address.service_level.into(), 0, 7)?;
    if address.dgid == Gid::UNSPECIFIED {
        return Err(VerbsError::Invalid("the destination GID is missing"));
    }
    Ok(())
}
