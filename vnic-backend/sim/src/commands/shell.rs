//! Random use of what shells with queues of their own have, and what must hold of it.

use std::collections::HashMap;

use vnic_engine::rdma::{Span, VerbsError};

use super::model::Kind;
use super::{Fuzz, MEMORY, values};
use crate::oracle::{Judgement, Rule};

/// Completions that waited in each queue when the list was read last.
pub type Waited = HashMap<u32, u32>;

impl Fuzz {
    /// A broken request, a failure, memory that goes away, or the list of queues that got something.
    pub(super) fn shell(&mut self, dev: usize) -> (String, Result<(), VerbsError>) {
        let qp = values::qp(self.pick(dev, Kind::Qp));
        let srq = values::srq(self.pick(dev, Kind::Srq));
        let cq = values::cq(self.pick(dev, Kind::Cq));
        let rng = &mut self.rng;
        let device = &mut self.devices[dev];
        let id = rng.u64(..);
        let tag = id as u32;
        match rng.u32(0..20) {
            0..=7 => {
                let status = values::status(rng);
                let what = format!("post_failed_send {qp:?} {id:#x} {status:?}");
                (what, device.post_failed_send(qp, id, tag, status))
            }
            8 => {
                device.fault_send(qp, id, tag);
                (format!("fault_send {qp:?} {id:#x}"), Ok(()))
            }
            9 => {
                device.fault_receive(qp, id, tag);
                (format!("fault_receive {qp:?} {id:#x}"), Ok(()))
            }
            10 => {
                device.fail_qp(qp);
                (format!("fail_qp {qp:?}"), Ok(()))
            }
            11 => {
                device.fail_srq(srq);
                (format!("fail_srq {srq:?}"), Ok(()))
            }
            12 => {
                let at = rng.u64(0..MEMORY as u64);
                let there = |span: Span| span.at > at || span.at + span.len <= at;
                let lost = device.lose_memory(&there);
                (format!("lose_memory {at:#x}: {lost:?}"), Ok(()))
            }
            _ => {
                let taken = (0..rng.usize(0..20))
                    .map_while(|_| device.pop_completion(cq))
                    .count();
                (format!("pop_completion {cq:?} gives {taken}"), Ok(()))
            }
        }
    }

    /// What the device says it holds is what its queues hold.
    pub(super) fn check_held(&self, dev: usize, what: &str) -> Judgement {
        let (device, model) = (&self.devices[dev], &self.models[dev]);
        let of_qps = model.live(Kind::Qp).iter().map(|qp| device.held(values::qp(*qp)));
        let of_srqs = model
            .live(Kind::Srq)
            .iter()
            .map(|srq| device.srq_held(values::srq(*srq)));
        let sum = of_qps.map(|(s, r)| u64::from(s) + u64::from(r)).sum::<u64>()
            + of_srqs.map(u64::from).sum::<u64>();
        if device.held_in_all() != sum {
            return Rule::Verb.broken(format!(
                "after {what}: {} held in all, {sum} in queues",
                device.held_in_all()
            ));
        }
        Ok(())
    }

    /// Reads the list of queues that got something: each is there and named once, and no other has more than before.
    pub(super) fn check_named(&mut self, dev: usize, what: &str) -> Judgement {
        let mut named = Vec::new();
        while let Some(cq) = self.devices[dev].next_completed() {
            if named.contains(&cq.0) || !self.models[dev].live(Kind::Cq).contains(&cq.0) {
                return Rule::Verb.broken(format!("after {what}: {cq:?} is named, after {named:x?}"));
            }
            named.push(cq.0);
        }
        let device = &self.devices[dev];
        let now: Waited = self.models[dev]
            .live(Kind::Cq)
            .iter()
            .map(|cq| (*cq, device.peek_len(values::cq(*cq))))
            .collect();
        for (cq, waits) in &now {
            let before = self.waited[dev].get(cq).copied().unwrap_or(0);
            if *waits > before && !named.contains(cq) {
                return Rule::Verb.broken(format!(
                    "after {what}: {waits} wait in {cq:#x}, {before} before, and it is not named"
                ));
            }
        }
        self.waited[dev] = now;
        Ok(())
    }
}
