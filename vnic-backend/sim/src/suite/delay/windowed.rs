//! An algorithm whose flows have a fixed window besides.

use std::sync::Arc;

use vnic_engine::congestion::{
    Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Notification, Start, State,
};
use vnic_wire::time::Instant;

/// Another algorithm, and no more than so many bytes of payload unacknowledged: what HPCC's paper adds to DCQCN and TIMELY, and
/// what eRPC's credits do.
#[derive(Debug, Clone)]
pub struct Windowed {
    /// The other one.
    pub inner: Arc<dyn CongestionControl>,
    /// Bytes of payload.
    pub window: u64,
}

impl CongestionControl for Windowed {
    fn name(&self) -> &'static str {
        "windowed"
    }

    fn needs(&self) -> Needs {
        let needs = self.inner.needs();
        Needs {
            from_start: true,
            ack_every: if needs.ack_every == 0 { 1 } else { needs.ack_every },
            ..needs
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        // What begins with a notification has none yet.
        let begun = self.inner.needs().from_start;
        Box::new(Flow {
            make: self.clone(),
            start: *flow,
            inner: begun.then(|| self.inner.start(now, flow)),
        })
    }
}

#[derive(Debug)]
struct Flow {
    make: Windowed,
    start: Start,
    inner: Option<Box<dyn Algorithm>>,
}

impl Flow {
    fn made(&mut self, now: Instant) -> &mut dyn Algorithm {
        let (make, start) = (&self.make.inner, &self.start);
        &mut **self.inner.get_or_insert_with(|| make.start(now, start))
    }
}

impl Algorithm for Flow {
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        if let Some(inner) = &mut self.inner {
            inner.on_sent(now, bytes);
        }
    }

    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        self.made(now).on_notification(now, cnp);
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        if let Some(inner) = &mut self.inner {
            inner.on_ack(now, ack);
        }
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        if self.make.inner.needs().loss {
            self.made(now).on_loss(now, loss);
        } else if let Some(inner) = &mut self.inner {
            inner.on_loss(now, loss);
        }
    }

    fn advance(&mut self, now: Instant, paused: bool) {
        if let Some(inner) = &mut self.inner {
            inner.advance(now, paused);
            // A limiter that is released: the window stays.
            if inner.is_released() && !self.make.inner.needs().from_start {
                self.inner = None;
            }
        }
    }

    fn limits(&self) -> Limits {
        let limits = self.inner.as_ref().map_or(Limits::NONE, |i| i.limits());
        Limits {
            window: limits.window.min(self.make.window),
            ..limits
        }
    }

    fn next_change(&self) -> Option<Instant> {
        self.inner.as_ref()?.next_change()
    }

    fn state(&self) -> State {
        self.inner.as_ref().map(|i| i.state()).unwrap_or_default()
    }
}
