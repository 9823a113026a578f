//! Work requests, and QPs that talk to each other.

use vnic_device::command::device::GidRecord;
use vnic_device::command::qp::AddressVector;
use vnic_device::queue::{AtomicOperands, Bind, Element, Operation, SendHead, Target, send_flags as f};
use vnic_device::verbs::{GidKind, Mtu};
use vnic_device::zerocopy::IntoBytes;

use super::Driver;
use super::objects::{Link, QKEY};
use super::queues::Qp;

/// A send work request: the head, and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wr {
    /// The head.
    pub head: SendHead,
    /// Elements, inline bytes, operands.
    pub behind: Vec<u8>,
}

impl Wr {
    /// A request that is signaled, with elements.
    pub fn new(wr_id: u64, operation: Operation, elements: &[Element]) -> Wr {
        Wr {
            head: SendHead {
                wr_id,
                operation: operation.number(),
                flags: f::SIGNALED,
                count: elements.len() as u16,
                ..SendHead::default()
            },
            behind: elements.as_bytes().to_vec(),
        }
    }

    /// A SEND.
    pub fn send(wr_id: u64, elements: &[Element]) -> Wr {
        Wr::new(wr_id, Operation::Send, elements)
    }

    /// To a remote address under a remote key.
    pub fn remote(mut self, addr: u64, rkey: u32) -> Wr {
        (self.head.remote, self.head.rkey) = (addr, rkey);
        self
    }

    /// With immediate data, or a key to invalidate.
    pub fn imm(mut self, imm: u32) -> Wr {
        self.head.imm = imm;
        self
    }

    /// With more flags.
    pub fn flags(mut self, flags: u8) -> Wr {
        self.head.flags |= flags;
        self
    }

    /// Without a completion when it succeeds.
    pub fn silent(mut self) -> Wr {
        self.head.flags &= !f::SIGNALED;
        self
    }

    /// These bytes instead of elements.
    pub fn inline(mut self, bytes: &[u8]) -> Wr {
        self.head.flags |= f::INLINE;
        self.head.count = bytes.len() as u16;
        self.behind = bytes.to_vec();
        self
    }

    /// To a datagram QP.
    pub fn to(mut self, ah: u32, qp: u32) -> Wr {
        self.head.remote = SendHead::datagram(ah, qp);
        self.head.rkey = QKEY;
        self
    }

    /// To a target of dynamic connections, when all else of it is said.
    pub fn to_target(mut self, address_handle: u32, qp: u32, access_key: u64) -> Wr {
        let target = Target {
            access_key,
            address_handle,
            qp,
        };
        self.head.flags |= f::TARGET;
        self.behind.splice(0..0, target.as_bytes().iter().copied());
        self
    }

    /// To a remote SRQ.
    pub fn to_srq(mut self, srq: u32) -> Wr {
        self.head.remote_srq = srq;
        self
    }

    /// With operands of an atomic operation.
    pub fn operands(mut self, compare_or_add: u64, swap: u64) -> Wr {
        let operands = AtomicOperands { compare_or_add, swap };
        self.behind.extend_from_slice(operands.as_bytes());
        self
    }

    /// Binds a window.
    pub fn bind(wr_id: u64, bind: Bind) -> Wr {
        let mut wr = Wr::new(wr_id, Operation::BindMw, &[]);
        wr.behind = bind.as_bytes().to_vec();
        wr
    }

    /// Takes a key back.
    pub fn invalidate(wr_id: u64, key: u32) -> Wr {
        Wr::new(wr_id, Operation::LocalInvalidate, &[]).imm(key)
    }
}

/// Bytes that tell where they belong (splitmix64 of `seed`).
pub fn fill(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = super::super::rig::Dice::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&dice.bits().to_le_bytes());
    }
    out.truncate(len);
    out
}

impl Driver {
    /// The first RoCE v2 entry of the own GID table.
    ///
    /// # Panics
    /// When there is none.
    pub fn gid(&mut self) -> GidRecord {
        let gids = self.gids();
        let v2 = gids.into_iter().find(|g| g.kind == GidKind::RoceV2.number());
        v2.expect("each adapter has a default GID")
    }

    /// The address of another driver.
    pub fn address_of(&mut self, other: &mut Driver) -> AddressVector {
        let to = other.gid();
        self.address_to(&to)
    }

    /// The address of its own adapter.
    pub fn own_address(&mut self) -> AddressVector {
        let to = self.gid();
        self.address_to(&to)
    }

    /// The address of an entry of a table.
    pub fn address_to(&mut self, to: &GidRecord) -> AddressVector {
        AddressVector {
            dgid: to.gid,
            dmac: to.mac,
            sgid_index: self.gid().index,
            hop_limit: 64,
            ..AddressVector::default()
        }
    }
}

/// The way to a QP at an address: path MTU 1024. Retries go on for longer than a machine that has much to do lets a
/// data core wait for its CPU; tests that want to see their end say so.
pub fn link(address: AddressVector, qp: u32) -> Link {
    Link {
        address,
        qp,
        sq_psn: 0xff_fff0,
        rq_psn: 0xff_fff0,
        mtu: Mtu::Mtu1024.number(),
        timeout: 18,
        retry: 7,
        rnr_retry: 7,
    }
}

/// Brings two QPs of two drivers to RTS, connected with each other.
pub fn connect(a: &mut Driver, qa: &Qp, b: &mut Driver, qb: &Qp) {
    let (to_b, to_a) = (a.address_of(b), b.address_of(a));
    a.up(qa, &link(to_b, qb.number));
    b.up(qb, &link(to_a, qa.number));
}
