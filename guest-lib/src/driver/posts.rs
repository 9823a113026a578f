//! Posts that fail on purpose (`SPEC.md`, section 8.5): whether the device wants to be asked, and the question.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use vnic_device::command::Opcode;
use vnic_device::command::device::{JudgePost, JudgePostReply};
use vnic_device::verbs::Post;

use super::shared::Shared;
use crate::PostReason;

/// No event has come since the device was asked: all kinds of posts.
const UNTOLD: u32 = u32::MAX;

/// The kinds of posts, as a set, that the device wants to be asked about.
#[derive(Debug, Default)]
pub(super) struct WatchedPosts(AtomicU32);

impl WatchedPosts {
    /// The device is about to be asked.
    pub fn expect(&self) {
        self.0.store(UNTOLD, SeqCst);
    }

    /// The device has answered. An event that has come meanwhile is as new, and stays.
    pub fn answered(&self, watched: u32) {
        let _ = self.0.compare_exchange(UNTOLD, watched, SeqCst, SeqCst);
    }

    /// The device tells another set.
    pub fn told(&self, watched: u32) {
        self.0.store(watched, SeqCst);
    }
}

impl Shared {
    /// Whether the device wants to be asked before something is posted.
    #[inline]
    pub fn watches(&self, post: Post) -> bool {
        self.posts.0.load(Relaxed) & post.bit() != 0
    }

    /// Asks whether a work request may be posted to a queue of `epoch`. If there is no answer, it may.
    #[cold]
    pub fn ask(&self, epoch: u32, request: JudgePost) -> Result<(), PostReason> {
        match self.call(epoch, Opcode::JudgePost, &request) {
            Ok(JudgePostReply { errno: 0, .. }) | Err(_) => Ok(()),
            Ok(reply) => Err(PostReason::OnDemand(reply.errno.cast_signed())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_overtakes_the_answer_stays() {
        let posts = WatchedPosts::default();
        let now = || posts.0.load(SeqCst);
        posts.expect();
        posts.answered(1);
        assert_eq!(now(), 1);
        posts.told(2);
        assert_eq!(now(), 2);
        posts.expect();
        posts.told(4);
        posts.answered(1);
        assert_eq!(now(), 4);
    }
}
