//! What the guests of a torture run know of the daemon, and the books that they keep.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Long before this whatever is to happen has happened, on a machine with much else to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon, as far as guests know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be attached to; nothing may be lost.
    Up,
    /// It is about to be killed, or just was: go on.
    Ending,
    /// It is dead.
    Down,
    /// All is over: end what is under way.
    Over,
}

/// Which daemon there is, and where.
pub(super) struct Stage {
    phase: AtomicU64,
    dir: PathBuf,
}

impl Stage {
    pub(super) fn new(dir: &Path) -> Stage {
        Stage {
            phase: AtomicU64::new(State::Down as u64),
            dir: dir.to_path_buf(),
        }
    }

    pub(super) fn set(&self, generation: u64, state: State) {
        let phase = generation << 2 | state as u64;
        self.phase.store(phase, Ordering::SeqCst);
    }

    /// The generation, and its state.
    pub(super) fn now(&self) -> (u64, State) {
        let phase = self.phase.load(Ordering::SeqCst);
        let state = match phase & 3 {
            0 => State::Up,
            1 => State::Ending,
            2 => State::Down,
            _ => State::Over,
        };
        (phase >> 2, state)
    }

    /// Does this generation live? What fails while it does is its own fault.
    pub(super) fn lives(&self, generation: u64) -> bool {
        matches!(self.now(), (g, State::Up | State::Over) if g == generation)
    }

    /// A socket of `vf<index>`: `eth` or `rdma`.
    pub(super) fn socket(&self, index: usize, function: &str) -> PathBuf {
        self.dir.join(format!("vf{index}-{function}.sock"))
    }
}

/// What a pair has done: frames or messages.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Begun.
    pub(super) begun: AtomicU64,
    /// Arrived whole.
    pub(super) done: AtomicU64,
    /// Lost with a daemon.
    pub(super) lost: AtomicU64,
    /// Bytes that were compared.
    pub(super) bytes: AtomicU64,
    /// The generation in which traffic flows, in both directions.
    pub(super) flows: AtomicU64,
}

/// The same at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) begun: u64,
    pub(super) done: u64,
    pub(super) lost: u64,
    pub(super) bytes: u64,
}

impl Books {
    pub(super) fn add(to: &AtomicU64, n: u64) {
        to.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> Count {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        // (What is done or lost was begun before.)
        let (done, lost) = (load(&self.done), load(&self.lost));
        Count {
            begun: load(&self.begun),
            done,
            lost,
            bytes: load(&self.bytes),
        }
    }

    pub(super) fn flows_in(&self, generation: u64) -> bool {
        self.flows.load(Ordering::Relaxed) == generation
    }
}

impl Count {
    /// What is neither done nor lost.
    pub(super) fn under_way(self) -> u64 {
        self.begun.saturating_sub(self.done + self.lost)
    }

    /// What came on top since `earlier`.
    pub(super) fn since(self, earlier: Count) -> Count {
        Count {
            begun: self.begun - earlier.begun,
            done: self.done - earlier.done,
            lost: self.lost - earlier.lost,
            bytes: self.bytes - earlier.bytes,
        }
    }
}
