//! An RDMA function under the rules of an operator: they are added and removed, and judge its completions, commands and
//! posts.

use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::command::device::{JudgePost, JudgePostReply};
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::Post;
use vnic_engine::rdma::{CqHandle, Incoming};
use vnic_fabric::Instant;
use vnic_wire::bth::MULTICAST_QP;

use super::completions::time_of;
use super::function::{Attachment, Function};
use super::request::{Outcome, Request, fail, optional, reserved};
use super::verbs_rules::{Asked, FirstHit, Told, Until, VerbsRule, Who};

/// Minor version of drivers that ask before they post.
const ASKING: u16 = Opcode::JudgePost.since();

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
        let (mut done, time) = (0, self.clock.at(now));
        loop {
            while ring.room() > 0
                && let Some(next) = faults.next(cq.0)
            {
                let time = time_of(&next.completion, time, &self.clock);
                if ring.write(&next.completion, time) {
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

    // Posts that fail on purpose (`SPEC.md`, section 8.5).

    /// Posts that the driver shall ask about: those that rules in force may concern.
    pub(super) fn watched_posts(&self, now: Instant) -> u32 {
        match &self.verbs_faults {
            Some(faults) if self.session.minor >= ASKING => {
                faults.watched_posts(Function::who(self.attached.as_ref()), now)
            }
            _ => 0,
        }
    }

    /// Tells the driver which posts it shall ask about, if that has changed.
    pub(super) fn tell_posts(&mut self, now: Instant) {
        let watched = self.watched_posts(now);
        if self.session.hello && std::mem::replace(&mut self.session.watched, watched) != watched {
            self.session.events.push(EventKind::PostsWatched, watched, 0);
        }
    }

    /// What QUERY_DEVICE tells of posts; an event behind the reply says the same if any are watched.
    pub(super) fn begin_watching(&mut self, now: Instant) -> u32 {
        self.session.watched = 0;
        self.tell_posts(now);
        self.session.watched
    }

    pub(super) fn judge_post(&mut self, mut r: Request<'_>) -> Outcome {
        let body: JudgePost = r.only_body()?;
        r.room_for::<JudgePostReply>()?;
        reserved(body.reserved)?;
        let (qps, srqs) = (&self.session.qps, &self.session.srqs);
        let post = Post::from_number(body.post);
        let operation = u8::try_from(body.operation).ok().and_then(Operation::from_number);
        let there = match (post, operation) {
            (Some(Post::Send), Some(_)) => qps.get(body.queue).is_some(),
            (Some(Post::Receive), _) if body.operation == 0 => qps.get(body.queue).is_some(),
            (Some(Post::SharedReceive), _) if body.operation == 0 => srqs.get(body.queue).is_some(),
            _ => {
                let text = format!("there is no post {} of operation {}", body.post, body.operation);
                return fail(S::NotSupported, text);
            }
        };
        let Some(post) = post.filter(|_| there) else {
            return fail(S::NoSuchObject, format!("there is no queue {}", body.queue));
        };
        let asked = Asked {
            post,
            qp: (post != Post::SharedReceive).then_some(body.queue),
            operation: operation.filter(|_| post == Post::Send),
            bytes: body.bytes,
        };
        let now = r.now;
        let errno = self.verbs_faults.as_ref().and_then(|faults| {
            let who = Function::who(self.attached.as_ref());
            faults.judge_post(&asked, who, now, &mut self.first_hits)
        });
        r.reply(&JudgePostReply {
            errno: errno.map_or(0, |errno| errno.number()),
            reserved: 0,
        });
        if self.session.watched & post.bit() == 0 {
            // The driver believes something else.
            self.session.watched = u32::MAX;
        }
        self.tell_posts(now);
        Ok(())
    }
}
