//! Completion channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{CompletionQueue, Cq};
use crate::Error;
use crate::driver::waiting::News;
use crate::driver::{Core, Sink};

/// Where events of completion queues arrive, with a descriptor to wait for. Clones are the same channel.
///
/// Take all completions, [arm](CompletionQueue::req_notify) the queue, and wait: no completion is lost. Events
/// need no acknowledge.
#[derive(Clone)]
pub struct CompletionChannel(Arc<Channel>);

struct Channel {
    core: Arc<Core>,
    epoch: u32,
    news: Arc<News<Weak<Cq>>>,
}

/// What the thread of interrupts holds of a channel: no object whose drop sends a command.
struct Events {
    news: Arc<News<Weak<Cq>>>,
    cq: Weak<Cq>,
}

impl Sink for Events {
    fn completed(&self) {
        // A queue is armed once for each event, so it waits here once, or a few times after it was armed again.
        self.news.push(Weak::clone(&self.cq), usize::MAX);
    }
}

impl std::fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompletionChannel({:?})", self.0.news.as_fd())
    }
}

impl AsFd for CompletionChannel {
    /// The descriptor is readable while events wait, or when the device is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

impl CompletionChannel {
    pub(crate) fn new(core: &Arc<Core>) -> Result<CompletionChannel, Error> {
        let epoch = core.epoch()?;
        let news = Arc::new(News::new()?);
        let weak: Weak<dyn crate::driver::Closing> = Arc::downgrade(&news) as _;
        core.register_waiting(weak);
        if !core.is_alive(epoch) {
            return Err(core.dead());
        }
        Ok(CompletionChannel(Arc::new(Channel {
            core: Arc::clone(core),
            epoch,
            news,
        })))
    }

    pub(super) fn sink(&self, cq: &Arc<Cq>) -> Arc<dyn Sink> {
        Arc::new(Events {
            news: Arc::clone(&self.0.news),
            cq: Arc::downgrade(cq),
        })
    }

    pub(super) fn push(&self, cq: &Arc<Cq>) {
        self.0.news.push(Arc::downgrade(cq), usize::MAX);
    }

    /// Takes the oldest event that waits, and returns its queue. Never blocks. [`Error::Gone`] after the last
    /// event, when the device is gone or was reset.
    pub fn try_event(&self) -> Result<Option<CompletionQueue>, Error> {
        Self::next(|| self.0.news.take())
    }

    /// Waits for an event, and returns its queue.
    pub fn get_event(&self) -> Result<CompletionQueue, Error> {
        loop {
            if let Some(cq) = self.wait_event(None)? {
                return Ok(cq);
            }
        }
    }

    /// Waits for an event for at most `patience`. `None`: the time is over.
    pub fn wait_event(&self, patience: Option<Duration>) -> Result<Option<CompletionQueue>, Error> {
        Self::next(|| self.0.news.wait(patience))
    }

    /// The next event of a queue that is there: one of a queue that was destroyed meanwhile is dropped.
    fn next(event: impl Fn() -> Result<Option<Weak<Cq>>, Error>) -> Result<Option<CompletionQueue>, Error> {
        while let Some(cq) = event()? {
            if let Some(cq) = cq.upgrade() {
                return Ok(Some(CompletionQueue(cq)));
            }
        }
        Ok(None)
    }

    /// Whether the channel's device still lives.
    pub fn is_alive(&self) -> bool {
        self.0.core.is_alive(self.0.epoch)
    }
}
