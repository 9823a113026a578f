//! The end: everything is flushed, judged, counted, and taken down.

use vnic_engine::rdma::QpState;

use super::world::{World, granted};
use crate::oracle::{Finish, Judgement, Rule};

impl World {
    /// Moves every queue pair to error, polls what comes of it, and judges.
    pub(super) fn settle(&mut self) -> Judgement<Finish> {
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
        let finish = self.oracle.finish()?;
        self.audit()?;
        self.take_down()?;
        Ok(finish)
    }

    /// Destroys everything, in an order in which nothing is in use.
    fn take_down(&mut self) -> Judgement {
        for slot in self.living() {
            let (dev, number) = (self.slot(slot).dev, self.number(slot));
            self.leave_all(slot)?;
            granted("destroy_qp", self.device(dev).destroy_qp(number))?;
        }
        for r in &self.receives {
            if let Some(srq) = r.srq {
                granted("destroy_srq", self.nodes[r.dev].device().destroy_srq(srq))?;
            }
        }
        for (dev, node) in self.nodes.iter_mut().enumerate() {
            let Some(device) = &mut node.device else { continue };
            for ah in &node.ahs {
                granted("destroy_ah", device.destroy_ah(ah.ah))?;
            }
            for window in &node.windows {
                granted("dealloc_mw", device.dealloc_mw(window.mw))?;
            }
            for region in node.regions.iter().filter(|r| !r.deregistered) {
                granted("deregister", device.deregister(region.mr))?;
            }
            for cq in &node.cqs {
                granted("destroy_cq", device.destroy_cq(cq.handle))?;
            }
            if let Some(xrcd) = node.xrcd {
                granted("close_xrcd", device.close_xrcd(xrcd))?;
            }
            for pd in &node.pds {
                granted("dealloc_pd", device.dealloc_pd(*pd))?;
            }
            for (name, usage) in device.resources().iter() {
                if usage.used > 0 && name != "gid" {
                    return Rule::Verb.broken(format!(
                        "dev{dev}: all is destroyed, and {} {name} are in use",
                        usage.used
                    ));
                }
            }
        }
        Ok(())
    }
}
