//! Failures of RDMA functions on purpose.

use super::Nic;
use super::rdma::no_function;
use crate::rdma::Function;
use crate::rehearsal::acts;
use crate::types::{NicError, RdmaPort};

impl Nic {
    /// Sets what the port of an adapter's RDMA function says. Drivers hear of a port that came up or went down. No packet is held up:
    /// fault rules do that.
    pub fn set_rdma_port(&self, adapter: &str, port: RdmaPort) -> Result<(), NicError> {
        self.each_function(adapter, move |function| function.set_port(port))
    }

    /// Lets an adapter's RDMA function fail: the objects of its drivers end, and they hear that the device is dead until they reset
    /// it.
    pub fn fail_rdma(&self, adapter: &str) -> Result<(), NicError> {
        self.each_function(adapter, Function::fail)
    }

    /// Takes an adapter's RDMA function away, or gives it back. While it is away connections are closed, and no driver is taken.
    pub fn set_rdma_away(&self, adapter: &str, away: bool) -> Result<(), NicError> {
        self.each_function(adapter, move |function| function.set_away(away))?;
        let (_, rdma) = self.inner.endpoints(adapter)?;
        if let Some(rdma) = rdma.filter(|_| away) {
            rdma.restart();
        }
        Ok(())
    }

    /// Does something with an adapter's function and with the seats beside it.
    fn each_function(
        &self,
        adapter: &str,
        change: impl Fn(&mut Function) + Send + 'static,
    ) -> Result<(), NicError> {
        self.inner.adapter(adapter)?;
        acts()?;
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let done =
            self.inner.workers[adapter.core].call(move |w| w.functions.change(&mut w.core, id, change));
        match done {
            Some(true) => Ok(()),
            _ => Err(no_function(&adapter.spec().name)),
        }
    }
}
