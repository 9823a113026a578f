//! Access lists of adapters.

use vnic_backend::acl::Rules;
use vnic_backend::{AccessListStatus, NicError};

use super::Control;
use super::refused::Refused;
use crate::events::Owner;
use crate::store::{Batch, StoreError};
use crate::stored;

/// Table of the store. Key of a row: the adapter's name; value: see [`stored::access_lists`].
const TABLE: &str = "access_lists";

/// Access lists.
pub struct AccessLists<'a>(pub &'a Control);

fn refused(error: NicError) -> Refused {
    Refused::nic(|field| format!("access_list.{field}"))(error)
}

impl AccessLists<'_> {
    /// The list of an adapter. May block.
    pub fn get(&self, adapter: &str) -> Result<AccessListStatus, Refused> {
        self.0.nic.access_list(adapter).map_err(refused)
    }

    /// Sets the list of an adapter and stores it, for a client; with `revision` only if the list has that one. May block.
    pub fn set(
        &self,
        by: &str,
        adapter: &str,
        rules: Rules,
        revision: Option<u64>,
    ) -> Result<AccessListStatus, Refused> {
        let _order = self.0.change_order();
        let before = self.get(adapter)?;
        if revision.is_some_and(|wanted| wanted != before.revision) {
            return Err(Refused::Changed(before.revision.to_string()));
        }
        let status = self.replace(adapter, rules)?;
        let what = format!("{} rules", status.rules.rules.len());
        self.0
            .settings_changed(Owner::Adapter(adapter.to_owned()), "access list", what, by);
        Ok(status)
    }

    /// Stores the list of an adapter, and lets it act. May block.
    pub(super) fn replace(&self, adapter: &str, rules: Rules) -> Result<AccessListStatus, Refused> {
        let mut batch = Batch::new();
        match rules == Rules::default() {
            true => batch.delete(TABLE, adapter.as_bytes()),
            false => batch.put(TABLE, adapter.as_bytes(), stored::access_lists::encode(&rules)),
        };
        self.0.store.commit(batch)?;
        self.0.nic.set_access_list(adapter, rules).map_err(refused)
    }

    /// Removes the row of an adapter that is about to be removed.
    pub(super) fn forget(batch: &mut Batch, adapter: &str) {
        batch.delete(TABLE, adapter.as_bytes());
    }

    /// Gives an adapter that is about to be made its stored list: it never is without. A list that cannot be read denies all. May
    /// block.
    pub(super) fn before_adding(&self, adapter: &str) {
        let refused = |what: String| {
            let owner = Owner::Adapter(adapter.to_owned());
            self.0.settings_refused(owner, "access list", what, "");
        };
        let rules = match self.row(adapter) {
            Ok(None) => return,
            Ok(Some(row)) => stored::access_lists::decode(&row),
            Err(error) => Err(error.to_string()),
        };
        let rules = rules.unwrap_or_else(|problem| {
            refused(format!(
                "{problem}: all frames are denied until the list is set again"
            ));
            Rules::deny_all()
        });
        if let Err(error) = self.0.nic.restore_access_list(adapter, rules) {
            refused(error.to_string());
        }
    }

    fn row(&self, adapter: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let first = self
            .0
            .store
            .rows(TABLE, adapter.as_bytes(), 1)?
            .into_iter()
            .next();
        Ok(first
            .filter(|(key, _)| key == adapter.as_bytes())
            .map(|(_, row)| row))
    }
}
