//! The database below the store: each call is guarded, because it may panic on a damaged file.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _};

use super::StoreError;
use super::writer::{Batch, Step};
use crate::private;

/// Rows of a table: keys and values.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Table of the store's own state.
const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
const SCHEMA: &str = "schema";
const COMMITS: &str = "commits";

/// Size of the page cache in bytes. It is small: users of small tables have them in memory, the event log is seldom read,
/// and the kernel caches the file's pages, too. A larger cache would fill with all that is ever written.
const CACHE: usize = 256 << 10;

/// An open database.
pub struct Database {
    file: PathBuf,
    db: redb::Database,
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the database panicked").to_owned()
}

/// Error of the store for an error of the database.
fn sorted(file: &Path, error: redb::Error) -> StoreError {
    use redb::Error;
    let damaged = |problem: String| StoreError::Damaged {
        file: file.to_owned(),
        problem,
    };
    let os = |problem: String| StoreError::Os {
        file: file.to_owned(),
        problem,
    };
    match error {
        Error::Io(e) => match e.kind() {
            // The file has offsets behind its end, or invalid data.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                damaged(e.to_string())
            }
            _ => os(e.to_string()),
        },
        Error::DatabaseAlreadyOpen => os("another process uses it".to_owned()),
        // No version of the store wrote another format.
        Error::UpgradeRequired(version) => damaged(format!("it has file format {version}")),
        other => damaged(other.to_string()),
    }
}

/// Calls the database; a panic means that the file is damaged.
fn guarded<T>(file: &Path, call: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| sorted(file, e)),
        Err(panic) => Err(StoreError::Damaged {
            file: file.to_owned(),
            problem: panicked(&*panic),
        }),
    }
}

fn table(name: &'static str) -> Table {
    TableDefinition::new(name)
}

impl Database {
    /// Opens or creates the file, and verifies all of it.
    pub fn open(file: &Path) -> Result<Database, StoreError> {
        let db = guarded(file, || {
            let mut builder = redb::Database::builder();
            builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
            let file = private::file()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(file)?;
            Ok(builder.create_with_backend(FileBackend::new(file)?)?)
        })?;
        Ok(Database {
            file: file.to_owned(),
            db,
        })
    }

    /// Writes the schema into a new database; returns the present one.
    pub fn prepare(&mut self, schema: u32) -> Result<u32, StoreError> {
        if let Some(found) = self.meta(SCHEMA)? {
            return Ok(u32::try_from(found).unwrap_or(u32::MAX));
        }
        let tables = self.read(|read| Ok(read.list_tables()?.count()))?;
        if tables > 0 {
            return Err(StoreError::Damaged {
                file: self.file.clone(),
                problem: "it does not say which schema it has".to_owned(),
            });
        }
        guarded(&self.file, || {
            let write = self.db.begin_write()?;
            {
                let mut meta = write.open_table(META)?;
                meta.insert(SCHEMA, u64::from(schema))?;
                meta.insert(COMMITS, 1)?;
            }
            Ok(write.commit()?)
        })?;
        Ok(schema)
    }

    fn meta(&self, key: &str) -> Result<Option<u64>, StoreError> {
        self.read(|read| match read.open_table(META) {
            Ok(meta) => Ok(meta.get(key)?.map(|v| v.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    /// Number of commits.
    pub fn commits(&self) -> Result<u64, StoreError> {
        Ok(self.meta(COMMITS)?.unwrap_or(0))
    }

    fn read<T>(
        &self,
        call: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        guarded(&self.file, || call(&self.db.begin_read()?))
    }

    /// At most `most` rows from the key `first` on.
    pub fn rows(&self, name: &'static str, first: &[u8], most: usize) -> Result<Rows, StoreError> {
        self.read(|read| {
            let table = match read.open_table(table(name)) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Rows::new()),
                Err(error) => return Err(error.into()),
            };
            let mut rows = Rows::new();
            for row in table.range(first..)?.take(most) {
                let (key, value) = row?;
                rows.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(rows)
        })
    }

    /// Writes all rows, as they are at one time, into a new database in the file `to`.
    pub fn copy(&self, to: &Path) -> Result<(), StoreError> {
        guarded(to, || {
            let read = self.db.begin_read()?;
            let file = private::file()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(to)?;
            let mut builder = redb::Database::builder();
            let copy = builder
                .set_cache_size(CACHE)
                .create_with_backend(FileBackend::new(file)?)?;
            let write = copy.begin_write()?;
            for handle in read.list_tables()? {
                if handle.name() == META.name() {
                    let mut meta = write.open_table(META)?;
                    for row in read.open_table(META)?.iter()? {
                        let (key, value) = row?;
                        meta.insert(key.value(), value.value())?;
                    }
                    continue;
                }
                let table: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(handle.name());
                let mut rows = write.open_table(table)?;
                for row in read.open_table(table)?.iter()? {
                    let (key, value) = row?;
                    rows.insert(key.value(), value.value())?;
                }
            }
            Ok(write.commit()?)
        })
    }

    /// Writes batches, and a new schema if there is one, in one transaction with this number. It is on the disk when this
    /// returns.
    pub fn commit<'a>(
        &self,
        number: u64,
        schema: Option<u32>,
        batches: impl Iterator<Item = &'a Batch>,
    ) -> Result<(), StoreError> {
        guarded(&self.file, || {
            // Durability::Immediate is the default: commit returns after the fsync.
            let write = self.db.begin_write()?;
            let steps: Vec<&Step> = batches.flat_map(|b| &b.steps).collect();
            let names: BTreeSet<&'static str> = steps.iter().map(|s| s.table()).collect();
            for name in names {
                let mut table = write.open_table(table(name))?;
                for step in steps.iter().filter(|s| s.table() == name) {
                    match step {
                        Step::Put { key, value, .. } => {
                            table.insert(key.as_slice(), value.as_slice())?;
                        }
                        Step::Delete { key, .. } => {
                            table.remove(key.as_slice())?;
                        }
                    }
                }
            }
            {
                let mut meta = write.open_table(META)?;
                meta.insert(COMMITS, number)?;
                if let Some(schema) = schema {
                    meta.insert(SCHEMA, u64::from(schema))?;
                }
            }
            Ok(write.commit()?)
        })
    }
}
