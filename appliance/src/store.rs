//! The embedded store: tables of bytes in one file, for state that survives the daemon.
//!
//! ```text
//!  Batch ─▶ queue ─▶ writer thread: all that wait in one transaction ─▶ commit (fsync) ─▶ mark (fsync) ─▶ answers, in order
//! ```
//!
//! An answered batch is on the disk, whatever ends the daemon or the machine. Callers that write at the same time share a
//! transaction, and so its fsync.
//!
//! *Damage* is looked for when the file is opened: the checksum of every page is verified. That cannot show that the last
//! commits are missing as a whole (a file that was cut, emptied, deleted or put back from a backup; a flipped bit that makes
//! the database take its last commit for one that a crash interrupted). So the number of the last commit is also written to a
//! small file beside it, the mark, before the commit is answered; a database that is behind its mark is damaged.

mod database;
mod mark;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use database::Database;
pub use database::Rows;
use mark::Mark;
pub use writer::{Batch, Done};
use writer::{Queue, Stats};

/// Name of the file for the registry, NV configuration and adapters made at run time.
pub const STATE: &str = "state.redb";

/// Schema of [`STATE`]: it changes when an older version could not read what a newer one wrote.
pub const STATE_SCHEMA: u32 = 1;

/// What to do about a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Do not open.
    Refuse,
    /// Keep it under another name and begin with an empty one.
    Reset,
}

/// Why the store cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// What is on the disk is not what was written.
    #[error(
        "{} is damaged: {problem}; put it back from a backup (without {}), or start with --reset-damaged-state to keep \
         it under another name and begin with defaults",
        file.display(), mark::path(file).display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What was found.
        problem: String,
    },
    /// The file was written by a newer version.
    #[error(
        "{} has schema {found}, this version of vnicd knows {known}: use the version that wrote it",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// The operating system refused something.
    #[error("{}: {problem}", file.display())]
    Os {
        /// The file.
        file: PathBuf,
        /// What was refused.
        problem: String,
    },
    /// A write failed: nothing more is written until the daemon starts again, because what is on the disk is not known.
    #[error("the store {} cannot be written any more: {problem}; restart the daemon when that is mended", file.display())]
    Failed {
        /// The file.
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// The daemon ends.
    #[error("the store is closed")]
    Closed,
}

/// A damaged file that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// Where it is now; none when there was nothing left to keep.
    pub kept: Option<PathBuf>,
    /// What was found.
    pub problem: String,
}

/// Tables of bytes in one file. Dropping it writes what has been submitted.
pub struct Store {
    file: PathBuf,
    /// None: closed.
    queue: RwLock<Option<Queue>>,
    stats: Arc<Stats>,
}

impl Store {
    /// Opens `dir/name`, or makes it, with a schema of its own: one that is newer than `schema` is refused.
    pub fn open(
        dir: &Path,
        name: &str,
        schema: u32,
        on_damage: OnDamage,
    ) -> Result<(Store, Option<Reset>), StoreError> {
        let file = dir.join(name);
        match Store::try_open(&file, schema) {
            Ok(store) => Ok((store, None)),
            Err(StoreError::Damaged { problem, .. }) if on_damage == OnDamage::Reset => {
                let kept = put_aside(&file)?;
                let store = Store::try_open(&file, schema)?;
                Ok((store, Some(Reset { kept, problem })))
            }
            Err(error) => Err(error),
        }
    }

    fn try_open(file: &Path, schema: u32) -> Result<Store, StoreError> {
        let damaged = |problem: String| StoreError::Damaged {
            file: file.to_owned(),
            problem,
        };
        let os = |problem: io::Error| StoreError::Os {
            file: file.to_owned(),
            problem: problem.to_string(),
        };
        let marked = Mark::read(file).map_err(os)?.map_err(damaged)?;
        let fresh = std::fs::metadata(file).map_or(true, |m| m.len() == 0);
        if let (true, Some(commits)) = (fresh, marked) {
            return Err(damaged(format!(
                "it is gone or empty, but {commits} commits were made"
            )));
        }
        let mut database = Database::open(file)?;
        let found = database.prepare(schema)?;
        if found > schema {
            return Err(StoreError::Newer {
                file: file.to_owned(),
                found,
                known: schema,
            });
        }
        let commits = database.commits()?;
        match marked {
            Some(marked) if commits < marked => {
                return Err(damaged(format!(
                    "commit {marked} was answered, but the last one in it is {commits}"
                )));
            }
            None if !fresh => tracing::warn!(
                "{} is missing: taking {} as it is",
                mark::path(file).display(),
                file.display()
            ),
            _ => {}
        }
        let mark = Mark::open(file, commits).map_err(os)?;
        // The names of new files must be on the disk, too.
        if let Some(dir) = file.parent() {
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(os)?;
        }
        let stats = Arc::new(Stats::default());
        let queue = Queue::start(file.to_owned(), database, commits, mark, stats.clone()).map_err(os)?;
        Ok(Store {
            file: file.to_owned(),
            queue: RwLock::new(Some(queue)),
            stats,
        })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Everything in a table, in the order of the keys.
    pub fn all(&self, table: &'static str) -> Result<Rows, StoreError> {
        self.rows(table, &[], usize::MAX)
    }

    /// At most `most` rows of a table from this key on, in the order of the keys. What has been answered is in it.
    pub fn rows(&self, table: &'static str, first: &[u8], most: usize) -> Result<Rows, StoreError> {
        match &*self.open_queue() {
            Some(queue) => queue.database().rows(table, first, most),
            None => Err(StoreError::Closed),
        }
    }

    fn open_queue(&self) -> RwLockReadGuard<'_, Option<Queue>> {
        self.queue.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what has been submitted and gives the file back. Nothing can be read or written any more.
    pub fn close(&self) {
        let queue = self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(queue);
    }

    /// Writes a batch, all of it or nothing, behind those submitted before. `done` is called on the writer's thread, in the
    /// order of submission, when the batch is on the disk or has failed; it must not block for long, nor use the store. It
    /// is dropped uncalled when the store is closed.
    pub fn submit(&self, batch: Batch, done: Done) {
        // `done` is dropped uncalled when the store is closed.
        if let Some(queue) = &*self.open_queue() {
            queue.write(batch, done);
        }
    }

    /// As [`Store::submit`], and waits. May block.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.submit(
            batch,
            Box::new(move |result| {
                let _ = sender.send(result);
            }),
        );
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Batches written, and commits that it took: fewer, because callers share them.
    pub fn written(&self) -> (u64, u64) {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (get(&self.stats.batches), get(&self.stats.commits))
    }
}

/// Gives a damaged file, and its mark, another name.
fn put_aside(file: &Path) -> Result<Option<PathBuf>, StoreError> {
    let os = |error: io::Error| StoreError::Os {
        file: file.to_owned(),
        problem: format!("cannot be given another name: {error}"),
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut stamp = time.as_secs();
    let aside = |stamp: u64| {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".damaged-{stamp}"));
        PathBuf::from(name)
    };
    // Twice within a second must not lose the first.
    while aside(stamp).exists() {
        stamp += 1;
    }
    let kept = match std::fs::rename(file, aside(stamp)) {
        Ok(()) => Some(aside(stamp)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(os(error)),
    };
    let marks = (mark::path(file), mark::path(&aside(stamp)));
    match std::fs::rename(&marks.0, &marks.1) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(os(error)),
        _ => Ok(kept),
    }
}
