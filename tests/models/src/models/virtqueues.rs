//! A split virtqueue: the daemon's half and a driver's, guest-lib's or one with event indices.

use std::rc::Rc;
use std::sync::Arc;

use loom::thread;
use vnic_device::ring::Extent;

use super::{Handed, Kicks, check};
use crate::driver::virtqueue::Queue;
use crate::mem::{MemMap, Ram};
use crate::ring::chain::RingAddresses;
use crate::ring::split::SplitRing;
use crate::shared::Memory;
use crate::sync::{Acquire, Relaxed, Release, SeqCst, fence};
use crate::transport::{Error, SharedPages, Transport, Virtqueue};

/// Entries.
const SIZE: u16 = 2;
const PAGE: usize = 4096;

struct Pages(Ram);

impl Transport for Pages {
    fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        let extents = vec![Extent {
            gpa: self.0.at(0),
            len: len as u64,
        }];
        Ok(SharedPages { extents })
    }
}

/// Memory of a virtqueue, a driver for it, and the device's half, which polls.
fn queue(event_idx: bool) -> (Pages, Driver, SplitRing) {
    let pages = Pages(Ram::new(2 * PAGE));
    let plain = Queue::new(&pages, SIZE).expect("a queue");
    let at = plain.layout();
    let addresses = RingAddresses {
        desc: at.descriptors,
        avail: at.available,
        used: at.used,
        used_log: None,
    };
    let (ram, size) = (&pages.0, usize::from(SIZE));
    let used = (at.used - ram.at(0)) as usize;
    // Flags, index, entries, event.
    ram.put(16, (PAGE..PAGE + 6 + 2 * size).step_by(2));
    ram.put(16, [used, used + 2, used + 4 + 8 * size]);
    ram.put(32, (used + 4..used + 4 + 8 * size).step_by(4));
    let device = SplitRing::new(
        Arc::new(MemMap),
        SIZE.into(),
        addresses,
        0,
        event_idx,
        false,
        None,
    )
    .expect("a ring");
    device.suppress_kicks();
    let driver = match event_idx {
        false => Driver::Plain(plain),
        true => Driver::Events(Events::new(at)),
    };
    (pages, driver, device)
}

enum Driver {
    /// guest-lib's.
    Plain(Queue),
    /// As Linux has it.
    Events(Events),
}

impl Driver {
    /// Says whether the device wants a kick.
    fn offer(&mut self, head: u16) -> bool {
        match self {
            Driver::Plain(queue) => queue.offer(head),
            Driver::Events(events) => events.offer(head),
        }
    }
}

/// A driver that knows VIRTIO_F_EVENT_IDX.
struct Events {
    available: Memory,
    used: Memory,
    offered: u16,
    taken: u16,
}

impl Events {
    fn new(at: Virtqueue) -> Events {
        Events {
            available: Memory::new(at.available),
            used: Memory::new(at.used),
            offered: 0,
            taken: 0,
        }
    }

    fn offer(&mut self, head: u16) -> bool {
        let slot = 4 + 2 * usize::from(self.offered % SIZE);
        self.available.u16(slot).store(head, Relaxed);
        self.offered += 1;
        self.available.u16(2).store(self.offered, Release);
        fence(SeqCst);
        // virtio 1.3, section 2.7.10.1.
        let event = self.used.u16(4 + 8 * usize::from(SIZE)).load(Relaxed);
        self.offered.wrapping_sub(event).wrapping_sub(1) < 1
    }

    fn take(&mut self) -> bool {
        let there = self.used.u16(2).load(Acquire) != self.taken;
        self.taken += u16::from(there);
        there
    }

    /// Asks for an interrupt at the next one; true: it is there already.
    fn request_interrupt(&mut self) -> bool {
        self.available
            .u16(4 + 2 * usize::from(SIZE))
            .store(self.taken, Relaxed);
        fence(SeqCst);
        self.used.u16(2).load(Acquire) != self.taken
    }
}

/// A device that goes to sleep with a buffer in a ring is kicked, and sees what the buffer holds.
///
/// Fails with `Relaxed` in a driver's `offer` or the device's `refresh`, without the fence in `offer`, without that in
/// `request_kicks`, and if `request_kicks` does not look once more.
pub fn no_buffer_is_slept_through(event_idx: bool) {
    check(3, move || {
        let (_pages, mut driver, mut device) = queue(event_idx);
        let buffers = Rc::new([Handed::new(), Handed::new()]);
        let kicks = Rc::new(Kicks::default());
        let guest = thread::spawn({
            let (buffers, kicks) = (buffers.clone(), kicks.clone());
            move || {
                for head in 0..2 {
                    buffers[usize::from(head)].write();
                    if driver.offer(head) {
                        kicks.kick();
                    }
                }
            }
        });
        let (mut got, mut asleep) = (0, false);
        while got < 2 && !asleep {
            let ready = device.ready().expect("an honest guest");
            for _ in 0..ready {
                let head = device.head(0).expect("an honest guest");
                assert_eq!(head, got);
                buffers[usize::from(head)].read();
                device.advance(1);
                got += 1;
            }
            if ready == 0 {
                asleep = !device.request_kicks().expect("an honest guest") && !kicks.wake();
                if !asleep {
                    device.suppress_kicks();
                    thread::yield_now();
                }
            }
        }
        guest.join().expect("the guest");
        assert!(got == 2 || kicks.wake(), "it sleeps with {got}");
    });
}

/// A guest that goes to sleep with a used buffer in its ring is interrupted, at once or (`late`) when the device asks once more
/// whether it wants to be, and sees what the device wrote.
///
/// Fails with `Relaxed` in `publish`, and without the fence there.
pub fn no_answer_is_slept_through(late: bool) {
    check(3, move || {
        let (_pages, driver, mut device) = queue(true);
        let Driver::Events(mut driver) = driver else {
            unreachable!("it was asked for")
        };
        driver.offer(0);
        driver.offer(1);
        assert_eq!(device.ready(), Ok(2));
        device.advance(2);
        let answers = Rc::new([Handed::new(), Handed::new()]);
        let calls = Rc::new(Kicks::default());
        let guest = thread::spawn({
            let (answers, calls) = (answers.clone(), calls.clone());
            move || {
                let (mut got, mut asleep) = (0, false);
                while got < 2 && !asleep {
                    if driver.take() {
                        answers[got].read();
                        got += 1;
                    } else {
                        asleep = !driver.request_interrupt() && !calls.wake();
                    }
                }
                got
            }
        });
        for head in 0..2 {
            answers[usize::from(head)].write();
            device.stage(head, 1);
            let wanted = device.publish(head + 1);
            if wanted && !late {
                calls.kick();
            }
        }
        if late && device.wants_interrupt(0) {
            calls.kick();
        }
        let got = guest.join().expect("the guest");
        assert!(got == 2 || calls.wake(), "it sleeps with {got}");
    });
}
