//! Multicast groups of the subnet as `vnic.v1.SubnetGroup`: the values of a request, without those that the daemon fills in.

use std::net::Ipv6Addr;

use prost::Message as _;
use vnic_backend::subnet::{self, GroupSpec};
use vnic_control::v1;

use crate::check::{self, Violations, subnet_group as values};

/// Reads a message. `None`: a value is wrong, and was noted.
pub fn read(id: &str, group: &v1::SubnetGroup, wrong: &mut Violations) -> Option<(String, GroupSpec)> {
    let name = wrong.check("subnet_group_id", check::name(id));
    let pkey = match group.pkey {
        0 => Err("required: the P_Key of its partition".to_owned()),
        pkey => u16::try_from(pkey).map_err(|_| format!("{pkey} is out of range: 0 to 65535")),
    };
    let pkey: Option<u16> = wrong.check("subnet_group.pkey", pkey);
    let mgid = match group.mgid.as_str() {
        "" => Ok(None),
        text => text
            .parse::<Ipv6Addr>()
            .map(Some)
            .map_err(|_| format!("{text:?} is no IPv6 address")),
    };
    let mgid = wrong.check("subnet_group.mgid", mgid);
    // (0: the default, as of all numbers that a message leaves out.)
    let or = |value: u32, default| if value == 0 { default } else { value };
    let mtu = values::mtu(or(group.mtu_bytes, values::MTU_DEFAULT));
    let mtu = wrong.check("subnet_group.mtu_bytes", mtu);
    let rate = values::rate(or(group.rate_mbps, values::RATE_DEFAULT));
    let rate = wrong.check("subnet_group.rate_mbps", rate);
    let life = group.packet_lifetime.map(values::lifetime);
    let packet_life = life.unwrap_or(Ok(values::LIFETIME_DEFAULT));
    let packet_life = wrong.check("subnet_group.packet_lifetime", packet_life);
    let sl = values::service_level(group.service_level);
    let sl = wrong.check("subnet_group.service_level", sl);
    let pkey = pkey?;
    let spec = GroupSpec {
        mgid: mgid?.map_or_else(|| GroupSpec::broadcast_gid(pkey), Into::into),
        pkey,
        qkey: group.qkey.unwrap_or(values::QKEY_DEFAULT),
        mtu: mtu?,
        rate: rate?,
        packet_life: packet_life?,
        sl: sl?,
    };
    Some((name?, spec))
}

/// Message of a group, without what the daemon fills in.
pub fn message(spec: &GroupSpec) -> v1::SubnetGroup {
    v1::SubnetGroup {
        mgid: spec.mgid.to_string(),
        pkey: spec.pkey.into(),
        qkey: Some(spec.qkey),
        mtu_bytes: subnet::mtu_bytes(spec.mtu).unwrap_or_default(),
        rate_mbps: subnet::rate_mbps(spec.rate).unwrap_or_default(),
        packet_lifetime: Some(spec.packet_life.into()),
        service_level: spec.sl.into(),
        ..v1::SubnetGroup::default()
    }
}

/// Encodes a group for the store.
pub fn encode(spec: &GroupSpec) -> Vec<u8> {
    message(spec).encode_to_vec()
}

/// Decodes a row of the store.
pub fn decode(name: &str, bytes: &[u8]) -> Result<GroupSpec, String> {
    let message = v1::SubnetGroup::decode(bytes).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let read = read(name, &message, &mut wrong);
    let (_, spec) = wrong.finish(read).map_err(|wrong| wrong.to_string())?;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_stored_with_all_that_they_were_made_with() {
        let spec = GroupSpec {
            mgid: GroupSpec::broadcast_gid(0x0123),
            pkey: 0x0123,
            qkey: 0,
            mtu: 1,
            rate: 24,
            packet_life: 0,
            sl: 15,
        };
        assert_eq!(decode("blue", &encode(&spec)), Ok(spec));
        let error = decode("blue", &[0xff]).expect_err("no message");
        assert!(error.contains("unreadable"), "{error}");
    }
}
