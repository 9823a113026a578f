//! VLAN membership of an adapter, a port or a team.

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::VlanMode;

use super::diagnostics::Sink;
use super::reader::Numbers;
use crate::check;

/// `vlan`.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct VlanTable {
    access: Option<Spanned<i64>>,
    trunk: Option<Spanned<Numbers>>,
    native: Option<Spanned<i64>>,
}

/// Reads a VLAN membership.
pub(super) fn vlan(sink: &Sink<'_>, table: Option<Spanned<VlanTable>>) -> VlanMode {
    let Some(table) = table else {
        return VlanMode::default();
    };
    let (at, table) = (table.span(), table.into_inner());
    if table.access.is_some() && (table.trunk.is_some() || table.native.is_some()) {
        sink.wrong(
            &at,
            "either access = VLAN, or trunk = [VLAN, …] or \"all\" with native = VLAN is allowed, not both",
        );
    }
    let native = sink.check(table.native, check::vlan_id).unwrap_or(1);
    let trunk = sink.check(table.trunk, |trunk| match trunk {
        Numbers::Text(text) if text == "all" => Ok(None),
        Numbers::Text(text) => Err(format!("{text:?}: \"all\" or a list of VLANs is allowed")),
        Numbers::List(ids) => ids
            .into_iter()
            .map(check::vlan_id)
            .collect::<Result<_, _>>()
            .map(Some),
    });
    match sink.check(table.access, check::vlan_id) {
        Some(access) => VlanMode::Access(access),
        None => VlanMode::Trunk {
            native,
            allowed: trunk.flatten(),
        },
    }
}
