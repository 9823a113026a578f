//! An RDMA function under the rules of an operator: they are added and removed, and judge its completions and commands.

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::event::EventKind;
use vnic_engine::rdma::{CqHandle, Incoming};
use vnic_fabric::Instant;
use vnic_wire::bth::MULTICAST_QP;

use super::function::{Attachment, Function};
use super::request::{Outcome, optional};
use super::verbs_rules::{FirstHit, Told, Until, VerbsRule, Who};

impl Function {
    /// Puts a rule behind the others.
    pub fn add_verbs_rule(&mut self, rule: Arc<VerbsRule>) {
        let since = rule.since;
        self.verbs_faults.get_or_insert_default().rules.push(rule);
        self.tell_posts(since);
    }

    /// Removes a rule. What it holds back goes to the driver in the next turn.
    pub fn remove_verbs_rule(&mut self, id: u32, now: Instant) {
        let Some(faults) = &mut self.verbs_faults else {
            return;
        };
        faults.rules.retain(|rule| rule.id != id);
        faults.release(|held| held.until == Until::Removal(id));
        if let Some(waiting) = faults.command.as_mut().filter(|waiting| waiting.rule == id) {
            waiting.until = Instant::default();
        }
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
        self.tell_posts(now);
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

    /// The driver's process.
    pub(super) fn who(attached: Option<&Attachment>) -> Who<'_> {
        attached.map_or(Who::default(), |a| Who {
            pid: a.owner.and_then(|owner| owner.pid),
            program: a.program.as_deref(),
        })
    }

    /// Refuses a command, or makes it wait, if a rule says so; `bytes`: of its region, when they are known.
    pub(super) fn judge_command(&mut self, opcode: u16, bytes: Option<u64>, now: Instant) -> Outcome {
        match (&mut self.verbs_faults, Opcode::from_number(opcode)) {
            (Some(faults), Some(opcode)) => {
                let who = Function::who(self.attached.as_ref());
                faults.judge_command(opcode, bytes, who, now, &mut self.first_hits)
            }
            _ => Ok(()),
        }
    }

    /// Whether a rule lets the next command wait.
    pub(super) fn command_waits(&self, now: Instant) -> bool {
        let until = self
            .verbs_faults
            .as_ref()
            .and_then(|faults| faults.command_waits());
        until.is_some_and(|until| until > now)
    }

    /// Takes a packet that may need a receive, which it does not find if a rule says so. Returns the work besides the packet itself.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_by_rule(&mut self, now: Instant, packet: &Incoming<'_>) -> u32 {
        let qp = packet.headers.bth.destination_qp;
        self.fetch_receives(now, packet);
        let who = Function::who(self.attached.as_ref());
        let faults = self.verbs_faults.as_ref().filter(|_| qp != MULTICAST_QP);
        let withhold = faults.and_then(|faults| faults.withholds(qp, who, now));
        let Some(withhold) = withhold else {
            return self.take_packet(now, packet);
        };
        self.device.watch_receives(withhold);
        let work = self.take_packet(now, packet);
        if self.device.end_watch()
            && let Some(faults) = &self.verbs_faults
        {
            let who = Function::who(self.attached.as_ref());
            faults.count_message(qp, who, now, &mut self.first_hits);
        }
        work
    }

    /// Rules that hit something for the first time.
    pub fn take_first_hits(&mut self) -> Vec<FirstHit> {
        std::mem::take(&mut self.first_hits)
    }

    /// Forgets the completions of a queue that takes no more.
    fn discard(&mut self, cq: CqHandle) {
        while let Some(completion) = self.device.pop_completion(cq) {
            if let Some(recorder) = &mut self.recorder {
                recorder.completed(&completion);
            }
        }
        if let Some(faults) = &mut self.verbs_faults {
            faults.ready.remove(&cq.0);
            faults.held.retain(|held| held.cq != cq.0);
            if faults.is_over() {
                self.verbs_faults = None;
            }
        }
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
            self.discard(cq);
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
            let qp = completion.qp;
            let created = self.session.qps.get(qp.0).map(|qp| qp.created.srq);
            let srq = created.and_then(optional);
            let told = Told {
                cq: cq.0,
                row,
                srq,
                who: Function::who(self.attached.as_ref()),
                now,
            };
            let judged = faults.judge(completion, told, &mut self.first_hits);
            if judged.fails {
                self.device.fail_qp(qp);
            }
            if judged.overruns {
                ring.lost = true;
                self.device.overrun_cq(cq);
                self.discard(cq);
                return done;
            }
            if let (true, Some(srq)) = (judged.limit, srq) {
                self.session.events.push(EventKind::SrqLimitReached, srq, 0);
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
