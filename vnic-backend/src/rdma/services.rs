//! Services for which the processes that share a function listen: no two for the same.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use vnic_wire::cm::ServiceId;

/// The services of one process. They end with it.
#[derive(Debug, Default)]
pub struct Services {
    /// Those of all processes of the function. (All are on one data core: nobody waits for the lock.)
    all: Arc<Mutex<BTreeSet<ServiceId>>>,
    own: BTreeSet<ServiceId>,
}

impl Services {
    /// Those of another process of the same function.
    pub fn beside(&self) -> Services {
        Services {
            all: self.all.clone(),
            own: BTreeSet::new(),
        }
    }

    /// Takes a service. False: somebody has it.
    pub fn take(&mut self, service: ServiceId) -> bool {
        let fresh = self
            .all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(service);
        if fresh {
            self.own.insert(service);
        }
        fresh
    }

    /// Gives a service back.
    pub fn give(&mut self, service: ServiceId) {
        if self.own.remove(&service) {
            self.all
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&service);
        }
    }

    /// Gives all back.
    pub fn give_all(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for service in std::mem::take(&mut self.own) {
            all.remove(&service);
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.give_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_one_process_s_until_it_goes() {
        let (http, other) = (ServiceId(80), ServiceId(81));
        let mut first = Services::default();
        let mut second = first.beside();
        assert!(first.take(http) && !first.take(http) && !second.take(http));
        // Only its owner gives it back.
        second.give(http);
        assert!(!second.take(http) && second.take(other));
        first.give(http);
        assert!(second.take(http));
        drop(second);
        assert!(first.take(http) && first.take(other));
    }
}
