//! RDMA functions of the control plane.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use vnic_engine::gids::GidError;
use vnic_engine::rdma::{OBSERVED_MAX, QpObservation, QpPage, QpStatus, VerbsError};
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::state::Running;
use super::{Nic, recording, subnet};
use crate::datapath::{Answer, Functions};
use crate::rdma::{Function, RdmaSnapshot};
use crate::rehearsal::{acts, rehearses};
use crate::types::subnet::{Group, GroupSpec, Policy};
use crate::types::{
    AdapterStatus, ConnectionPage, GidSetting, NicError, QUEUE_PAIRS_AT_ONCE, QpRate, RECORDED_MAX,
    RdmaEvent, RdmaOwners, RdmaPort, RdmaStatus, Recorded, RecordingStatus, SocketRole, SubnetPort, invalid,
};
use crate::vhost::Endpoint;

impl Nic {
    /// Status of an adapter's RDMA function; `None`: the adapter has none.
    pub fn rdma(&self, adapter: &str) -> Result<Option<RdmaStatus>, NicError> {
        let (adapter, rdma) = self.inner.endpoints(adapter)?;
        let (Some(socket), Some(rdma)) = (adapter.spec().rdma_socket.clone(), rdma) else {
            return Ok(None);
        };
        let (status, owners) = (rdma.status(), rdma.owners());
        let snapshot = self.start_snapshot(&adapter).wait().flatten();
        Ok(snapshot.map(|s| rdma_status(socket, &status, owners, s)))
    }

    /// Ports of all RDMA functions in the subnet, by the adapter's name.
    pub fn subnet_ports(&self) -> Vec<SubnetPort> {
        subnet::ports(&self.inner.lock())
    }

    /// Sets the policy by which drivers' questions for paths are answered; `None`: there is none.
    pub fn set_subnet_policy(&self, policy: Option<Arc<Policy>>) {
        self.inner.lock().subnet.policy = policy;
    }

    /// Makes a multicast group of the subnet, without members.
    pub fn create_group(&self, name: &str, spec: GroupSpec) -> Result<(), NicError> {
        subnet::create_group(&mut *self.inner.state()?, name, spec)
    }

    /// Removes a multicast group. Its members are told nothing: their queue pairs stay attached.
    pub fn remove_group(&self, name: &str) -> Result<(), NicError> {
        subnet::remove_group(&mut *self.inner.state()?, name)
    }

    /// The multicast groups, by name, with their members. Adapters that are gone are in none.
    pub fn groups(&self) -> Vec<(String, Group)> {
        subnet::groups(&mut self.inner.lock())
    }

    /// Status of all RDMA functions, by the adapter's name. All are asked before the first answer is waited for: no data core
    /// is woken more than once.
    pub fn rdma_functions(&self) -> Vec<(String, RdmaStatus)> {
        let asked: Vec<_> = {
            let state = self.inner.lock();
            let functions = state.adapters.iter().filter_map(|(name, entry)| {
                let (adapter, rdma) = (&entry.adapter, &entry.rdma.as_ref()?.endpoint);
                let socket = adapter.spec().rdma_socket.clone()?;
                let known = (name.clone(), socket, rdma.status(), rdma.owners());
                Some((known, self.start_snapshot(adapter)))
            });
            functions.collect()
        };
        let answered = asked
            .into_iter()
            .filter_map(|((name, socket, status, owners), answer)| {
                // A function that was removed meanwhile does not answer.
                let snapshot = answer.wait().flatten()?;
                Some((name, rdma_status(socket, &status, owners, snapshot)))
            });
        answered.collect()
    }

    /// Fills an entry of an adapter's GID table, the first free one without an index, or clears one. The operator's entry
    /// stays until the operator clears it or the adapter is removed. Returns the index.
    pub fn set_gid(
        &self,
        adapter: &str,
        index: Option<u16>,
        gid: Option<GidSetting>,
    ) -> Result<u16, NicError> {
        if rehearses() {
            let would = self.ask_functions(adapter, move |functions, id, _| {
                Some(functions.get_mut(id)?.may_set_gid(index, gid))
            })?;
            would.map_err(refusal)?;
        }
        acts()?;
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let set = self.inner.workers[adapter.core]
            .call(move |w| Some(w.functions.get_mut(id)?.set_gid_by_operator(index, gid)));
        let set = set.flatten().ok_or_else(|| no_function(&adapter.spec().name))?;
        set.map_err(refusal)
    }

    /// Queue pairs of an adapter behind a place, at most `most` and [`QUEUE_PAIRS_AT_ONCE`]: one question to the data core, so
    /// that none takes long. The page names the place behind which the next one begins.
    pub fn queue_pairs(&self, adapter: &str, behind: Option<u32>, most: usize) -> Result<QpPage, NicError> {
        let most = most.min(QUEUE_PAIRS_AT_ONCE);
        self.ask_functions(adapter, move |functions, id, now| {
            functions.queue_pairs(id, behind, most, now)
        })
    }

    /// Connections of an adapter behind a place, at most `most` and [`QUEUE_PAIRS_AT_ONCE`], as [`queue_pairs`](Nic::queue_pairs).
    pub fn connections(
        &self,
        adapter: &str,
        behind: Option<u64>,
        most: usize,
    ) -> Result<ConnectionPage, NicError> {
        let most = most.min(QUEUE_PAIRS_AT_ONCE);
        self.ask_functions(adapter, move |functions, id, _| {
            functions.connections(id, behind, most)
        })
    }

    /// Processes that have an adapter's RDMA function.
    pub fn rdma_owners(&self, adapter: &str) -> Result<RdmaOwners, NicError> {
        let (_, rdma) = self.inner.endpoints(adapter)?;
        Ok(rdma.map_or_else(RdmaOwners::default, |rdma| rdma.owners()))
    }

    /// A queue pair of an adapter.
    pub fn queue_pair(&self, adapter: &str, qp: u32) -> Result<QpStatus, NicError> {
        let (status, _) = self.observe_queue_pair(adapter, qp, None)?;
        Ok(status)
    }

    /// A queue pair of an adapter, with what was counted of it while somebody looks. With `keep` that begins, if it has not yet, and
    /// goes on for so long at least. Nothing is counted for those that nobody looks at; without `keep` that may be this one.
    pub fn observe_queue_pair(
        &self,
        adapter: &str,
        qp: u32,
        keep: Option<Duration>,
    ) -> Result<(QpStatus, Option<QpObservation>), NicError> {
        let found = self.ask_functions(adapter, move |functions, id, now| {
            functions.queue_pair(id, qp, keep, now)
        })?;
        let found = found.map_err(|_| no_queue_pair(qp))?;
        if keep.is_some() && found.1.is_none() {
            return Err(NicError::Limit(format!(
                "{OBSERVED_MAX} queue pairs of the RDMA function are observed, and it takes no more at a time"
            )));
        }
        Ok(found)
    }

    /// Asks the RDMA functions of an adapter's data core about the adapter's.
    fn ask_functions<R: Send + 'static>(
        &self,
        adapter: &str,
        question: impl FnOnce(&mut Functions, PortId, Instant) -> Option<R> + Send + 'static,
    ) -> Result<R, NicError> {
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let answer =
            self.inner.workers[adapter.core].ask(move |w| question(&mut w.functions, id, w.core.now));
        answer.flatten().ok_or_else(|| no_function(&adapter.spec().name))
    }

    /// Limits the rate of a queue pair, in kbit/s, whatever its own rate is; 0: no limit. It acts at once, in any state, and
    /// ends with the queue pair.
    pub fn set_qp_rate(&self, adapter: &str, qp: u32, kbps: u32) -> Result<(), NicError> {
        if rehearses() {
            self.queue_pair(adapter, qp)?;
        }
        acts()?;
        let adapter = self.inner.adapter(adapter)?;
        let id = adapter.id;
        let set =
            self.inner.workers[adapter.core].call(move |w| w.functions.set_ceiling(id, qp, kbps, w.core.now));
        let set = set.flatten().ok_or_else(|| no_function(&adapter.spec().name))?;
        set.map_err(|error| rate_refusal(error, qp))
    }

    /// Queue pairs of an adapter with a rate limit.
    pub fn qp_rates(&self, adapter: &str) -> Result<Vec<QpRate>, NicError> {
        self.ask_functions(adapter, |functions, id, _| functions.rates(id))
    }

    /// Sets what the port of an adapter's RDMA function says, and of its Ethernet function with a control queue: its link and its
    /// speed. Drivers hear of a port that came up or went down. No packet is held up: fault rules do that.
    pub fn set_rdma_port(&self, adapter: &str, port: RdmaPort) -> Result<(), NicError> {
        self.each_function(adapter, move |function| function.set_port(port))?;
        let (ethernet, _) = self.inner.endpoints(adapter)?;
        ethernet.set_port(port);
        Ok(())
    }

    /// Lets an adapter's RDMA function fail: the objects of its drivers end, and they hear that the device is dead until they reset
    /// it.
    pub fn fail_rdma(&self, adapter: &str) -> Result<(), NicError> {
        self.each_function(adapter, Function::fail)
    }

    /// Tells the drivers of an adapter's RDMA function of an event that has not happened; `object`: the port, or the index of a GID.
    pub fn tell_rdma(&self, adapter: &str, event: RdmaEvent, object: u32) -> Result<(), NicError> {
        self.each_function(adapter, move |function| function.tell(event, object))
    }

    /// Takes an adapter's RDMA function away, or gives it back. While it is away connections are closed, no driver is taken, and its
    /// socket has `.away` behind its name, so that processes do not find the device.
    pub fn set_rdma_away(&self, adapter: &str, away: bool) -> Result<(), NicError> {
        acts()?;
        let (_, rdma) = self.inner.endpoints(adapter)?;
        let rdma = rdma.ok_or_else(|| no_function(adapter))?;
        // Who loses the device finds no socket any more; who finds one gets the device.
        if away {
            rdma.rename_socket(|name| name.away = true)?;
            self.each_function(adapter, |function| function.set_away(true))?;
            rdma.restart();
            return Ok(());
        }
        self.each_function(adapter, |function| function.set_away(false))?;
        rdma.rename_socket(|name| name.away = false)
    }

    /// Gives the device of an adapter's RDMA function another number among those of a process, by its socket's name; `None`: that of its
    /// place. Who has it open keeps it.
    pub fn set_rdma_number(&self, adapter: &str, number: Option<u32>) -> Result<(), NicError> {
        acts()?;
        let (_, rdma) = self.inner.endpoints(adapter)?;
        let rdma = rdma.ok_or_else(|| no_function(adapter))?;
        if rdma.spec().socket_role == SocketRole::Connect {
            return invalid(
                "number",
                format!("{adapter} has no socket of the daemon's, by which processes find it"),
            );
        }
        rdma.rename_socket(|name| name.number = number)
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

    /// Begins to record the work requests of adapters, or of all that have an RDMA function now; of each process the newest
    /// `limit`. What the last recording noted is forgotten.
    pub fn start_recording(&self, adapters: &[String], limit: u32) -> Result<RecordingStatus, NicError> {
        if !(1..=RECORDED_MAX).contains(&limit) {
            return invalid("limit", format!("a recording keeps 1 to {RECORDED_MAX} requests"));
        }
        let mut state = self.inner.state()?;
        if state.recordings.running.is_some() {
            return Err(NicError::Exists {
                kind: "recording",
                name: "that runs".into(),
            });
        }
        let mut adapters = match adapters {
            [] => {
                let has = state.adapters.iter().filter(|(_, entry)| entry.rdma.is_some());
                has.map(|(name, _)| name.clone()).collect()
            }
            named => named.to_vec(),
        };
        adapters.sort();
        adapters.dedup();
        for name in &adapters {
            if state.adapter(name)?.rdma.is_none() {
                return Err(no_function(name));
            }
        }
        acts()?;
        let mut began = None;
        for adapter in adapters.iter().filter_map(|name| state.adapters.get(name)) {
            let id = adapter.adapter.id;
            let now = self.inner.workers[adapter.adapter.core].call(move |w| {
                for function in w.functions.each(id) {
                    function.record(Some(limit as usize), w.core.now);
                }
                w.core.now
            });
            began = began.or(now);
        }
        let status = RecordingStatus {
            adapters,
            limit,
            began: SystemTime::now(),
            runs: true,
            requests: 0,
            dropped: 0,
            lost: 0,
        };
        let adapters = status.adapters.clone();
        self.inner
            .hub
            .publish("", crate::types::NicEventKind::RecordingStarted { adapters });
        let began = began.unwrap_or_default();
        state.recordings.last = None;
        state.recordings.running = Some(Running {
            status: status.clone(),
            began,
        });
        Ok(status)
    }

    /// Ends the recording, and compares what was noted. An adapter that was removed has taken its part with it.
    pub fn stop_recording(&self) -> Result<RecordingStatus, NicError> {
        let mut state = self.inner.state()?;
        let running = state.recordings.running.clone();
        let running = running.ok_or(NicError::NotFound {
            kind: "recording",
            name: "running".into(),
        })?;
        acts()?;
        state.recordings.running = None;
        let mut all = Vec::new();
        for name in &running.status.adapters {
            let Some(adapter) = state.adapters.get(name).map(|entry| &entry.adapter) else {
                continue;
            };
            let id = adapter.id;
            let taken = self.inner.workers[adapter.core].call(move |w| {
                let mac = w.functions.get_mut(id)?.device().mac();
                let now = w.core.now;
                let journals = w.functions.each(id).flat_map(|f| f.record(None, now));
                Some((mac, journals.collect::<Vec<_>>()))
            });
            let Some((mac, mut journals)) = taken.flatten() else {
                continue;
            };
            journals.retain(|journal| !journal.is_empty());
            journals.sort_by_key(|journal| journal.began);
            let adapter = name.clone();
            all.push(recording::Recording {
                adapter,
                mac,
                journals,
            });
        }
        let others = recording::macs(&state);
        drop(state);
        let recorded = recording::compare(&running, &all, &others);
        let status = recorded.status.clone();
        self.inner.state()?.recordings.last = Some(recorded);
        let requests = status.requests;
        self.inner
            .hub
            .publish("", crate::types::NicEventKind::RecordingStopped { requests });
        Ok(status)
    }

    /// The recording that runs.
    pub fn recording(&self) -> Option<RecordingStatus> {
        let state = self.inner.lock();
        state.recordings.running.as_ref().map(|r| r.status.clone())
    }

    /// The recording that ended last, unless another one has begun.
    pub fn recorded(&self) -> Option<Recorded> {
        self.inner.lock().recordings.last.clone()
    }

    /// Asks for the state of an adapter's function. `None`: there is none.
    fn start_snapshot(&self, adapter: &Endpoint) -> Answer<Option<RdmaSnapshot>> {
        let id = adapter.id;
        self.inner.workers[adapter.core].start_ask(move |w| w.functions.snapshot(id))
    }
}

fn rdma_status(
    socket: PathBuf,
    status: &AdapterStatus,
    owners: RdmaOwners,
    function: RdmaSnapshot,
) -> RdmaStatus {
    RdmaStatus {
        socket,
        state: status.state,
        since: status.since,
        memory_bytes: status.memory_bytes,
        daemon_memory: function.memory,
        off: function.off,
        gids: function.gids,
        resources: function.resources,
        worst: function.worst,
        owners,
    }
}

pub(super) fn no_function(adapter: &str) -> NicError {
    NicError::NotFound {
        kind: "adapter with an RDMA function",
        name: adapter.into(),
    }
}

fn no_queue_pair(qp: u32) -> NicError {
    NicError::NotFound {
        kind: "queue pair",
        name: format!("{qp:#x}"),
    }
}

/// Refusal of a rate as an error of the control plane.
fn rate_refusal(error: VerbsError, qp: u32) -> NicError {
    match error {
        VerbsError::NoSuch(_) => no_queue_pair(qp),
        _ => NicError::Invalid {
            field: "rate_kbps",
            problem: error.to_string(),
        },
    }
}

/// Refusal of a GID as an error of the control plane.
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
