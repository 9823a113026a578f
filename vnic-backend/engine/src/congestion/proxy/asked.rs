//! What a flow of the guest's hears of its acknowledges: how much arrived, and after what time.

use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

/// Most packets that asked for an acknowledge and are remembered; of earlier ones the bytes count, and not the time.
const MOST: usize = 256;

/// A packet that asked for an acknowledge.
#[derive(Debug, Clone, Copy)]
struct Asking {
    psn: Psn,
    /// Bytes of payload up to there.
    bytes: u64,
    /// When it left, if only once.
    at: Option<Instant>,
}

/// An acknowledge of something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Time since the packet left that it answers, if only one did.
    pub rtt: Option<Duration>,
    /// Bytes of payload that arrived.
    pub bytes: u64,
}

/// The requests of a flow, by their sequence numbers.
#[derive(Debug, Default)]
pub struct Asked {
    /// Bytes of payload that have left.
    pub sent: u64,
    /// Bytes that are acknowledged.
    pub acked: u64,
    /// Number of the last packet.
    last: Option<Psn>,
    waiting: VecDeque<Asking>,
}

impl Asked {
    /// A request packet leaves; `asks`: for an acknowledge.
    pub fn left(&mut self, now: Instant, psn: Psn, bytes: u32, asks: bool) {
        if self.last.is_some_and(|last| !last.before(psn)) {
            // It goes back: nobody knows which copy an acknowledge means (Karn and Partridge, SIGCOMM 1987).
            self.waiting.iter_mut().for_each(|asking| asking.at = None);
            return;
        }
        self.last = Some(psn);
        self.sent += u64::from(bytes);
        if asks {
            if self.waiting.len() >= MOST {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Asking {
                psn,
                bytes: self.sent,
                at: Some(now),
            });
        }
    }

    /// Everything up to a packet has arrived.
    pub fn acknowledged(&mut self, now: Instant, psn: Psn) -> Option<Heard> {
        let mut found = None;
        while let Some(asking) = self.waiting.front().filter(|asking| !psn.before(asking.psn)) {
            found = Some(*asking);
            self.waiting.pop_front();
        }
        let asking = found?;
        let bytes = asking.bytes.saturating_sub(self.acked);
        self.acked = asking.bytes;
        let at = asking.at.filter(|_| asking.psn == psn);
        Some(Heard {
            rtt: at.map(|at| now.since(at)),
            bytes,
        })
    }
}
