//! An uplink whose other end the owner of the NIC holds: two threads exchange frames through rings.
//!
//! Each direction has a ring of filled buffers and one of empty ones that return, both lock-free with one producer and one
//! consumer: once there are as many buffers as can be in flight, nothing is allocated. A receiver without frames may sleep:
//! it says so first, and an eventfd then reports the first frame. While it is awake, its sender makes no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use vnic_engine::counters::MeshCounters;
use vnic_engine::virtio_net::NetHdr;

use super::frames::{Arrived, Sent};
use crate::sync::{AtomicBool, AtomicU64, Consumer, Ordering, Producer, RingBuffer, fence};

/// Frames that a direction can hold.
pub(super) const FRAMES: usize = 1024;
/// Buffers that can be on their way back: the held ones, the one that is filled and the one that is read.
const SPARE: usize = FRAMES + 2;

/// The other end of a port that [`Nic::add_port_exchange`](crate::Nic::add_port_exchange) made.
pub struct PortEnd {
    /// Sends frames to the switch.
    pub tx: FrameTx,
    /// Receives frames from the switch.
    pub rx: FrameRx,
    /// Counters of what is lost behind this end. Its thread is their only writer.
    pub counters: Arc<MeshCounters>,
}

/// State that both threads of a direction share.
struct Shared {
    /// Whether the receiver sleeps or is about to. Both sides change it by swaps: loom cannot order two plain stores.
    asleep: AtomicBool,
    bell: OwnedFd,
    /// Number of frames for which there was no room.
    lost: AtomicU64,
}

/// The sending half of a direction.
pub struct FrameTx {
    full: Producer<Vec<u8>>,
    empty: Consumer<Vec<u8>>,
    shared: Arc<Shared>,
}

/// The receiving half of a direction.
pub struct FrameRx {
    full: Consumer<Vec<u8>>,
    empty: Producer<Vec<u8>>,
    /// The frame that was returned last.
    held: Option<Vec<u8>>,
    shared: Arc<Shared>,
}

/// Both halves of a direction.
fn direction() -> io::Result<(FrameTx, FrameRx)> {
    let (full_tx, full_rx) = RingBuffer::new(FRAMES);
    let (empty_tx, empty_rx) = RingBuffer::new(SPARE);
    let shared = Arc::new(Shared {
        asleep: AtomicBool::new(true),
        bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        lost: AtomicU64::new(0),
    });
    let tx = FrameTx {
        full: full_tx,
        empty: empty_rx,
        shared: shared.clone(),
    };
    let rx = FrameRx {
        full: full_rx,
        empty: empty_tx,
        held: None,
        shared,
    };
    Ok((tx, rx))
}

/// Makes both halves of a port's device, and its other end.
pub fn open() -> io::Result<(FrameRx, FrameTx, PortEnd)> {
    let (core_tx, end_rx) = direction()?;
    let (end_tx, core_rx) = direction()?;
    let end = PortEnd {
        tx: end_tx,
        rx: end_rx,
        counters: Arc::default(),
    };
    Ok((core_rx, core_tx, end))
}

impl FrameTx {
    /// Puts a frame into the ring. False: it is full. [`FrameTx::flush`] then wakes the receiver.
    pub fn put(&mut self, frame: &[u8]) -> bool {
        if self.full.is_full() {
            return false;
        }
        let mut buffer = self.empty.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        self.full.push(buffer).is_ok()
    }

    /// As [`FrameTx::put`]; a frame without room is lost, and counted at the receiver's port.
    pub fn put_or_lose(&mut self, frame: &[u8]) -> bool {
        let done = self.put(frame);
        if !done {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    /// Wakes the receiver if it sleeps.
    pub fn flush(&self) {
        // The frames come before this look: the receiver says that it sleeps before its last look at the ring.
        fence(Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::Relaxed) && self.shared.asleep.swap(false, Ordering::Relaxed) {
            // The write fails if the counter is at its maximum: the receiver is then being woken already.
            let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
        }
    }

    /// Puts frames into the ring. Refuses them if the receiver is gone.
    pub(super) fn send(&mut self, frames: &[&[u8]]) -> Sent {
        if self.full.is_abandoned() {
            return Sent::Refused;
        }
        let n = frames.iter().take_while(|frame| self.put(frame)).count();
        if n == 0 {
            return Sent::Full;
        }
        self.flush();
        Sent::Some(n)
    }
}

impl FrameRx {
    /// The next frame, if there is one.
    pub fn next_frame(&mut self) -> Option<&mut [u8]> {
        if let Some(read) = self.held.take() {
            // The ring has room for all buffers.
            let _ = self.empty.push(read);
        }
        let frame = self.full.pop().ok()?;
        if self.shared.asleep.load(Ordering::Relaxed) {
            self.shared.asleep.swap(false, Ordering::Relaxed);
        }
        Some(self.held.insert(frame))
    }

    /// Prepares for sleep: [`FrameRx::fd`] then reports the first frame. True: there is one already.
    pub fn rest(&self) -> bool {
        self.shared.asleep.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.full.is_empty()
    }

    /// Eventfd to wait on after [`FrameRx::rest`]: readable from the first frame until [`FrameRx::woken`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Clears the readiness of [`FrameRx::fd`].
    pub fn woken(&self) {
        // Nothing to read if it was not ready.
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
    }

    /// Whether the other half is gone, and all its frames were returned.
    pub fn is_over(&self) -> bool {
        self.full.is_empty() && self.full.is_abandoned()
    }

    /// As [`FrameRx::next_frame`], for a data core: frames are complete.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Arrived<'_>> {
        let bytes = self.next_frame()?;
        Some(Arrived {
            bytes,
            hdr: NetHdr::default(),
            lasts: None,
            stamp: 0,
        })
    }

    /// Number of frames that were lost ([`FrameTx::put_or_lose`]) since the last call.
    pub(super) fn lost(&self) -> u64 {
        if self.shared.lost.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.shared.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn rung(rx: &FrameRx, seconds: i64) -> bool {
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let n = poll(
            &mut [PollFd::from_borrowed_fd(rx.fd(), PollFlags::IN)],
            Some(&timeout),
        );
        n.expect("poll") == 1
    }

    #[test]
    fn frames_come_in_order_and_a_full_ring_loses_what_it_is_told_to() {
        let (mut tx, mut rx) = direction().expect("a direction");
        for i in 0..FRAMES {
            assert!(tx.put(&i.to_ne_bytes()));
        }
        assert!(!tx.put(b"no room"));
        assert_eq!(rx.lost(), 0);
        assert!(!tx.put_or_lose(b"no room"));
        assert_eq!((rx.lost(), rx.lost()), (1, 0));
        assert!(matches!(tx.send(&[b"no room"]), Sent::Full));
        for i in 0..FRAMES {
            assert_eq!(rx.next_frame().as_deref(), Some(&i.to_ne_bytes()[..]));
        }
        assert!(rx.next_frame().is_none());
        assert!(matches!(tx.send(&[b"a", b"b"]), Sent::Some(2)));
        drop(rx);
        assert!(matches!(tx.send(&[b"a"]), Sent::Refused));
    }

    #[test]
    fn buffers_are_used_again() {
        let (mut tx, mut rx) = direction().expect("a direction");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            for _ in 0..4 {
                assert!(tx.put(&[7; 1500]));
            }
            while let Some(frame) = rx.next_frame() {
                seen.insert(frame.as_ptr());
            }
        }
        assert!(seen.len() <= 6, "{}", seen.len());
    }

    #[test]
    fn who_rests_is_woken_once() {
        let (mut tx, mut rx) = direction().expect("a direction");
        assert!(!rx.rest());
        assert!(!rung(&rx, 0));
        tx.put(b"a");
        tx.flush();
        assert!(rung(&rx, 60));
        rx.woken();
        tx.put(b"b");
        tx.flush();
        assert!(!rung(&rx, 0));
        assert!(rx.rest());
        assert!(rx.next_frame().is_some() && rx.next_frame().is_some() && rx.next_frame().is_none());
        drop(tx);
        assert!(rx.is_over());
    }

    /// No frame stays unnoticed while the receiver sleeps.
    #[test]
    fn a_receiver_that_rests_between_frames_gets_all() {
        const N: u64 = 200_000;
        let (mut tx, mut rx) = direction().expect("a direction");
        let sender = thread::spawn(move || {
            for i in 0..N {
                while !tx.put(&i.to_ne_bytes()) {
                    thread::yield_now();
                }
                tx.flush();
            }
            tx
        });
        let mut next = 0;
        while next < N {
            if let Some(frame) = rx.next_frame() {
                assert_eq!(frame, next.to_ne_bytes());
                next += 1;
            } else if !rx.rest() {
                assert!(rung(&rx, 60), "slept through {next}");
                rx.woken();
            }
        }
        sender.join().expect("the sender");
    }
}
