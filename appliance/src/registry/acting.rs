//! What is stored, and what of it acts: the NIC hears of it here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

pub use vnic_backend::LINE_RATE_MBPS;
use vnic_backend::settings::{AdapterSettings, Apply, KEYS, KeyDef, Value, dropless_timeout, key as key_of};
use vnic_backend::{AdapterSpec, AdapterStatus, CongestionSpec, NicError, QosSpec};

use super::check::{Operation, Plan, Refusal, Why, plan};
use super::state::{Change, Commit, INDEX_MAX, INDEXES, Scope};
use super::{Done, Inner, Registry, RegistryError, Told};
use crate::store::{Batch, StoreError};

/// The key of dropless mode: writing it is an act of its own.
pub(super) const DELAY_DROP: &str = "DelayDropTimeout";

/// What acts after a restart where something else acted before.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The adapter.
    pub adapter: String,
    /// What acts now, by key; none: nothing.
    pub values: Vec<(&'static KeyDef, Option<Value>)>,
    /// The revision then.
    pub revision: u64,
    /// When.
    pub time: SystemTime,
}

fn from<'a>(values: &'a BTreeMap<&'static str, Value>) -> impl Fn(&str) -> Option<Value> + 'a {
    |name| values.get(key_of(name)?.name).cloned()
}

impl Inner {
    /// What would act on an adapter after a restart.
    fn stored(&self, adapter: &str) -> BTreeMap<&'static str, Value> {
        let value = |def: &'static KeyDef| Some((def.name, self.committed.resolve(adapter, def).0?));
        KEYS.iter().filter_map(value).collect()
    }

    /// The adapters that a change is about.
    fn concerned(&self, change: &Change) -> Vec<String> {
        match &change.scope {
            Scope::Adapter(name) => vec![name.clone()],
            Scope::Driver => self.acting.keys().cloned().collect(),
        }
    }
}

impl Registry {
    fn settings(&self, values: &BTreeMap<&'static str, Value>) -> AdapterSettings {
        let mut settings = AdapterSettings::from_values(from(values));
        if self.roce_off.load(Ordering::Acquire) {
            settings.network_direct = false;
        }
        settings
    }

    /// Tells the NIC what a transaction changed: dynamic keys act at once, the others wait there for a restart. What is
    /// told is what is stored by now, so that it does not matter in which order transactions come here.
    pub(super) fn tell(&self, commit: &Commit) -> Result<(), Refusal> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut concerned: BTreeMap<String, Vec<&Change>> = BTreeMap::new();
        {
            let inner = self.shared.lock();
            for change in &commit.changes {
                for adapter in inner.concerned(change) {
                    concerned.entry(adapter).or_default().push(change);
                }
            }
        }
        for (adapter, changes) in concerned {
            let stored = {
                let mut inner = self.shared.lock();
                let stored = inner.stored(&adapter);
                let Some(acting) = inner.acting.get_mut(&adapter) else {
                    continue;
                };
                for change in changes.iter().filter(|c| c.key.apply == Apply::Dynamic) {
                    let name = change.key.name;
                    match stored.get(name) {
                        Some(value) => acting.insert(name, value.clone()),
                        None => acting.remove(name),
                    };
                }
                stored
            };
            let dropless = changes.iter().any(|c| c.key.name == DELAY_DROP);
            self.configure(&adapter, &stored, dropless).map_err(|error| {
                let key = match &error {
                    NicError::Invalid { field, .. } => (*field).to_owned(),
                    _ => changes.iter().map(|c| c.key.name).collect::<Vec<_>>().join(", "),
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

    fn configure(
        &self,
        adapter: &str,
        stored: &BTreeMap<&'static str, Value>,
        dropless: bool,
    ) -> Result<(), NicError> {
        let done = self
            .nic
            .configure_adapter(adapter, &self.settings(stored))
            .and_then(|()| match dropless {
                true => self.dropless(adapter, stored),
                false => Ok(()),
            });
        match done {
            // Removed meanwhile: nobody is left to hear it.
            Err(NicError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// The stored timeout acts: switching on is an act each time; switching off only what is on.
    fn dropless(&self, adapter: &str, stored: &BTreeMap<&'static str, Value>) -> Result<(), NicError> {
        let timeout = dropless_timeout(from(stored));
        if timeout > 0 || stored.contains_key(DELAY_DROP) || self.nic.dropless(adapter)?.on {
            self.nic.set_dropless(adapter, timeout)?;
        }
        Ok(())
    }

    /// Carries out operations about quality of service of one adapter, and what is to be stored with them: all of it, or
    /// nothing. What they change acts at once, also where its key says that it waits for a restart: so it is for verbs
    /// that say so. May block.
    pub fn transact_now(
        &self,
        adapter: &str,
        operations: &[Operation],
        with: Batch,
    ) -> Result<Done, RegistryError> {
        let accepted = {
            let mut inner = self.shared.lock();
            let plan = plan(&inner.head, &self.nic, operations)?;
            self.accept(&mut inner, plan, with)
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

    /// What is stored of these keys acts from now on.
    fn act_now(&self, adapter: &str, keys: &[&'static KeyDef]) -> Result<(), NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let (stored, acting, new) = {
            let mut inner = self.shared.lock();
            let (stored, revision) = (inner.stored(adapter), inner.committed.revision);
            let Some(acting) = inner.acting.get_mut(adapter) else {
                return Ok(());
            };
            let mut values = Vec::new();
            for key in keys {
                let value = stored.get(key.name).cloned();
                let before = match &value {
                    Some(value) => acting.insert(key.name, value.clone()),
                    None => acting.remove(key.name),
                };
                if key.apply == Apply::Restart && before != value {
                    values.push((*key, value.or_else(|| key.unset.map(Value::Dword))));
                }
            }
            let new = Applied {
                adapter: adapter.to_owned(),
                values,
                revision,
                time: SystemTime::now(),
            };
            (stored, acting.clone(), new)
        };
        let told = self
            .nic
            .apply_qos_keys(adapter, &self.settings(&acting))
            // What waits for a restart goes on waiting.
            .and_then(|()| self.nic.configure_adapter(adapter, &self.settings(&stored)));
        match told {
            // Removed meanwhile: nobody is left to hear it.
            Ok(()) | Err(NicError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        if !new.values.is_empty() {
            let _ = self.shared.news.send(Told::Applied(new.into()));
        }
        Ok(())
    }

    /// Have adapters no RDMA function, whatever is stored? Acts at their next restart.
    pub fn set_roce_off(&self, off: bool) {
        self.roce_off.store(off, Ordering::Release);
    }

    /// Restarts an adapter: what is pending becomes effective, and the guest's link goes down and comes back. May block.
    pub fn restart(&self, adapter: &str) -> Result<AdapterStatus, NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.shared.lock().stored(adapter);
        self.nic.configure_adapter(adapter, &self.settings(&stored))?;
        let status = self.nic.restart_adapter(adapter)?;
        let timeout = dropless_timeout(from(&stored));
        if timeout > 0 || self.nic.dropless(adapter)?.on {
            self.nic.set_dropless(adapter, timeout)?;
        }
        self.applied(adapter, stored);
        Ok(status)
    }

    /// Notes what acts, and tells watchers what of it is new.
    fn applied(&self, adapter: &str, stored: BTreeMap<&'static str, Value>) {
        let mut inner = self.shared.lock();
        let revision = inner.committed.revision;
        let before = inner
            .acting
            .insert(adapter.to_owned(), stored.clone())
            .unwrap_or_default();
        let value = |of: &BTreeMap<&'static str, Value>, key: &KeyDef| {
            of.get(key.name).cloned().or_else(|| key.unset.map(Value::Dword))
        };
        let new = KEYS.iter().filter(|k| value(&before, k) != value(&stored, k));
        let values: Vec<_> = new.map(|k| (k, value(&stored, k))).collect();
        if !values.is_empty() {
            let applied = Applied {
                adapter: adapter.to_owned(),
                values,
                revision,
                time: SystemTime::now(),
            };
            let _ = self.shared.news.send(Told::Applied(applied.into()));
        }
    }

    /// Makes an adapter: what is stored for it, and for the driver, acts before anybody can attach. Where the NIC refuses
    /// what is stored, the adapter lives without it, and the second part of the answer says so. May block.
    ///
    /// # Errors
    ///
    /// The NIC refuses the adapter as such.
    pub fn add_adapter(
        &self,
        spec: AdapterSpec,
        qos: QosSpec,
        congestion: CongestionSpec,
    ) -> Result<(AdapterStatus, Option<RegistryError>), NicError> {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let adapter = spec.name.clone();
        let stored = self.shared.lock().stored(&adapter);
        let first =
            self.nic
                .add_adapter_congestion(spec.clone(), self.settings(&stored), qos.clone(), congestion);
        let (status, acting, mut refused) = match first {
            Ok(status) => (status, stored, None),
            Err(NicError::Invalid { field, problem }) if key_of(field).is_some() => {
                let status =
                    self.nic
                        .add_adapter_congestion(spec, AdapterSettings::default(), qos, congestion)?;
                let refusal = Refusal {
                    operation: 0,
                    scope: Scope::Adapter(adapter.clone()),
                    key: field.to_owned(),
                    why: Why::Nic(format!("{field}: {problem}")),
                };
                let refused = RegistryError::Refused(vec![refusal]);
                (status, BTreeMap::new(), Some(refused))
            }
            Err(other) => return Err(other),
        };
        let timeout = dropless_timeout(from(&acting));
        if timeout > 0 {
            self.nic.set_dropless(&adapter, timeout)?;
        }
        self.shared.lock().acting.insert(adapter.clone(), acting);
        if let Err(error) = self.index_or_new(&adapter) {
            refused = refused.or(Some(error.into()));
        }
        Ok((status, refused))
    }

    /// An adapter that was just made is taken back: nothing acts on it. What is stored for it stays.
    pub fn adapter_taken_back(&self, adapter: &str) {
        self.shared.lock().acting.remove(adapter);
    }

    /// The index of an adapter in `.reg` files; one that has none gets the smallest that is free. May block.
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

    /// The index of an adapter in `.reg` files.
    pub fn index(&self, adapter: &str) -> Option<u16> {
        self.shared.lock().indexes.get(adapter).copied()
    }

    /// The adapter that has this index in `.reg` files.
    pub fn at_index(&self, index: u16) -> Option<String> {
        let inner = self.shared.lock();
        let mut all = inner.indexes.iter();
        all.find(|(_, i)| **i == index).map(|(name, _)| name.clone())
    }

    /// An adapter is about to be removed: what is stored for it, its index and `with` go in one transaction. May block.
    pub fn remove_adapter(&self, adapter: &str, mut with: Batch) -> Result<(), RegistryError> {
        let scope = Scope::Adapter(adapter.to_owned());
        let (accepted, acting, index) = {
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
            // Nothing of it is told to the NIC any more.
            let acting = inner.acting.remove(adapter);
            let index = inner.indexes.remove(adapter);
            (self.accept(&mut inner, plan, with), acting, index)
        };
        let done = self.finish(accepted).map(drop);
        if done.is_err() {
            let mut inner = self.shared.lock();
            inner.acting.extend(acting.map(|a| (adapter.to_owned(), a)));
            inner.indexes.extend(index.map(|i| (adapter.to_owned(), i)));
        }
        done
    }
}
