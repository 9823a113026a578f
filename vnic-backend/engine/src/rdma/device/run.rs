//! Runs of packets from a neighbour.

use vnic_wire::roce::Ecn;
use vnic_wire::time::Instant;

use super::super::memory::Memory;
use super::super::run::Run;
use super::Device;

impl Device {
    /// Takes a run from a neighbour. Packets at its front that are not special are carried out, as if they had been
    /// [received](Device::receive) one by one; returns their number. The others have not come yet.
    #[inline]
    pub fn receive_run(&mut self, now: Instant, run: &Run<'_>, memory: &dyn Memory) -> usize {
        let shared = &mut self.shared;
        let path = run.path();
        if shared.apart || path.vlan.is_some() || Ecn::of(path.network.traffic_class()) == Ecn::Ce {
            return self.tell_run_apart(now, run, memory);
        }
        shared.now = now;
        match self.qps.get_mut(run.to.0) {
            Some(qp) => qp.receive_run(shared, run, memory),
            None => 0,
        }
    }

    /// Sorted, tagged and marked packets are told from each other one by one. Others come as a run also when a queue pair is
    /// observed.
    #[cold]
    #[inline(never)]
    fn tell_run_apart(&mut self, now: Instant, run: &Run<'_>, memory: &dyn Memory) -> usize {
        let (shared, path) = (&mut self.shared, run.path());
        let marked = Ecn::of(path.network.traffic_class()) == Ecn::Ce;
        if shared.marking.sorts() || path.vlan.is_some() || marked {
            return 0;
        }
        shared.now = now;
        let taken = match self.qps.get_mut(run.to.0) {
            Some(qp) => qp.receive_run(shared, run, memory),
            None => 0,
        };
        if let Some(observed) = &mut shared.observed {
            observed.run_came(run.to, run, taken);
        }
        taken
    }
}
