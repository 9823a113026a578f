//! Quality of service by path: the policy, and answers to queries.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use vnic_backend::SubnetPort;
use vnic_backend::subnet::{self, NoPath, Note, PathRecord, Policy, PolicyError, Query};

use super::Control;
use super::fields::etag;
use super::refused::{Refused, acts};
use crate::events::Owner;
use crate::store::{Batch, StoreError};

/// Table of the store. Its one row, [`ROW`], is the text of the policy.
const TABLE: &str = "subnet";
/// Key of the row.
const ROW: &[u8] = b"policy";
/// Name of the policy in events.
const NAME: &str = "subnet policy";

/// Quality of service by path.
pub struct Subnet<'a>(pub &'a Control);

/// A policy that answers.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Its text; empty: there is none.
    pub text: Arc<str>,
    /// It is of the configuration file.
    pub configured: bool,
    policy: Option<Arc<Policy>>,
}

impl Loaded {
    fn read(text: &str, configured: bool) -> Result<Loaded, PolicyError> {
        let policy = match text.is_empty() {
            true => None,
            false => Some(Arc::new(subnet::parse(text)?)),
        };
        let text = text.into();
        Ok(Loaded {
            text,
            configured,
            policy,
        })
    }

    /// Its etag.
    pub fn etag(&self) -> String {
        etag(self.text.as_bytes())
    }

    /// What of it has no effect with these ports.
    pub fn notes(&self, ports: &[SubnetPort]) -> Vec<Note> {
        let policy = self.policy.as_deref();
        policy.map(|policy| notes(policy, ports)).unwrap_or_default()
    }
}

fn notes(policy: &Policy, ports: &[SubnetPort]) -> Vec<Note> {
    let ports: Vec<_> = ports.iter().map(SubnetPort::end).collect();
    subnet::notes(policy, &ports)
}

/// A query for paths without its ends.
#[derive(Debug, Clone, Default)]
pub struct Sought {
    pub service_id: Option<u64>,
    pub qos_class: Option<u16>,
    pub pkey: Option<u16>,
    pub sl: Option<u8>,
}

/// Ends of a path, and the answer.
pub type Found<'a> = (&'a str, &'a str, Result<PathRecord<'a>, NoPath>);

impl Subnet<'_> {
    /// The policy that answers.
    pub fn get(&self) -> Loaded {
        let loaded = self.0.subnet.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.clone()
    }

    /// Lets a policy answer: clients, and programs that ask by datagrams.
    fn replace(&self, loaded: Loaded) {
        self.0.nic.set_subnet_policy(loaded.policy.clone());
        *self.0.subnet.lock().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    /// Replaces the policy and stores it, for a client; with `since` only if that is the etag of the one that answers. May block.
    pub fn set(&self, by: &str, text: &str, since: &str) -> Result<Loaded, Refused> {
        let _order = self.0.change_order();
        let now = self.get().etag();
        if !since.is_empty() && since != now {
            return Err(Refused::Changed(now));
        }
        let read = Loaded::read(text, false);
        let loaded = read.map_err(|error| Refused::field("policy.text", error.to_string()))?;
        acts()?;
        let mut batch = Batch::new();
        match text.is_empty() {
            true => batch.delete(TABLE, ROW),
            false => batch.put(TABLE, ROW, text.as_bytes().to_vec()),
        };
        self.0.store.commit(batch)?;
        self.replace(loaded.clone());
        let what = match &loaded.policy {
            None => "there is none".to_owned(),
            Some(policy) => format!("{} levels, {} rules", policy.levels.len(), policy.rules.len()),
        };
        self.0.settings_changed(Owner::Nic, NAME, what, by);
        Ok(loaded)
    }

    /// What a policy would have no effect with now. May block.
    pub fn check(&self, text: &str) -> Result<Vec<Note>, Refused> {
        let policy = subnet::parse(text).map_err(|error| Refused::field("text", error.to_string()))?;
        Ok(notes(&policy, &self.0.nic.subnet_ports()))
    }

    /// Asks for the paths from each of `sources` to each of `destinations`, which are adapters, and makes something of the answers.
    /// May block.
    pub fn paths<R>(
        &self,
        [sources, destinations]: [&[String]; 2],
        sought: &Sought,
        mut make: impl FnMut(Found<'_>) -> R,
    ) -> Result<Vec<R>, Refused> {
        let (loaded, ports) = (self.get(), self.0.nic.subnet_ports());
        let find = |name: &String| {
            let port = ports.iter().find(|port| port.adapter == *name);
            port.ok_or_else(|| Refused::NotFound {
                kind: "RDMA function of an adapter",
                name: name.clone(),
            })
        };
        let sources: Vec<_> = sources.iter().map(find).collect::<Result<_, _>>()?;
        let destinations: Vec<_> = destinations.iter().map(find).collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        for source in &sources {
            for destination in &destinations {
                let query = Query {
                    source: &source.end(),
                    destination: &destination.end(),
                    service_id: sought.service_id,
                    qos_class: sought.qos_class,
                    pkey: sought.pkey,
                    sl: sought.sl,
                };
                let answer = subnet::resolve(loaded.policy.as_deref(), &query);
                all.push(make((&source.adapter, &destination.adapter, answer)));
            }
        }
        Ok(all)
    }

    /// Lets the policy of the configuration file answer, or the stored one if there is none. An error: the configuration's file is
    /// wrong. A stored one that cannot be read is told, and left out. May block.
    pub fn bring_back(&self) -> Result<Result<(), String>, StoreError> {
        if let Some(path) = &self.0.settings.policy_file {
            return Ok(file(path).map(|loaded| self.replace(loaded)));
        }
        for (_, row) in self.0.store.all(TABLE)? {
            let text = String::from_utf8_lossy(&row);
            match Loaded::read(&text, false) {
                Ok(loaded) => self.replace(loaded),
                Err(error) => self.0.settings_refused(Owner::Nic, NAME, error.to_string(), ""),
            }
        }
        Ok(Ok(()))
    }
}

/// Reads the policy file of the configuration. The error names the file.
pub(crate) fn file(path: &Path) -> Result<Loaded, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    Loaded::read(&text, true).map_err(|error| format!("{name}: {error}"))
}
