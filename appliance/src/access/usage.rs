//! Use of a connection: whether requests are in progress, and which connection was used last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Peer;

/// Number of uses of all connections. It is their order in time.
static USES: AtomicU64 = AtomicU64::new(0);

/// Use of a connection.
#[derive(Debug)]
pub struct Usage {
    /// Number of requests and streams in progress.
    requests: AtomicUsize,
    /// Number of the last use: the acceptance of the connection, or the beginning or end of a request.
    last: AtomicU64,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage {
            requests: AtomicUsize::new(0),
            last: AtomicU64::new(USES.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl Usage {
    /// Number of the last use if no request is in progress. A connection with a smaller one has been idle for longer.
    pub fn idle_since(&self) -> Option<u64> {
        let idle = self.requests.load(Ordering::Acquire) == 0;
        idle.then(|| self.last.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        self.last
            .store(USES.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct InProgress(Arc<Peer>);

impl InProgress {
    /// Begins a request of a client.
    pub fn begin(peer: Arc<Peer>) -> InProgress {
        peer.usage.requests.fetch_add(1, Ordering::AcqRel);
        peer.usage.touch();
        InProgress(peer)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.usage.touch();
        self.0.usage.requests.fetch_sub(1, Ordering::AcqRel);
    }
}
