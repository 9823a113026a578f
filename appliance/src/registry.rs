//! Settings by the registry keys of WinOF-2: stored values of the driver and of adapters, and the values that act.
//!
//! ```text
//!  operations ─▶ checked together ─▶ queued for the store ─▶ on the disk ─▶ set in the NIC ─▶ answered
//!                     head ──────────────────▲                 committed ──▶ readers, watchers
//! ```
//!
//! The registry has two states: `head` has all accepted transactions, and the next operations are checked against it;
//! `committed` has those on the disk, and readers see it. So no reader sees a value that a crash could take back, and
//! writers share an fsync without waiting for each other.

mod acting;
mod check;
mod exchange;

pub mod reg_file;
mod state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crossbeam_channel::Receiver;
use tokio::sync::broadcast;
use vnic_backend::rehearsal::rehearses;
use vnic_backend::settings::{
    self, AdapterSettings, Apply, Built, CongestionKeys, KEYS, KeyDef, Origin, Points, Value,
};
use vnic_backend::{Nic, NicError};

use crate::nv::NvActing;
use crate::store::{Batch, Store, StoreError};
pub use acting::{Applied, LINE_RATE_MBPS};
pub use check::{Action, Operation, Refusal, Warning, Why, known};
pub use exchange::{Import, ImportOptions};
pub use state::{Change, Commit, Entry, NoScope, Scope, State};

/// Number of transactions that are kept for watchers that come back.
pub const KEPT: usize = 4096;

/// Number of transactions that a watcher may be behind before its stream ends.
const BACKLOG: usize = 4096;

/// Error of a transaction.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistryError {
    /// Operations are refused; nothing has changed, except with [`Why::AboveLineRate`] and a stored value.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
    /// The store fails; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operations would be taken; nothing has changed, because they were only rehearsed.
    #[error("{}", NicError::Rehearsed)]
    Rehearsed,
}

/// Result of a transaction.
#[derive(Debug, Clone)]
pub struct Done {
    /// Revision of the transaction; the last one, if it changed nothing.
    pub revision: u64,
    /// Changed values.
    pub changes: Vec<Change>,
    /// Values that are stored otherwise than asked for.
    pub warnings: Vec<Warning>,
}

/// Values of a key in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Scope.
    pub scope: Scope,
    /// Key.
    pub key: &'static KeyDef,
    /// Stored value.
    pub stored: Option<Entry>,
    /// Value that acts after a restart, if it differs from the effective one.
    pub pending: Option<Value>,
    /// Value that acts; `None` for the driver, for adapters that do not exist, for keys that are not built, and if no value acts.
    pub effective: Option<Value>,
    /// Origin of the value; `None` for the driver.
    pub origin: Option<Origin>,
}

/// Message to watchers.
#[derive(Debug, Clone)]
pub enum Update {
    /// A transaction is on the disk.
    Committed(Arc<Commit>),
    /// An adapter restarted, and values that act have changed.
    Applied(Arc<Applied>),
}

/// State of the registry for a watcher, and the changes after it.
pub struct Following {
    /// Stored values, if no revision was given.
    pub snapshot: Option<State>,
    /// Transactions after the given revision, oldest first.
    pub before: Vec<Arc<Commit>>,
    /// Revision of the state.
    pub revision: u64,
    /// Changes after `revision`, without a gap.
    pub news: broadcast::Receiver<Update>,
}

/// The registry.
pub struct Registry {
    nic: Nic,
    store: Arc<Store>,
    shared: Arc<Shared>,
    /// Held while the NIC is configured, so that the NIC's last configuration is what was stored last.
    telling: Mutex<()>,
}

struct Shared {
    inner: Mutex<Inner>,
    news: broadcast::Sender<Update>,
}

struct Inner {
    head: State,
    committed: State,
    /// Accepted transactions that are not on the disk yet, oldest first.
    waiting: VecDeque<Arc<Commit>>,
    history: VecDeque<Arc<Commit>>,
    /// Adapters that exist.
    live: BTreeSet<String>,
    /// What the NV configuration changes of adapters.
    nv: NvActing,
    /// Indexes of adapters in `.reg` files; an adapter keeps its index.
    indexes: BTreeMap<String, u16>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles the oldest waiting transaction, which is on the disk or failed. After a failure all later ones fail, too.
    fn settle(&self, result: &Result<(), StoreError>) {
        let mut inner = self.lock();
        let Some(commit) = inner.waiting.pop_front() else {
            return;
        };
        if result.is_err() {
            inner.waiting.clear();
            inner.head = inner.committed.clone();
            return;
        }
        inner.committed.apply(&commit);
        if inner.history.len() == KEPT {
            inner.history.pop_front();
        }
        inner.history.push_back(commit.clone());
        // An error means that there is no watcher. The message is sent under the lock, so that a new watcher misses none.
        let _ = self.news.send(Update::Committed(commit));
    }
}

/// Result of the store.
type Answer = Receiver<Result<(), StoreError>>;

/// An accepted transaction.
struct Accepted {
    plan: check::Plan,
    /// Transaction and the store's result; `None`: it changes nothing.
    commit: Option<(Arc<Commit>, Answer)>,
    /// Revision of the transaction; the last one, if it changes nothing.
    revision: u64,
}

impl Registry {
    /// Reads the stored values. Rows that cannot be read are logged and stay in the store.
    pub fn new(nic: Nic, store: Arc<Store>) -> Result<Registry, StoreError> {
        let (state, indexes, unread) = state::read(&store)?;
        for row in unread {
            tracing::warn!("registry: {}: left as it is", row.0);
        }
        let inner = Inner {
            head: state.clone(),
            committed: state,
            waiting: VecDeque::new(),
            history: VecDeque::new(),
            live: BTreeSet::new(),
            nv: NvActing::default(),
            indexes,
        };
        Ok(Registry {
            nic,
            store,
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
                news: broadcast::channel(BACKLOG).0,
            }),
            telling: Mutex::new(()),
        })
    }

    /// Carries out operations, all or none. Returns when they are on the disk and the NIC is configured. May block.
    pub fn transact(&self, operations: &[Operation]) -> Result<Done, RegistryError> {
        let accepted = {
            let mut inner = self.shared.lock();
            let plan = check::plan(&inner.head, &self.nic, operations)?;
            self.accept(&mut inner, plan, Batch::new())?
        };
        self.finish(accepted)
    }

    /// Checks operations as [`Registry::transact`] does, but changes nothing. May block.
    pub fn validate(&self, operations: &[Operation]) -> Result<Vec<Warning>, RegistryError> {
        let head = self.shared.lock().head.clone();
        let plan = check::plan(&head, &self.nic, operations)?;
        match plan.above_line_rate {
            Some(refusal) => Err(RegistryError::Refused(vec![refusal])),
            None => Ok(plan.warnings),
        }
    }

    /// Changes one value atomically: `change` gets the stored value and returns the new one, or an error of the caller's. May block.
    pub fn edit<E: From<RegistryError>>(
        &self,
        scope: &Scope,
        key: &str,
        change: impl FnOnce(Option<&Value>) -> Result<Option<Value>, E>,
    ) -> Result<Done, E> {
        let accepted = {
            let mut inner = self.shared.lock();
            let stored = settings::key(key).and_then(|def| inner.head.entry(scope, def.name));
            let action = match change(stored.map(|e| &e.value))? {
                Some(value) => Action::Set(value),
                None => Action::Delete,
            };
            let operation = Operation {
                scope: scope.clone(),
                key: key.to_owned(),
                action,
                if_match: None,
            };
            let plan = check::plan(&inner.head, &self.nic, &[operation])?;
            self.accept(&mut inner, plan, Batch::new())?
        };
        Ok(self.finish(accepted)?)
    }

    /// Accepts a plan with further rows for the store. It is not on the disk yet. The error of a rehearsal: what would come of it.
    fn accept(&self, inner: &mut Inner, plan: check::Plan, with: Batch) -> Result<Accepted, RegistryError> {
        if rehearses() {
            return Err(match plan.above_line_rate {
                Some(refusal) => RegistryError::Refused(vec![refusal]),
                None => RegistryError::Rehearsed,
            });
        }
        if plan.changes.is_empty() && with.is_empty() {
            return Ok(Accepted {
                plan,
                commit: None,
                revision: inner.head.revision,
            });
        }
        let commit = Arc::new(Commit {
            revision: inner.head.revision + 1,
            time: SystemTime::now(),
            changes: plan.changes.clone(),
        });
        inner.head.apply(&commit);
        inner.waiting.push_back(commit.clone());
        let (sender, answer) = crossbeam_channel::bounded(1);
        let shared = self.shared.clone();
        // Submitted under the lock: the store gets transactions in the order of their revisions.
        self.store.submit(
            state::batch(&commit, with),
            Box::new(move |result| {
                shared.settle(&result);
                let _ = sender.send(result);
            }),
        );
        Ok(Accepted {
            plan,
            revision: commit.revision,
            commit: Some((commit, answer)),
        })
    }

    /// Waits for the disk, and configures the NIC.
    fn finish(&self, accepted: Accepted) -> Result<Done, RegistryError> {
        let Accepted {
            plan,
            commit,
            revision,
        } = accepted;
        match commit {
            // The state that the plan was checked against may not be on the disk yet.
            None => self.store.commit(Batch::new())?,
            Some((commit, answer)) => {
                answer.recv().unwrap_or(Err(StoreError::Closed))?;
                if let Err(refusal) = self.tell(&commit) {
                    self.roll_back(&commit)?;
                    return Err(RegistryError::Refused(vec![refusal]));
                }
            }
        }
        match plan.above_line_rate {
            Some(refusal) => Err(RegistryError::Refused(vec![refusal])),
            None => Ok(Done {
                revision,
                changes: plan.changes,
                warnings: plan.warnings,
            }),
        }
    }

    /// Restores the values before a transaction, except those that have been changed since.
    fn roll_back(&self, commit: &Commit) -> Result<(), RegistryError> {
        let accepted = {
            let mut inner = self.shared.lock();
            let ours = |c: &&Change| match inner.head.entry(&c.scope, c.key.name) {
                Some(entry) => entry.revision == commit.revision,
                None => c.value.is_none(),
            };
            let back = |c: &Change| Change {
                value: c.before.clone(),
                before: c.value.clone(),
                ..c.clone()
            };
            let plan = check::Plan {
                changes: commit.changes.iter().filter(ours).map(back).collect(),
                ..check::Plan::default()
            };
            self.accept(&mut inner, plan, Batch::new())?
        };
        if let Some((commit, answer)) = accepted.commit {
            answer.recv().unwrap_or(Err(StoreError::Closed))?;
            if let Err(refusal) = self.tell(&commit) {
                tracing::error!("registry: the NIC does not take back what it had: {refusal}");
            }
        }
        Ok(())
    }

    /// Values on the disk.
    pub fn committed(&self) -> State {
        self.shared.lock().committed.clone()
    }

    /// Revision of the last transaction on the disk.
    pub fn revision(&self) -> u64 {
        self.shared.lock().committed.revision
    }

    /// Values of a key in a scope.
    pub fn view(&self, scope: &Scope, key: &'static KeyDef) -> View {
        let acting = Acting::of(&self.nic, scope);
        view(&self.shared.lock(), scope, key, acting.as_ref())
    }

    /// Keys in the wanted scopes, and the revision. Of the driver only stored keys are returned; of adapters all, unless `stored_only`.
    pub fn views(&self, wanted: impl Fn(&Scope) -> bool, stored_only: bool) -> (Vec<View>, u64) {
        let inner = self.shared.lock();
        let stored = inner.committed.adapters();
        let adapters: BTreeSet<&str> = stored.chain(inner.live.iter().map(String::as_str)).collect();
        let adapters = adapters.into_iter().map(|name| Scope::Adapter(name.to_owned()));
        let mut views = Vec::new();
        for scope in [Scope::Driver].into_iter().chain(adapters).filter(|s| wanted(s)) {
            let acting = Acting::of(&self.nic, &scope);
            for key in KEYS {
                let stored = inner.committed.entry(&scope, key.name).is_some();
                if stored || (acting.is_some() && !stored_only && key.scopes.contains(scope.kind())) {
                    views.push(view(&inner, &scope, key, acting.as_ref()));
                }
            }
        }
        views.sort_by(|a, b| (&a.scope, a.key.name).cmp(&(&b.scope, b.key.name)));
        (views, inner.committed.revision)
    }

    /// Follows the registry: from a revision with the transactions after it, or from the stored values. An error is the
    /// oldest revision from which on transactions are kept.
    pub fn follow(&self, after: Option<u64>) -> Result<Following, u64> {
        let inner = self.shared.lock();
        let revision = inner.committed.revision;
        let mut following = Following {
            snapshot: None,
            before: Vec::new(),
            revision,
            news: self.shared.news.subscribe(),
        };
        match after {
            None => following.snapshot = Some(inner.committed.clone()),
            Some(after) => {
                let oldest = inner.history.front().map_or(revision, |c| c.revision - 1);
                // A greater revision is of another life of the registry.
                if after < oldest || after > revision {
                    return Err(oldest);
                }
                let newer = inner.history.iter().filter(|c| c.revision > after);
                following.before = newer.cloned().collect();
            }
        }
        Ok(following)
    }
}

/// Values that act on an adapter.
struct Acting {
    settings: AdapterSettings,
    congestion: Points,
}

impl Acting {
    /// Values of an adapter; `None` if it does not exist, or if the scope is the driver's.
    fn of(nic: &Nic, scope: &Scope) -> Option<Acting> {
        let name = scope.adapter()?;
        let status = nic.adapter(name).ok()?;
        Some(Acting {
            settings: status.settings,
            congestion: nic.congestion(name).ok()?.acting,
        })
    }

    /// Value of a key: that of its field. A parameter of congestion control has the value of its preset if none is stored,
    /// and no rate is above the line rate.
    fn value(&self, key: &KeyDef) -> Option<Value> {
        if let Some(parameter) = settings::parameter(key.name) {
            return Some(Value::Dword(parameter.get(&self.congestion)));
        }
        key.get(&self.settings)
    }
}

/// Key that NV configuration overrules (ROCE_CONTROL).
const NETWORK_DIRECT: &str = "*NetworkDirect";

fn view(inner: &Inner, scope: &Scope, key: &'static KeyDef, acting: Option<&Acting>) -> View {
    let stored = inner.committed.entry(scope, key.name).cloned();
    let mut view = View {
        scope: scope.clone(),
        key,
        stored,
        pending: None,
        effective: None,
        origin: None,
    };
    let Some(name) = scope.adapter() else { return view };
    let (next, origin) = inner.committed.resolve(name, key);
    view.origin = Some(origin);
    if let Some(acting) = acting.filter(|_| key.built == Built::Yes) {
        view.effective = acting.value(key);
        let next = match inner.nv.roce_off && key.name == NETWORK_DIRECT {
            // What is stored does not act, after a restart neither.
            true => {
                let mut off = acting.settings.clone();
                off.network_direct = false;
                key.get(&off)
            }
            false => next.or_else(|| key.unset.map(Value::Dword)),
        };
        // Keys of congestion control do not wait for a restart: one that differs from the stored value is limited by the line rate, or
        // NV configuration says it.
        let enable = (0..8).any(|priority| CongestionKeys::enable_key(priority) == Some(key));
        let congestion = enable || settings::parameter(key.name).is_some();
        let waits = key.apply == Apply::Restart || !congestion;
        view.pending = next.filter(|next| waits && Some(next) != view.effective.as_ref());
    }
    view
}
