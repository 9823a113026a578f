//! What a flow of the guest's hears of its acknowledges and of responses to its READs: how much arrived, and after what time.

use alloc::collections::VecDeque;
use core::time::Duration;

use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

/// Most packets that asked for an acknowledge and are remembered; of earlier ones the bytes count, and not the time.
const MOST: usize = 256;

/// A request packet as it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of the packet; of a READ, of its first response, too.
    pub psn: Psn,
    /// Bytes of payload: its own, or those that a READ asks for.
    pub bytes: u32,
    /// Whether it asks for an acknowledge.
    pub asks: bool,
    /// Whether responses answer it, whose bytes are counted.
    pub read: bool,
}

/// A packet that asked for an acknowledge, or for data.
#[derive(Debug, Clone, Copy)]
struct Asking {
    psn: Psn,
    /// Bytes of payload up to there.
    bytes: u64,
    /// When it left, if only once.
    at: Option<Instant>,
    /// Bytes that a READ asks for; 0: it is none.
    read: u32,
    /// How long the first response of the READ took.
    delay: Option<Duration>,
}

/// An acknowledge of something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Time since the packet left that it answers, if only one did. Of a READ, the time to its first response.
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
    /// A request packet leaves.
    pub fn left(&mut self, now: Instant, request: Request) {
        let psn = request.psn;
        if self.last.is_some_and(|last| !last.before(psn)) {
            // It goes back: nobody knows which copy an answer means (Karn and Partridge, SIGCOMM 1987).
            for asking in &mut self.waiting {
                (asking.at, asking.delay) = (None, None);
            }
            return;
        }
        self.last = Some(psn);
        self.sent += u64::from(request.bytes);
        if request.asks || request.read {
            if self.waiting.len() >= MOST {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Asking {
                psn,
                bytes: self.sent,
                at: Some(now),
                read: if request.read { request.bytes } else { 0 },
                delay: None,
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
        let at = asking.at.filter(|_| asking.psn == psn);
        Some(Heard {
            rtt: at.map(|at| now.since(at)),
            bytes: self.arrived(asking.bytes),
        })
    }

    /// A response to a READ has arrived, of so many bytes of payload; `last`: none follows it. It acknowledges everything before the READ.
    pub fn responded(&mut self, now: Instant, psn: Psn, bytes: u32, last: bool) -> Option<Heard> {
        let after = self.waiting.partition_point(|asking| !psn.before(asking.psn));
        let index = after.checked_sub(1)?;
        let asking = self.waiting.get_mut(index).filter(|asking| asking.read > 0)?;
        if asking.psn == psn && asking.delay.is_none() {
            asking.delay = asking.at.map(|at| now.since(at));
        }
        let asking = *asking;
        // A READ that is sent again from here on is one that was sent before.
        self.last = self.last.filter(|last| psn.before(*last)).or(Some(psn));
        self.waiting.drain(..index + usize::from(last));
        let start = asking.bytes - u64::from(asking.read);
        let end = match last {
            true => asking.bytes,
            false => (self.acked.max(start) + u64::from(bytes)).min(asking.bytes),
        };
        Some(Heard {
            rtt: asking.delay,
            bytes: self.arrived(end),
        })
    }

    /// The bytes up to here have arrived. Returns how many of them are new.
    fn arrived(&mut self, end: u64) -> u64 {
        let new = end.saturating_sub(self.acked);
        self.acked = end.max(self.acked);
        new
    }
}
