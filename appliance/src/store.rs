//! Embedded store: tables of bytes in one file, for state that survives the daemon.
//!
//! ```text
//!  Batch ─▶ queue ─▶ writer thread: all that wait in one transaction ─▶ commit (fsync) ─▶ mark (fsync) ─▶ answers, in order
//! ```
//!
//! A batch that is done is on the disk, whatever ends the daemon or the machine. Concurrent callers share a transaction, and so its fsync.
//!
//! *Damage* is detected when the file is opened: the checksum of each page is verified. Checksums cannot show that the
//! last commits are missing as a whole (a file that was truncated, deleted or restored from a backup; a flipped bit that
//! makes the database take its last commit for an interrupted one). So the number of the last commit is also written to a
//! small file beside it, the mark, before the commit is done; a database that is behind its mark is damaged.

mod database;
mod error;
mod mark;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use vnic_backend::rehearsal::rehearses;

use database::Database;
pub use database::Rows;
pub use error::StoreError;
use mark::{Mark, before};
pub use writer::{Batch, Done};
use writer::{Queue, Stats};

/// Name of the file for the registry, NV configuration and adapters made at run time.
pub const STATE: &str = "state.redb";

/// Schema of [`STATE`].
pub const STATE_SCHEMA: Schema = Schema::new(1);

/// Format of the rows of a file. The number grows when an older version could not read the rows of a newer one; the
/// migrations convert older files.
#[derive(Clone, Copy)]
pub struct Schema {
    /// Number of the schema.
    pub number: u32,
    /// Migrations; the last one converts a file from `number - 1` to `number`, the one before it from `number - 2`, and so on.
    pub migrations: &'static [Migration],
}

/// A migration: returns the changes to the rows of a file, or why it is impossible. The changes and the new number are
/// written in one transaction.
pub type Migration = fn(&dyn Fn(&'static str) -> Result<Rows, StoreError>) -> Result<Batch, String>;

impl Schema {
    /// Schema without migrations.
    pub const fn new(number: u32) -> Schema {
        Schema {
            number,
            migrations: &[],
        }
    }

    /// Migrations from an older number to this one; `None` if there are none.
    fn from(&self, found: u32) -> Option<&'static [Migration]> {
        let missing = usize::try_from(self.number.checked_sub(found)?).ok()?;
        self.migrations.get(self.migrations.len().checked_sub(missing)?..)
    }
}

/// Action for a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Refuse to open it.
    Refuse,
    /// Rename it and begin with an empty one.
    Reset,
}

/// A damaged file that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// New path of the file; `None` if there was no file any more.
    pub kept: Option<PathBuf>,
    /// Detected problem.
    pub problem: String,
}

/// Tables of bytes in one file. Dropping the store writes the submitted batches.
pub struct Store {
    file: PathBuf,
    /// Queue of the writer; `None`: the store is closed.
    queue: RwLock<Option<Queue>>,
    stats: Arc<Stats>,
}

impl Store {
    /// Opens `dir/name`, or creates it. A file with an older schema is migrated, and a copy is kept as `NAME.schema-N`;
    /// one with a newer schema is refused.
    pub fn open(
        dir: &Path,
        name: &str,
        schema: Schema,
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

    fn try_open(file: &Path, schema: Schema) -> Result<Store, StoreError> {
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
        let found = database.prepare(schema.number)?;
        if found > schema.number {
            return Err(StoreError::Newer {
                file: file.to_owned(),
                found,
                known: schema.number,
            });
        }
        let mut commits = database.commits()?;
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
        if found < schema.number {
            // The copy is made while the file is closed.
            drop(database);
            keep_before(file, found).map_err(os)?;
            database = Database::open(file)?;
            migrate(&database, file, found, schema)?;
            commits = database.commits()?;
        }
        let mark = Mark::open(file, commits, marked).map_err(os)?;
        let stats = Arc::new(Stats::default());
        let queue = Queue::start(file.to_owned(), database, commits, mark, stats.clone()).map_err(os)?;
        Ok(Store {
            file: file.to_owned(),
            queue: RwLock::new(Some(queue)),
            stats,
        })
    }

    /// Path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All rows of a table, in the order of the keys.
    pub fn all(&self, table: &'static str) -> Result<Rows, StoreError> {
        self.rows(table, &[], usize::MAX)
    }

    /// At most `most` rows of a table from the key `first` on, in the order of the keys. They include each batch that is done.
    pub fn rows(&self, table: &'static str, first: &[u8], most: usize) -> Result<Rows, StoreError> {
        match &*self.open_queue() {
            Some(queue) => queue.database().rows(table, first, most),
            None => Err(StoreError::Closed),
        }
    }

    fn open_queue(&self) -> RwLockReadGuard<'_, Option<Queue>> {
        self.queue.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the submitted batches and closes the file. Later reads and writes fail.
    pub fn close(&self) {
        let queue = self.queue.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(queue);
    }

    /// Submits a batch, which is written atomically after those submitted before. `done` is called on the writer's thread,
    /// in the order of submission, when the batch is on the disk or has failed; it must not block for long, nor use the
    /// store. If the store is closed, it is dropped without a call.
    pub fn submit(&self, batch: Batch, done: Done) {
        // If the store is closed, `done` is dropped without a call.
        if let Some(queue) = &*self.open_queue() {
            queue.write(batch, done);
        }
    }

    /// Submits a batch as [`Store::submit`] does, and waits for the result; in a rehearsal nothing is written. May block.
    pub fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        if rehearses() {
            return Ok(());
        }
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.submit(
            batch,
            Box::new(move |result| {
                let _ = sender.send(result);
            }),
        );
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// A file with all rows, as they are at one time: of each batch that is done, and of none in part. It is a file of a store, and has
    /// no name. May block.
    pub fn backup(&self) -> Result<File, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut path = self.file.clone().into_os_string();
        path.push(format!(".backup-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let path = PathBuf::from(path);
        let copied = match &*self.open_queue() {
            Some(queue) => queue.database().copy(&path),
            None => return Err(StoreError::Closed),
        };
        let file = copied.and_then(|()| {
            File::open(&path).map_err(|e| StoreError::Os {
                file: path.clone(),
                problem: e.to_string(),
            })
        });
        let _ = std::fs::remove_file(&path);
        file
    }

    /// Number of written batches, and of their commits: fewer, because callers share them.
    pub fn written(&self) -> (u64, u64) {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (get(&self.stats.batches), get(&self.stats.commits))
    }
}

/// Keeps a copy of a file with this schema; it replaces the copy of an earlier migration. It is on the disk when this returns.
fn keep_before(file: &Path, schema: u32) -> io::Result<()> {
    let kept = before(file, schema);
    let mut half = kept.as_os_str().to_owned();
    half.push(".part");
    std::fs::copy(file, &half)?;
    File::open(&half)?.sync_all()?;
    std::fs::rename(&half, &kept)
}

/// Migrates a file with an older schema, one number after the other.
fn migrate(database: &Database, file: &Path, found: u32, schema: Schema) -> Result<(), StoreError> {
    let older = |found: u32, problem: String| StoreError::Older {
        file: file.to_owned(),
        found,
        known: schema.number,
        problem,
    };
    let steps = schema.from(found).ok_or_else(|| {
        let oldest = schema.number - u32::try_from(schema.migrations.len()).unwrap_or(schema.number);
        older(
            found,
            format!("the oldest that it can bring up to date is {oldest}; upgrade by a version between"),
        )
    })?;
    for (step, from) in steps.iter().zip(found..) {
        let batch =
            step(&|table| database.rows(table, &[], usize::MAX)).map_err(|problem| older(from, problem))?;
        database.commit(database.commits()? + 1, Some(from + 1), [&batch].into_iter())?;
        tracing::info!(
            "{} had schema {from} and has {} now; what it was is kept in {}",
            file.display(),
            from + 1,
            before(file, found).display()
        );
    }
    Ok(())
}

/// Renames a damaged file and its mark.
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
    // A second file within a second gets another name.
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
