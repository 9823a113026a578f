//! Keeps the control plane's threads off the data cores, where that is possible.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Moves the calling thread, and the threads it will start, to the CPUs that are not data cores. With no such
/// CPU everything stays where it is.
pub fn leave_data_cores(cpus: &[usize], data_cores: &[usize]) {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| !data_cores.contains(cpu)) {
        set.set(*cpu);
    }
    if set.count() == 0 {
        tracing::warn!("every CPU is a data core: the control plane shares them");
    } else if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!("cannot keep the control plane off the data cores: {error}");
    }
}
