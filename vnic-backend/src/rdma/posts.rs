//! Posts that fail on purpose (`SPEC.md`, section 8.5): which of them the driver asks about, and the answer.

use vnic_device::command::device::{JudgePost, JudgePostReply};
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::Post;
use vnic_fabric::Instant;

use super::function::Function;
use super::request::{Outcome, Request, fail, reserved};
use super::verbs_rules::Asked;

/// Minor version of drivers that ask.
const SINCE: u16 = vnic_device::command::Opcode::JudgePost.since();

impl Function {
    /// Posts that the driver shall ask about: those that rules in force may concern.
    pub(super) fn watched_posts(&self, now: Instant) -> u32 {
        match &self.verbs_faults {
            Some(faults) if self.session.minor >= SINCE => {
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
