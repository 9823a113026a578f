//! Making queue pairs.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex};

use vnic_device::command::qp::{CreateQp, create_flags};
use vnic_device::command::{NONE, Object, Opcode};
use vnic_device::queue::{SendLimits, receive_stride, send_blocks_max};
use vnic_device::ring::{Extent, receive_ring_len, send_ring_len};
use vnic_device::verbs::{QpState, QpType};

use super::receive::ReceiveRing;
use super::send::SendRing;
use super::{DcInitiator, DcTarget, Plain, Qp, QpKind, QueuePair, XrcInitiator, XrcTarget};
use crate::cq::{Consumed, ring_entries};
use crate::driver::Core;
use crate::shared::Memory;
use crate::{CompletionQueue, Error, ProtectionDomain, SharedReceiveQueue, XrcDomain};

/// Settings of a queue pair that is to be made. Numbers are what the program needs; the queues may
/// have room for more.
#[derive(Debug, Clone)]
pub struct QpBuilder<K: QpKind> {
    pd: Option<ProtectionDomain>,
    xrcd: Option<XrcDomain>,
    send_cq: Option<CompletionQueue>,
    receive_cq: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    max_inline: u32,
    signal_all: bool,
    access_key: u64,
    kind: PhantomData<fn() -> K>,
}

impl ProtectionDomain {
    /// Begins to make a queue pair of type RC, UC or UD, or of raw packets (which a device before version 1.6 refuses as not supported).
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, cq: &vnic_verbs::CompletionQueue) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Rc;
    ///
    /// let qp = pd.qp::<Rc>(cq, cq).max_send_wr(64).max_recv_wr(64).max_inline(32).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn qp<K: Plain>(&self, send_cq: &CompletionQueue, recv_cq: &CompletionQueue) -> QpBuilder<K> {
        QpBuilder {
            pd: Some(self.clone()),
            send_cq: Some(send_cq.clone()),
            receive_cq: Some(recv_cq.clone()),
            ..QpBuilder::new()
        }
    }

    /// Begins to make the sending end of an XRC connection.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, cq: &vnic_verbs::CompletionQueue) -> Result<(), vnic_verbs::Error> {
    /// let qp = pd.xrc_initiator(cq).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn xrc_initiator(&self, send_cq: &CompletionQueue) -> QpBuilder<XrcInitiator> {
        QpBuilder {
            pd: Some(self.clone()),
            send_cq: Some(send_cq.clone()),
            ..QpBuilder::new()
        }
    }

    /// Begins to make an initiator of dynamic connections. A device before version 1.5 refuses it as not supported.
    ///
    /// ```no_run
    /// # fn example(pd: &vnic_verbs::ProtectionDomain, cq: &vnic_verbs::CompletionQueue, handle: &vnic_verbs::AddressHandle,
    /// #     region: &vnic_verbs::MemoryRegion, number: u32) -> Result<(), Box<dyn std::error::Error>> {
    /// use vnic_verbs::{ConnectOptions, SendWr};
    ///
    /// let qp = pd.dc_initiator(cq).build()?;
    /// qp.to_ready(&ConnectOptions::default())?;
    /// qp.post_send(&[SendWr::send(region.slice(..8)).to_target(handle, number, 0x1234)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dc_initiator(&self, send_cq: &CompletionQueue) -> QpBuilder<DcInitiator> {
        QpBuilder {
            pd: Some(self.clone()),
            send_cq: Some(send_cq.clone()),
            ..QpBuilder::new()
        }
    }

    /// Begins to make a target of dynamic connections. Messages of all initiators that know the access key take receives of the shared
    /// queue, and complete in `recv_cq`.
    pub fn dc_target(
        &self,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        access_key: u64,
    ) -> QpBuilder<DcTarget> {
        QpBuilder {
            pd: Some(self.clone()),
            receive_cq: Some(recv_cq.clone()),
            access_key,
            ..QpBuilder::new().srq(srq)
        }
    }
}

impl XrcDomain {
    /// Begins to make the receiving end of an XRC connection.
    pub fn xrc_target(&self) -> QpBuilder<XrcTarget> {
        QpBuilder {
            xrcd: Some(self.clone()),
            ..QpBuilder::new()
        }
    }
}

impl<K: QpKind> QpBuilder<K> {
    fn new() -> QpBuilder<K> {
        let sends = !matches!(K::TYPE, QpType::XrcTarget | QpType::DcTarget);
        let receives = matches!(K::TYPE, QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket);
        QpBuilder {
            pd: None,
            xrcd: None,
            send_cq: None,
            receive_cq: None,
            srq: None,
            max_send_wr: if sends { 128 } else { 0 },
            max_recv_wr: if receives { 128 } else { 0 },
            max_send_sge: u32::from(sends),
            max_recv_sge: u32::from(receives),
            max_inline: 0,
            signal_all: false,
            access_key: 0,
            kind: PhantomData,
        }
    }

    /// Sets how many sends may be outstanding. Default: 128.
    pub fn max_send_wr(mut self, n: u32) -> Self {
        self.max_send_wr = n;
        self
    }

    /// Sets how many receives may be outstanding. Default: 128; 0 with a shared receive queue.
    pub fn max_recv_wr(mut self, n: u32) -> Self {
        self.max_recv_wr = n;
        self
    }

    /// Sets how many elements a send may have. Default: 1.
    pub fn max_send_sge(mut self, n: u32) -> Self {
        self.max_send_sge = n;
        self
    }

    /// Sets how many elements a receive may have, at most 255. Default: 1.
    pub fn max_recv_sge(mut self, n: u32) -> Self {
        self.max_recv_sge = n;
        self
    }

    /// Sets how many inline bytes a send may have. Default: 0.
    pub fn max_inline(mut self, n: u32) -> Self {
        self.max_inline = n;
        self
    }

    /// Makes all sends complete visibly.
    pub fn signal_all(mut self) -> Self {
        self.signal_all = true;
        self
    }

    /// Takes receives from a shared receive queue.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self.max_recv_wr = 0;
        self.max_recv_sge = 0;
        self
    }

    /// Makes the queue pair, in state RESET.
    pub fn build(self) -> Result<QueuePair<K>, Error> {
        let core = match (&self.pd, &self.xrcd) {
            (Some(plain), _) => &plain.0.core,
            (None, Some(plain)) => &plain.0.core,
            (None, None) => return Err(Error::Invalid("a queue pair without a domain".into())),
        };
        let core = Arc::clone(core);
        let epoch = core.epoch()?;
        let blocks = self.blocks()?;
        let receives = match self.max_recv_wr {
            0 => 0,
            n => ring_entries(n)?,
        };
        let stride = receive_stride(self.max_recv_sge).ok_or_else(|| {
            Error::Invalid(format!(
                "{} elements in a receive: at most 255",
                self.max_recv_sge
            ))
        })?;
        let (send_memory, send_extents) = ring(&core, send_ring_len(blocks))?;
        let (receive_memory, receive_extents) = ring(&core, receive_ring_len(receives, stride))?;
        let number = |handle: Option<u32>| handle.unwrap_or(NONE);
        let elements = |n: u32, of: u32| if of == 0 { 0 } else { n };
        let limits = SendLimits {
            qp_type: K::TYPE,
            elements: elements(self.max_send_sge, blocks),
            inline: elements(self.max_inline, blocks),
        };
        let receive_elements = elements(self.max_recv_sge, receives);
        let made: Object = core
            .call_with_extents(
                epoch,
                Opcode::CreateQp,
                &[&send_extents, &receive_extents],
                |lists| CreateQp {
                    qp_type: K::TYPE.number(),
                    flags: if self.signal_all {
                        create_flags::SIGNAL_ALL
                    } else {
                        0
                    },
                    pd: number(self.pd.as_ref().map(ProtectionDomain::number)),
                    send_cq: number(self.send_cq.as_ref().map(CompletionQueue::number)),
                    recv_cq: number(self.receive_cq.as_ref().map(CompletionQueue::number)),
                    srq: number(self.srq.as_ref().map(SharedReceiveQueue::number)),
                    xrcd: number(self.xrcd.as_ref().map(XrcDomain::number)),
                    send_blocks: blocks,
                    send_elements: limits.elements,
                    max_inline: limits.inline,
                    receive_entries: receives,
                    receive_elements,
                    send_ring: lists[0],
                    receive_ring: lists[1],
                    access_key: self.access_key,
                },
            )
            .inspect_err(|e| {
                core.bury_if_unknown(e, &send_memory);
                core.bury_if_unknown(e, &receive_memory);
            })?;
        let qp = Arc::new(Qp {
            core,
            epoch,
            number: made.handle,
            limits,
            signal_all: self.signal_all,
            psn: random_psn(),
            state: AtomicU8::new(QpState::Reset.number()),
            modifying: Mutex::new(()),
            send: Mutex::new(SendRing::new(send_memory, blocks, &limits)),
            receive: Mutex::new(ReceiveRing::new(
                receive_memory,
                receives,
                stride,
                receive_elements,
            )),
            consumed: Arc::new(Consumed::default()),
            _pd: self.pd,
            _xrcd: self.xrcd,
            send_cq: self.send_cq,
            receive_cq: self.receive_cq,
            srq: self.srq,
        });
        qp.attach();
        Ok(QueuePair {
            inner: qp,
            kind: PhantomData,
        })
    }

    /// Blocks of the send ring: enough for the longest requests.
    fn blocks(&self) -> Result<u32, Error> {
        if self.max_send_wr == 0 {
            return Ok(0);
        }
        let longest = send_blocks_max(&SendLimits {
            qp_type: K::TYPE,
            elements: self.max_send_sge,
            inline: self.max_inline,
        });
        let blocks = self.max_send_wr.checked_mul(longest).ok_or_else(|| {
            Error::Invalid(format!(
                "{} sends of {longest} blocks: no ring is so long",
                self.max_send_wr
            ))
        })?;
        ring_entries(blocks)
    }
}

/// Allocates the memory of a ring, perhaps of no bytes.
fn ring(core: &Core, len: u64) -> Result<(Memory, Vec<Extent>), Error> {
    if len == 0 {
        return Ok((Memory::none(), Vec::new()));
    }
    let len = len.next_multiple_of(vnic_device::ring::ALIGNMENT);
    Memory::allocate(&*core.transport, len as usize)
}

/// A random packet number, from the keys that std gives its hash tables.
fn random_psn() -> u32 {
    RandomState::new().hash_one(0u32) as u32 & 0xff_ffff
}
