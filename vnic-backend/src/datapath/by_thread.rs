//! The thread that interrupts guests in place of their data cores (`ThreadedDpcEnable`, `TxThreadedDpcEnable`).

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::call::{Call, notify};

/// Interrupts that wait for the thread at most; beyond that data cores interrupt by themselves.
const CALLS: usize = 4096;

/// Handle of the thread that interrupts guests. It ends with the last handle.
#[derive(Clone)]
pub struct ByThread(Sender<Arc<Call>>);

impl ByThread {
    /// Starts the thread.
    pub fn start() -> io::Result<ByThread> {
        let (calls, waiting): (_, Receiver<Arc<Call>>) = bounded(CALLS);
        std::thread::Builder::new()
            .name("vnic-dpc-calls".into())
            .spawn(move || waiting.iter().for_each(|call| notify(Some(&call))))?;
        Ok(ByThread(calls))
    }

    /// Interrupts a guest, later.
    pub fn call(&self, call: &Arc<Call>) {
        if let Err(TrySendError::Full(call) | TrySendError::Disconnected(call)) =
            self.0.try_send(call.clone())
        {
            notify(Some(&call));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dpc::Dpc;
    use super::*;

    /// Whether a thread of this process has the name.
    fn runs(name: &str) -> bool {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        let names = threads
            .flatten()
            .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
        names.into_iter().any(|n| n.trim() == name)
    }

    #[test]
    fn threads_end_with_their_handles() {
        for _ in 0..50 {
            drop(ByThread::start().expect("a thread"));
            drop(Dpc::start(Vec::new()).expect("a thread"));
        }
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while runs("vnic-dpc") || runs("vnic-dpc-calls") {
            assert!(std::time::Instant::now() < deadline, "a thread goes on");
            std::thread::yield_now();
        }
    }
}
