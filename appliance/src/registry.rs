//! Settings by the names that WinOF-2 users know: what is stored for the driver and for adapters, and what of it acts.
//!
//! ```text
//!  operations ─▶ checked together ─▶ queued for the store ─▶ on the disk ─▶ told to the NIC ─▶ answered
//!                     head ──────────────────▲                 committed ──▶ readers, watchers
//! ```
//!
//! Two pictures are kept: `head`, with everything that was accepted, against which the next operations are checked; and
//! `committed`, what is on the disk, which readers see. So nobody ever sees a value that a crash could take back, and
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
use vnic_backend::Nic;
use vnic_backend::settings::{self, AdapterSettings, Apply, Built, KEYS, KeyDef, Origin, Points, Value};

use crate::store::{Batch, Store, StoreError};
pub use acting::{Applied, LINE_RATE_MBPS};
pub use check::{Action, Operation, Refusal, Warning, Why, known};
pub use exchange::{Import, ImportOptions};
pub use state::{Change, Commit, Entry, NoScope, Scope, State};

/// Transactions that are kept for watchers that come back.
pub const KEPT: usize = 4096;

/// Transactions that a watcher may be behind before its stream is ended.
const BACKLOG: usize = 4096;

/// Why a transaction did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RegistryError {
    /// Some of it is not allowed; nothing has changed, but for [`Why::AboveLineRate`] with a stored value.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
    /// It cannot be stored; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A transaction that happened.
#[derive(Debug, Clone)]
pub struct Done {
    /// Its revision; the last one, if it changed nothing.
    pub revision: u64,
    /// What it changed.
    pub changes: Vec<Change>,
    /// What was stored otherwise than asked for.
    pub warnings: Vec<Warning>,
}

/// A key in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Where.
    pub scope: Scope,
    /// Which.
    pub key: &'static KeyDef,
    /// What is stored there.
    pub stored: Option<Entry>,
    /// What will act after a restart, if that is something else.
    pub pending: Option<Value>,
    /// What acts; none for the driver, for adapters that do not exist, for keys that are not built and where nothing acts.
    pub effective: Option<Value>,
    /// From where what counts is; none for the driver.
    pub origin: Option<Origin>,
}

/// What watchers are told.
#[derive(Debug, Clone)]
pub enum Told {
    /// A transaction.
    Committed(Arc<Commit>),
    /// An adapter restarted: what acts now where something else acted before.
    Applied(Arc<Applied>),
}

/// What was, and what will be.
pub struct Following {
    /// What is stored, when no revision was given.
    pub snapshot: Option<State>,
    /// Transactions after the revision that was given, oldest first.
    pub before: Vec<Arc<Commit>>,
    /// The revision up to here.
    pub revision: u64,
    /// What comes behind them, without a gap.
    pub news: broadcast::Receiver<Told>,
}

/// The registry.
pub struct Registry {
    nic: Nic,
    store: Arc<Store>,
    shared: Arc<Shared>,
    /// Held while the NIC is told: what it is told last is what is stored last.
    telling: Mutex<()>,
}

struct Shared {
    inner: Mutex<Inner>,
    news: broadcast::Sender<Told>,
}

struct Inner {
    head: State,
    committed: State,
    /// Accepted and not yet on the disk, oldest first.
    waiting: VecDeque<Arc<Commit>>,
    history: VecDeque<Arc<Commit>>,
    /// Adapters that there are.
    live: BTreeSet<String>,
    /// RDMA is off for all adapters (NV configuration).
    roce_off: bool,
    /// Indexes of adapters in `.reg` files: once given, an adapter keeps its.
    indexes: BTreeMap<String, u16>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest waiting transaction is on the disk, or failed; then all behind it fail, too.
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
        // Nobody watches: that is fine. Sent under the lock, so that who follows misses nothing.
        let _ = self.news.send(Told::Committed(commit));
    }
}

/// The answer of the store.
type Answer = Receiver<Result<(), StoreError>>;

/// A transaction that was accepted.
struct Accepted {
    plan: check::Plan,
    /// None: it changes nothing.
    commit: Option<(Arc<Commit>, Answer)>,
    /// Its revision; the last one, if it changes nothing.
    revision: u64,
}

impl Registry {
    /// Reads what is stored. Rows that cannot be read are logged and left as they are.
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
            roce_off: false,
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

    /// Carries out operations: all of them, or none. The answer comes when they are on the disk and the NIC has heard of
    /// them. May block.
    pub fn transact(&self, operations: &[Operation]) -> Result<Done, RegistryError> {
        let accepted = {
            let mut inner = self.shared.lock();
            let plan = check::plan(&inner.head, &self.nic, operations)?;
            self.accept(&mut inner, plan, Batch::new())
        };
        self.finish(accepted)
    }

    /// What [`Registry::transact`] would do. May block.
    pub fn validate(&self, operations: &[Operation]) -> Result<Vec<Warning>, RegistryError> {
        let head = self.shared.lock().head.clone();
        let plan = check::plan(&head, &self.nic, operations)?;
        match plan.above_line_rate {
            Some(refusal) => Err(RegistryError::Refused(vec![refusal])),
            None => Ok(plan.warnings),
        }
    }

    /// Changes one value by looking at it: `change` gets what is stored and gives what is to be stored, or an error of
    /// the caller's. Nothing comes between the look and the change. May block.
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
            self.accept(&mut inner, plan, Batch::new())
        };
        Ok(self.finish(accepted)?)
    }

    /// Accepts a plan, and what is to be stored with it. None of it is on the disk yet.
    fn accept(&self, inner: &mut Inner, plan: check::Plan, with: Batch) -> Accepted {
        if plan.changes.is_empty() && with.is_empty() {
            return Accepted {
                plan,
                commit: None,
                revision: inner.head.revision,
            };
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
        // Under the lock: the store gets transactions in the order of their revisions.
        self.store.submit(
            state::batch(&commit, with),
            Box::new(move |result| {
                shared.settle(&result);
                let _ = sender.send(result);
            }),
        );
        Accepted {
            plan,
            revision: commit.revision,
            commit: Some((commit, answer)),
        }
    }

    /// Waits for the disk, and tells the NIC.
    fn finish(&self, accepted: Accepted) -> Result<Done, RegistryError> {
        let Accepted {
            plan,
            commit,
            revision,
        } = accepted;
        match commit {
            // What it saw may not be on the disk yet.
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

    /// Puts back what a transaction changed, where nobody has changed it since.
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
            self.accept(&mut inner, plan, Batch::new())
        };
        if let Some((commit, answer)) = accepted.commit {
            answer.recv().unwrap_or(Err(StoreError::Closed))?;
            if let Err(refusal) = self.tell(&commit) {
                tracing::error!("registry: the NIC does not take back what it had: {refusal}");
            }
        }
        Ok(())
    }

    /// What is on the disk.
    pub fn committed(&self) -> State {
        self.shared.lock().committed.clone()
    }

    /// Number of the last transaction on the disk.
    pub fn revision(&self) -> u64 {
        self.shared.lock().committed.revision
    }

    /// A key in a scope.
    pub fn view(&self, scope: &Scope, key: &'static KeyDef) -> View {
        let acting = Acting::of(&self.nic, scope);
        view(&self.shared.lock(), scope, key, acting.as_ref())
    }

    /// All keys in these scopes, those of adapters with what acts; of the driver only what is stored. And the revision.
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

    /// The transactions after this revision, or what is stored, and what comes then. An error is the oldest revision that
    /// could be given.
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
                // One from the future is of another life of the registry.
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

/// What acts on an adapter.
struct Acting {
    settings: AdapterSettings,
    congestion: Points,
}

impl Acting {
    /// None: there is no such adapter, or it is the driver's scope.
    fn of(nic: &Nic, scope: &Scope) -> Option<Acting> {
        let name = scope.adapter()?;
        let status = nic.adapter(name).ok()?;
        Some(Acting {
            settings: status.settings,
            congestion: nic.congestion(name).ok()?.acting,
        })
    }

    /// Of a key: what its field is; but a preset of congestion control says what acts while nothing is stored, no rate above that of
    /// the line.
    fn value(&self, key: &KeyDef) -> Option<Value> {
        if let Some(parameter) = settings::parameter(key.name) {
            return Some(Value::Dword(parameter.get(&self.congestion)));
        }
        key.get(&self.settings)
    }
}

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
        let next = next.or_else(|| key.unset.map(Value::Dword));
        // A parameter of congestion control acts already: a rate that is lower than what is stored is that of the line.
        let waits = key.apply == Apply::Restart || settings::parameter(key.name).is_none();
        view.pending = next.filter(|next| waits && Some(next) != view.effective.as_ref());
    }
    view
}
