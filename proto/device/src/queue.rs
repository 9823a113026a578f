//! Work queues and completion queues: rings in guest memory.
//!
//! A send queue is a ring of 64-byte blocks. A work request takes one block and as many more as its elements or inline
//! bytes need, past the end of the ring from its beginning on. A receive queue is a ring of entries of one size. A
//! completion queue is a ring of 64-byte entries that the device writes; the highest bit of the last byte is the phase.

use zerocopy::transmute;

use crate::event::FaultReason;
use crate::verbs::{CompletionStatus, QpType};

/// Bytes of a block of a send queue.
pub const BLOCK_LEN: usize = 64;

numbers! {
    /// What a send work request does: numbers of `ibv_wr_opcode`.
    enum Operation: u8 {
        /// RDMA WRITE.
        Write = 0,
        /// RDMA WRITE with immediate data.
        WriteImm = 1,
        /// SEND.
        Send = 2,
        /// SEND with immediate data.
        SendImm = 3,
        /// RDMA READ.
        Read = 4,
        /// Compare and swap: one element, then [`AtomicOperands`].
        CompareSwap = 5,
        /// Fetch and add: one element, then [`AtomicOperands`].
        FetchAdd = 6,
        /// Invalidate a local key.
        LocalInvalidate = 7,
        /// Bind a window: [`Bind`] stands in place of the elements.
        BindMw = 8,
        /// SEND with invalidate.
        SendInvalidate = 9,
    }

    /// What a completion is about: numbers of `ibv_wc_opcode`.
    enum CompletionKind: u8 {
        /// SEND.
        Send = 0,
        /// RDMA WRITE.
        Write = 1,
        /// RDMA READ.
        Read = 2,
        /// Compare and swap.
        CompareSwap = 3,
        /// Fetch and add.
        FetchAdd = 4,
        /// Window bound.
        BindMw = 5,
        /// Key invalidated.
        LocalInvalidate = 6,
        /// SEND received.
        Recv = 128,
        /// WRITE with immediate data received.
        RecvWriteImm = 129,
    }

    /// Network header of a datagram.
    enum NetworkHeader: u8 {
        /// The GRH of RoCE v1.
        Grh = 0,
        /// IPv6.
        Ipv6 = 1,
        /// IPv4.
        Ipv4 = 2,
    }
}

impl Operation {
    /// The bit of the operation in sets of operations.
    #[inline]
    pub const fn bit(self) -> u32 {
        1 << self.number()
    }
}

impl CompletionKind {
    /// Whether the kind is of a receive. It is right for errors, too.
    pub const fn is_receive(number: u8) -> bool {
        number & 0x80 != 0
    }
}

/// Bits of [`SendHead::flags`]: `ibv_send_flags`.
pub mod send_flags {
    /// Wait for the READs and atomics before the request.
    pub const FENCE: u8 = 1 << 0;
    /// Complete visibly also on success.
    pub const SIGNALED: u8 = 1 << 1;
    /// Ask for an event at the receiver.
    pub const SOLICITED: u8 = 1 << 2;
    /// Inline bytes follow instead of elements.
    pub const INLINE: u8 = 1 << 3;
    /// A [`Target`](super::Target) stands in front of elements and inline bytes. Since 1.5.
    pub const TARGET: u8 = 1 << 4;
    /// Raw packet: the device fills in the checksums of the frame's IPv4, TCP and UDP headers. Since 1.6.
    pub const CHECKSUM: u8 = 1 << 5;
    /// Raw packet: the frame is cut into segments of [`SendHead::remote_srq`](super::SendHead::remote_srq) bytes of payload. Since 1.7.
    pub const SEGMENT: u8 = 1 << 6;
    /// Every flag there is.
    pub const ALL: u8 = FENCE | SIGNALED | SOLICITED | INLINE | TARGET | CHECKSUM | SEGMENT;
    /// Flags of raw packets alone.
    pub const RAW: u8 = CHECKSUM | SEGMENT;
}

/// Bits of [`CompletionEntry::flags`]: `ibv_wc_flags`, and our own at bit 7.
pub mod completion_flags {
    /// The first 40 bytes of the buffer are a GRH.
    pub const GRH: u8 = 1 << 0;
    /// `imm` holds immediate data.
    pub const IMM: u8 = 1 << 1;
    /// Raw packet: the checksums of the frame's IPv4 header and of its TCP or UDP header are right. Since 1.6.
    pub const CHECKSUM_OK: u8 = 1 << 2;
    /// `imm` holds the key that was invalidated.
    pub const INVALIDATED: u8 = 1 << 3;
    /// `vlan` is that of a tag.
    pub const VLAN: u8 = 1 << 7;
    /// Every flag there is.
    pub const ALL: u8 = GRH | IMM | CHECKSUM_OK | INVALIDATED | VLAN;
}

/// [`CompletionEntry::phase`] of a lap whose phase bit is 1. As a word of 64 bits at 56 it is bit 63, as in a doorbell.
pub const PHASE: u8 = 1 << 7;

layouts! {
    /// A scatter/gather element.
    struct Element: 16 {
        /// Address in the region that `lkey` names.
        0 addr: u64,
        /// Length in bytes. 0: no bytes, and the key is not looked at.
        8 len: u32,
        /// Local key.
        12 lkey: u32,
    }

    /// The first 32 bytes of a send work request. Elements, or inline bytes, follow.
    struct SendHead: 32 {
        /// Id that the completion gives back.
        0 wr_id: u64,
        /// [`Operation`].
        8 operation: u8,
        /// [`send_flags`].
        9 flags: u8,
        /// Number of elements, or with `INLINE` of bytes.
        10 count: u16,
        /// Immediate data, or the key to invalidate.
        12 imm: u32,
        /// WRITE, READ, atomics: remote address. UD: address handle (bits 0..=31) and remote QP (32..=55).
        16 remote: u64,
        /// WRITE, READ, atomics: remote key. UD: queue key.
        24 rkey: u32,
        /// XRC: number of the remote SRQ. Raw packet with SEGMENT: bytes of payload of a segment.
        28 remote_srq: u32,
    }

    /// Where a request of an initiator of dynamic connections goes: in front of its elements or inline bytes. Since 1.5.
    struct Target: 16 {
        /// Access key of the target.
        0 access_key: u64,
        /// Address handle.
        8 address_handle: u32,
        /// Number of the target, 24 bits.
        12 qp: u32,
    }

    /// The operands that follow the element of an atomic.
    struct AtomicOperands: 16 {
        /// Compare and swap: the value that must be there. Fetch and add: what is added.
        0 compare_or_add: u64,
        /// Compare and swap: the new value. Fetch and add: zero.
        8 swap: u64,
    }

    /// The operands of an [`Operation::BindMw`], in place of its elements.
    struct Bind: 32 {
        /// The window.
        0 mw: u32,
        /// Type 2: the new key of the window. Type 1: zero, the device chooses.
        4 rkey: u32,
        /// The region.
        8 mr: u32,
        /// Rights: bits of [`access`](crate::verbs::access).
        12 access: u32,
        /// First address.
        16 addr: u64,
        /// Bytes; type 1: 0 unbinds.
        24 len: u64,
    }

    /// The first 16 bytes of a receive. Its elements follow.
    struct ReceiveHead: 16 {
        /// Id that the completion gives back.
        0 wr_id: u64,
        /// Elements.
        8 elements: u32,
        /// Zero.
        12 reserved: u32,
    }

    /// A completion.
    struct CompletionEntry: 64 {
        /// Id of the work request.
        0 wr_id: u64,
        /// QP that the request was posted to, or that took it from an SRQ.
        8 qp: u32,
        /// Bytes received, READ or fetched.
        12 byte_len: u32,
        /// Immediate data or invalidated key.
        16 imm: u32,
        /// UD: QP of the sender.
        20 source_qp: u32,
        /// When the device wrote the completion, or a raw packet queue pair's frame came to the machine, where that is known: in ns of the
        /// device's clock; 0 without that capability.
        24 time: u64,
        /// UD: Ethernet address of the sender.
        32 source_mac: [u8; 6],
        /// UD: VLAN that the datagram came on.
        38 vlan: u16,
        /// UD: service level.
        40 service_level: u8,
        /// UD: [`NetworkHeader`].
        41 network: u8,
        /// UD: index of the P_Key.
        42 pkey_index: u16,
        /// A code for the device's developers; zero on success.
        44 vendor_error: u32,
        /// Zero.
        48 reserved: u64,
        /// Index up to which the blocks or entries of the work queue are free; 0 for receives of an SRQ.
        56 consumed: u32,
        /// [`CompletionStatus`].
        60 status: u8,
        /// [`CompletionKind`].
        61 kind: u8,
        /// [`completion_flags`].
        62 flags: u8,
        /// [`PHASE`] or 0.
        63 phase: u8,
    }

    /// The tail behind the entries of a completion queue, written by the driver.
    struct CompletionTail: 64 {
        /// Completions that the driver has taken, modulo 2^32. The device reads it when the ring may be full.
        0 consumer: u32,
        /// Zero.
        4 reserved: [u32; 15],
    }

    /// The tail behind the entries of a shared receive queue, written by the device.
    struct SharedReceiveTail: 64 {
        /// Entries that the device has taken, modulo 2^32: they are free. The driver reads it when the ring may be full.
        0 taken: u32,
        /// Zero.
        4 reserved: [u32; 15],
    }
}

/// Bytes behind the head of a send work request.
const fn behind(operation: Operation, flags: u8, count: u16) -> usize {
    let target = if flags & send_flags::TARGET != 0 {
        size_of::<Target>()
    } else {
        0
    };
    target + behind_target(operation, flags, count)
}

#[inline(always)]
const fn behind_target(operation: Operation, flags: u8, count: u16) -> usize {
    match operation {
        Operation::BindMw => size_of::<Bind>(),
        Operation::CompareSwap | Operation::FetchAdd => size_of::<Element>() + size_of::<AtomicOperands>(),
        Operation::LocalInvalidate => 0,
        _ if flags & send_flags::INLINE != 0 => count as usize,
        _ => count as usize * size_of::<Element>(),
    }
}

/// Blocks that a send work request takes: one for its head and 32 bytes more, and further ones for the rest.
#[inline(always)]
pub const fn send_blocks(operation: Operation, flags: u8, count: u16) -> u32 {
    (size_of::<SendHead>() + behind(operation, flags, count)).div_ceil(BLOCK_LEN) as u32
}

/// Blocks of the longest work request of a queue with these limits. A ring has at least so many.
pub const fn send_blocks_max(limits: &SendLimits) -> u32 {
    let target = match limits.qp_type {
        QpType::DcInitiator => size_of::<Target>() as u64,
        _ => 0,
    };
    let elements = target + limits.elements as u64 * size_of::<Element>() as u64;
    let inline = target + limits.inline as u64;
    // An atomic fills its block; with a target it takes two.
    let mut behind = target + (BLOCK_LEN - size_of::<SendHead>()) as u64;
    if elements > behind {
        behind = elements;
    }
    if inline > behind {
        behind = inline;
    }
    (size_of::<SendHead>() as u64 + behind).div_ceil(BLOCK_LEN as u64) as u32
}

/// Most elements of a receive: its entry then has 4096 bytes.
pub const RECEIVE_ELEMENTS_MAX: u32 = 255;

/// Bytes of a receive queue's entry with room for `elements` elements: a power of two, at least 32. `None`: more than
/// [`RECEIVE_ELEMENTS_MAX`].
pub const fn receive_stride(elements: u32) -> Option<u32> {
    if elements > RECEIVE_ELEMENTS_MAX {
        return None;
    }
    let bytes = size_of::<ReceiveHead>() as u32 + elements * size_of::<Element>() as u32;
    Some(if bytes < 32 { 32 } else { bytes.next_power_of_two() })
}

/// Limits of a queue pair that its send work requests must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendLimits {
    /// Type of the queue pair.
    pub qp_type: QpType,
    /// Most elements of a work request.
    pub elements: u32,
    /// Most inline bytes.
    pub inline: u32,
}

/// A word of two halves, which are in memory in this order.
const fn pair(low: u32, high: u32) -> u64 {
    (low as u64) | (high as u64) << 32
}

impl SendHead {
    /// The words as the driver writes them. They are put together in registers, as in [`CompletionEntry::to_words`].
    #[inline]
    pub const fn to_words(self) -> [u64; 4] {
        let what = (self.operation as u32) | (self.flags as u32) << 8 | (self.count as u32) << 16;
        [
            self.wr_id,
            pair(what, self.imm),
            self.remote,
            pair(self.rkey, self.remote_srq),
        ]
    }

    /// What the work request does and how many blocks it takes, if it is well-formed. If it is not, the queue has a fault
    /// (`SPEC.md`, section 8).
    #[inline(always)]
    pub fn check(&self, limits: &SendLimits) -> Result<(Operation, u32), FaultReason> {
        use Operation as O;
        const MAY_INLINE: u32 =
            O::Send.bit() | O::SendImm.bit() | O::SendInvalidate.bit() | O::Write.bit() | O::WriteImm.bit();
        const LOCAL: u32 = O::BindMw.bit() | O::LocalInvalidate.bit();
        let operation = O::from_number(self.operation).ok_or(FaultReason::Operation)?;
        if !limits.qp_type.allows(operation) {
            return Err(FaultReason::Operation);
        }
        let inline = self.flags & send_flags::INLINE != 0;
        let datagram = matches!(limits.qp_type, QpType::Ud);
        let targeted = matches!(limits.qp_type, QpType::DcInitiator) && operation.bit() & LOCAL == 0;
        let target = if targeted { send_flags::TARGET } else { 0 };
        const PLAIN: u8 = send_flags::ALL & !(send_flags::TARGET | send_flags::RAW);
        let odd = self.flags & !PLAIN;
        let raw = matches!(limits.qp_type, QpType::RawPacket);
        if odd != target && !(raw && odd & !send_flags::RAW == 0)
            || inline && operation.bit() & MAY_INLINE == 0
            || datagram && self.destination().is_none()
        {
            return Err(FaultReason::Reserved);
        }
        let (least, most) = match operation {
            O::CompareSwap | O::FetchAdd => (1, 1),
            O::BindMw | O::LocalInvalidate => (0, 0),
            _ if inline => (0, limits.inline),
            _ => (0, limits.elements),
        };
        let count = u32::from(self.count);
        if count < least || count > most {
            return Err(FaultReason::Length);
        }
        Ok((operation, send_blocks(operation, self.flags, self.count)))
    }

    /// [`SendHead::remote`] of a datagram.
    pub const fn datagram(address_handle: u32, qp: u32) -> u64 {
        (qp as u64) << 32 | address_handle as u64
    }

    /// Address handle and remote QP of a datagram. `None`: the bits above the QP number are not zero.
    pub const fn destination(&self) -> Option<(u32, u32)> {
        let qp = (self.remote >> 32) as u32;
        if qp > crate::doorbell::NUMBER_MAX {
            return None;
        }
        Some((self.remote as u32, qp))
    }
}

impl CompletionEntry {
    /// The words as the device writes them: seven, and then the last one, which shows that all are there.
    ///
    /// The words are put together in registers. If bytes were written one by one, a load of the word would wait until they
    /// have left the store buffer, behind stores to other entries.
    #[inline]
    pub const fn to_words(self) -> [u64; 8] {
        let [a, b, c, d, e, f] = self.source_mac;
        let level = u16::from_le_bytes([self.service_level, self.network]);
        let tail = u32::from_le_bytes([self.status, self.kind, self.flags, self.phase]);
        [
            self.wr_id,
            pair(self.qp, self.byte_len),
            pair(self.imm, self.source_qp),
            self.time,
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) | (self.vlan as u64) << 48,
            pair((level as u32) | (self.pkey_index as u32) << 16, self.vendor_error),
            self.reserved,
            pair(self.consumed, tail),
        ]
    }

    /// The entry of the words that a driver has read.
    #[inline]
    pub const fn from_words(words: [u64; 8]) -> CompletionEntry {
        transmute!(words)
    }

    /// The phase bit of an entry's last word.
    #[inline]
    pub const fn phase(last_word: u64) -> bool {
        last_word >> 63 != 0
    }

    /// How the work request ended. An unknown number is an error of the device.
    #[inline]
    pub const fn status(&self) -> CompletionStatus {
        match CompletionStatus::from_number(self.status) {
            Some(status) => status,
            None => CompletionStatus::LocalQpOperationError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_as_the_bytes_need() {
        let plain = |count| send_blocks(Operation::Write, 0, count);
        assert_eq!([0, 2, 3, 6, 7].map(plain), [1, 1, 2, 2, 3]);
        let targeted = |count| send_blocks(Operation::Write, send_flags::TARGET, count);
        assert_eq!([0, 1, 2, 5, 6].map(targeted), [1, 1, 2, 2, 3]);
        assert_eq!(send_blocks(Operation::FetchAdd, send_flags::TARGET, 1), 2);
        let inline = |count| send_blocks(Operation::Send, send_flags::INLINE, count);
        assert_eq!([0, 32, 33, 96, 97].map(inline), [1, 1, 2, 2, 3]);
        for one in [
            Operation::CompareSwap,
            Operation::FetchAdd,
            Operation::BindMw,
            Operation::LocalInvalidate,
        ] {
            assert_eq!(send_blocks(one, 0, 1), 1, "{one:?}");
        }
        assert_eq!(send_blocks(Operation::Send, 0, u16::MAX), 16_385);
    }

    #[test]
    fn the_longest_request_is_as_long_as_any() {
        for (elements, inline) in [(0, 0), (1, 0), (2, 32), (3, 0), (32, 0), (2, 1024), (255, 4096)] {
            for (qp_type, flags) in [(QpType::Rc, 0), (QpType::DcInitiator, send_flags::TARGET)] {
                let limits = SendLimits {
                    qp_type,
                    elements,
                    inline,
                };
                let by_elements = send_blocks(Operation::Send, flags, elements as u16);
                let by_bytes = send_blocks(Operation::Send, flags | send_flags::INLINE, inline as u16);
                let longest = by_elements
                    .max(by_bytes)
                    .max(send_blocks(Operation::FetchAdd, flags, 1));
                assert_eq!(
                    send_blocks_max(&limits),
                    longest,
                    "{elements} elements, {inline} bytes"
                );
            }
        }
    }

    #[test]
    fn receive_entries_are_powers_of_two() {
        let strides = [0, 1, 2, 3, 4, 7, 8, 31, 255].map(receive_stride);
        assert_eq!(strides, [32, 32, 64, 64, 128, 128, 256, 512, 4096].map(Some));
        assert_eq!([256, u32::MAX].map(receive_stride), [None; 2]);
    }

    #[test]
    fn ill_formed_requests_are_told_from_others() {
        let limits = SendLimits {
            qp_type: QpType::Rc,
            elements: 3,
            inline: 100,
        };
        let check = |operation: u8, flags, count| {
            let head = SendHead {
                operation,
                flags,
                count,
                ..SendHead::default()
            };
            head.check(&limits)
        };
        let number = |operation: Operation| operation.number();
        assert_eq!(check(0, 0, 3), Ok((Operation::Write, 2)));
        assert_eq!(check(0, 0, 4), Err(FaultReason::Length));
        assert_eq!(check(0, send_flags::INLINE, 100), Ok((Operation::Write, 3)));
        assert_eq!(check(0, send_flags::INLINE, 101), Err(FaultReason::Length));
        assert_eq!(check(10, 0, 0), Err(FaultReason::Operation));
        assert_eq!(check(0, 64, 0), Err(FaultReason::Reserved));
        assert_eq!(check(0, send_flags::CHECKSUM, 0), Err(FaultReason::Reserved));
        assert_eq!(check(0, send_flags::TARGET, 0), Err(FaultReason::Reserved));
        for (operation, good) in [
            (Operation::FetchAdd, 1),
            (Operation::CompareSwap, 1),
            (Operation::BindMw, 0),
            (Operation::LocalInvalidate, 0),
        ] {
            assert_eq!(check(number(operation), 0, good), Ok((operation, 1)));
            assert_eq!(check(number(operation), 0, good + 1), Err(FaultReason::Length));
            assert_eq!(
                check(number(operation), send_flags::INLINE, good),
                Err(FaultReason::Reserved)
            );
        }
        assert_eq!(
            check(number(Operation::Read), send_flags::INLINE, 0),
            Err(FaultReason::Reserved)
        );
    }

    #[test]
    fn services_have_their_operations() {
        for qp_type in QpType::ALL {
            for operation in Operation::ALL {
                let local = matches!(operation, Operation::BindMw | Operation::LocalInvalidate);
                let target = qp_type == QpType::DcInitiator && !local;
                let head = SendHead {
                    operation: operation.number(),
                    flags: if target { send_flags::TARGET } else { 0 },
                    count: u16::from(matches!(operation, Operation::CompareSwap | Operation::FetchAdd)),
                    ..SendHead::default()
                };
                let limits = SendLimits {
                    qp_type,
                    elements: 1,
                    inline: 0,
                };
                assert_eq!(
                    head.check(&limits).is_ok(),
                    qp_type.allows(operation),
                    "{qp_type:?} {operation:?}"
                );
                let other = SendHead {
                    flags: head.flags ^ send_flags::TARGET,
                    ..head
                };
                assert!(other.check(&limits).is_err(), "{qp_type:?} {operation:?}");
            }
        }
        let datagram = SendLimits {
            qp_type: QpType::Ud,
            elements: 1,
            inline: 0,
        };
        let wild = SendHead {
            operation: Operation::Send.number(),
            remote: 1 << 56,
            ..SendHead::default()
        };
        assert_eq!(wild.check(&datagram), Err(FaultReason::Reserved));
    }

    #[test]
    fn a_completion_is_its_words() {
        let entry = CompletionEntry {
            wr_id: 1,
            consumed: 7,
            status: 5,
            kind: 129,
            flags: 2,
            phase: PHASE,
            ..CompletionEntry::default()
        };
        let words = entry.to_words();
        assert_eq!((words[0], words[7]), (1, 0x8002_8105_0000_0007));
        assert!(CompletionEntry::phase(words[7]));
        assert_eq!(CompletionEntry::from_words(words), entry);
        assert_eq!(entry.status(), CompletionStatus::FlushError);
    }

    #[test]
    fn a_datagram_has_a_handle_and_a_qp() {
        let head = |remote| SendHead {
            remote,
            ..SendHead::default()
        };
        assert_eq!(
            head(SendHead::datagram(9, 0xff_ffff)).destination(),
            Some((9, 0xff_ffff))
        );
        assert_eq!(head(1 << 56).destination(), None);
    }
}
