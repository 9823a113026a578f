//! The RDMA functions of the adapters, as the control plane sees them.

use crossbeam_channel::bounded;
use vnic_engine::gids::GidError;
use vnic_engine::rdma::VerbsError;

use super::Nic;
use crate::datapath::{Command, RdmaSnapshot};
use crate::types::{GidSetting, NicError, QpRate, RdmaStatus};

impl Nic {
    /// The RDMA function of an adapter; `None` when it has none.
    pub fn rdma(&self, adapter: &str) -> Result<Option<RdmaStatus>, NicError> {
        let (adapter, rdma) = self.inner.endpoints(adapter)?;
        let (Some(socket), Some(rdma)) = (adapter.spec.rdma_socket.clone(), rdma) else {
            return Ok(None);
        };
        let status = rdma.status();
        let (reply, answer) = bounded(1);
        self.inner.workers[adapter.core].send(Command::RdmaQuery {
            id: adapter.id,
            reply,
        });
        Ok(answer.recv().ok().map(|s: RdmaSnapshot| RdmaStatus {
            socket,
            state: status.state,
            since: status.since,
            memory_bytes: status.memory_bytes,
            daemon_memory: s.memory,
            off: s.off,
            gids: s.gids,
            resources: s.resources,
        }))
    }

    /// The RDMA functions of all adapters that have one, by the adapter's name. All are asked before the first answer is
    /// waited for: however many there are, no data core is woken more than once.
    pub fn rdma_functions(&self) -> Vec<(String, RdmaStatus)> {
        let asked: Vec<_> = {
            let state = self.inner.lock();
            let functions = state.adapters.iter().filter_map(|(name, entry)| {
                let (adapter, rdma) = (&entry.adapter, entry.rdma.as_ref()?.endpoint.status());
                let socket = adapter.spec.rdma_socket.clone()?;
                let (reply, answer) = bounded(1);
                let id = adapter.id;
                self.inner.workers[adapter.core].send(Command::RdmaQuery { id, reply });
                Some((name.clone(), socket, rdma, answer))
            });
            functions.collect()
        };
        let answered = asked.into_iter().filter_map(|(name, socket, status, answer)| {
            // One that has been removed meanwhile does not answer.
            let s: RdmaSnapshot = answer.recv().ok()?;
            let status = RdmaStatus {
                socket,
                state: status.state,
                since: status.since,
                memory_bytes: status.memory_bytes,
                daemon_memory: s.memory,
                off: s.off,
                gids: s.gids,
                resources: s.resources,
            };
            Some((name, status))
        });
        answered.collect()
    }

    /// Fills an entry of an adapter's GID table, the first free one when no index is given, or clears one. What is
    /// set here stays until it is cleared here, or the adapter is removed. Answers the index.
    pub fn set_gid(
        &self,
        adapter: &str,
        index: Option<u16>,
        gid: Option<GidSetting>,
    ) -> Result<u16, NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let (reply, answer) = bounded(1);
        self.inner.workers[adapter.core].send(Command::RdmaSetGid {
            id: adapter.id,
            index,
            gid,
            reply,
        });
        match answer.recv() {
            Ok(result) => result.map_err(refusal),
            Err(_) => Err(no_function(&adapter.spec.name)),
        }
    }

    /// Sets the most that a queue pair may send, in kbit/s, whatever its own rate is; 0: any. At once, in any state; it ends
    /// with the queue pair.
    pub fn set_qp_rate(&self, adapter: &str, qp: u32, kbps: u32) -> Result<(), NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let (reply, answer) = bounded(1);
        let id = adapter.id;
        self.inner.workers[adapter.core].send(Command::RdmaSetRate { id, qp, kbps, reply });
        match answer.recv() {
            Ok(result) => result.map_err(|error| rate_refusal(error, qp)),
            Err(_) => Err(no_function(&adapter.spec.name)),
        }
    }

    /// Queue pairs of an adapter that have a rate.
    pub fn qp_rates(&self, adapter: &str) -> Result<Vec<QpRate>, NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let (reply, answer) = bounded(1);
        let id = adapter.id;
        self.inner.workers[adapter.core].send(Command::RdmaRates { id, reply });
        answer.recv().map_err(|_| no_function(&adapter.spec.name))
    }
}

pub(super) fn no_function(adapter: &str) -> NicError {
    NicError::NotFound {
        kind: "adapter with an RDMA function",
        name: adapter.into(),
    }
}

/// Why a rate was refused, in the words of the control plane.
fn rate_refusal(error: VerbsError, qp: u32) -> NicError {
    match error {
        VerbsError::NoSuch(_) => NicError::NotFound {
            kind: "queue pair",
            name: format!("{qp:#x}"),
        },
        _ => NicError::Invalid {
            field: "rate_kbps",
            problem: error.to_string(),
        },
    }
}

/// What the table refused, in the words of the control plane.
fn refusal(error: GidError) -> NicError {
    let field = match error {
        GidError::Index { .. } | GidError::Held { .. } | GidError::NoIndex => "index",
        GidError::NotUnicast | GidError::NotAllowed(_) | GidError::Exists(_) => "gid",
        GidError::Kind => "version",
        GidError::Vlan(_) => "vlan",
        GidError::Mac(_) => "mac",
        GidError::Empty(index) => {
            return NicError::NotFound {
                kind: "GID",
                name: format!("index {index}"),
            };
        }
        GidError::Full(_) => return NicError::Limit(error.to_string()),
    };
    NicError::Invalid {
        field,
        problem: error.to_string(),
    }
}
