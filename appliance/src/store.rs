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
mod error;
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
pub use error::StoreError;
use mark::{Mark, before};
pub use writer::{Batch, Done};
use writer::{Queue, Stats};

/// Name of the file for the registry, NV configuration and adapters made at run time.
pub const STATE: &str = "state.redb";

/// Schema of [`STATE`].
pub const STATE_SCHEMA: Schema = Schema::new(1);

/// What the rows of a file look like: a number, which grows when an older version could not read what a newer one writes,
/// and the steps that bring an older file up to it.
#[derive(Clone, Copy)]
pub struct Schema {
    /// The number.
    pub number: u32,
    /// The last brings a file from `number - 1` to `number`, the one before it from `number - 2`, and so on.
    pub migrations: &'static [Migration],
}

/// One step: what to write, made of the rows that are there; or why it cannot be made. It is written in one transaction
/// together with the new number.
pub type Migration = fn(&dyn Fn(&'static str) -> Result<Rows, StoreError>) -> Result<Batch, String>;

impl Schema {
    /// A schema that no older file can be brought up to.
    pub const fn new(number: u32) -> Schema {
        Schema {
            number,
            migrations: &[],
        }
    }

    /// The steps from an older number to this one; none if they are not known.
    fn from(&self, found: u32) -> Option<&'static [Migration]> {
        let missing = usize::try_from(self.number.checked_sub(found)?).ok()?;
        self.migrations.get(self.migrations.len().checked_sub(missing)?..)
    }
}

/// What to do about a damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Do not open.
    Refuse,
    /// Keep it under another name and begin with an empty one.
    Reset,
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
    /// Opens `dir/name`, or makes it. A file with an older schema is brought up to date, and kept as it was under
    /// `NAME.schema-N`; one with a newer schema is refused.
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
            // The copy is one of a file that nobody has open.
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

/// Keeps a copy of a file with this schema; one of an earlier upgrade is replaced. It is on the disk when this returns.
fn keep_before(file: &Path, schema: u32) -> io::Result<()> {
    let kept = before(file, schema);
    let mut half = kept.as_os_str().to_owned();
    half.push(".part");
    std::fs::copy(file, &half)?;
    File::open(&half)?.sync_all()?;
    std::fs::rename(&half, &kept)
}

/// Brings a file with an older schema up to date, one number after the other.
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
