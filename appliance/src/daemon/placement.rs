//! CPU affinity of the control plane's threads: off the data cores, if possible.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Moves the calling thread, and the threads that it will start, to the CPUs that are not data cores. If there is none, the affinity stays.
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
