//! Waiting for completions.

use std::time::{Duration, Instant};

use vnic_verbs::{CompletionChannel, CompletionQueue, Context, CqBuilder, Error, WorkCompletion};

/// Completions that are taken at a time.
const BATCH: usize = 32;
/// Polls before the thread yields the CPU.
const SPINS: u32 = 200;

/// Completions that were taken.
#[derive(Debug, Clone, Copy)]
pub struct Completions {
    all: [WorkCompletion; BATCH],
    count: usize,
}

impl Completions {
    /// No completions yet.
    pub fn new() -> Completions {
        Completions {
            all: [WorkCompletion::default(); BATCH],
            count: 0,
        }
    }

    /// The completions.
    pub fn iter(&self) -> impl Iterator<Item = &WorkCompletion> {
        self.all[..self.count].iter()
    }

    /// Whether there are no completions.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps the completions that `keep` selects.
    pub fn retain<E>(&mut self, mut keep: impl FnMut(&WorkCompletion) -> Result<bool, E>) -> Result<(), E> {
        let mut kept = 0;
        for n in 0..self.count {
            let completion = self.all[n];
            if keep(&completion)? {
                self.all[kept] = completion;
                kept += 1;
            }
        }
        self.count = kept;
        Ok(())
    }
}

/// A completion queue, with its way of waiting: by polling, or asleep until its channel has an event.
pub struct Waiter {
    /// The queue.
    pub cq: CompletionQueue,
    channel: Option<CompletionChannel>,
}

impl Waiter {
    /// Makes a queue for `entries` completions, with a channel if `events`.
    pub fn new(context: &Context, entries: u32, events: bool) -> Result<Waiter, Error> {
        let channel = events.then(|| context.create_completion_channel()).transpose()?;
        let mut builder = CqBuilder::new(entries);
        if let Some(channel) = &channel {
            builder = builder.channel(channel);
        }
        Ok(Waiter {
            cq: context.create_cq_with(builder)?,
            channel,
        })
    }

    /// Waits for completions for at most `patience`, and takes them. An error if the device is gone.
    pub fn take(&self, into: &mut Completions, patience: Duration) -> Result<(), Error> {
        match &self.channel {
            Some(channel) => self.sleep(channel, into, patience),
            None => self.poll(into, patience),
        }
    }

    /// The device's own error, if it is gone, or goes within half a second: all of its requests end flushed then, which says
    /// nothing.
    pub fn gone(&self) -> Option<Error> {
        let mut rest = [WorkCompletion::default(); 16];
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            match self.cq.poll(&mut rest) {
                Ok(0) => std::thread::sleep(Duration::from_millis(5)),
                Ok(_) => {}
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn poll(&self, into: &mut Completions, patience: Duration) -> Result<(), Error> {
        let mut end = None;
        for spins in 0u64.. {
            into.count = self.cq.poll(&mut into.all)?;
            if into.count > 0 || patience.is_zero() {
                break;
            }
            if spins < SPINS.into() {
                std::hint::spin_loop();
                continue;
            }
            // The peer or the device may need this CPU.
            std::thread::yield_now();
            let now = Instant::now();
            if now >= *end.get_or_insert(now + patience) {
                break;
            }
        }
        Ok(())
    }

    /// Takes, arms, takes again, and sleeps: so no completion is missed.
    fn sleep(
        &self,
        channel: &CompletionChannel,
        into: &mut Completions,
        patience: Duration,
    ) -> Result<(), Error> {
        loop {
            into.count = self.cq.poll(&mut into.all)?;
            if into.count > 0 || patience.is_zero() {
                return Ok(());
            }
            self.cq.req_notify(false)?;
            into.count = self.cq.poll(&mut into.all)?;
            if into.count > 0 || channel.wait_event(Some(patience))?.is_none() {
                return Ok(());
            }
        }
    }
}
