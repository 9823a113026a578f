//! Flows: frames that come for an adapter and are for raw packet queue pairs of the processes that share its function.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vnic_device::command::NONE;
use vnic_device::command::flow::{CreateFlow, CreateHashQp};
use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::QpNumber;
use vnic_engine::rdma::steering::{FlowError, Steering, Taken};

use super::request::{Failure, Outcome, fail};

/// Flows of all processes. (All are on one data core, as the adapter is: nobody waits for the lock.)
#[derive(Debug, Default)]
struct All {
    /// Number of flows, so that whoever only wants to know whether there are any takes no lock.
    count: AtomicUsize,
    steering: Mutex<Steering>,
}

impl All {
    fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Steering) -> R) -> R {
        let mut steering = self.steering();
        let result = change(&mut steering);
        self.count.store(steering.len(), Ordering::Relaxed);
        result
    }
}

/// Flows as the receiving side of an adapter sees them.
#[derive(Debug, Clone)]
pub struct AdapterFlows(Arc<All>);

impl AdapterFlows {
    /// Who has a frame that begins with these bytes.
    pub fn find(&self, head: &[u8]) -> Taken {
        self.0.steering().find(head)
    }
}

/// The flows of one process. They end with it.
#[derive(Debug, Default)]
pub struct Flows {
    all: Arc<All>,
    /// Number and queue pair, by handle.
    own: BTreeMap<u32, (u64, QpNumber)>,
    /// Hash queue pairs of this process.
    hash_qps: BTreeSet<QpNumber>,
}

/// Why the driver does not get what it asked for.
fn refused<T>(error: FlowError) -> Result<T, Failure> {
    let status = match error {
        FlowError::Invalid(_) => S::Invalid,
        FlowError::Priority(_) | FlowError::Entries(_) => S::OutOfRange,
        FlowError::Flows | FlowError::Sets | FlowError::Sniffers | FlowError::HashQps => S::LimitReached,
    };
    fail(status, error.to_string())
}

impl Flows {
    /// Those of another process of the same function.
    pub fn beside(&self) -> Flows {
        Flows {
            all: self.all.clone(),
            own: BTreeMap::new(),
            hash_qps: BTreeSet::new(),
        }
    }

    /// The flows of all processes, if there are any.
    #[inline]
    pub fn of_all(&self) -> Option<AdapterFlows> {
        (self.all.count.load(Ordering::Relaxed) > 0).then(|| AdapterFlows(self.all.clone()))
    }

    /// Sets the UDP port of VXLAN, for the flows of all processes.
    pub fn set_vxlan_port(&mut self, port: u16) {
        self.all.steering().vxlan_port = port;
    }

    /// UDP port of VXLAN.
    pub fn vxlan_port(&self) -> u16 {
        self.all.steering().vxlan_port
    }

    /// Number of flows of this process.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether a flow leads to a queue pair.
    pub fn lead_to(&self, qp: QpNumber) -> bool {
        self.own.values().any(|(_, of)| *of == qp)
    }

    /// Whether a hash queue pair has a queue pair in its table.
    pub fn spread_over(&self, qp: QpNumber) -> bool {
        let all = self.all.steering();
        self.hash_qps.iter().any(|number| all.spreads_over(*number, qp))
    }

    /// Number of hash queue pairs of this process.
    pub fn hash_qps(&self) -> usize {
        self.hash_qps.len()
    }

    /// Whether this is a hash queue pair of this process.
    pub fn has_hash_qp(&self, number: QpNumber) -> bool {
        self.hash_qps.contains(&number)
    }

    /// Makes a hash queue pair, of queue pairs of this process. Returns its number.
    pub fn insert_hash_qp(&mut self, wanted: &CreateHashQp) -> Result<QpNumber, Failure> {
        let made = self.all.steering().insert_hash_qp(wanted);
        match made {
            Ok(Some(number)) => {
                self.hash_qps.insert(number);
                Ok(number)
            }
            Ok(None) => fail(
                S::NotSupported,
                format!(
                    "there are hash types among {:#x} that there are not",
                    wanted.hash_types
                ),
            ),
            Err(error) => refused(error),
        }
    }

    /// Ends a hash queue pair. Refused while flows lead to it.
    pub fn remove_hash_qp(&mut self, number: QpNumber) -> Outcome {
        if !self.has_hash_qp(number) {
            return fail(
                S::NoSuchObject,
                format!("no such hash queue pair as {:#x}", number.0),
            );
        }
        if self.lead_to(number) {
            return fail(S::InUse, "flows lead to it");
        }
        self.hash_qps.remove(&number);
        self.all.steering().remove_hash_qp(number);
        Ok(())
    }

    /// Makes a flow. Returns its handle.
    pub fn insert(&mut self, flow: &CreateFlow) -> Result<u32, Failure> {
        let made = self.all.change(|all| all.insert(flow));
        let id = match made {
            Ok(Some(id)) => id,
            Ok(None) => {
                let text = format!(
                    "there are no flows of kind {} with headers {:#x}",
                    flow.kind, flow.headers
                );
                return fail(S::NotSupported, text);
            }
            Err(error) => return refused(error),
        };
        let handle = (id % u64::from(NONE)) as u32;
        if self.own.contains_key(&handle) {
            self.all.change(|all| all.remove(id));
            return fail(S::LimitReached, "a flow of long ago still has the next handle");
        }
        self.own.insert(handle, (id, QpNumber(flow.qp)));
        Ok(handle)
    }

    /// Ends a flow.
    pub fn remove(&mut self, handle: u32) -> Outcome {
        match self.own.remove(&handle) {
            Some((id, _)) => {
                self.all.change(|all| all.remove(id));
                Ok(())
            }
            None => fail(S::NoSuchObject, format!("no such flow as {handle:#x}")),
        }
    }

    /// Ends all.
    pub fn end_all(&mut self) {
        let own = std::mem::take(&mut self.own);
        let hash_qps = std::mem::take(&mut self.hash_qps);
        if !own.is_empty() || !hash_qps.is_empty() {
            self.all.change(|all| {
                for (id, _) in own.into_values() {
                    all.remove(id);
                }
                for number in hash_qps {
                    all.remove_hash_qp(number);
                }
            });
        }
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_end_with_their_process_and_are_nobody_elses() {
        let flow = |qp| CreateFlow {
            qp,
            kind: 1,
            ..CreateFlow::default()
        };
        let frame = [2; 60];
        let mut first = Flows::default();
        let mut second = first.beside();
        assert!(first.of_all().is_none());
        let handle = first.insert(&flow(7)).expect("room");
        second.insert(&flow(8)).expect("room");
        let all = second.of_all().expect("flows");
        assert_eq!(all.find(&frame).by, Some(QpNumber(7)));
        assert!(second.remove(handle).is_err());
        assert!(first.lead_to(QpNumber(7)) && !second.lead_to(QpNumber(7)));
        drop(first);
        assert_eq!(all.find(&frame).by, Some(QpNumber(8)));
        second.end_all();
        assert!(all.find(&frame).is_nobody() && second.of_all().is_none());
    }

    #[test]
    fn a_hash_queue_pair_is_its_process_own_and_ends_with_it() {
        let mut wanted = CreateHashQp {
            entries: 1,
            ..CreateHashQp::default()
        };
        wanted.table[0] = 7;
        let mut first = Flows::default();
        let mut second = first.beside();
        let number = first.insert_hash_qp(&wanted).expect("room");
        assert!(first.spread_over(QpNumber(7)) && !first.spread_over(QpNumber(8)));
        assert!(!second.spread_over(QpNumber(7)) && !second.has_hash_qp(number));
        assert!(second.remove_hash_qp(number).is_err());
        let flow = CreateFlow {
            qp: number.0,
            kind: 1,
            ..CreateFlow::default()
        };
        let handle = first.insert(&flow).expect("room");
        let all = second.of_all().expect("flows");
        assert_eq!(all.find(&[2; 60]).by, Some(QpNumber(7)));
        assert!(first.remove_hash_qp(number).is_err(), "a flow leads to it");
        assert!(first.remove(handle).is_ok() && first.remove_hash_qp(number).is_ok());
        // All processes together have room for so many.
        while first.insert_hash_qp(&wanted).is_ok() {}
        assert!(second.insert_hash_qp(&wanted).is_err());
        drop(first);
        assert!(second.insert_hash_qp(&wanted).is_ok());
    }
}
