//! The fluid model of DCQCN at its fixed point (Zhu, Ghobadi, Misra, Padhye, ECN or Delay, CoNEXT 2016, section 3): how long the
//! queue is when nothing changes any more. Roots are found exactly, not by the paper's approximation for small p, which is 18
//! to 40 % too high here.

use vnic_engine::congestion::dcqcn::Parameters;
use vnic_fabric::qos::Red;
use vnic_fabric::qos::red::MILLION;

/// One bottleneck and its flows.
#[derive(Debug, Clone, Copy)]
pub struct Fluid<'a> {
    /// Of all flows.
    pub parameters: &'a Parameters,
    /// Of the bottleneck.
    pub red: &'a Red,
    /// Speed of the bottleneck in bit/s.
    pub rate: f64,
    /// How many flows.
    pub flows: f64,
    /// Time between two notifications of a flow, in s.
    pub spacing: f64,
    /// Bits of a packet on the wire.
    pub wire: f64,
    /// Bytes of payload of a packet.
    pub payload: f64,
}

impl Fluid<'_> {
    /// Probability of a mark at which rates neither rise nor fall.
    pub fn marking(&self) -> f64 {
        // What falls grows with p, what rises shrinks: one root, found by halving its logarithm.
        let (mut low, mut high) = (1e-12f64, 0.999f64);
        for _ in 0..200 {
            let p = (low * high).sqrt();
            if self.falls(p) > self.rises(p) {
                high = p;
            } else {
                low = p;
            }
        }
        low
    }

    /// Bytes that wait, or `None`: more is marked than RED marks below Kmax, and the queue is pinned there.
    pub fn queue(&self) -> Option<f64> {
        let red = self.red.green;
        let (kmin, kmax) = (f64::from(red.kmin), f64::from(red.kmax));
        let part = self.marking() / (f64::from(red.pmax) / f64::from(MILLION));
        (part <= 1.0).then_some(kmin + part * (kmax - kmin))
    }

    /// Packets a flow sends in a second.
    fn packets(&self) -> f64 {
        self.rate / self.flows / self.wire
    }

    fn falls(&self, p: f64) -> f64 {
        let marked_in = |time: f64| 1.0 - (1.0 - p).powf(time * self.packets());
        let alpha = marked_in(self.parameters.alpha_period.as_secs_f64());
        marked_in(self.spacing).powi(2) * alpha
    }

    fn rises(&self, p: f64) -> f64 {
        let threshold = f64::from(self.parameters.threshold);
        // Increases of a clock that counts so many packets, in one packet's time; and those beyond fast recovery.
        let clock = |packets: f64| {
            if packets == 0.0 {
                return (0.0, 0.0);
            }
            let all = p / ((1.0 - p).powf(-packets) - 1.0);
            (all, all * (1.0 - p).powf(threshold * packets))
        };
        let bytes = clock(self.parameters.byte_reset as f64 / self.payload);
        let time = clock(self.parameters.time_reset.as_secs_f64() * self.packets());
        let step = self.parameters.ai_rate as f64 / self.wire;
        self.spacing.powi(2) * step * self.packets() * (bytes.0 + time.0) * (bytes.1 + time.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::scenario::SwitchSettings;

    fn queue(rate: f64, ai_rate: u64, flows: f64) -> Option<f64> {
        let parameters = Parameters {
            ai_rate,
            ..Parameters::PAPER
        };
        let fluid = Fluid {
            parameters: &parameters,
            red: &SwitchSettings::paper().red,
            rate,
            flows,
            spacing: 50e-6,
            wire: 8000.0,
            payload: 1000.0,
        };
        fluid.queue().map(|q| (q / 100.0).round() / 10.0)
    }

    /// Roots that were found with another program, in KB.
    #[test]
    fn roots_are_those_of_the_equations() {
        let (g, m) = (1e9, 1_000_000);
        for (flows, kb) in [(2.0, 20.2), (4.0, 41.8), (8.0, 93.8), (10.0, 122.6)] {
            assert_eq!(queue(40.0 * g, 40 * m, flows), Some(kb));
        }
        assert_eq!(queue(10.0 * g, 10 * m, 2.0), Some(65.5));
        assert_eq!(queue(10.0 * g, 10 * m, 4.0), Some(151.6));
        assert_eq!(queue(10.0 * g, 40 * m, 2.0), Some(93.8));
    }

    #[test]
    fn many_flows_pin_the_queue() {
        assert_eq!(queue(40e9, 40_000_000, 16.0), None);
        assert_eq!(queue(10e9, 10_000_000, 8.0), None);
    }
}
