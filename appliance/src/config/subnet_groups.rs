//! `[[subnet.group]]` tables of the configuration file. Keys are the options of `vnicctl subnet group create`.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::subnet::{self, GROUPS_MAX, GroupSpec, Groups};

use super::diagnostics::Sink;
use super::keys::{Keys, number, text};
use super::taken::{limit, name_once};
use crate::check::{self, Checked, subnet_group as values};

/// `[[subnet.group]]`.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SubnetGroupTable {
    name: Option<Spanned<String>>,
    partition: Option<Spanned<String>>,
    mgid: Option<Spanned<String>>,
    qkey: Option<Spanned<i64>>,
    mtu: Option<Spanned<i64>>,
    rate_mbps: Option<Spanned<i64>>,
    sl: Option<Spanned<i64>>,
    lifetime: Option<Spanned<i64>>,
}

/// Reads the tables `[[subnet.group]]`.
pub(super) fn subnet_groups(
    sink: &Sink<'_>,
    mut tables: Vec<Spanned<SubnetGroupTable>>,
) -> Vec<(String, GroupSpec)> {
    limit(sink, &mut tables, GROUPS_MAX, "multicast groups");
    let (mut names, mut groups) = (BTreeMap::new(), Groups::default());
    let read = tables.into_iter().filter_map(|table| {
        let (at, table) = (table.span(), table.into_inner());
        group(sink, &at, table, &mut names, &mut groups)
    });
    read.collect()
}

/// Reads a table. `names` and `groups`: of the tables before it.
fn group(
    sink: &Sink<'_>,
    at: &Range<usize>,
    table: SubnetGroupTable,
    names: &mut BTreeMap<String, usize>,
    groups: &mut Groups,
) -> Option<(String, GroupSpec)> {
    let name = name_once(sink, at, table.name, names, "multicast groups");
    let pkey = sink.text(sink.required(at, "partition", table.partition), check::pkey);
    let mgid = sink.text(table.mgid, |text| {
        let address = text.parse::<Ipv6Addr>();
        address.map_err(|_| format!("{text:?} is no IPv6 address"))
    });
    let value = |value: Option<Spanned<i64>>, check: fn(u32) -> Checked<u8>, default: Checked<u8>| {
        let check = |value| check(u32::try_from(value).map_err(|_| format!("{value} is out of range"))?);
        match value {
            None => default.ok(),
            value => sink.check(value, check),
        }
    };
    let mtu = value(table.mtu, values::mtu, values::mtu(values::MTU_DEFAULT));
    let rate = value(table.rate_mbps, values::rate, values::rate(values::RATE_DEFAULT));
    let sl = value(table.sl, values::service_level, Ok(0));
    let packet_life = value(table.lifetime, values::lifetime, Ok(values::LIFETIME_DEFAULT));
    let qkey = match table.qkey {
        None => Some(values::QKEY_DEFAULT),
        qkey => sink.check(qkey, |v| {
            u32::try_from(v).map_err(|_| format!("{v} is out of range: 0 to 0x7fffffff"))
        }),
    };
    let (name, pkey) = (name?, pkey?);
    let spec = GroupSpec {
        mgid: mgid.map_or_else(|| GroupSpec::broadcast_gid(pkey), Into::into),
        pkey,
        qkey: qkey?,
        mtu: mtu?,
        rate: rate?,
        packet_life: packet_life?,
        sl: sl?,
    };
    if let Err(error) = groups.create(&name, spec.clone()) {
        let key = match error.field().unwrap_or("name") {
            "pkey" => "partition",
            key => key,
        };
        sink.wrong_key(at, key, error.to_string());
        return None;
    }
    Some((name, spec))
}

/// Keys of a group's table.
pub(super) fn keys(name: &str, spec: &GroupSpec) -> Keys {
    let mut keys = Keys::default();
    keys.must("name", text(name));
    keys.must("partition", text(format!("{:#06x}", spec.pkey)));
    let broadcast = GroupSpec::broadcast_gid(spec.pkey);
    keys.plain("mgid", text(spec.mgid), text(broadcast));
    keys.plain("qkey", number(spec.qkey), number(values::QKEY_DEFAULT));
    let mtu = subnet::mtu_bytes(spec.mtu).unwrap_or_default();
    keys.plain("mtu", number(mtu), number(values::MTU_DEFAULT));
    let rate = subnet::rate_mbps(spec.rate).unwrap_or_default();
    keys.plain("rate_mbps", number(rate), number(values::RATE_DEFAULT));
    keys.plain("sl", number(spec.sl), number(0));
    let lifetime = number(values::LIFETIME_DEFAULT);
    keys.plain("lifetime", number(spec.packet_life), lifetime);
    keys
}
