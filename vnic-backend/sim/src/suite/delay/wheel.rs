//! The rate limiter of eRPC: a timing wheel behind credits.

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_engine::congestion::{
    Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Notification, Start, State,
};
use vnic_wire::time::Instant;

/// Another algorithm behind a window of whole packets. The time at which a packet leaves is fixed when the credit for it comes back,
/// by the rate of that moment: a change of the rate reaches the wire when the packets that have their times have left, up to the
/// whole window later (erpc-io/eRPC at 1a6e1213: `rpc_kick.cc`, `cc_getupdate_tx_tsc` in `session.h`).
#[derive(Debug, Clone)]
pub struct Wheel {
    /// The other one. It limits from the first packet.
    pub inner: Arc<dyn CongestionControl>,
    /// Credits: packets that have a time or are unacknowledged.
    pub credits: u32,
}

impl CongestionControl for Wheel {
    fn name(&self) -> &'static str {
        "wheel"
    }

    fn needs(&self) -> Needs {
        let needs = self.inner.needs();
        Needs {
            from_start: true,
            ack_every: needs.ack_every.max(1),
            ..needs
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let inner = self.inner.start(now, flow);
        let first = inner.limits().rate;
        Box::new(Flow {
            inner,
            window: u64::from(self.credits) * u64::from(flow.mtu),
            mtu: flow.mtu.max(1),
            rates: (0..self.credits).map(|_| first).collect(),
        })
    }
}

#[derive(Debug)]
struct Flow {
    inner: Box<dyn Algorithm>,
    /// Bytes of payload of all credits.
    window: u64,
    mtu: u32,
    /// Rates by which the packets in the wheel were given their times, in the order in which they leave.
    rates: VecDeque<u64>,
}

impl Algorithm for Flow {
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.rates.pop_front();
        self.inner.on_sent(now, bytes);
    }

    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        self.inner.on_notification(now, cnp);
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        self.inner.on_ack(now, ack);
        let rate = self.inner.limits().rate;
        self.rates.extend((0..ack.bytes.div_ceil(self.mtu)).map(|_| rate));
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        self.inner.on_loss(now, loss);
    }

    fn advance(&mut self, now: Instant, paused: bool) {
        self.inner.advance(now, paused);
    }

    fn limits(&self) -> Limits {
        let limits = self.inner.limits();
        Limits {
            rate: self.rates.front().copied().unwrap_or(limits.rate),
            window: limits.window.min(self.window),
        }
    }

    fn next_change(&self) -> Option<Instant> {
        self.inner.next_change()
    }

    fn state(&self) -> State {
        self.inner.state()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vnic_engine::congestion::timely::{Parameters, Timely};

    use super::*;

    #[test]
    fn a_change_reaches_the_wire_a_window_later() {
        let parameters = Parameters::ERPC;
        let (low, high) = (parameters.t_low / 2, parameters.t_high * 4);
        let wheel = Wheel {
            inner: Arc::new(Timely { parameters }),
            credits: 3,
        };
        let line = 10_000_000_000;
        let mut flow = wheel.start(
            Instant(0),
            &Start {
                line_rate: line,
                mtu: 1024,
                wire: 1106,
                rate: None,
            },
        );
        assert_eq!(flow.limits().window, 3 * 1024);
        let mut acked = 0;
        let mut ack = |flow: &mut Box<dyn Algorithm>, at: u64, rtt: Duration| {
            acked += 1024;
            let ack = Ack {
                rtt: Some(rtt),
                acked,
                sent: acked,
                bytes: 1024,
                hops: 0,
                marked: false,
                telemetry: None,
            };
            flow.on_ack(Instant(at), &ack);
        };
        // One of three is sent; its credit comes back with a low rate, which is that of the fourth packet.
        flow.on_sent(Instant(0), 1024);
        ack(&mut flow, 1_000_000, low);
        flow.on_sent(Instant(1_000_000), 1024);
        ack(&mut flow, 2_000_000, high);
        assert_eq!(flow.limits().rate, line);
        flow.on_sent(Instant(2_000_000), 1024);
        assert_eq!(
            flow.limits().rate,
            line,
            "the first credit came back before the cut"
        );
        flow.on_sent(Instant(3_000_000), 1024);
        assert!(flow.limits().rate < line, "the second one with it");
    }
}
