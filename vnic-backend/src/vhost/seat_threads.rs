//! Threads of processes that share an RDMA function: one speaks with each, so that one that stalls stalls only itself.

use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Sender, unbounded};

use super::endpoint::Endpoint;
use crate::confine::Filter;
use crate::types::{NicError, SocketRole};

type Job = (String, Box<dyn FnOnce() + Send>);

/// Starts threads for threads that may not: those of sockets are kept from it.
static STARTER: OnceLock<Sender<Job>> = OnceLock::new();

/// Starts threads of processes at a socket.
pub struct SeatThreads {
    starter: &'static Sender<Job>,
    confine: bool,
}

impl SeatThreads {
    /// For threads that are kept from system calls that they do not need, with `confine`.
    pub fn new(confine: bool) -> Result<SeatThreads, NicError> {
        if let Some(starter) = STARTER.get() {
            return Ok(SeatThreads { starter, confine });
        }
        let (starter, jobs) = unbounded::<Job>();
        std::thread::Builder::new()
            .name("seat-starter".into())
            .spawn(move || {
                for (name, job) in jobs {
                    // Without a thread the job is dropped, and with it the connection.
                    let _ = std::thread::Builder::new().name(name).spawn(job);
                }
            })
            .map_err(NicError::os("starting a thread"))?;
        Ok(SeatThreads {
            starter: STARTER.get_or_init(|| starter),
            confine,
        })
    }

    /// Starts a thread for a process at an adapter; `first`: what the thread does while it may open files.
    pub fn start(
        &self,
        endpoint: &Arc<Endpoint>,
        first: impl FnOnce() + Send + 'static,
        work: impl FnOnce() + Send + 'static,
    ) {
        let name = format!("rdma-{}", endpoint.spec().name);
        let confine = self.confine;
        let job = move || {
            first();
            let filter = confine.then(|| Filter::socket(SocketRole::Listen)).transpose();
            let confined = filter.and_then(|filter| filter.map_or(Ok(()), |filter| filter.enter()));
            if confined.is_ok() {
                work();
            }
        };
        let _ = self.starter.send((name, Box::new(job)));
    }
}
