//! What stands in front of the payload of a request.

use vnic_wire::opcode::Operation;
use vnic_wire::transport::Extended;
use vnic_wire::{atomiceth, reth};

use super::super::super::types::SendOp;

/// Which packet of its message it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub first: bool,
    pub last: bool,
    /// It may come before others, so that it says itself where its payload goes.
    pub addressed: bool,
}

/// The operation of a request packet and the header behind its BTH. `offset` is where in the message it begins,
/// `rest` what is left from there.
pub(super) fn request(op: &SendOp, place: Place, offset: u64, rest: u32) -> (Operation, Extended) {
    let Place {
        first,
        last,
        addressed,
    } = place;
    let write = |addr: u64, rkey: u32| reth::Header {
        va: addr.wrapping_add(offset),
        rkey,
        len: rest,
    };
    let place = |only, begin, middle, end| match (first, last) {
        (true, true) => only,
        (true, false) => begin,
        (false, false) => middle,
        (false, true) => end,
    };
    use Operation as O;
    match *op {
        SendOp::Send => (
            place(O::SendOnly, O::SendFirst, O::SendMiddle, O::SendLast),
            Extended::None,
        ),
        SendOp::SendImm(imm) => (
            place(O::SendOnlyImm, O::SendFirst, O::SendMiddle, O::SendLastImm),
            if last { Extended::Imm(imm) } else { Extended::None },
        ),
        SendOp::SendInvalidate(key) => (
            place(
                O::SendOnlyInvalidate,
                O::SendFirst,
                O::SendMiddle,
                O::SendLastInvalidate,
            ),
            if last { Extended::Ieth(key) } else { Extended::None },
        ),
        SendOp::Write { addr, rkey } => (
            place(O::WriteOnly, O::WriteFirst, O::WriteMiddle, O::WriteLast),
            if first || addressed {
                Extended::Reth(write(addr, rkey))
            } else {
                Extended::None
            },
        ),
        SendOp::WriteImm { addr, rkey, imm } => (
            place(O::WriteOnlyImm, O::WriteFirst, O::WriteMiddle, O::WriteLastImm),
            match (first, last) {
                (true, true) => Extended::RethImm(write(addr, rkey), imm),
                (true, false) => Extended::Reth(write(addr, rkey)),
                (false, true) => Extended::Imm(imm),
                (false, false) if addressed => Extended::Reth(write(addr, rkey)),
                (false, false) => Extended::None,
            },
        ),
        SendOp::Read { addr, rkey } => (O::ReadRequest, Extended::Reth(write(addr, rkey))),
        SendOp::CompareSwap {
            addr,
            rkey,
            compare,
            swap,
        } => (
            O::CompareSwap,
            Extended::Atomic(atomiceth::Header {
                va: addr,
                rkey,
                swap_or_add: swap,
                compare,
            }),
        ),
        SendOp::FetchAdd { addr, rkey, add } => (
            O::FetchAdd,
            Extended::Atomic(atomiceth::Header {
                va: addr,
                rkey,
                swap_or_add: add,
                compare: 0,
            }),
        ),
        // Local work is never sent: `send_request` does it itself.
        SendOp::BindMw(_) | SendOp::LocalInvalidate(_) => (O::SendOnly, Extended::None),
    }
}
