//! Two data cores with a link, and what wakes a data core.

#![expect(unsafe_code, reason = "lends what has no memory")]

use std::rc::Rc;
use std::sync::Arc;

use arrayvec::ArrayVec;
use loom::thread;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::vlan::TagEdit;

use super::{Handed, check, is_readable};
use crate::datapath::dpc::BufferAlarm;
use crate::datapath::frame::{Metadata, SNAP};
use crate::datapath::gate::Gate;
use crate::datapath::link::{Content, LentFrame, Remote, RemoteDest, RemoteFrame, SlotRef, Waker, link};

fn frame() -> RemoteFrame {
    RemoteFrame {
        seq: 0,
        dest: RemoteDest::One(Egress {
            port: PortId(1),
            tag: TagEdit::Keep,
        }),
        content: Content::Lent(LentFrame {
            meta: Metadata,
            hdr: NetHdr::default(),
            snap: [0; SNAP],
            len: SNAP,
            segs: ArrayVec::new(),
            skip: 0,
        }),
    }
}

/// The receiver's core reads a sender's buffer only as long as it is lent, and shows a frame only when the sender's guest has
/// its buffer back.
///
/// Fails with `Relaxed` in `copied`, `poll_copied`, `advance_commit` or `is_committed`.
pub fn a_buffer_is_lent_and_given_back() {
    check(2, || {
        let waker = Arc::new(Waker::new(std::time::Instant::now()).expect("an eventfd"));
        let (mut out, mut input) = link(waker);
        // The bytes, and the used ring of the sender's guest.
        let buffers = Rc::new([Handed::new(), Handed::new()]);
        let completed = Rc::new([Handed::new(), Handed::new()]);
        buffers.iter().for_each(Handed::write);
        let receiver = thread::spawn({
            let (buffers, completed) = (buffers.clone(), completed.clone());
            move || {
                let mut gates = Vec::new();
                for _ in 0..3 {
                    if let Some(Remote::Frame(frame)) = input.recv() {
                        buffers[frame.seq as usize - 1].read();
                        input.copied(frame.seq);
                        gates.extend(Gate::new(0, frame.seq));
                    }
                    while let Some(gate) = gates.first().filter(|gate| input.is_committed(gate.seq())) {
                        completed[gate.seq() as usize - 1].read();
                        gates.remove(0);
                    }
                }
            }
        });
        for slot in 0..2 {
            // SAFETY: it has no memory.
            let place = unsafe { SlotRef::new(0, slot) };
            let sent = out.send(frame(), Some(place));
            assert_eq!(sent, Some(slot + 1));
        }
        for _ in 0..3 {
            while let Some(SlotRef { slot, .. }) = out.poll_copied() {
                buffers[slot as usize].write();
                completed[slot as usize].write();
                out.commit(slot + 1);
            }
        }
        receiver.join().expect("the receiver");
    });
}

/// A data core that goes to sleep with a frame in its link is woken.
///
/// Fails without the fence in `wake`, without that in `set_asleep`, and without the look behind `set_asleep`.
pub fn no_frame_is_slept_through() {
    check(3, || {
        let waker = Arc::new(Waker::new(std::time::Instant::now()).expect("an eventfd"));
        let (mut out, mut input) = link(waker.clone());
        let sender = thread::spawn(move || {
            out.send(frame(), None);
            out.send(frame(), None);
        });
        let (mut got, mut asleep) = (0, false);
        while got < 2 && !asleep {
            if input.recv().is_some() {
                got += 1;
                continue;
            }
            waker.set_asleep(true);
            // (An eventfd that was written would end the wait at once.)
            asleep = !input.pending() && !is_readable(waker.fd());
            if !asleep {
                waker.set_asleep(false);
                thread::yield_now();
            }
        }
        sender.join().expect("the sender");
        assert!(got == 2 || is_readable(waker.fd()), "it sleeps with {got}");
    });
}

/// A data core that goes to sleep while the thread for receive buffers rings its alarm is woken, and sees what the alarm is
/// about.
///
/// Fails with `Relaxed` in `look` or `take`, and without the fence in `wake`, that in `set_asleep`, or the look at
/// `is_rung`.
pub fn no_bell_is_slept_through() {
    check(3, || {
        let waker = Arc::new(Waker::new(std::time::Instant::now()).expect("an eventfd"));
        let alarm = Arc::new(BufferAlarm::new(waker.clone()));
        let buffers = Rc::new(Handed::new());
        let thread = thread::spawn({
            let (alarm, buffers) = (alarm.clone(), buffers.clone());
            move || {
                buffers.write();
                alarm.ring();
            }
        });
        let mut rung = alarm.take();
        if !rung {
            waker.set_asleep(true);
            if alarm.is_rung() {
                waker.set_asleep(false);
                rung = alarm.take();
            }
        }
        if rung {
            buffers.read();
        }
        thread.join().expect("the thread");
        assert!(rung || is_readable(waker.fd()), "it sleeps");
    });
}
