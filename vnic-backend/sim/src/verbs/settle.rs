//! The end: everything is flushed, judged, counted, and taken down.

use vnic_engine::rdma::{QpState, VerbsError};

use super::world::{Step, Stop, World, refused};
use crate::oracle::{Finish, Rule, broken};

impl World {
    /// Moves every queue pair to error, polls what comes of it, and judges.
    pub(super) fn settle(&mut self) -> Result<Finish, Stop> {
        for slot in self.living() {
            let (dev, number) = (self.slot(slot).dev, self.number(slot));
            let state = self.state_of(dev, number)?;
            self.slot_mut(slot).attributes.state = state;
            // Those that are in error already have flushed all.
            if state != QpState::Err {
                self.step_to(slot, QpState::Err)?;
            }
        }
        self.until_quiet()?;
        let memories = self.memories.clone();
        let finish = self.oracle.finish(&memories)?;
        self.audit()?;
        self.take_down()?;
        Ok(finish)
    }

    /// Destroys everything, in an order in which nothing is in use.
    fn take_down(&mut self) -> Step {
        let gone = |what: &str, r: Result<(), VerbsError>| r.or_else(|e| refused(what, e));
        for slot in self.living() {
            let (dev, number) = (self.slot(slot).dev, self.number(slot));
            for (_, gid) in self.nodes[dev]
                .groups
                .iter()
                .filter(|(s, _)| *s == slot)
                .copied()
                .collect::<Vec<_>>()
            {
                gone(
                    "detach_multicast",
                    self.nodes[dev].device().detach_multicast(number, gid),
                )?;
            }
            gone("destroy_qp", self.nodes[dev].device().destroy_qp(number))?;
        }
        for r in &self.receives {
            if let Some(srq) = r.srq {
                gone("destroy_srq", self.nodes[r.dev].device().destroy_srq(srq))?;
            }
        }
        for (dev, node) in self.nodes.iter_mut().enumerate() {
            let Some(device) = &mut node.device else { continue };
            for ah in &node.ahs {
                gone("destroy_ah", device.destroy_ah(ah.ah))?;
            }
            for window in &node.windows {
                gone("dealloc_mw", device.dealloc_mw(window.mw))?;
            }
            for region in node.regions.iter().filter(|r| !r.deregistered) {
                gone("deregister", device.deregister(region.mr))?;
            }
            for cq in &node.cqs {
                gone("destroy_cq", device.destroy_cq(cq.handle))?;
            }
            if let Some(xrcd) = node.xrcd {
                gone("close_xrcd", device.close_xrcd(xrcd))?;
            }
            for pd in &node.pds {
                gone("dealloc_pd", device.dealloc_pd(*pd))?;
            }
            for (name, usage) in device.resources().iter() {
                if usage.used > 0 && name != "gid" {
                    return broken(
                        Rule::Verb,
                        format!("dev{dev}: all is destroyed, and {} {name} are in use", usage.used),
                    )
                    .map_err(Stop::Broken);
                }
            }
        }
        Ok(())
    }
}
