//! Configuration of the NIC with the stored values.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::SystemTime;

pub use vnic_backend::LINE_RATE_MBPS;
use vnic_backend::rehearsal::rehearses;
use vnic_backend::settings::{AdapterSettings, Apply, CongestionKeys, KEYS, KeyDef, Value, key as key_of};
use vnic_backend::{AdapterSetup, AdapterSpec, AdapterStatus, CongestionSpec, NicError, QosSpec};

use super::check::{Operation, Plan, Refusal, Why, plan};
use super::state::{Change, Commit, INDEX_MAX, INDEXES, Scope};
use super::{Done, Inner, Registry, RegistryError, Update};
use crate::nv::NvActing;
use crate::store::{Batch, StoreError};

/// Values of an adapter that changed at its restart.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Name of the adapter.
    pub adapter: String,
    /// New values by key; `None`: no value.
    pub values: Vec<(&'static KeyDef, Option<Value>)>,
    /// Revision of the registry at that time.
    pub revision: u64,
    /// Time of the restart.
    pub time: SystemTime,
}

impl Inner {
    /// Settings that would act on an adapter after a restart.
    fn settings(&self, adapter: &str) -> AdapterSettings {
        let stored = |name: &str| self.committed.resolve(adapter, key_of(name)?).0;
        let mut settings = AdapterSettings::from_values(stored);
        let scope = Scope::Adapter(adapter.to_owned());
        for key in KEYS {
            if let Some(entry) = self.committed.entry(&scope, key.name) {
                key.written(&mut settings, entry.revision);
            }
        }
        settings.network_direct &= !self.nv.roce_off;
        settings.wake_on_magic &= !self.nv.wake_off;
        for priority in (0..8).filter(|priority| self.nv.priorities >> priority & 1 != 0) {
            let key = CongestionKeys::enable_key(priority);
            if key.is_some_and(|key| stored(key.name).is_none()) {
                settings.congestion.enable |= 1 << priority;
            }
        }
        let parameters = &mut settings.congestion.parameters;
        for (parameter, value) in self.nv.congestion.iter() {
            if parameters.get(parameter).is_none() {
                parameters.put(parameter, Some(value));
            }
        }
        settings
    }

    /// Existing adapters that a change concerns.
    fn concerned(&self, change: &Change) -> Vec<String> {
        match &change.scope {
            Scope::Adapter(name) if self.live.contains(name) => vec![name.clone()],
            Scope::Adapter(_) => Vec::new(),
            Scope::Driver => self.live.iter().cloned().collect(),
        }
    }
}

impl Registry {
    /// Configures the NIC after a transaction: dynamic keys act at once, the others wait there for a restart. The
    /// configuration is the stored one at this time, so that the order of calls does not matter.
    pub(super) fn tell(&self, commit: &Commit) -> Result<(), Refusal> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let concerned: BTreeSet<String> = {
            let inner = self.shared.lock();
            commit
                .changes
                .iter()
                .flat_map(|change| inner.concerned(change))
                .collect()
        };
        for adapter in concerned {
            self.configure(&adapter).map_err(|error| {
                let key = match &error {
                    NicError::Invalid { field, .. } => (*field).to_owned(),
                    _ => commit
                        .changes
                        .iter()
                        .map(|c| c.key.name)
                        .collect::<Vec<_>>()
                        .join(", "),
                };
                Refusal {
                    operation: 0,
                    scope: Scope::Adapter(adapter.clone()),
                    key,
                    why: Why::Nic(error.to_string()),
                }
            })?;
        }
        Ok(())
    }

    fn configure(&self, adapter: &str) -> Result<(), NicError> {
        let settings = self.shared.lock().settings(adapter);
        match self.nic.configure_adapter(adapter, &settings) {
            // The adapter was removed meanwhile.
            Err(NicError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Carries out operations about quality of service of one adapter, and stores `with` in the same transaction. The
    /// changes act at once, even those of keys that otherwise wait for a restart. May block.
    pub fn transact_now(
        &self,
        adapter: &str,
        operations: &[Operation],
        with: Batch,
    ) -> Result<Done, RegistryError> {
        let accepted = {
            let mut inner = self.shared.lock();
            let plan = plan(&inner.head, &self.nic, operations)?;
            self.accept(&mut inner, plan, with)?
        };
        let done = self.finish(accepted)?;
        let keys: Vec<&'static KeyDef> = done.changes.iter().map(|c| c.key).collect();
        self.act_now(adapter, &keys).map_err(|error| {
            let refusal = Refusal {
                operation: 0,
                scope: Scope::Adapter(adapter.to_owned()),
                key: keys.iter().map(|k| k.name).collect::<Vec<_>>().join(", "),
                why: Why::Nic(error.to_string()),
            };
            RegistryError::Refused(vec![refusal])
        })?;
        Ok(done)
    }

    /// Applies the stored values of these keys now.
    fn act_now(&self, adapter: &str, keys: &[&'static KeyDef]) -> Result<(), NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.shared.lock().settings(adapter);
        let act = || {
            let before = self.nic.adapter(adapter)?.settings;
            let mut now = before.clone();
            for key in keys {
                key.copy(&mut now, &stored);
            }
            self.nic.apply_qos_keys(adapter, &now)?;
            // Keys that wait for a restart go on waiting.
            self.nic.configure_adapter(adapter, &stored)?;
            self.applied(adapter, &before, &now);
            Ok(())
        };
        match act() {
            // The adapter was removed meanwhile.
            Err(NicError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Sets what the NV configuration changes of adapters, whatever is stored. It acts at their next restart.
    pub fn set_nv(&self, acting: NvActing) {
        self.shared.lock().nv = acting;
    }

    /// Restarts an adapter: pending values become effective, and the guest's link goes down and comes back. May block.
    pub fn restart(&self, adapter: &str) -> Result<AdapterStatus, NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.shared.lock().settings(adapter);
        let before = self.nic.adapter(adapter)?.settings;
        self.nic.configure_adapter(adapter, &stored)?;
        let status = self.nic.restart_adapter(adapter)?;
        self.applied(adapter, &before, &status.settings);
        Ok(status)
    }

    /// Sends watchers the values that changed at a restart.
    fn applied(&self, adapter: &str, before: &AdapterSettings, now: &AdapterSettings) {
        let waits = KEYS.iter().filter(|key| key.apply == Apply::Restart);
        let values: Vec<_> = waits
            .map(|key| (key, key.get(before), key.get(now)))
            .filter(|(_, before, now)| before != now)
            .map(|(key, _, now)| (key, now))
            .collect();
        if !values.is_empty() {
            let applied = Applied {
                adapter: adapter.to_owned(),
                values,
                revision: self.revision(),
                time: SystemTime::now(),
            };
            let _ = self.shared.news.send(Update::Applied(applied.into()));
        }
    }

    /// Makes an adapter with the values that are stored for it and for the driver. If the NIC refuses these values, the
    /// adapter is made without them, and the second part of the result has the cause. May block.
    ///
    /// # Errors
    ///
    /// The NIC refuses the adapter itself.
    pub fn add_adapter(
        &self,
        spec: AdapterSpec,
        qos: QosSpec,
        congestion: CongestionSpec,
    ) -> Result<(AdapterStatus, Option<RegistryError>), NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let adapter = spec.name.clone();
        let stored = self.shared.lock().settings(&adapter);
        let setup = |settings| AdapterSetup {
            spec: spec.clone(),
            settings,
            qos: qos.clone(),
            congestion: congestion.clone(),
        };
        let first = self.nic.add_adapter(setup(stored));
        let (status, mut refused) = match first {
            Ok(status) => (status, None),
            Err(NicError::Invalid { field, problem }) if key_of(field).is_some() => {
                let status = self.nic.add_adapter(setup(AdapterSettings::default()))?;
                let refusal = Refusal {
                    operation: 0,
                    scope: Scope::Adapter(adapter.clone()),
                    key: field.to_owned(),
                    why: Why::Nic(format!("{field}: {problem}")),
                };
                let refused = RegistryError::Refused(vec![refusal]);
                (status, Some(refused))
            }
            Err(other) => return Err(other),
        };
        self.shared.lock().live.insert(adapter.clone());
        if let Err(error) = self.index_or_new(&adapter) {
            refused = refused.or(Some(error.into()));
        }
        Ok((status, refused))
    }

    /// Forgets an adapter that was just made and is removed again. Its stored values stay.
    pub fn adapter_taken_back(&self, adapter: &str) {
        self.shared.lock().live.remove(adapter);
    }

    /// Index of an adapter in `.reg` files; an adapter without one gets the smallest free index. May block.
    pub(super) fn index_or_new(&self, adapter: &str) -> Result<u16, StoreError> {
        let index = {
            let mut inner = self.shared.lock();
            if let Some(index) = inner.indexes.get(adapter) {
                return Ok(*index);
            }
            let taken: BTreeSet<u16> = inner.indexes.values().copied().collect();
            // There are fewer adapters than indexes.
            let index = (0..INDEX_MAX).find(|i| !taken.contains(i)).unwrap_or(INDEX_MAX);
            inner.indexes.insert(adapter.to_owned(), index);
            index
        };
        let mut batch = Batch::new();
        batch.put(INDEXES, adapter.as_bytes(), index.to_le_bytes());
        self.store.commit(batch)?;
        Ok(index)
    }

    /// Index of an adapter in `.reg` files.
    pub fn index(&self, adapter: &str) -> Option<u16> {
        self.shared.lock().indexes.get(adapter).copied()
    }

    /// Adapter with this index in `.reg` files.
    pub fn at_index(&self, index: u16) -> Option<String> {
        let inner = self.shared.lock();
        let mut all = inner.indexes.iter();
        all.find(|(_, i)| **i == index).map(|(name, _)| name.clone())
    }

    /// Removes the stored values and the index of an adapter that is about to be removed, with the changes in `with`, in
    /// one transaction. May block.
    pub fn remove_adapter(&self, adapter: &str, mut with: Batch) -> Result<(), RegistryError> {
        if rehearses() {
            return Err(RegistryError::Rehearsed);
        }
        let scope = Scope::Adapter(adapter.to_owned());
        let (accepted, live, index) = {
            let mut inner = self.shared.lock();
            let change = |(_, key): &(Scope, &'static str), value: &Value| {
                Some(Change {
                    scope: scope.clone(),
                    key: key_of(key)?,
                    value: None,
                    before: Some(value.clone()),
                })
            };
            let entries = inner.head.entries.iter().filter(|((s, _), _)| *s == scope);
            let plan = Plan {
                changes: entries.filter_map(|(at, e)| change(at, &e.value)).collect(),
                ..Plan::default()
            };
            with.delete(INDEXES, adapter.as_bytes());
            // The adapter is no longer configured in the NIC.
            let live = inner.live.remove(adapter);
            let index = inner.indexes.remove(adapter);
            (self.accept(&mut inner, plan, with)?, live, index)
        };
        let done = self.finish(accepted).map(drop);
        if done.is_err() {
            let mut inner = self.shared.lock();
            inner.live.extend(live.then(|| adapter.to_owned()));
            inner.indexes.extend(index.map(|i| (adapter.to_owned(), i)));
        }
        done
    }
}
