//! A driver's doorbell ring: guest-lib's half and the daemon's.

use std::rc::Rc;

use loom::thread;
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::ring::{Extent, doorbell_ring_len};

use super::{Handed, Kicks, check};
use crate::driver::doorbells::ENTRIES;
use crate::driver::doorbells::ring::Ring;
use crate::mem::Ram;
use crate::rdma::doorbells::{DoorbellRing, Found};
use crate::rdma::memory::FunctionMemory;
use crate::rdma::shared_ring::RingMaker;
use crate::shared::Memory;
use crate::sync::{SeqCst, fence};

fn rings() -> (Ram, Ring, DoorbellRing) {
    let len = doorbell_ring_len(ENTRIES);
    let ram = Ram::new(len as usize);
    let tail = 8 * ENTRIES as usize;
    ram.put(64, (0..tail).step_by(8));
    ram.put(32, [tail, tail + 64]);
    let extent = Extent {
        gpa: ram.at(0),
        len: len.next_multiple_of(64),
    };
    let memory = FunctionMemory::default();
    let mut maker = RingMaker::new(memory.map().clone(), 1, len, 8);
    maker.push(&memory, extent, true).expect("an extent");
    let shared = maker.finish().expect("a ring");
    let driver = Ring::new(Memory::new(ram.at(0)));
    (ram, driver, DoorbellRing::new(shared, 1, ENTRIES))
}

fn bell(index: u32) -> Doorbell {
    Doorbell {
        kind: Kind::Send,
        number: 7,
        index,
    }
}

/// A device that goes to sleep with a doorbell in a ring is kicked, and sees the work request that a doorbell is about.
///
/// Fails with `Relaxed` in the driver's `put` or the device's load, without the fence in `wants_kick`, without that behind
/// `set_polling`, and without the look behind it.
pub fn no_doorbell_is_slept_through() {
    check(3, || {
        let (_ram, mut driver, mut device) = rings();
        let requests = Rc::new([Handed::new(), Handed::new()]);
        let kicks = Rc::new(Kicks::default());
        let guest = thread::spawn({
            let (requests, kicks) = (requests.clone(), kicks.clone());
            move || {
                for index in 0..2 {
                    requests[index as usize].write();
                    driver.put(bell(index));
                    if driver.wants_kick() {
                        kicks.kick();
                    }
                }
            }
        });
        let (mut got, mut asleep) = (0, false);
        while got < 2 && !asleep {
            match device.next() {
                Found::Bell(found) => {
                    assert_eq!(found, bell(got));
                    requests[got as usize].read();
                    got += 1;
                }
                Found::Nothing => {
                    // As `Function::request_kicks` has it.
                    device.set_polling(false);
                    fence(SeqCst);
                    asleep = device.is_empty() && !kicks.wake();
                    if !asleep {
                        device.set_polling(true);
                        thread::yield_now();
                    }
                }
                Found::Fault(at) => panic!("a fault at {at}"),
            }
        }
        guest.join().expect("the guest");
        assert!(got == 2 || kicks.wake(), "it sleeps with {got}");
    });
}

/// A driver with more doorbells than a ring holds waits for the device, and none is lost or taken twice.
///
/// Fails if a driver believes that there is room for one more than there is, and if the device does not tell what it took.
pub fn a_full_ring_is_used_again() {
    check(2, || {
        let (_ram, mut driver, mut device) = rings();
        let guest = thread::spawn(move || {
            for index in 0..ENTRIES + 2 {
                driver.write(bell(index), || true).expect("room");
            }
        });
        let mut got = 0;
        while got < ENTRIES + 2 {
            match device.next() {
                Found::Bell(found) => {
                    assert_eq!(found, bell(got));
                    got += 1;
                }
                Found::Nothing => thread::yield_now(),
                Found::Fault(at) => panic!("a fault at {at}"),
            }
        }
        guest.join().expect("the guest");
        assert_eq!(device.next(), Found::Nothing);
    });
}
