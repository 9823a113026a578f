//! The driver's half of the rings (`SPEC.md`, sections 7 to 9). Every part is open, so that tests can write what they like.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use vmm_sys_util::eventfd::EventFd;
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::queue::{BLOCK_LEN, CompletionEntry, Element, ReceiveHead};
use vnic_device::ring;
use vnic_device::verbs::{CompletionStatus, QpType};
use vnic_device::zerocopy::IntoBytes;

use super::super::guest::pause;
use super::super::rig::deadline;
use super::area::Area;
use super::verbs::Wr;

/// A doorbell ring.
pub struct Bells {
    /// Its memory.
    pub area: Area,
    /// Its handle.
    pub handle: u32,
    /// Entries.
    pub entries: u32,
    /// Entries written so far.
    pub written: u32,
    /// Kicks given.
    pub kicks: u64,
    pub(super) kick: EventFd,
}

impl Bells {
    fn tail(&self) -> u64 {
        8 * u64::from(self.entries)
    }

    /// What the device says it has taken.
    pub fn taken(&self) -> u32 {
        self.area.load(self.tail() + 64)
    }

    /// Does the device want no kick?
    pub fn no_kick(&self) -> bool {
        self.area.load::<u32>(self.tail()) != 0
    }

    /// Rings, as the contract wants it.
    pub fn ring(&mut self, kind: Kind, number: u32, index: u32) {
        self.ring_bits(Doorbell { kind, number, index }.to_bits(false));
    }

    /// Rings with any 63 bits.
    ///
    /// # Panics
    /// When a full ring stays full.
    pub fn ring_bits(&mut self, bits: u64) {
        let deadline = deadline();
        for tries in 0.. {
            if self.written.wrapping_sub(self.taken()) != self.entries {
                break;
            }
            assert!(Instant::now() < deadline, "the doorbell ring stays full");
            pause(tries);
        }
        self.write(bits);
        self.kick_if_wanted();
    }

    /// Writes the next entry, with the right phase, and says no word.
    pub fn write(&mut self, bits: u64) {
        let phase = u64::from(ring::phase(self.written, self.entries)) << 63;
        let at = 8 * u64::from(self.written & (self.entries - 1));
        self.area.store(at, bits & !(1 << 63) | phase);
        self.written = self.written.wrapping_add(1);
    }

    /// Kicks when the device wants it.
    pub fn kick_if_wanted(&mut self) {
        fence(Ordering::SeqCst);
        if !self.no_kick() {
            self.kicks += 1;
            // A full counter says all there is to say.
            let _ = self.kick.write(1);
        }
    }

    /// Waits until the device has said that all entries are taken.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_taken(&self) {
        let deadline = deadline();
        for tries in 0.. {
            if self.taken() == self.written {
                return;
            }
            assert!(Instant::now() < deadline, "doorbells are not taken");
            pause(tries);
        }
    }
}

/// A completion queue.
pub struct Cq {
    /// Its memory.
    pub area: Area,
    /// Its handle.
    pub handle: u32,
    /// Entries.
    pub entries: u32,
    /// Completions taken.
    pub consumer: u32,
}

impl Cq {
    /// The next completion, if it is there.
    ///
    /// # Panics
    /// When reserved fields are not zero.
    pub fn poll(&mut self) -> Option<CompletionEntry> {
        let e = self.peek()?;
        assert_eq!((e.reserved, e.phase & 0x7f), (0, 0), "reserved fields: {e:?}");
        self.consumer = self.consumer.wrapping_add(1);
        self.give_room();
        Some(e)
    }

    /// The next completion, left where it is.
    pub fn peek(&self) -> Option<CompletionEntry> {
        self.at(self.consumer)
    }

    /// Takes the next `count` completions if all are there, and reads only the last of them: the others are fetched from no other
    /// CPU's cache.
    pub fn take_last(&mut self, count: u32) -> Option<CompletionEntry> {
        let last = self.at(self.consumer.wrapping_add(count - 1))?;
        self.consumer = self.consumer.wrapping_add(count);
        self.give_room();
        Some(last)
    }

    /// The completion of this index, if it is there.
    fn at(&self, index: u32) -> Option<CompletionEntry> {
        let at = 64 * u64::from(index & (self.entries - 1));
        let last: u64 = self.area.load(at + 56);
        (CompletionEntry::phase(last) == ring::phase(index, self.entries)).then(|| self.area.get(at))
    }

    /// Tells the device how far completions were taken.
    pub fn give_room(&self) {
        self.set_consumer(self.consumer);
    }

    /// Writes any consumer index.
    pub fn set_consumer(&self, index: u32) {
        self.area.store(64 * u64::from(self.entries), index);
    }

    /// Waits for the next completion.
    ///
    /// # Panics
    /// When none comes.
    pub fn wait(&mut self) -> CompletionEntry {
        let deadline = deadline();
        for tries in 0.. {
            if let Some(e) = self.poll() {
                return e;
            }
            assert!(Instant::now() < deadline, "no completion comes");
            pause(tries);
        }
        unreachable!("the deadline ends it")
    }

    /// Waits for the next completion, which must be of this request and end so.
    ///
    /// # Panics
    /// When it is another.
    pub fn expect(&mut self, wr_id: u64, status: CompletionStatus) -> CompletionEntry {
        let e = self.wait();
        assert_eq!((e.wr_id, e.status()), (wr_id, status), "{e:?}");
        e
    }

    /// Waits for the next completion, which must be of this request and have succeeded.
    pub fn good(&mut self, wr_id: u64) -> CompletionEntry {
        self.expect(wr_id, CompletionStatus::Success)
    }

    /// Asks for an event.
    pub fn arm(&self, bells: &mut Bells, solicited: bool) {
        let kind = if solicited {
            Kind::ArmSolicited
        } else {
            Kind::ArmNext
        };
        bells.ring(kind, self.handle, self.consumer);
    }
}

/// A send queue.
pub struct SendRing {
    /// Its memory.
    pub area: Area,
    /// Blocks.
    pub blocks: u32,
    /// Behind the last block that was written.
    pub producer: u32,
    /// Blocks before are free.
    pub consumer: u32,
}

impl SendRing {
    /// Writes a request, and zeros behind it. Answers its last index.
    pub fn write(&mut self, wr: &Wr) -> u32 {
        let mut bytes = wr.head.as_bytes().to_vec();
        bytes.extend_from_slice(&wr.behind);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_LEN), 0);
        for block in bytes.chunks(BLOCK_LEN) {
            let at = u64::from(self.producer & (self.blocks - 1)) * BLOCK_LEN as u64;
            self.area.write(at, block);
            self.producer = self.producer.wrapping_add(1);
        }
        self.producer
    }

    /// Blocks that are free.
    pub fn free(&self) -> u32 {
        self.blocks - self.producer.wrapping_sub(self.consumer)
    }
}

/// A receive queue's ring, or a shared one's.
pub struct ReceiveRing {
    /// Its memory.
    pub area: Area,
    /// Entries.
    pub entries: u32,
    /// Bytes of an entry.
    pub stride: u32,
    /// Behind the last entry that was written.
    pub producer: u32,
    /// Entries before are free.
    pub consumer: u32,
}

impl ReceiveRing {
    /// Writes a receive.
    pub fn write(&mut self, wr_id: u64, elements: &[Element]) -> u32 {
        let head = ReceiveHead {
            wr_id,
            elements: elements.len() as u32,
            reserved: 0,
        };
        self.write_head(head, elements)
    }

    /// Writes a receive with any head.
    pub fn write_head(&mut self, head: ReceiveHead, elements: &[Element]) -> u32 {
        let at = u64::from(self.producer & (self.entries - 1)) * u64::from(self.stride);
        self.area.put(at, &head);
        for (i, element) in elements.iter().enumerate() {
            self.area.put(at + 16 + 16 * i as u64, element);
        }
        self.producer = self.producer.wrapping_add(1);
        self.producer
    }
}

/// A queue pair.
pub struct Qp {
    /// Its number.
    pub number: u32,
    /// Its type.
    pub qp_type: QpType,
    /// Its send queue.
    pub send: Option<SendRing>,
    /// Its receive queue.
    pub receive: Option<ReceiveRing>,
}

impl Qp {
    /// The send queue.
    ///
    /// # Panics
    /// When it has none.
    pub fn sends(&mut self) -> &mut SendRing {
        self.send.as_mut().expect("a send queue")
    }

    /// The receive queue.
    ///
    /// # Panics
    /// When it has none.
    pub fn receives(&mut self) -> &mut ReceiveRing {
        self.receive.as_mut().expect("a receive queue")
    }

    /// Posts a send and rings.
    pub fn post(&mut self, bells: &mut Bells, wr: &Wr) -> u32 {
        let index = self.sends().write(wr);
        bells.ring(Kind::Send, self.number, index);
        index
    }

    /// Posts a receive and rings.
    pub fn receive(&mut self, bells: &mut Bells, wr_id: u64, elements: &[Element]) -> u32 {
        let index = self.receives().write(wr_id, elements);
        bells.ring(Kind::Receive, self.number, index);
        index
    }

    /// Rings for what stands in the send queue.
    pub fn ring(&mut self, bells: &mut Bells) {
        let index = self.sends().producer;
        bells.ring(Kind::Send, self.number, index);
    }

    /// The driver's side of a reset: empty rings, from index 0 on.
    pub fn begin_anew(&mut self) {
        if let Some(s) = &mut self.send {
            (s.producer, s.consumer) = (0, 0);
        }
        if let Some(r) = &mut self.receive {
            (r.producer, r.consumer) = (0, 0);
        }
    }
}

/// A shared receive queue.
pub struct Srq {
    /// Its handle, also its number on the wire.
    pub handle: u32,
    /// Its ring.
    pub ring: ReceiveRing,
}

impl Srq {
    /// Entries that the device says it has taken.
    pub fn taken(&self) -> u32 {
        let tail = ring::shared_receive_tail(self.ring.entries, self.ring.stride);
        self.ring.area.load(tail)
    }

    /// Posts a receive and rings.
    pub fn receive(&mut self, bells: &mut Bells, wr_id: u64, elements: &[Element]) -> u32 {
        let index = self.ring.write(wr_id, elements);
        bells.ring(Kind::SharedReceive, self.handle, index);
        index
    }
}
