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
        let mut batch = Batch::new();
        match rules == Rules::default() {
            true => batch.delete(TABLE, adapter.as_bytes()),
            false => batch.put(TABLE, adapter.as_bytes(), stored::access_lists::encode(&rules)),
        };
        self.0.store.commit(batch)?;
        let status = self.0.nic.set_access_list(adapter, rules).map_err(refused)?;
        let what = format!("{} rules", status.rules.rules.len());
        self.0
            .settings_changed(Owner::Adapter(adapter.to_owned()), "access list", what, by);
        Ok(status)
    }

    /// Removes the row of an adapter that is about to be removed.
    pub(super) fn forget(batch: &mut Batch, adapter: &str) {
        batch.delete(TABLE, adapter.as_bytes());
    }

    /// Reads the stored lists, before adapters are made: none is ever without its list. One that cannot be read denies all. May
    /// block.
    pub fn bring_back(&self) -> Result<(), StoreError> {
        for (name, row) in self.0.store.all(TABLE)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            let rules = stored::access_lists::decode(&row).unwrap_or_else(|problem| {
                let owner = Owner::Adapter(name.clone());
                let what = format!("{problem}: all frames are denied until the list is set again");
                self.0.settings_refused(owner, "access list", what, "");
                Rules::deny_all()
            });
            if let Err(error) = self.0.nic.restore_access_list(&name, rules) {
                let owner = Owner::Adapter(name);
                self.0
                    .settings_refused(owner, "access list", error.to_string(), "");
            }
        }
        Ok(())
    }
}
