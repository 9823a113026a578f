//! The program of congestion control that an adapter's flows have.

use std::sync::{Arc, Mutex, PoisonError};

use vnic_engine::congestion::program::Running;

use crate::types::{Faults, Program};

/// The program that runs for an adapter's flows. A change of anything else leaves it, and what it has counted, as it is.
#[derive(Default)]
pub struct Loaded(Mutex<Option<Arc<Running>>>);

impl Loaded {
    /// Events that it could not handle.
    pub fn faults(&self) -> Faults {
        self.running().map_or_else(Faults::default, |r| r.faults())
    }

    fn running(&self) -> Option<Arc<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a program begin anew.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The running program; another one than before begins.
    pub fn run(&self, program: &Program) -> Arc<Running> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Some(running) if running.program() == program => running.clone(),
            _ => running.insert(program.running()).clone(),
        }
    }
}
