//! An RDMA function under the rules of an operator: they are added and removed, and judge its completions and commands.

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_engine::rdma::CqHandle;
use vnic_fabric::Instant;

use super::function::Function;
use super::request::{Outcome, fail};
use super::verbs_rules::{Until, VerbsRule};
use crate::types::VerbsFaultAction;

impl Function {
    /// Puts a rule behind the others.
    pub fn add_verbs_rule(&mut self, rule: Arc<VerbsRule>) {
        self.verbs_faults.get_or_insert_default().rules.push(rule);
    }

    /// Removes a rule. What it holds back goes to the driver in the next turn.
    pub fn remove_verbs_rule(&mut self, id: u32) {
        let Some(faults) = &mut self.verbs_faults else {
            return;
        };
        faults.rules.retain(|rule| rule.id != id);
        faults.release(|held| held.until == Until::Removal(id));
        for cq in faults.ready.keys() {
            if let Some(ring) = self.session.cqs.get_mut(*cq)
                && !std::mem::replace(&mut ring.waiting, true)
            {
                self.session.full.push_back(*cq);
            }
        }
        if faults.is_over() {
            self.verbs_faults = None;
        }
    }

    /// Forgets what is held back of a queue pair that ended, or begins anew.
    pub(super) fn forget_withheld(&mut self, qp: u32) {
        let Some(faults) = &mut self.verbs_faults else {
            return;
        };
        faults.held.retain(|held| held.completion.qp.0 != qp);
        for ready in faults.ready.values_mut() {
            ready.retain(|held| held.completion.qp.0 != qp);
        }
        faults.told.retain(|(number, _), _| *number != qp);
        faults.failed.remove(&qp);
    }

    /// Refuses a command if a rule says so.
    pub(super) fn refuse_by_rule(&self, opcode: u16) -> Outcome {
        for rule in self.verbs_faults.iter().flat_map(|faults| &faults.rules) {
            if let VerbsFaultAction::Command { commands, status } = &rule.spec.action
                && Opcode::from_number(opcode).is_some_and(|opcode| commands.contains(&opcode))
                && rule.hits()
            {
                return fail(*status, format!("the fault rule {} refuses it", rule.spec.name));
            }
        }
        Ok(())
    }

    /// Writes the completions of one queue, as many as there is room for, as the rules say, and notes them if a recording runs. Returns
    /// how many it took or wrote.
    #[cold]
    pub(super) fn drain_watched(&mut self, cq: CqHandle, now: Instant) -> usize {
        let Some(ring) = self.session.cqs.get_mut(cq.0) else {
            return 0;
        };
        let faults = self.verbs_faults.get_or_insert_default();
        if ring.lost {
            while let Some(completion) = self.device.pop_completion(cq) {
                if let Some(recorder) = &mut self.recorder {
                    recorder.completed(&completion);
                }
            }
            faults.ready.remove(&cq.0);
            faults.held.retain(|held| held.cq != cq.0);
            if faults.is_over() {
                self.verbs_faults = None;
            }
            return 0;
        }
        faults.release(|held| {
            let due = matches!(held.until, Until::Time(at) | Until::Next(at) if at <= now);
            held.cq == cq.0 && due
        });
        let mut done = 0;
        loop {
            while ring.room() > 0
                && let Some(next) = faults.next(cq.0)
            {
                if ring.write(&next.completion, now.0) {
                    ring.notify(cq.0, &mut self.session.events);
                }
                self.published.sample.look(&next.completion, now);
                if let (Some(recorder), Some(row)) = (&mut self.recorder, next.row) {
                    recorder.told(row, next.completion.status);
                }
                done += 1;
            }
            if ring.room() == 0 {
                break;
            }
            let Some(completion) = self.device.pop_completion(cq) else {
                break;
            };
            done += 1;
            let recorder = self.recorder.as_mut();
            let row = recorder.and_then(|recorder| recorder.completed(&completion));
            if let Some(qp) = faults.judge(cq.0, completion, row, now) {
                self.device.fail_qp(qp);
            }
        }
        if (self.device.peek_len(cq) > 0 || faults.waits(cq.0)) && !ring.waiting {
            ring.waiting = true;
            self.session.full.push_back(cq.0);
        }
        if faults.is_over() {
            self.verbs_faults = None;
        }
        done
    }
}
