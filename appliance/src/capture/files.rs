//! Captures to files in the state directory.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::Sender;
use vnic_backend::rehearsal::{acts, rehearses};
use vnic_backend::{CaptureSpec, Nic, NicError};

use super::session::{End, Limits, Session};
use crate::private;

/// Greatest number of running captures to files.
pub const RUNNING_MAX: usize = 8;
/// Greatest number of ended captures that are kept in the list.
const ENDED_MAX: usize = 100;

/// State of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The capture is running.
    Running,
    /// A client or the end of the daemon stopped it.
    Stopped,
    /// A limit ended it.
    LimitReached,
    /// The file could not be written; the cause.
    Failed(String),
}

/// Capture to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Name of the file without its extension.
    pub id: String,
    /// Filter of the capture.
    pub spec: CaptureSpec,
    /// Limits of the capture.
    pub limits: Limits,
    /// Path of the file.
    pub path: PathBuf,
    /// State of the capture.
    pub state: State,
    /// Number of written frames.
    pub frames: u64,
    /// Number of written bytes.
    pub bytes: u64,
    /// Time of the start.
    pub start: SystemTime,
    /// Time of the end.
    pub end: Option<SystemTime>,
}

/// Error of a capture to a file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The NIC refused the capture.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// A capture or file of this name exists.
    #[error("capture {id} exists already: {}", path.display())]
    Exists {
        /// Name of the capture.
        id: String,
        /// Path of its file.
        path: PathBuf,
    },
    /// The greatest number of captures is running.
    #[error("{RUNNING_MAX} captures to files run already; stop one")]
    TooMany,
    /// The file could not be created.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// There is no capture of this name.
    #[error("no capture is named {0}")]
    NotFound(String),
}

struct Entry {
    info: Arc<Mutex<Info>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The captures to files of this daemon.
pub struct CaptureFiles {
    dir: PathBuf,
    entries: Mutex<Vec<Entry>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CaptureFiles {
    /// Makes an empty list. Files are created in `dir`, which is made when it is needed.
    pub fn new(dir: PathBuf) -> CaptureFiles {
        CaptureFiles {
            dir,
            entries: Mutex::default(),
        }
    }

    /// Starts a capture. Without an id it gets one that is made from the time.
    pub fn create(
        &self,
        nic: &Nic,
        id: Option<String>,
        spec: CaptureSpec,
        limits: Limits,
    ) -> Result<Info, CaptureError> {
        let mut entries = lock(&self.entries);
        let running = |e: &&Entry| lock(&e.info).state == State::Running;
        if entries.iter().filter(running).count() >= RUNNING_MAX {
            return Err(CaptureError::TooMany);
        }
        if rehearses() {
            let named = id.map(|id| (self.path(&id), id));
            if let Some((path, id)) = named.filter(|(path, _)| path.exists()) {
                return Err(CaptureError::Exists { id, path });
            }
            nic.capture(spec)?;
            return Err(NicError::Rehearsed.into());
        }
        private::directory(&self.dir).map_err(|source| CaptureError::File {
            path: self.dir.clone(),
            source,
        })?;
        let (id, path, file) = match id {
            Some(id) => {
                let path = self.path(&id);
                let file = new_file(&path).map_err(|source| refused(&id, &path, source))?;
                (id, path, file)
            }
            None => self.unnamed()?,
        };
        let capture = nic.capture(spec.clone()).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })?;
        let info = Arc::new(Mutex::new(Info {
            id,
            spec: spec.clone(),
            limits,
            path: path.clone(),
            state: State::Running,
            frames: 0,
            bytes: 0,
            start: SystemTime::now(),
            end: None,
        }));
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let session = Session::new(nic.clone(), spec.owners, spec.snaplen, limits);
        let shared = info.clone();
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || {
                let mut file = file;
                let mut failed = None;
                let end = session.run(&capture.frames, &stopped, |chunk, frames| {
                    if let Err(error) = file.write_all(&chunk) {
                        failed = Some(error.to_string());
                        return false;
                    }
                    let mut info = lock(&shared);
                    info.frames = frames;
                    info.bytes += chunk.len() as u64;
                    true
                });
                drop(capture);
                let mut info = lock(&shared);
                info.end = Some(SystemTime::now());
                info.state = match (end, failed) {
                    (_, Some(error)) => State::Failed(error),
                    (End::Failed(error), None) => State::Failed(error.to_string()),
                    (End::Limit, None) => State::LimitReached,
                    (End::Stopped | End::ReaderGone, None) => State::Stopped,
                };
                tracing::info!(
                    capture = info.id,
                    frames = info.frames,
                    state = ?info.state,
                    "capture ended"
                );
            })
            .map_err(|source| CaptureError::File {
                path: path.clone(),
                source,
            })?;
        let answer = lock(&info).clone();
        tracing::info!(capture = answer.id, path = %path.display(), "capture started");
        entries.push(Entry {
            info,
            stop: Some(stop),
            thread: Some(thread),
        });
        let ended = |e: &Entry| lock(&e.info).end.is_some();
        if entries.iter().filter(|e| ended(e)).count() > ENDED_MAX
            && let Some(oldest) = entries.iter().position(ended)
        {
            entries.remove(oldest);
        }
        Ok(answer)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.pcapng"))
    }

    /// Creates a file with a name that is made from the time.
    fn unnamed(&self) -> Result<(String, PathBuf, File), CaptureError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        for k in 0.. {
            let id = format!("capture-{}", now.as_millis() + k);
            let path = self.path(&id);
            match new_file(&path) {
                Ok(file) => return Ok((id, path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && k < 1000 => {}
                Err(source) => return Err(CaptureError::File { path, source }),
            }
        }
        unreachable!("the loop returns")
    }

    /// All captures, oldest first.
    pub fn list(&self) -> Vec<Info> {
        lock(&self.entries)
            .iter()
            .map(|e| lock(&e.info).clone())
            .collect()
    }

    /// Stops a capture and waits until its file is complete.
    pub fn stop(&self, id: &str) -> Result<Info, CaptureError> {
        let (info, thread) = {
            let mut entries = lock(&self.entries);
            let entry = entries
                .iter_mut()
                .find(|e| lock(&e.info).id == id)
                .ok_or_else(|| CaptureError::NotFound(id.to_owned()))?;
            acts()?;
            entry.stop = None;
            (entry.info.clone(), entry.thread.take())
        };
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!(capture = id, "a capture ended by a bug");
        }
        Ok(lock(&info).clone())
    }

    /// Stops all captures.
    pub fn stop_all(&self) {
        for info in self.list() {
            // An error means that the capture was removed from the list meanwhile.
            let _ = self.stop(&info.id);
        }
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    private::file().write(true).create_new(true).open(path)
}

fn refused(id: &str, path: &Path, source: io::Error) -> CaptureError {
    if source.kind() == io::ErrorKind::AlreadyExists {
        CaptureError::Exists {
            id: id.to_owned(),
            path: path.to_owned(),
        }
    } else {
        CaptureError::File {
            path: path.to_owned(),
            source,
        }
    }
}
