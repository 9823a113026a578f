//! The RDMA functions of the adapters, as the control plane sees them.

use crossbeam_channel::bounded;
use vnic_engine::gids::GidError;

use super::Nic;
use crate::datapath::{Command, RdmaSnapshot};
use crate::types::{GidSetting, NicError, RdmaStatus};

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
            gids: s.gids,
            resources: s.resources,
        }))
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
            Err(_) => Err(NicError::NotFound {
                kind: "adapter with an RDMA function",
                name: adapter.spec.name.clone(),
            }),
        }
    }
}

/// What the table refused, in the words of the control plane.
fn refusal(error: GidError) -> NicError {
    let field = match error {
        GidError::Index { .. } | GidError::Held { .. } | GidError::NoIndex => "index",
        GidError::NotUnicast | GidError::Exists(_) => "gid",
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
