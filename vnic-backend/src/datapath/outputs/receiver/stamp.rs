//! Telemetry of a port with a rate: what HPCC's flows hear of its queues (Li et al., SIGCOMM 2019, section 4.1).

use vnic_fabric::Instant;
use vnic_fabric::qos::LANES;
use vnic_wire::int::Hop;
use vnic_wire::roce;

use super::super::super::frame::RawFrame;
use super::super::concern::is_roce;
use super::Receiver;

impl Receiver {
    /// Whether the port has to write a record into a frame that does not wait.
    #[inline]
    pub(in super::super) fn stamps(&self, f: &RawFrame<'_>) -> bool {
        is_roce(f.head) && self.gathers(f)
    }

    #[inline(never)]
    fn gathers(&self, f: &RawFrame<'_>) -> bool {
        let mut front = [0; roce::FRONT];
        let known = f.peek(&mut front);
        self.has_rate() && roce::gathers(&front[..known], f.len)
    }

    fn has_rate(&self) -> bool {
        let qos = &self.change.qos;
        qos.rate != 0 || qos.classes.limit.iter().any(|limit| *limit != 0)
    }

    /// Writes the record of the frame's class into a frame that leaves, if the frame gathers telemetry and the class has a rate.
    #[inline]
    pub(in super::super) fn stamp(&mut self, now: Instant, class: u8, frame: &mut [u8]) {
        if is_roce(frame) && self.has_rate() && roce::gathers(frame, frame.len()) {
            self.write(now, class, frame);
        }
    }

    #[cold]
    fn write(&mut self, now: Instant, class: u8, frame: &mut [u8]) {
        let waits = self.lengths()[usize::from(class) % LANES];
        if let Some((rate, sent)) = self.queues.limit(class) {
            // Another number is another way: any that tells the ports of a NIC from each other.
            roce::stamp(
                frame,
                self.port.0.wrapping_add(1),
                Hop::new(now.0, sent, waits, rate),
            );
        }
    }
}
