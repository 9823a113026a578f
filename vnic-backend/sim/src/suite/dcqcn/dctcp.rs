//! DCTCP (Alizadeh et al., SIGCOMM 2010) as far as a comparison needs it: a window that is cut once a round trip by the part of
//! packets that were marked, and grows by one packet a round trip otherwise. Each marked packet has to be notified.

use vnic_engine::congestion::{
    Ack, Algorithm, CongestionControl, Limits, Needs, Notification, Start, UNLIMITED,
};
use vnic_wire::time::Instant;

/// Weight of a new sample: the paper's 1/16.
const G: f64 = 1.0 / 16.0;

/// The algorithm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dctcp;

impl CongestionControl for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn needs(&self) -> Needs {
        Needs {
            from_start: true,
            ack_every: 1,
            ..Needs::default()
        }
    }

    fn start(&self, _: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let packet = f64::from(flow.mtu);
        Box::new(Flow {
            packet,
            window: 10.0 * packet,
            slow_start: true,
            alpha: 0.0,
            round: 0,
            acked: 0,
            marked: 0.0,
        })
    }
}

/// One flow.
#[derive(Debug)]
struct Flow {
    /// Bytes of a packet.
    packet: f64,
    /// Bytes.
    window: f64,
    slow_start: bool,
    alpha: f64,
    /// Bytes that had been sent when this round trip began: it ends when they are acknowledged.
    round: u64,
    /// Bytes acknowledged when it began.
    acked: u64,
    /// Bytes marked since.
    marked: f64,
}

impl Algorithm for Flow {
    fn on_notification(&mut self, _: Instant, _: &Notification) {
        self.marked += self.packet;
        self.slow_start = false;
    }

    fn on_ack(&mut self, _: Instant, ack: &Ack<'_>) {
        if self.slow_start {
            self.window += f64::from(ack.bytes);
        } else {
            self.window += self.packet * f64::from(ack.bytes) / self.window;
        }
        if ack.acked < self.round {
            return;
        }
        let bytes = ack.acked.saturating_sub(self.acked).max(1) as f64;
        let part = (self.marked / bytes).min(1.0);
        self.alpha += G * (part - self.alpha);
        if self.marked > 0.0 {
            self.window = (self.window * (1.0 - self.alpha / 2.0)).max(self.packet);
        }
        (self.round, self.acked, self.marked) = (ack.sent, ack.acked, 0.0);
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: UNLIMITED,
            window: self.window as u64,
        }
    }
}
