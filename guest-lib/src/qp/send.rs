//! The driver's half of a send ring (`SPEC.md`, section 8.1).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use vnic_device::event::FaultReason;
use vnic_device::queue::{AtomicOperands, BLOCK_LEN, Element, Operation, SendHead, SendLimits, send_flags};
use vnic_device::verbs::QpType;
use vnic_device::zerocopy::transmute;

use crate::PostReason;
use crate::memory::Sge;
use crate::shared::Memory;
use crate::wr::{Place, SendWr};

/// Inline bytes that fit behind a head.
const SHORT_INLINE: usize = BLOCK_LEN - size_of::<SendHead>();
/// Words of a block.
const WORDS: usize = BLOCK_LEN / 8;

pub(crate) struct SendRing {
    memory: Memory,
    blocks: u32,
    producer: u32,
    short: Short,
}

/// What [`SendRing::write_short`] writes: nearly all requests.
struct Short {
    /// Operations, by their numbers, that have elements and nothing else.
    operations: u32,
    /// Most elements of such a request.
    elements: usize,
    /// Operations that may carry inline bytes instead.
    inline_operations: u32,
    /// Most inline bytes that fit into the block of the head.
    inline: usize,
    /// Bits of [`SendHead::remote`] that must be zero.
    reserved: u64,
    /// Whether the device is asked before requests are written: none has the short way.
    watched: bool,
}

impl Short {
    fn new(limits: &SendLimits, watched: bool) -> Short {
        use Operation as O;
        let lists = [
            O::Write,
            O::WriteImm,
            O::Send,
            O::SendImm,
            O::SendInvalidate,
            O::Read,
        ];
        let allowed = lists
            .into_iter()
            .filter(|o| limits.qp_type.allows(*o) && !watched && limits.qp_type != QpType::DcInitiator);
        let operations = allowed.fold(0, |all, o| all | 1 << o.number());
        Short {
            operations,
            elements: limits.elements as usize,
            inline_operations: operations & !(1 << O::Read.number()),
            inline: (limits.inline as usize).min(SHORT_INLINE),
            reserved: match limits.qp_type {
                QpType::Ud => !SendHead::datagram(u32::MAX, vnic_device::doorbell::NUMBER_MAX),
                _ => 0,
            },
            watched,
        }
    }
}

/// Writes words into the ring, past its end from the beginning on.
struct Writer<'a> {
    words: &'a [AtomicU64],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, word: u64) {
        // The ring's words are a power of two; an empty ring has no room, so nothing is written.
        let at = self.at & (self.words.len() - 1);
        self.words[at].store(word, Relaxed);
        self.at += 1;
    }

    #[inline]
    fn element(&mut self, sge: &Sge) {
        element(sge).into_iter().for_each(|word| self.put(word));
    }

    /// Writes a request of any length.
    fn write(mut self, head: SendHead, wr: &SendWr<'_>, blocks: u32) {
        let end = self.at + blocks as usize * WORDS;
        head.to_words().into_iter().for_each(|word| self.put(word));
        if let Some(target) = wr.target {
            let words: [u64; 2] = transmute!(target);
            words.into_iter().for_each(|word| self.put(word));
        }
        match &wr.data.0 {
            Place::Many(sges) => sges.iter().for_each(|sge| self.element(sge)),
            Place::Inline(bytes) => {
                for chunk in bytes.chunks(8) {
                    self.put(word(chunk));
                }
            }
            Place::One(sge) => self.element(sge),
            Place::Atomic(sge, compare_or_add, swap) => {
                let operands: [u64; 2] = transmute!(AtomicOperands {
                    compare_or_add: *compare_or_add,
                    swap: *swap,
                });
                self.element(sge);
                operands.into_iter().for_each(|word| self.put(word));
            }
            Place::Bind(bind) => {
                let words: [u64; 4] = transmute!(*bind);
                words.into_iter().for_each(|word| self.put(word));
            }
        }
        while self.at < end {
            self.put(0);
        }
    }
}

/// Up to 8 bytes as a word.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[inline]
fn pair([a, b]: [u64; 2], [c, d]: [u64; 2]) -> [u64; 4] {
    [a, b, c, d]
}

#[inline]
fn element(sge: &Sge) -> [u64; 2] {
    transmute!(Element {
        addr: sge.addr,
        len: sge.len,
        lkey: sge.lkey,
    })
}

impl SendRing {
    /// A ring in memory of zeros.
    pub fn new(memory: Memory, blocks: u32, limits: &SendLimits) -> SendRing {
        SendRing {
            short: Short::new(limits, false),
            memory,
            blocks,
            producer: 0,
        }
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Index behind the last block that was written.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// Takes back blocks from `producer` on, which the device was not told of.
    pub fn take_back(&mut self, producer: u32) {
        self.producer = producer;
    }

    /// Ends the oldest request from `consumed` on, for a device that is gone; answers its number.
    pub fn flush(&self, consumed: &AtomicU32, limits: &SendLimits) -> Option<u64> {
        let at = consumed.load(Relaxed);
        let left = self.producer.wrapping_sub(at);
        if left == 0 || left > self.blocks {
            return None;
        }
        let from = (at & (self.blocks - 1)) as usize * BLOCK_LEN;
        let words: [u64; 4] = std::array::from_fn(|i| self.memory.u64(from + 8 * i).load(Relaxed));
        let head: SendHead = transmute!(words);
        // What was posted was checked. A program that has overwritten it hears of one block after the other.
        let blocks = head.check(limits).map_or(1, |(_, blocks)| blocks.clamp(1, left));
        consumed.store(at.wrapping_add(blocks), Relaxed);
        Some(head.wr_id)
    }

    /// Forgets all blocks.
    pub fn reset(&mut self) {
        self.producer = 0;
    }

    /// From now on the device is asked before requests are written, or not any more.
    #[inline(always)]
    pub fn watch(&mut self, watched: bool, limits: &SendLimits) {
        if self.short.watched != watched {
            self.change_watch(watched, limits);
        }
    }

    #[cold]
    fn change_watch(&mut self, watched: bool, limits: &SendLimits) {
        self.short = Short::new(limits, watched);
    }

    /// Whether the device is asked before requests are written.
    pub fn is_watched(&self) -> bool {
        self.short.watched
    }

    /// Whether requests must say where they go.
    #[inline]
    pub fn wants_destination(&self) -> bool {
        self.short.reserved != 0
    }

    /// Whether a request has one of these operations and nothing special, and there is room for a block.
    #[inline(always)]
    fn is_short(&self, head: &SendHead, operations: u32, consumed: u32) -> bool {
        const PLAIN: u8 = send_flags::ALL & !(send_flags::INLINE | send_flags::TARGET | send_flags::RAW);
        operations >> (head.operation & 31) & 1 != 0
            && head.operation < 32
            && head.flags & !PLAIN == 0
            && head.remote & self.short.reserved == 0
            && self.producer.wrapping_sub(consumed) < self.blocks
    }

    /// Writes a work request of at most two elements, if it is valid and there is room. `false`:
    /// [`write`](SendRing::write) knows what is special.
    #[inline(always)]
    pub fn write_short(&mut self, mut head: SendHead, sges: &[Sge], consumed: u32) -> bool {
        if !self.is_short(&head, self.short.operations, consumed) || sges.len() > self.short.elements {
            return false;
        }
        let elements = match sges {
            [one] => pair(element(one), [0; 2]),
            [] => [0; 4],
            [one, two] => pair(element(one), element(two)),
            _ => return false,
        };
        head.count = sges.len() as u16;
        self.put(head, elements)
    }

    /// Writes a work request with inline bytes that fit into one block, as [`write_short`](SendRing::write_short).
    #[inline(always)]
    pub fn write_inline(&mut self, mut head: SendHead, bytes: &[u8], consumed: u32) -> bool {
        let operations = self.short.inline_operations;
        if !self.is_short(&head, operations, consumed) || bytes.len() > self.short.inline {
            return false;
        }
        head.flags |= send_flags::INLINE;
        head.count = bytes.len() as u16;
        let (whole, rest) = bytes.as_chunks::<8>();
        let mut words = [0; 4];
        for (to, chunk) in words.iter_mut().zip(whole) {
            *to = u64::from_le_bytes(*chunk);
        }
        if !rest.is_empty()
            && let Some(to) = words.get_mut(whole.len())
        {
            *to = word(rest);
        }
        self.put(head, words)
    }

    /// Writes a block.
    #[inline(always)]
    fn put(&mut self, head: SendHead, data: [u64; 4]) -> bool {
        let words = self.memory.words(self.blocks as usize * BLOCK_LEN);
        let index = self.producer as usize & (self.blocks as usize).wrapping_sub(1);
        let Some(block) = words.as_chunks::<WORDS>().0.get(index) else {
            return false;
        };
        let [a, b, c, d] = head.to_words();
        let [e, f, g, h] = data;
        // Store by store: loops over chained arrays are not unrolled.
        let [w0, w1, w2, w3, w4, w5, w6, w7] = block;
        w0.store(a, Relaxed);
        w1.store(b, Relaxed);
        w2.store(c, Relaxed);
        w3.store(d, Relaxed);
        w4.store(e, Relaxed);
        w5.store(f, Relaxed);
        w6.store(g, Relaxed);
        w7.store(h, Relaxed);
        self.producer = self.producer.wrapping_add(1);
        true
    }

    /// Writes a work request, if it is valid and there is room. Blocks before `consumed` are free.
    pub fn write(&mut self, wr: &SendWr<'_>, limits: &SendLimits, consumed: u32) -> Result<(), PostReason> {
        let mut head = wr.head;
        let count = match &wr.data.0 {
            Place::One(_) | Place::Atomic(..) => 1,
            Place::Many(sges) => sges.len(),
            Place::Inline(bytes) => {
                head.flags |= send_flags::INLINE;
                bytes.len()
            }
            Place::Bind(_) => 0,
        };
        head.count = u16::try_from(count).map_err(|_| PostReason::Length)?;
        let (operation, blocks) = head.check(limits).map_err(|fault| match fault {
            FaultReason::Operation => PostReason::Operation,
            FaultReason::Length => PostReason::Length,
            _ => PostReason::Malformed,
        })?;
        if wr.contradicts || matches!(limits.qp_type, QpType::Ud) && !wr.has_destination {
            return Err(PostReason::Malformed);
        }
        if let Place::Atomic(sge, ..) = &wr.data.0
            && sge.len != 8
        {
            return Err(PostReason::Length);
        }
        let fits = match operation {
            Operation::CompareSwap | Operation::FetchAdd => matches!(wr.data.0, Place::Atomic(..)),
            Operation::BindMw => matches!(wr.data.0, Place::Bind(_)),
            _ => !matches!(wr.data.0, Place::Atomic(..) | Place::Bind(_)),
        };
        if !fits {
            return Err(PostReason::Malformed);
        }
        if self.producer.wrapping_add(blocks).wrapping_sub(consumed) > self.blocks {
            return Err(PostReason::Full);
        }
        // The ring's blocks are a power of two.
        let index = self.producer as usize & (self.blocks as usize).wrapping_sub(1);
        let writer = Writer {
            words: self.memory.words(self.blocks as usize * BLOCK_LEN),
            at: index * WORDS,
        };
        writer.write(head, wr, blocks);
        self.producer = self.producer.wrapping_add(blocks);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vnic_device::queue::Bind;

    use super::*;
    use crate::Data;
    use crate::shared::tests::memory;

    const RC: SendLimits = SendLimits {
        qp_type: QpType::Rc,
        elements: 4,
        inline: 128,
    };

    fn ring(blocks: u32) -> SendRing {
        SendRing::new(memory(blocks as usize * BLOCK_LEN), blocks, &RC)
    }

    fn bytes(ring: &SendRing, block: u32, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; count as usize * BLOCK_LEN];
        for i in 0..count {
            let at = ((block + i) % ring.blocks) as usize * BLOCK_LEN;
            let to = i as usize * BLOCK_LEN;
            ring.memory.read(at, &mut bytes[to..to + BLOCK_LEN]);
        }
        bytes
    }

    fn sge(addr: u64, len: u32, lkey: u32) -> Sge {
        Sge { addr, len, lkey }
    }

    /// The WRITE of section 13.
    #[test]
    fn a_write_is_as_in_the_examples() {
        let mut ring = ring(8);
        ring.producer = 5;
        ring.memory.fill(0, 8 * BLOCK_LEN, 0xff);
        let wr = SendWr::write(sge(0x7f00_0000_1000, 8, 0x1200), 0x7f00_0000_2000, 0x1300)
            .id(0x1122_3344_5566_7788)
            .signaled();
        assert_eq!(ring.write(&wr, &RC, 0), Ok(()));
        assert_eq!(ring.producer(), 6);
        let expected = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00, 0x02, 0x01, 0, 0, 0, 0, 0, //
            0, 0x20, 0, 0, 0, 0x7f, 0, 0, 0, 0x13, 0, 0, 0, 0, 0, 0, //
            0, 0x10, 0, 0, 0, 0x7f, 0, 0, 8, 0, 0, 0, 0, 0x12, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes(&ring, 5, 1), expected);
    }

    /// The datagram of section 13.
    #[test]
    fn a_datagram_is_as_in_the_examples() {
        let mut ring = ring(8);
        ring.memory.fill(0, 8 * BLOCK_LEN, 0xff);
        let mut wr = SendWr::send(Data::inline(b"hello"))
            .id(1)
            .imm(0x0a0b_0c0d)
            .signaled()
            .solicited();
        let ud = SendLimits {
            qp_type: QpType::Ud,
            ..RC
        };
        assert_eq!(ring.write(&wr, &ud, 0), Err(PostReason::Malformed));
        wr.head.remote = SendHead::datagram(9, 0x103);
        wr.head.rkey = 0x1111_1111;
        wr.has_destination = true;
        assert_eq!(ring.write(&wr, &ud, 0), Ok(()));
        let expected = [
            1, 0, 0, 0, 0, 0, 0, 0, 3, 0x0e, 5, 0, 0x0d, 0x0c, 0x0b, 0x0a, //
            9, 0, 0, 0, 3, 1, 0, 0, 0x11, 0x11, 0x11, 0x11, 0, 0, 0, 0, //
            b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes(&ring, 0, 1), expected);
    }

    #[test]
    fn long_requests_go_over_the_end_of_the_ring() {
        let mut ring = ring(4);
        ring.memory.fill(0, 4 * BLOCK_LEN, 0xff);
        ring.producer = u32::MAX;
        let data: Vec<u8> = (0..101).collect();
        let wr = SendWr::write(Data::inline(&data), 1, 2);
        assert_eq!(ring.write(&wr, &RC, u32::MAX), Ok(()));
        assert_eq!(ring.producer(), 2);
        let written = bytes(&ring, 3, 3);
        assert_eq!(written[10..12], [101, 0]);
        assert_eq!(written[32..133], data);
        assert!(written[133..].iter().all(|b| *b == 0));
        // One block is left.
        assert_eq!(ring.write(&wr, &RC, u32::MAX), Err(PostReason::Full));
        let sges = [sge(1, 2, 3), sge(4, 5, 6)];
        assert_eq!(ring.write(&SendWr::send(&sges), &RC, u32::MAX), Ok(()));
        let written = bytes(&ring, 2, 1);
        assert_eq!(written[32..48], [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(written[48..], [4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(
            ring.write(&SendWr::send(&sges), &RC, u32::MAX),
            Err(PostReason::Full)
        );
        assert_eq!(ring.write(&SendWr::send(&sges), &RC, 2), Ok(()));
    }

    #[test]
    fn atomics_and_binds_have_their_operands() {
        let mut ring = ring(8);
        let wr = SendWr::compare_swap(sge(0x10, 8, 1), 0x20, 2, 0xaa, 0xbb);
        assert_eq!(ring.write(&wr, &RC, 0), Ok(()));
        let written = bytes(&ring, 0, 1);
        assert_eq!((written[8], written[10]), (5, 1));
        assert_eq!((written[48], written[56]), (0xaa, 0xbb));
        let wr = SendWr::fetch_add(sge(0x10, 4, 1), 0x20, 2, 1);
        assert_eq!(ring.write(&wr, &RC, 0), Err(PostReason::Length));
        let bind = Bind {
            mw: 7,
            rkey: 8,
            mr: 9,
            access: 2,
            addr: 10,
            len: 11,
        };
        assert_eq!(ring.write(&SendWr::bind(bind), &RC, 0), Ok(()));
        let written = bytes(&ring, 1, 1);
        assert_eq!((written[8], written[10]), (8, 0));
        assert_eq!([32, 36, 40, 44, 48, 56].map(|i| written[i]), [7, 8, 9, 2, 10, 11]);
        let wr = SendWr::local_invalidate(0x77);
        assert_eq!(ring.write(&wr, &RC, 0), Ok(()));
        let written = bytes(&ring, 2, 1);
        assert_eq!((written[8], written[10], written[12]), (7, 0, 0x77));
    }

    /// What is written in the short way is what the long way writes, and what it does not write is refused or
    /// longer.
    #[test]
    fn the_short_way_is_the_long_one() {
        let sges = [sge(1, 2, 3), sge(4, 5, 6), sge(7, 8, 9)];
        let ud = SendLimits {
            qp_type: QpType::Ud,
            ..RC
        };
        let few = SendLimits { elements: 1, ..RC };
        for (limits, operation, flags, count, remote) in [RC, ud, few].into_iter().flat_map(|limits| {
            let operations = Operation::ALL.iter().map(|o| o.number()).chain([10, 32, 255]);
            operations.flat_map(move |operation| {
                [0, 7, 8, 15, 16, 255].into_iter().flat_map(move |flags| {
                    (0..4).flat_map(move |count| {
                        [5, 1 << 56].map(|remote| (limits, operation, flags, count, remote))
                    })
                })
            })
        }) {
            let head = SendHead {
                wr_id: 0x1122_3344_5566_7788,
                operation,
                flags,
                imm: 6,
                remote,
                rkey: 7,
                remote_srq: 8,
                ..SendHead::default()
            };
            let list = &sges[..count];
            let make = || {
                let mut ring = SendRing::new(memory(4 * BLOCK_LEN), 4, &limits);
                ring.memory.fill(0, 4 * BLOCK_LEN, 0xff);
                ring.producer = u32::MAX;
                ring
            };
            let (mut short, mut long) = (make(), make());
            let wrote = short.write_short(head, list, u32::MAX);
            let wr = SendWr::from_parts(head, Data::from(list));
            let result = long.write(&wr, &limits, u32::MAX);
            if wrote {
                assert_eq!(result, Ok(()), "{head:?} with {count} elements");
                assert_eq!(bytes(&short, 0, 4), bytes(&long, 0, 4));
                assert_eq!(short.producer, 0);
            } else {
                assert_eq!(short.producer, u32::MAX);
                assert!(bytes(&short, 0, 4).iter().all(|b| *b == 0xff));
                let special = count > 2 || operation == Operation::LocalInvalidate.number();
                assert!(result.is_err() || special, "{head:?} with {count} elements");
            }
            assert!(
                !short.write_short(head, list, short.producer.wrapping_sub(4)),
                "full"
            );
        }
    }

    /// `write_inline` writes the work request that the long way writes.
    #[test]
    fn the_short_way_of_bytes_is_the_long_one() {
        let data: Vec<u8> = (1..60).collect();
        let few = SendLimits { inline: 20, ..RC };
        let ud = SendLimits {
            qp_type: QpType::Ud,
            ..RC
        };
        for limits in [RC, few, ud] {
            for operation in 0..12 {
                for (len, flags) in (0..40).flat_map(|len| [0, 7, 8, 16].map(|flags| (len, flags))) {
                    let head = SendHead {
                        wr_id: 0x1122_3344_5566_7788,
                        operation,
                        flags,
                        imm: 6,
                        remote: 5,
                        rkey: 7,
                        remote_srq: 8,
                        ..SendHead::default()
                    };
                    let make = || {
                        let mut ring = SendRing::new(memory(4 * BLOCK_LEN), 4, &limits);
                        ring.memory.fill(0, 4 * BLOCK_LEN, 0xff);
                        ring.producer = u32::MAX;
                        ring
                    };
                    let (mut short, mut long) = (make(), make());
                    let wrote = short.write_inline(head, &data[..len], u32::MAX);
                    let wr = SendWr::from_parts(head, Data::inline(&data[..len]));
                    let result = long.write(&wr, &limits, u32::MAX);
                    if wrote {
                        assert_eq!(result, Ok(()), "{head:?} with {len} bytes");
                        assert_eq!(
                            bytes(&short, 0, 4),
                            bytes(&long, 0, 4),
                            "{head:?} with {len} bytes"
                        );
                    } else {
                        let special = len > 32 || flags == 8;
                        assert!(result.is_err() || special, "{head:?} with {len} bytes");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_at_once() {
        let mut ring = ring(8);
        let one = sge(1, 2, 3);
        let five = [one; 5];
        let long = [0; 129];
        let huge = [one; 70_000];
        let uc = SendLimits {
            qp_type: QpType::Uc,
            ..RC
        };
        let mut check = |wr: SendWr<'_>, limits: &SendLimits| ring.write(&wr, limits, 0);
        assert_eq!(check(SendWr::send(&five), &RC), Err(PostReason::Length));
        assert_eq!(check(SendWr::send(&huge), &RC), Err(PostReason::Length));
        assert_eq!(
            check(SendWr::send(Data::inline(&long)), &RC),
            Err(PostReason::Length)
        );
        assert_eq!(check(SendWr::read(one, 0, 0), &uc), Err(PostReason::Operation));
        assert_eq!(
            check(SendWr::read(Data::inline(b"x"), 0, 0), &RC),
            Err(PostReason::Malformed)
        );
        assert_eq!(
            check(SendWr::read(one, 0, 0).imm(1), &RC),
            Err(PostReason::Malformed)
        );
        assert_eq!(
            check(SendWr::write(one, 0, 0).invalidate(1), &RC),
            Err(PostReason::Malformed)
        );
        assert_eq!(check(SendWr::send(one).imm(1).imm(2), &RC), Ok(()));
        assert_eq!(ring.producer(), 1, "what was refused takes no place");
    }

    #[test]
    fn data_that_an_operation_does_not_have_are_refused() {
        let mut ring = ring(16);
        let one = sge(1, 8, 3);
        let bind = Data(Place::Bind(Bind::default()));
        let data = [Data::from(one), Data::atomic(one, 1, 2), bind, Data::NONE];
        for operation in Operation::ALL {
            let good: &[usize] = match operation {
                Operation::CompareSwap | Operation::FetchAdd => &[1],
                Operation::BindMw => &[2],
                Operation::LocalInvalidate => &[3],
                _ => &[0, 3],
            };
            for (i, data) in data.iter().enumerate() {
                let result = ring.write(&SendWr::of(operation, *data), &RC, ring.producer());
                assert_eq!(result.is_ok(), good.contains(&i), "{operation:?} with {data:?}");
            }
        }
        let flagged = SendWr::of(Operation::Send, Data::NONE).flags(send_flags::INLINE);
        assert_eq!(
            ring.write(&flagged, &RC, ring.producer()),
            Err(PostReason::Malformed)
        );
    }
}
