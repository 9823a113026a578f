//! Values that several messages have in common.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use vnic_backend::{GidKind, GidSetting, VlanMode};
use vnic_control::v1;

use crate::check::{self, Violations};

/// A point in time.
pub fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    time.into()
}

/// A span of time; one above the greatest `google.protobuf.Duration` becomes the greatest.
pub fn duration(d: Duration) -> prost_types::Duration {
    d.try_into().unwrap_or(prost_types::Duration {
        seconds: 315_576_000_000,
        nanos: 0,
    })
}

/// A span of time of a message; `None`: it is negative. (Prost's conversion panics for the least of all, where sums are checked.)
pub fn span(of: prost_types::Duration) -> Option<Duration> {
    (of.seconds >= 0).then(|| of.try_into().ok()).flatten()
}

/// A number of things; one above the greatest `uint32` becomes the greatest.
pub fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The eight bits of a mask.
pub fn bits(mask: u8) -> Vec<bool> {
    (0..8).map(|bit| mask & 1 << bit != 0).collect()
}

/// Mode of a file, in octal digits.
pub fn mode(mode: u32) -> String {
    format!("{mode:04o}")
}

/// VLAN membership.
pub fn vlan(mode: &VlanMode) -> v1::Vlan {
    let mode = match mode {
        VlanMode::Access(vlan) => v1::vlan::Mode::Access(v1::AccessVlan {
            vlan: u32::from(*vlan),
        }),
        VlanMode::Trunk { native, allowed } => v1::vlan::Mode::Trunk(v1::TrunkVlan {
            native: u32::from(*native),
            allowed: allowed.as_ref().map(|set| v1::VlanSet {
                vlans: set.iter().map(|v| u32::from(*v)).collect(),
            }),
        }),
    };
    v1::Vlan { mode: Some(mode) }
}

/// VLAN membership of a request; `field` is the path for errors.
pub fn vlan_mode(vlan: Option<&v1::Vlan>, field: &str, wrong: &mut Violations) -> Option<VlanMode> {
    match vlan.and_then(|v| v.mode.as_ref()) {
        None => Some(VlanMode::default()),
        Some(v1::vlan::Mode::Access(access)) => wrong
            .check(
                format!("{field}.access.vlan"),
                check::vlan_id(i64::from(access.vlan)),
            )
            .map(VlanMode::Access),
        Some(v1::vlan::Mode::Trunk(trunk)) => {
            let native = match trunk.native {
                0 => Some(default_native_vlan()),
                v => wrong.check(format!("{field}.trunk.native"), check::vlan_id(i64::from(v))),
            };
            let allowed = match &trunk.allowed {
                None => Some(None),
                Some(set) => {
                    let checked: Vec<Option<u16>> = set
                        .vlans
                        .iter()
                        .enumerate()
                        .map(|(i, v)| {
                            wrong.check(
                                format!("{field}.trunk.allowed.vlans[{i}]"),
                                check::vlan_id(i64::from(*v)),
                            )
                        })
                        .collect();
                    checked.into_iter().collect::<Option<BTreeSet<u16>>>().map(Some)
                }
            };
            Some(VlanMode::Trunk {
                native: native?,
                allowed: allowed?,
            })
        }
    }
}

fn default_native_vlan() -> u16 {
    match VlanMode::default() {
        VlanMode::Trunk { native, .. } => native,
        VlanMode::Access(vlan) => vlan,
    }
}

/// Reads a GID of a request.
pub fn gid_setting(gid: &v1::Gid, wrong: &mut Violations) -> Option<GidSetting> {
    let address = match gid.gid.as_str() {
        "" => {
            wrong.add(
                "gid.gid",
                "required: an IPv6 address such as 2001:db8::1, or an IPv4 address",
            );
            None
        }
        text => wrong.check("gid.gid", check::gid(text)),
    };
    let kind = match v1::gid::Version::try_from(gid.version) {
        Ok(v1::gid::Version::Unspecified | v1::gid::Version::RoceV2) => Some(GidKind::RoceV2),
        Ok(v1::gid::Version::RoceV1) => Some(GidKind::RoceV1),
        Err(_) => {
            wrong.add(
                "gid.version",
                format!("{} is unknown: VERSION_ROCE_V1 or VERSION_ROCE_V2", gid.version),
            );
            None
        }
    };
    let vlan = match gid.vlan {
        0 => Some(None),
        vlan => wrong.check("gid.vlan", check::vlan_id(i64::from(vlan))).map(Some),
    };
    Some(GidSetting {
        gid: address?,
        kind: kind?,
        vlan: vlan?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_span_of_a_message_is_negative() {
        let of = |seconds, nanos| span(prost_types::Duration { seconds, nanos });
        assert_eq!(of(1, 5), Some(Duration::new(1, 5)));
        assert_eq!(of(0, 0), Some(Duration::ZERO));
        for (seconds, nanos) in [(-1, 0), (0, -1), (i64::MIN, 0), (i64::MIN, i32::MIN)] {
            assert_eq!(of(seconds, nanos), None);
        }
        assert!(of(i64::MAX, i32::MAX).is_some());
    }
}
