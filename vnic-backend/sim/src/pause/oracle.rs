//! The judge: what was sent, what arrived, what was dropped and whether that was allowed.

use vnic_fabric::{DropReason, Instant};

use super::plan::Plan;
use crate::oracle::{Judgement, Rule};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    UnderWay,
    Delivered,
    Dropped,
}

#[derive(Debug, Default)]
struct Record {
    fates: Vec<Fate>,
    /// Number of the frame that was delivered last, plus one.
    delivered: u32,
    /// Frames that are neither delivered nor dropped.
    under_way: u32,
    last: Instant,
}

/// See the module.
pub struct Oracle {
    lossless: u8,
    lifetimes: u8,
    flows: Vec<Record>,
}

impl Oracle {
    pub fn new(plan: &Plan) -> Oracle {
        Oracle {
            lossless: plan.lossless(),
            lifetimes: plan.qos.lifetimes.enable,
            flows: plan.flows.iter().map(|_| Record::default()).collect(),
        }
    }

    pub fn sent(&mut self, flow: usize) {
        self.flows[flow].fates.push(Fate::UnderWay);
        self.flows[flow].under_way += 1;
    }

    fn ends(&mut self, now: Instant, flow: usize, number: u32, fate: Fate) -> Judgement {
        let record = &mut self.flows[flow];
        let known = record.fates.get_mut(number as usize);
        match known {
            Some(f @ Fate::UnderWay) => *f = fate,
            other => {
                return Rule::Delivery.broken(format!(
                    "frame {number} of flow {flow} is {fate:?}, it was {other:?}"
                ));
            }
        }
        record.under_way -= 1;
        record.last = now;
        Ok(())
    }

    pub fn delivered(&mut self, now: Instant, flow: usize, number: u32) -> Judgement {
        self.ends(now, flow, number, Fate::Delivered)?;
        let record = &mut self.flows[flow];
        if number < record.delivered {
            return Rule::Delivery.broken(format!(
                "frame {number} of flow {flow} comes after frame {}",
                record.delivered - 1
            ));
        }
        record.delivered = number + 1;
        Ok(())
    }

    /// `tripped`: storm prevention has acted at the port; `stalled`: its guest takes nothing.
    pub fn dropped(
        &mut self,
        now: Instant,
        (flow, number, priority): (usize, u32, u8),
        reason: DropReason,
        tripped: bool,
        stalled: bool,
    ) -> Judgement {
        self.ends(now, flow, number, Fate::Dropped)?;
        let lossless = self.lossless & 1 << priority != 0;
        let allowed = match reason {
            DropReason::EgressFull => !lossless,
            DropReason::NoRxBuffer => !lossless && stalled,
            DropReason::LosslessOverflow => lossless && tripped,
            DropReason::HeadOfQueue | DropReason::ClassStalled => self.lifetimes != 0,
            _ => false,
        };
        if !allowed {
            return Rule::Delivery.broken(format!(
                "{reason:?} for frame {number} of flow {flow}, priority {priority}, at {} us",
                now.0 / 1000
            ));
        }
        Ok(())
    }

    /// Frames of a flow that are neither delivered nor dropped.
    pub fn under_way(&self, flow: usize) -> u32 {
        self.flows[flow].under_way
    }

    /// When the last frame of a flow was delivered or dropped.
    pub fn last(&self, flow: usize) -> Instant {
        self.flows[flow].last
    }
}
