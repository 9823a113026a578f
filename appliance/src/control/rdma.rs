//! RDMA functions of adapters, and their GID tables.

use vnic_backend::{GidRow, GidSetting, GidSource, RdmaStatus};

use super::Control;
use super::refused::Refused;

/// RDMA functions.
pub struct Rdma<'a>(pub &'a Control);

/// Path of a field of [`GidSetting`] in a request.
fn path(name: &str) -> String {
    match name {
        "index" => name.to_owned(),
        other => format!("gid.{other}"),
    }
}

impl Rdma<'_> {
    /// RDMA functions of one adapter or of all, with the adapter's name. May block.
    pub fn functions(&self, only: Option<&str>) -> Result<Vec<(String, RdmaStatus)>, Refused> {
        let Some(name) = only else {
            let names = self.0.nic.adapters().into_iter().map(|a| a.spec.name);
            // An adapter that was removed meanwhile has no function.
            let found = names.filter_map(|name| Some((self.0.nic.rdma(&name).ok()??, name)));
            return Ok(found.map(|(status, name)| (name, status)).collect());
        };
        let status = self.0.nic.rdma(name).map_err(Refused::nic(str::to_owned))?;
        Ok(status
            .map(|status| (name.to_owned(), status))
            .into_iter()
            .collect())
    }

    /// Sets an entry of an adapter's GID table; without an index, the first free one. May block.
    pub fn set_gid(&self, adapter: &str, index: Option<u16>, gid: GidSetting) -> Result<GidRow, Refused> {
        let found = self.0.nic.adapter(adapter);
        let spec = found.map_err(Refused::nic(str::to_owned))?.spec;
        let set = self.0.nic.set_gid(adapter, index, Some(gid));
        Ok(GidRow {
            index: set.map_err(Refused::nic(path))?,
            gid: gid.gid,
            kind: gid.kind,
            vlan: gid.vlan,
            // An operator's GID always has the adapter's first address.
            mac: spec.macs.first().copied().unwrap_or_default(),
            source: GidSource::Operator,
        })
    }

    /// Removes an entry of an adapter's GID table; returns it as it was. May block.
    pub fn clear_gid(&self, adapter: &str, index: u16) -> Result<Option<GidRow>, Refused> {
        let table = self.0.nic.rdma(adapter).ok().flatten();
        let last = table.and_then(|rdma| rdma.gids.into_iter().find(|row| row.index == index));
        let cleared = self.0.nic.set_gid(adapter, Some(index), None);
        cleared.map_err(Refused::nic(|_| "name".to_owned()))?;
        Ok(last)
    }
}
