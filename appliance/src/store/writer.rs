//! The writer: a thread that writes all waiting batches in one transaction.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::StoreError;
use super::database::Database;
use super::mark::Mark;

/// Greatest number of batches in a transaction.
const TOGETHER_MAX: usize = 4096;

/// Step of a batch.
pub enum Step {
    /// Writes a row.
    Put {
        /// Table of the row.
        table: &'static str,
        /// Key of the row.
        key: Vec<u8>,
        /// Value of the row.
        value: Vec<u8>,
    },
    /// Removes a row, if it exists.
    Delete {
        /// Table of the row.
        table: &'static str,
        /// Key of the row.
        key: Vec<u8>,
    },
}

impl Step {
    /// Table of the step.
    pub fn table(&self) -> &'static str {
        match self {
            Step::Put { table, .. } | Step::Delete { table, .. } => table,
        }
    }
}

/// Steps that are carried out atomically, in this order.
#[derive(Default)]
pub struct Batch {
    pub(super) steps: Vec<Step>,
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Writes a row.
    pub fn put(
        &mut self,
        table: &'static str,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> &mut Batch {
        let (key, value) = (key.into(), value.into());
        self.steps.push(Step::Put { table, key, value });
        self
    }

    /// Removes a row, if it exists.
    pub fn delete(&mut self, table: &'static str, key: impl Into<Vec<u8>>) -> &mut Batch {
        let key = key.into();
        self.steps.push(Step::Delete { table, key });
        self
    }

    /// Whether the batch has no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Callback for a batch that is on the disk or has failed. It is dropped without a call if the store is closed.
pub type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Statistics of the writer.
#[derive(Default)]
pub struct Stats {
    pub batches: AtomicU64,
    pub commits: AtomicU64,
}

/// Queue of the writer.
pub struct Queue {
    sender: Option<Sender<(Batch, Done)>>,
    database: Arc<Database>,
    thread: Option<JoinHandle<()>>,
}

struct Writer {
    file: PathBuf,
    database: Arc<Database>,
    mark: Mark,
    commits: u64,
    /// Error of the first write that failed.
    failed: Option<StoreError>,
    stats: Arc<Stats>,
}

impl Queue {
    /// Starts the thread.
    pub fn start(
        file: PathBuf,
        database: Database,
        commits: u64,
        mark: Mark,
        stats: Arc<Stats>,
    ) -> io::Result<Queue> {
        // The callers bound the queue: each waits for its result.
        let (sender, receiver) = unbounded();
        let database = Arc::new(database);
        let mut writer = Writer {
            file,
            database: database.clone(),
            mark,
            commits,
            failed: None,
            stats,
        };
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(Queue {
            sender: Some(sender),
            database,
            thread: Some(thread),
        })
    }

    /// Submits a batch.
    pub fn write(&self, batch: Batch, done: Done) {
        if let Some(sender) = &self.sender {
            let _ = sender.send((batch, done));
        }
    }

    /// Database, for reads.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Writer {
    fn run(&mut self, receiver: &Receiver<(Batch, Done)>) {
        while let Ok(first) = receiver.recv() {
            let mut together = vec![first];
            // Batches that came during the last transaction.
            together.extend(receiver.try_iter().take(TOGETHER_MAX - 1));
            let result = self.write(&together);
            for (_, done) in together {
                done(result.clone());
            }
        }
    }

    fn write(&mut self, together: &[(Batch, Done)]) -> Result<(), StoreError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let number = self.commits + 1;
        let written = self
            .database
            .commit(number, None, together.iter().map(|(batch, _)| batch))
            .map_err(|e| e.to_string())
            .and_then(|()| self.mark.write(number).map_err(|e| e.to_string()));
        match written {
            Ok(()) => {
                self.commits = number;
                let count = u64::try_from(together.len()).unwrap_or(u64::MAX);
                self.stats.batches.fetch_add(count, Ordering::Relaxed);
                self.stats.commits.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(problem) => {
                let file = self.file.clone();
                let failed = StoreError::Failed { file, problem };
                tracing::error!("{failed}");
                self.failed = Some(failed.clone());
                Err(failed)
            }
        }
    }
}
