//! Send and receive queues in guest memory (`SPEC.md`, section 8): read once, block by block, into the engine's work
//! requests.

use vnic_device::command::NONE;
use vnic_device::doorbell::NUMBER_MAX;
use vnic_device::event::FaultReason;
use vnic_device::queue::{
    AtomicOperands, BLOCK_LEN, Bind, Element, Operation, ReceiveHead, SendHead, SendLimits, Target,
    send_flags,
};
use vnic_device::ring;
use vnic_device::verbs::access;
use vnic_device::zerocopy::{FromBytes, transmute};
use vnic_engine::rdma::{
    Access, AhHandle, MrHandle, MwBind, MwHandle, QpNumber, RecvWr, SendData, SendFlags, SendOp, SendWr,
    SgList, Sge, UdDestination,
};

use smallvec::SmallVec;

use super::shared_ring::SharedRing;

/// Blocks that are prefetched before they are read.
const AHEAD: u32 = 8;

/// A producer index, and how far the ring was read.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Newest index of a doorbell.
    posted: u32,
    /// Index up to which the ring was read.
    read: u32,
}

impl Progress {
    /// Takes a doorbell's index. False: it is invalid.
    fn advance(&mut self, index: u32, entries: u32) -> bool {
        match ring::advance(index, self.posted, self.read, entries) {
            Some(posted) => {
                self.posted = posted;
                true
            }
            None => false,
        }
    }

    fn unread(&self) -> u32 {
        self.posted.wrapping_sub(self.read)
    }
}

/// A work request that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// ID of the request, as the driver wrote it.
    pub wr_id: u64,
    /// Reason.
    pub reason: FaultReason,
    /// Index of the request.
    pub index: u32,
}

/// A send queue.
#[derive(Debug)]
pub struct SendQueue {
    /// Memory of the queue.
    pub ring: SharedRing,
    blocks: u32,
    limits: SendLimits,
    progress: Progress,
    /// Whether the queue is not read any more.
    pub faulted: bool,
}

impl SendQueue {
    /// An empty queue.
    pub fn new(ring: SharedRing, blocks: u32, limits: SendLimits) -> SendQueue {
        SendQueue {
            ring,
            blocks,
            limits,
            progress: Progress::default(),
            faulted: false,
        }
    }

    /// Resets the queue; both sides begin again.
    pub fn reset(&mut self) {
        self.progress = Progress::default();
        self.faulted = !self.ring.is_there();
    }

    /// Takes a doorbell's index. False: it is invalid.
    pub fn advance(&mut self, index: u32) -> bool {
        self.progress.advance(index, self.blocks)
    }

    /// Whether there are unread requests.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.progress.unread() != 0 && !self.faulted
    }

    /// The newest index of a doorbell.
    pub fn posted(&self) -> u32 {
        self.progress.posted
    }

    #[inline]
    fn block(&self, index: u32) -> [u8; BLOCK_LEN] {
        self.ring
            .read(u64::from(index & (self.blocks - 1)) * BLOCK_LEN as u64)
    }

    /// Prefetches the next blocks, before index `behind`.
    #[inline]
    pub fn prefetch(&self, behind: u32) {
        for ahead in 0..AHEAD.min(behind.wrapping_sub(self.progress.read)) {
            self.prefetch_block(self.progress.read.wrapping_add(ahead));
        }
    }

    #[inline]
    fn prefetch_block(&self, index: u32) {
        self.ring
            .prefetch(u64::from(index & (self.blocks - 1)) * BLOCK_LEN as u64);
    }

    /// Reads the next work request into `wr`. There must be one.
    #[inline(always)]
    pub fn take(&mut self, wr: &mut SendWr) -> Result<(), Malformed> {
        let index = self.progress.read;
        let first: [[u8; 32]; 2] = transmute!(self.block(index));
        let head: SendHead = transmute!(first[0]);
        let malformed = |reason| Malformed {
            wr_id: head.wr_id,
            reason,
            index,
        };
        let (operation, blocks) = head.check(&self.limits).map_err(malformed)?;
        let unread = self.progress.unread();
        if blocks > unread {
            return Err(malformed(FaultReason::Length));
        }
        self.progress.read = index.wrapping_add(blocks);
        // One more block, while this one is executed.
        if unread > AHEAD {
            self.prefetch_block(index.wrapping_add(AHEAD));
        }
        wr.id = head.wr_id;
        wr.tag = self.progress.read;
        wr.flags = SendFlags::from_bits_truncate(head.flags);
        wr.remote_srq = head.remote_srq;
        wr.ud = match (self.limits.qp_type, head.destination()) {
            (vnic_device::verbs::QpType::Ud, Some((ah, qp))) => Some(UdDestination {
                ah: AhHandle(ah),
                qp: QpNumber(qp),
                qkey: head.rkey,
            }),
            _ => None,
        };
        if head.flags & send_flags::TARGET != 0 {
            self.take_targeted(&head, operation, first[1], index, wr);
            return Ok(());
        }
        if !set_operation(wr, &head, operation, first[1]) {
            return Ok(());
        }
        let count = usize::from(head.count);
        if head.flags & send_flags::INLINE == 0 {
            self.elements(first[1], index, count, wr.data.set_list());
        } else if count <= 32 {
            let mut bytes = [0; 64];
            bytes[..32].copy_from_slice(&first[1]);
            wr.data.set_inline(bytes, count);
        } else {
            wr.data = self.long_inline(first[1], index, count);
        }
        Ok(())
    }

    /// A request with a target, which stands in front of what is behind the head; `first`: of that, what is in the block at `index`.
    #[cold]
    #[inline(never)]
    fn take_targeted(
        &self,
        head: &SendHead,
        operation: Operation,
        first: [u8; 32],
        index: u32,
        wr: &mut SendWr,
    ) {
        let blocks = self.progress.read.wrapping_sub(index);
        let (target, bytes) = self.targeted(first, index, blocks);
        (wr.ud, wr.access_key) = (Some(destination(&target)), target.access_key);
        let mut near = [0; 32];
        near.copy_from_slice(&bytes[..32]);
        if !set_operation(wr, head, operation, near) {
            return;
        }
        let count = usize::from(head.count);
        if head.flags & send_flags::INLINE == 0 {
            let elements = bytes.as_chunks::<16>().0.iter().take(count);
            wr.data.set_list().extend(elements.map(|bytes| element(*bytes)));
        } else {
            wr.data = SendData::Inline(bytes[..count].into());
        }
    }

    /// The target of a request of so many blocks, and all that is behind it: 32 bytes or more.
    #[inline(never)]
    fn targeted(&self, first: [u8; 32], index: u32, blocks: u32) -> (Target, SmallVec<[u8; 256]>) {
        let halves: [[u8; 16]; 2] = transmute!(first);
        let mut bytes = SmallVec::from_slice(&halves[1]);
        for block in 1..blocks {
            bytes.extend_from_slice(&self.block(index.wrapping_add(block)));
        }
        bytes.resize(bytes.len().max(32), 0);
        (transmute!(halves[0]), bytes)
    }

    #[inline]
    fn elements(&self, first: [u8; 32], index: u32, count: usize, list: &mut SgList) {
        let near: [[u8; 16]; 2] = transmute!(first);
        for bytes in near.into_iter().take(count) {
            list.push(element(bytes));
        }
        let mut block = index;
        while list.len() < count {
            block = block.wrapping_add(1);
            let far: [[u8; 16]; 4] = transmute!(self.block(block));
            let left = count - list.len();
            list.extend(far.into_iter().take(left).map(element));
        }
    }

    /// Inline data that continues in the next blocks.
    #[inline(never)]
    fn long_inline(&self, first: [u8; 32], index: u32, count: usize) -> SendData {
        let mut bytes = SmallVec::<[u8; 64]>::new();
        bytes.extend_from_slice(&first[..count.min(32)]);
        let mut block = index;
        while bytes.len() < count {
            block = block.wrapping_add(1);
            let far = self.block(block);
            bytes.extend_from_slice(&far[..(count - bytes.len()).min(BLOCK_LEN)]);
        }
        SendData::Inline(bytes)
    }
}

/// What a request does. No: there are no elements and no bytes to read.
#[inline(always)]
fn set_operation(wr: &mut SendWr, head: &SendHead, operation: Operation, near: [u8; 32]) -> bool {
    wr.op = match operation {
        Operation::Write => SendOp::Write {
            addr: head.remote,
            rkey: head.rkey,
        },
        Operation::WriteImm => SendOp::WriteImm {
            addr: head.remote,
            rkey: head.rkey,
            imm: head.imm,
        },
        Operation::Send => SendOp::Send,
        Operation::SendImm => SendOp::SendImm(head.imm),
        Operation::SendInvalidate => SendOp::SendInvalidate(head.imm),
        Operation::Read => SendOp::Read {
            addr: head.remote,
            rkey: head.rkey,
        },
        Operation::LocalInvalidate => {
            wr.data.set_list();
            wr.op = SendOp::LocalInvalidate(head.imm);
            return false;
        }
        Operation::CompareSwap | Operation::FetchAdd => {
            let halves: [[u8; 16]; 2] = transmute!(near);
            let operands: AtomicOperands = transmute!(halves[1]);
            wr.data.set_list().push(element(halves[0]));
            wr.op = if operation == Operation::FetchAdd {
                SendOp::FetchAdd {
                    addr: head.remote,
                    rkey: head.rkey,
                    add: operands.compare_or_add,
                }
            } else {
                SendOp::CompareSwap {
                    addr: head.remote,
                    rkey: head.rkey,
                    compare: operands.compare_or_add,
                    swap: operands.swap,
                }
            };
            return false;
        }
        Operation::BindMw => {
            wr.data.set_list();
            wr.op = bind(near);
            return false;
        }
    };
    true
}

/// Where a request of an initiator goes. A number that has too many bits is refused with the handle that there is not.
fn destination(target: &Target) -> UdDestination {
    let known = target.qp <= NUMBER_MAX;
    UdDestination {
        ah: AhHandle(if known { target.address_handle } else { NONE }),
        qp: QpNumber(target.qp),
        qkey: 0,
    }
}

fn bind(bytes: [u8; 32]) -> SendOp {
    let bind: Bind = transmute!(bytes);
    let access = rights(bind.access);
    // An unknown right refuses the bind, by the handle that names no window.
    let mw = if access.is_some() { bind.mw } else { NONE };
    SendOp::BindMw(MwBind {
        mw: MwHandle(mw),
        rkey: bind.rkey,
        mr: MrHandle(bind.mr),
        addr: bind.addr,
        len: bind.len,
        access: access.unwrap_or_default(),
    })
}

/// The engine's rights. `None`: an unknown bit.
pub fn rights(bits: u32) -> Option<Access> {
    if bits & !(access::ALL | access::IGNORED) != 0 {
        return None;
    }
    let mut rights = Access::from_bits_truncate(bits & 0x3f);
    rights.set(Access::INVALIDATE, bits & access::INVALIDATE != 0);
    Some(rights)
}

/// The ABI's bits of rights.
pub fn right_bits(rights: Access) -> u32 {
    let invalidate = if rights.contains(Access::INVALIDATE) {
        access::INVALIDATE
    } else {
        0
    };
    rights.bits() & 0x3f | invalidate
}

#[inline]
fn element(bytes: [u8; 16]) -> Sge {
    let element: Element = transmute!(bytes);
    Sge {
        addr: element.addr,
        len: element.len,
        lkey: element.lkey,
    }
}

/// A receive queue, of one QP or shared.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// Memory of the queue.
    pub ring: SharedRing,
    entries: u32,
    stride: u32,
    elements: u32,
    progress: Progress,
    /// Whether the queue is not read any more.
    pub faulted: bool,
}

impl ReceiveQueue {
    /// An empty queue whose entries have `stride` bytes.
    pub fn new(ring: SharedRing, entries: u32, stride: u32, elements: u32) -> ReceiveQueue {
        ReceiveQueue {
            ring,
            entries,
            stride,
            elements,
            progress: Progress::default(),
            faulted: false,
        }
    }

    /// Resets the queue; both sides begin again.
    pub fn reset(&mut self) {
        self.progress = Progress::default();
        self.faulted = !self.ring.is_there();
    }

    /// Number of entries of the ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of an entry.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// Takes a doorbell's index. False: it is invalid.
    pub fn advance(&mut self, index: u32) -> bool {
        self.progress.advance(index, self.entries)
    }

    /// Whether there are unread receives.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.progress.unread() != 0 && !self.faulted
    }

    /// The newest index of a doorbell.
    pub fn posted(&self) -> u32 {
        self.progress.posted
    }

    /// Index up to which the queue was read.
    pub fn read(&self) -> u32 {
        self.progress.read
    }

    /// Reads the next receive. There must be one.
    #[inline]
    pub fn take(&mut self) -> Result<RecvWr, Malformed> {
        let index = self.progress.read;
        let at = u64::from(index & (self.entries - 1)) * u64::from(self.stride);
        let first: [[u8; 16]; 2] = transmute!(self.ring.read::<32>(at));
        let head: ReceiveHead = transmute!(first[0]);
        let malformed = |reason| Malformed {
            wr_id: head.wr_id,
            reason,
            index,
        };
        // The queue can still be read behind a faulty receive: entries have one size.
        self.progress.read = index.wrapping_add(1);
        if head.reserved != 0 {
            return Err(malformed(FaultReason::Reserved));
        }
        if head.elements > self.elements {
            return Err(malformed(FaultReason::Length));
        }
        let mut sges = SgList::new();
        if head.elements > 0 {
            sges.push(element(first[1]));
        }
        for k in 1..head.elements {
            sges.push(element(self.ring.read::<16>(at + 16 + 16 * u64::from(k))));
        }
        Ok(RecvWr {
            id: head.wr_id,
            tag: self.progress.read,
            sges,
        })
    }
}

/// Reads a structure from the front of bytes that are long enough.
pub fn structure<T: FromBytes + Default>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes)
        .map(|(value, _)| value)
        .unwrap_or_default()
}
