//! Migrations of guests: an adapter gets the identity of another one and waits for its guest.
//!
//! ```text
//!  begin (source) ─▶ Document ─▶ prepare (target) ─▶ the guest moves: the NIC lets the addresses follow it ─▶ hand_over
//!                                                └─▶ cancel: the target is as before
//! ```
//!
//! An adapter that takes part, and an adapter of the configuration that took part, has a row: the daemon makes it with that identity when
//! it starts. An adapter whose configuration was changed since is made as configured.

use vnic_backend::rehearsal::rehearses;
use vnic_backend::settings::{Value, key as key_of};
use vnic_backend::{
    AdapterSpec, AdapterStatus, AttachState, GidSetting, GidSource, MovePart, Moving, NicError,
};

use super::access_lists::AccessLists;
use super::adapters::{Adapters, TABLE as ADAPTERS};
use super::congestion::Congestion;
use super::qos::Qos;
use super::refused::{Refused, acts};
use super::registry::Keys;
use super::{Control, fields};
use crate::events::{ControlEvent, MigrationStep as Step, Owner};
use crate::registry::{Action, Operation, Refusal, Scope};
use crate::store::Batch;
use crate::stored;
use crate::stored::moves::{Document, Identity, Row};

/// Table of the store. Key of a row: the adapter's name; value: see [`Row`].
const TABLE: &str = "migrations";
/// Table of the store. Key of a row: the name of a target; value: the [`Document`] of what it was before.
const BEFORE: &str = "migrations_before";
/// Registry key of the list of further addresses.
const MACS: &str = "mac-address-list";

/// Migrations of guests.
pub struct Moves<'a>(pub &'a Control);

/// Where the guest of a migration is now.
pub enum From {
    /// On this adapter of the daemon.
    Here(String),
    /// On an adapter of another daemon.
    Elsewhere(Box<Document>),
}

fn refused(error: NicError) -> Refused {
    Refused::nic(|field| format!("adapter.{field}"))(error)
}

/// A step of a change of several. In a rehearsal the next one is checked as if this one had acted.
fn step(done: Result<(), Refused>) -> Result<(), Refused> {
    done.or_else(|refused| {
        if refused.is_rehearsed() {
            Ok(())
        } else {
            Err(refused)
        }
    })
}

fn problem(text: impl Into<String>) -> Refused {
    Refused::field("name", text)
}

impl Moves<'_> {
    fn get(&self, name: &str) -> Result<AdapterStatus, Refused> {
        Adapters(self.0).get(name)
    }

    /// An adapter that may take part in a migration.
    fn free(&self, name: &str) -> Result<AdapterStatus, Refused> {
        let status = self.get(name)?;
        if status.wanted.moving.is_some() {
            return Err(problem(format!(
                "{name} takes part in a migration already: `vnicctl adapter hand-over` or `cancel-migration` ends it"
            )));
        }
        let rdma = self.0.nic.rdma(name).map_err(refused)?;
        if rdma.is_some_and(|rdma| rdma.state == AttachState::Up) {
            return Err(problem(format!(
                "a driver uses the RDMA function of {name}: its queue pairs and memory cannot move; end the driver first"
            )));
        }
        Ok(status)
    }

    /// Begins the migration of an adapter's guest to another daemon. May block.
    pub fn begin(&self, by: &str, name: &str) -> Result<Document, Refused> {
        let _order = self.0.change_order();
        let status = self.free(name)?;
        let document = self.document(&status)?;
        let moving = Moving {
            part: MovePart::Source,
            peer: None,
        };
        self.take_part(name, Some(moving.clone()))?;
        let mut batch = Batch::new();
        self.put_row(&mut batch, &status, &document.identity, Some(moving));
        if let Err(error) = self.0.store.commit(batch) {
            self.take_part(name, None)?;
            return Err(error.into());
        }
        self.tell(by, name, "another daemon", Step::Prepared);
        Ok(document)
    }

    /// Prepares an adapter for the guest of another one. May block.
    pub fn prepare(&self, by: &str, name: &str, from: From) -> Result<AdapterStatus, Refused> {
        let _order = self.0.change_order();
        let target = self.free(name)?;
        if target.state == AttachState::Up {
            return Err(problem(format!(
                "a guest runs on {name}: another one cannot move there"
            )));
        }
        let (source, document) = match from {
            From::Here(source) if source == name => {
                return Err(Refused::field("source", "source and target are the same adapter"));
            }
            From::Here(source) => {
                let status = self.free(&source)?;
                (Some(status.clone()), self.document(&status)?)
            }
            From::Elsewhere(document) => (None, *document),
        };
        let before = Document {
            identity: Identity::of(&target.wanted),
            ..self.document(&target)?
        };
        let peer = source.as_ref().map(|s| s.spec.name.clone());
        let part = |part, peer| Some(Moving { part, peer });
        let (leaves, comes) = (
            part(MovePart::Source, Some(name.to_owned())),
            part(MovePart::Target, peer.clone()),
        );
        let mut batch = Batch::new();
        batch.put(BEFORE, name.as_bytes(), stored::moves::encode(&before));
        self.put_row(&mut batch, &target, &document.identity, comes.clone());
        if let Some(source) = &source {
            self.put_row(&mut batch, source, &document.identity, leaves.clone());
            step(self.take_part(&source.spec.name, leaves))?;
        }
        let done = self.wear(name, &document, comes);
        let done = done.and_then(|()| self.0.store.commit(batch).map_err(Refused::from));
        if let Err(error) = done {
            if !rehearses() {
                self.take_back(name, &before, peer.as_deref());
            }
            return Err(error);
        }
        let from = peer.as_deref().unwrap_or("another daemon");
        self.tell(by, name, from, Step::Prepared);
        self.get(name)
    }

    /// Ends the migration of an adapter whose guest has moved. May block.
    pub fn hand_over(&self, by: &str, name: &str) -> Result<AdapterStatus, Refused> {
        let _order = self.0.change_order();
        let (source, target) = self.pair(name)?;
        match (&source, &target) {
            (_, Some(target)) if !target.speaks => {
                return Err(problem(format!(
                    "the guest has not begun to run on {}: it has the addresses as soon as it does",
                    target.spec.name
                )));
            }
            (Some(source), None) if source.speaks => {
                return Err(problem(format!("the guest runs on {} still", source.spec.name)));
            }
            _ => {}
        }
        let mut batch = Batch::new();
        let mut before = None;
        if let Some(target) = &target {
            before = self.before(&target.spec.name);
            batch.delete(BEFORE, target.spec.name.as_bytes());
            self.settle(&mut batch, target, &Identity::of(&target.spec))?;
        }
        let left = source.as_ref().map(|source| {
            let own = Identity::of(&source.spec);
            let fresh = AdapterSpec {
                macs: vec![self.fresh_mac(&source.spec.name)],
                ..source.spec.clone()
            };
            let from = before.map_or_else(|| Identity::of(&fresh), |before| before.identity);
            (source, own.with_macs(&from))
        });
        if let Some((source, identity)) = &left {
            self.settle(&mut batch, source, identity)?;
        }
        acts()?;
        self.0.store.commit(batch)?;
        if let Some((source, identity)) = &left {
            self.leave(source, identity)?;
        }
        if let Some(target) = &target {
            self.take_part(&target.spec.name, None)?;
        }
        self.tell(by, name, "", Step::Done);
        self.get(name)
    }

    /// Gives the migration of an adapter up. May block.
    pub fn cancel(&self, by: &str, name: &str) -> Result<AdapterStatus, Refused> {
        let _order = self.0.change_order();
        let (source, target) = self.pair(name)?;
        if let Some(target) = target.as_ref().filter(|t| t.state == AttachState::Up && t.speaks) {
            let target = &target.spec.name;
            return Err(problem(format!(
                "the guest runs on {target} already: `vnicctl adapter hand-over {target}` ends the migration"
            )));
        }
        let mut batch = Batch::new();
        let mut before = None;
        if let Some(target) = &target {
            before = self.before(&target.spec.name);
            batch.delete(BEFORE, target.spec.name.as_bytes());
            if let Some(before) = &before {
                self.settle(&mut batch, target, &before.identity)?;
            }
        }
        if let Some(source) = &source {
            self.settle(&mut batch, source, &Identity::of(&source.wanted))?;
        }
        acts()?;
        self.0.store.commit(batch)?;
        let peer = source.as_ref().map(|s| s.spec.name.as_str());
        match (&target, before) {
            (Some(target), Some(before)) => self.take_back(&target.spec.name, &before, peer),
            _ => {
                for status in source.iter().chain(&target) {
                    self.take_part(&status.spec.name, None)?;
                }
            }
        }
        self.tell(by, name, "", Step::Cancelled);
        self.get(name)
    }

    /// Source and target of the migration in which an adapter takes part, as far as they are of this daemon.
    fn pair(&self, name: &str) -> Result<(Option<AdapterStatus>, Option<AdapterStatus>), Refused> {
        let status = self.get(name)?;
        let Some(moving) = status.wanted.moving.clone() else {
            return Err(problem(format!("{name} takes part in no migration")));
        };
        // A peer that is gone, or has ended its part, is none.
        let peer = moving.peer.as_deref().and_then(|peer| self.get(peer).ok());
        let peer = peer.filter(|p| p.wanted.moving.as_ref().is_some_and(|m| m.is_with(name)));
        Ok(match moving.part {
            MovePart::Source => (Some(status), peer),
            MovePart::Target => (peer, Some(status)),
        })
    }

    /// What a target was before its migration.
    fn before(&self, name: &str) -> Option<Document> {
        let rows = self.0.store.all(BEFORE).unwrap_or_default();
        let (_, row) = rows.into_iter().find(|(key, _)| key == name.as_bytes())?;
        stored::moves::decode(&row).ok()
    }

    /// Everything of an adapter that goes with its guest.
    fn document(&self, status: &AdapterStatus) -> Result<Document, Refused> {
        let name = &status.spec.name;
        let scope = Scope::Adapter(name.clone());
        let committed = self.0.registry.committed();
        let own = committed.entries.iter().filter(|((s, _), _)| *s == scope);
        let keys =
            own.filter_map(|((_, key), entry)| Some(((*key).to_owned(), key_of(key)?.format(&entry.value))));
        let rdma = self.0.nic.rdma(name).map_err(refused)?;
        let gids = rdma.map(|rdma| rdma.gids).unwrap_or_default();
        let gids = gids.into_iter().filter(|row| row.source == GidSource::Operator);
        Ok(Document {
            source: name.clone(),
            identity: Identity::of(&status.spec),
            keys: keys.collect(),
            qos: self.0.nic.qos(name).map_err(refused)?.spec,
            congestion: self.0.nic.congestion(name).map_err(refused)?.spec,
            gids: gids
                .map(|row| GidSetting {
                    gid: row.gid,
                    kind: row.kind,
                    vlan: row.vlan,
                })
                .collect(),
            rules: AccessLists(self.0).get(name)?.rules,
        })
    }

    /// Gives an adapter without a running guest everything of a document, and a part in a migration.
    fn wear(&self, name: &str, document: &Document, moving: Option<Moving>) -> Result<(), Refused> {
        let spec = document.identity.worn_by(self.get(name)?.wanted);
        // Addresses of an adapter that is here are its own until the first step has acted.
        let from_here = moving.as_ref().is_some_and(|moving| moving.peer.is_some());
        let mut keys = document.keys.clone();
        keys.retain(|(key, _)| !(rehearses() && from_here && key == MACS));
        let worn = self.0.nic.update_adapter(AdapterSpec { moving, ..spec });
        step(worn.map(drop).map_err(refused))?;
        step(self.set_keys(name, &keys))?;
        step(Qos(self.0).replace(&Owner::Adapter(name.to_owned()), &document.qos))?;
        step(Congestion(self.0).replace(name, document.congestion.clone()))?;
        step(
            AccessLists(self.0)
                .replace(name, document.rules.clone())
                .map(drop),
        )?;
        step(self.0.registry.restart(name).map(drop).map_err(refused))?;
        self.set_gids(name, &document.gids)?;
        acts()
    }

    /// Gives a target back what it was. What is refused is told in the log: the rest is done in any case.
    fn take_back(&self, name: &str, before: &Document, source: Option<&str>) {
        let undone = |result: Result<(), Refused>| {
            if let Err(error) = result {
                tracing::warn!(
                    owner = name,
                    "migration: not everything is as before: {}",
                    error.text()
                );
            }
        };
        // The part ends last: while it lasts, both adapters may have the same addresses.
        let moving = self.get(name).ok().and_then(|status| status.wanted.moving);
        undone(self.wear(name, before, moving));
        undone(self.take_part(name, None));
        if let Some(source) = source {
            undone(self.take_part(source, None));
        }
    }

    /// Gives the source of a migration another identity, at the end. Its connection ends: the guest has moved.
    fn leave(&self, source: &AdapterStatus, identity: &Identity) -> Result<(), Refused> {
        let name = source.spec.name.as_str();
        let committed = self.0.registry.committed();
        if committed.entry(&Scope::Adapter(name.to_owned()), MACS).is_some() {
            self.transact(vec![self.operation(name, MACS, Action::Delete)])?;
        }
        self.set_gids(name, &[])?;
        let spec = identity.worn_by(source.wanted.clone());
        let spec = AdapterSpec { moving: None, ..spec };
        self.0.nic.update_adapter(spec).map_err(refused)?;
        self.0.registry.restart(name).map(drop).map_err(refused)
    }

    fn take_part(&self, name: &str, moving: Option<Moving>) -> Result<(), Refused> {
        let spec = self.get(name)?.wanted;
        let spec = AdapterSpec { moving, ..spec };
        self.0.nic.update_adapter(spec).map(drop).map_err(refused)
    }

    fn operation(&self, name: &str, key: &str, action: Action) -> Operation {
        Operation {
            scope: Scope::Adapter(name.to_owned()),
            key: key.to_owned(),
            action,
            if_match: None,
        }
    }

    fn transact(&self, operations: Vec<Operation>) -> Result<(), Refused> {
        let of = |refusal: &Refusal| format!("keys[{}]", refusal.key);
        let done = self.0.registry.transact(&operations);
        done.map(drop)
            .map_err(|error| Keys(self.0).refused("", error, of))
    }

    /// Replaces all stored values of an adapter's registry.
    fn set_keys(&self, name: &str, keys: &[(String, String)]) -> Result<(), Refused> {
        let scope = Scope::Adapter(name.to_owned());
        let committed = self.0.registry.committed();
        let has = committed
            .entries
            .keys()
            .filter(|(s, _)| *s == scope)
            .map(|(_, key)| *key);
        let gone = has.filter(|key| !keys.iter().any(|(k, _)| k == key));
        let gone = gone.map(|key| self.operation(name, key, Action::Delete));
        let set = keys
            .iter()
            .map(|(key, value)| self.operation(name, key, Action::Set(Value::Text(value.clone()))));
        let all: Vec<_> = gone.chain(set).collect();
        if all.is_empty() {
            Ok(())
        } else {
            self.transact(all)
        }
    }

    /// Replaces the operator's GIDs of an adapter, if it has an RDMA function.
    fn set_gids(&self, name: &str, gids: &[GidSetting]) -> Result<(), Refused> {
        let Some(rdma) = self.0.nic.rdma(name).map_err(refused)? else {
            return Ok(());
        };
        for row in rdma.gids.iter().filter(|row| row.source == GidSource::Operator) {
            self.0.nic.set_gid(name, Some(row.index), None).map_err(refused)?;
        }
        for gid in gids {
            self.0.nic.set_gid(name, None, Some(*gid)).map_err(refused)?;
        }
        Ok(())
    }

    fn fresh_mac(&self, name: &str) -> vnic_backend::MacAddr {
        let all = self.0.nic.adapters();
        let taken = all
            .iter()
            .flat_map(|a| a.spec.macs.iter().chain(&a.settings.macs));
        self.0.settings.macs.derive(name, &taken.copied().collect())
    }

    /// ETag of the identity that an adapter has when the daemon starts without a row.
    fn base(&self, status: &AdapterStatus) -> String {
        let configured = self
            .0
            .settings
            .adapters
            .iter()
            .find(|a| a.name == status.spec.name);
        etag(&Identity::of(configured.unwrap_or(&status.wanted)))
    }

    /// The row of an adapter.
    fn row(&self, name: &str) -> Option<Row> {
        let rows = self.0.store.all(TABLE).unwrap_or_default();
        let (_, row) = rows.into_iter().find(|(key, _)| key == name.as_bytes())?;
        Row::decode(&row).ok()
    }

    /// Adds the row of an adapter to a batch.
    fn put_row(
        &self,
        batch: &mut Batch,
        status: &AdapterStatus,
        identity: &Identity,
        moving: Option<Moving>,
    ) {
        let name = &status.spec.name;
        let replaces = self
            .row(name)
            .map_or_else(|| self.base(status), |row| row.replaces);
        let row = Row {
            identity: identity.clone(),
            moving,
            replaces,
        };
        batch.put(TABLE, name.as_bytes(), row.encode());
    }

    /// Adds to a batch that an adapter has an identity for good.
    fn settle(&self, batch: &mut Batch, status: &AdapterStatus, identity: &Identity) -> Result<(), Refused> {
        let name = status.spec.name.as_str();
        let row = self.row(name);
        batch.delete(TABLE, name.as_bytes());
        if row.as_ref().is_some_and(|row| row.replaces == etag(identity)) {
            return Ok(());
        }
        if self.0.origins.is_stored(name) {
            let mut new = Adapters(self.0).stored(name)?.unwrap_or_default();
            identity.put_into(&mut new);
            batch.put(ADAPTERS, name.as_bytes(), stored::adapters::encode(&new));
        } else if row.is_some() {
            self.put_row(batch, status, identity, None);
        }
        Ok(())
    }

    /// The specification with which the daemon makes an adapter when it starts: that of the configuration or of its own row, unless a
    /// migration has given it another identity.
    pub(super) fn acting(&self, spec: AdapterSpec) -> AdapterSpec {
        match self.row(&spec.name) {
            Some(row) if row.replaces == etag(&Identity::of(&spec)) => AdapterSpec {
                moving: row.moving,
                ..row.identity.worn_by(spec)
            },
            Some(_) => {
                let what = "the adapter's configuration was changed since: it counts, and what a migration had left is forgotten";
                let owner = Owner::Adapter(spec.name.clone());
                self.0.settings_refused(owner, "migration", what.to_owned(), "");
                let mut batch = Batch::new();
                Moves::forget(&mut batch, &spec.name);
                let _ = self.0.store.commit(batch);
                spec
            }
            None => spec,
        }
    }

    /// Adds the removal of an adapter's rows to a batch.
    pub(super) fn forget(batch: &mut Batch, name: &str) {
        batch.delete(TABLE, name.as_bytes());
        batch.delete(BEFORE, name.as_bytes());
    }

    /// Refuses a change of an adapter that takes part in a migration.
    pub(super) fn none_lasts(status: &AdapterStatus) -> Result<(), Refused> {
        match &status.wanted.moving {
            None => Ok(()),
            Some(_) => Err(problem(format!(
                "{} takes part in a migration: `vnicctl adapter hand-over` or `cancel-migration` ends it",
                status.spec.name
            ))),
        }
    }

    fn tell(&self, by: &str, name: &str, peer: &str, step: Step) {
        self.0.hub.record(ControlEvent::Migration {
            adapter: name.to_owned(),
            peer: peer.to_owned(),
            step,
            by: by.to_owned(),
        });
    }
}

fn etag(identity: &Identity) -> String {
    fields::etag(&identity.encode())
}
