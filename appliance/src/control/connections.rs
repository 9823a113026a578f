//! Connections of RDMA functions, by pages.

use std::collections::BTreeMap;

use vnic_backend::{ConnectionStatus, ConnectionTerms, NicError};

use super::Control;
use super::queue_pairs::{Owners, Place, Process, walk};
use super::refused::Refused;

pub struct Connections<'a>(pub &'a Control);

/// A connection of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionNow {
    /// Name of the adapter.
    pub adapter: String,
    /// Process that has the connection, as far as it is known.
    pub owner: Option<Process>,
    pub of: ConnectionTerms,
}

impl Connections<'_> {
    /// Connections of one adapter or of all behind a place, at most `size`, and the place behind which there may be more. May block.
    pub fn page(
        &self,
        only: Option<&str>,
        after: Option<&Place>,
        size: usize,
    ) -> Result<(Vec<ConnectionNow>, Option<Place>), Refused> {
        let nic = &self.0.nic;
        let adapters = match only {
            Some(name) => vec![name.to_owned()],
            None => self.0.adapter_names().into_iter().collect(),
        };
        let all = |_: &ConnectionStatus| true;
        let page = walk(&adapters, after, size, all, |adapter, behind, most| {
            match nic.connections(adapter, behind, most) {
                // Of all adapters: one without an RDMA function, or one that was removed meanwhile, has none.
                Err(NicError::NotFound { .. }) if only.is_none() => Ok(None),
                answer => answer.map(|page| Some((page.rows, page.next))),
            }
        });
        let (rows, next) = page.map_err(Refused::Nic)?;
        let mut owners = BTreeMap::new();
        let now = |(adapter, status): (String, ConnectionStatus)| ConnectionNow {
            owner: owners
                .entry(adapter.clone())
                .or_insert_with(|| Owners::of(nic, &adapter))
                .of_place(status.place),
            adapter,
            of: status.of,
        };
        Ok((rows.into_iter().map(now).collect(), next))
    }
}
