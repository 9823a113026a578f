//! Guests and VMMs that break the rules: they harm themselves only.

mod rdma;
mod ring;
mod ring_fuzz;
mod vmm;
mod vmm_budget;
