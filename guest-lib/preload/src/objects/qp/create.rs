//! Making queue pairs.

use std::ffi::c_void;
use std::sync::Arc;

use vnic_device::queue::{BLOCK_LEN, SendHead, SendLimits, Target, send_blocks_max};
use vnic_device::verbs::QpType;
use vnic_verbs::{Capabilities, HashQueuePair, HashRule, QpBuilder, QpKind, QueuePair, XrcTarget};

use super::{AnyQp, Qp};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{Object, Uses};
use crate::objects::{Cq, Pd, RwqIndTable, Srq, Xrcd, only};
use crate::work::segments::{HEADERS_MAX, Headers};
use crate::work::wr;

/// Settings of a new queue pair.
pub struct Wanted<'a> {
    pub context: *mut c_void,
    pub pd: Option<&'a Pd>,
    pub xrcd: Option<&'a Xrcd>,
    pub send_cq: Option<&'a Cq>,
    pub recv_cq: Option<&'a Cq>,
    pub srq: Option<&'a Srq>,
    pub capacity: ibv_qp_cap,
    pub kind: u32,
    pub signal_all: bool,
    /// Operations (`IBV_QP_EX_WITH_*`) that are built call by call.
    pub operations: Option<u64>,
    /// An end of dynamic connections.
    pub dynamic: Option<Dynamic>,
    /// Bytes of headers of frames that the device cuts into segments; 0: it cuts none.
    pub tso_header: u16,
    /// Work queues that it spreads frames over, and how.
    pub spread: Option<(&'a RwqIndTable, HashRule)>,
}

/// An end of dynamic connections (`mlx5dv_dc_init_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dynamic {
    Initiator,
    /// With its access key.
    Target(u64),
}

/// Settings of an extended call.
pub struct Extended {
    pub mask: u32,
    pub flags: u32,
    pub tso_header: u16,
}

/// Bits that we can answer.
const KNOWN: u32 = IBV_QP_INIT_ATTR_PD
    | IBV_QP_INIT_ATTR_XRCD
    | IBV_QP_INIT_ATTR_CREATE_FLAGS
    | IBV_QP_INIT_ATTR_MAX_TSO_HEADER
    | IBV_QP_INIT_ATTR_IND_TABLE
    | IBV_QP_INIT_ATTR_RX_HASH
    | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

impl Extended {
    /// Refuses features that our devices do not have.
    pub fn check(&self) -> Result<(), Errno> {
        only(self.mask, KNOWN, Errno::UNSUPPORTED).map_err(|e| {
            e.because("no attributes of queue pairs beyond PD, XRCD, flags, TSO header, RSS and operations")
        })?;
        let flags = self.mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && self.flags != 0;
        if flags {
            return Err(Errno::UNSUPPORTED.because("no flags of queue pairs"));
        }
        Ok(())
    }
}

/// A new queue pair, and its capacity.
type Made = Result<(AnyQp, ibv_qp_cap), Errno>;

impl Qp {
    /// Makes a queue pair. Its `capacity` is written back.
    pub fn create(context: &Context, wanted: &mut Wanted<'_>) -> Result<*mut ibv_qp, Errno> {
        segmented(context, wanted)?;
        let (inner, capacity) = make(context, wanted)?;
        let headers = headers(&inner, wanted)?;
        let mut base = ibv_qp_ex {
            qp_base: ibv_qp {
                context: context.pointer(),
                qp_context: wanted.context,
                pd: wanted.pd.map_or(std::ptr::null_mut(), Object::c),
                send_cq: wanted.send_cq.map_or(std::ptr::null_mut(), |cq| cq.c().cast()),
                recv_cq: wanted.recv_cq.map_or(std::ptr::null_mut(), |cq| cq.c().cast()),
                srq: wanted.srq.map_or(std::ptr::null_mut(), Object::c),
                handle: inner.number(),
                qp_num: inner.number(),
                state: IBV_QPS_RESET,
                qp_type: wanted.kind,
                ..zeros()
            },
            ..zeros()
        };
        if let Some(operations) = wanted.operations {
            wr::equip(&mut base, wanted.kind, operations)?;
        }
        let target = match (&inner, wanted.xrcd) {
            (AnyQp::XrcRecv(qp), Some(xrcd)) => Some(xrcd.add(qp.clone())),
            _ => None,
        };
        wanted.capacity = capacity;
        let needs = [
            Some(&context.uses),
            wanted.pd.map(|o| &o.uses),
            wanted.xrcd.map(|o| &o.uses),
            wanted.send_cq.map(|o| &o.uses),
            wanted.recv_cq.map(|o| &o.uses),
            wanted.srq.map(|o| &o.uses),
            wanted.spread.map(|(table, _)| &table.uses),
        ];
        let needs = needs.into_iter().flatten().map(Uses::one).collect();
        let qp = Qp {
            extended: wanted.operations.is_some(),
            capacity,
            signal_all: wanted.signal_all,
            headers,
            _target: target,
            ..Qp::new(base, inner, needs)
        };
        Ok(Qp::publish(context, qp))
    }
}

/// Refuses segmentation where there is none.
fn segmented(context: &Context, wanted: &Wanted<'_>) -> Result<(), Errno> {
    let has = context.seat.device.query_device().capabilities();
    match wanted.tso_header {
        0 => Ok(()),
        _ if wanted.kind != IBV_QPT_RAW_PACKET || !has.contains(Capabilities::SEGMENTS) => {
            Err(Errno::UNSUPPORTED.because("only raw packets are cut into segments (TSO), by devices from version 1.7 of the contract on"))
        }
        1..=HEADERS_MAX => Ok(()),
        _ => Err(Errno::INVALID.because("headers of segments (max_tso_header) have at most 256 bytes")),
    }
}

/// Room for the headers of segments, if the program wants some.
fn headers(inner: &AnyQp, wanted: &Wanted<'_>) -> Result<Option<Headers>, Errno> {
    match (inner, wanted.pd, wanted.tso_header) {
        (AnyQp::Raw(qp), Some(pd), each @ 1..) => Headers::new(&pd.inner, each, qp.send_blocks()).map(Some),
        _ => Ok(None),
    }
}

/// Makes one more name for a target of XRC that somebody made in the same domain. The target lives until the last
/// name is destroyed.
pub fn open(context: &Context, xrcd: &Xrcd, number: u32, program: *mut c_void) -> Result<*mut ibv_qp, Errno> {
    let target: Arc<QueuePair<XrcTarget>> = xrcd.find(number)?;
    let base = ibv_qp {
        context: context.pointer(),
        qp_context: program,
        handle: number,
        qp_num: number,
        state: u32::from(target.state().number()),
        qp_type: IBV_QPT_XRC_RECV,
        ..zeros()
    };
    let base = ibv_qp_ex {
        qp_base: base,
        ..zeros()
    };
    let inner = AnyQp::XrcRecv((*target).clone());
    let qp = Qp {
        _target: Some(target),
        ..Qp::new(base, inner, vec![context.uses.one(), xrcd.uses.one()])
    };
    Ok(Qp::publish(context, qp))
}

fn make(context: &Context, wanted: &Wanted<'_>) -> Made {
    match wanted.kind {
        IBV_QPT_RC => plain(context, wanted, AnyQp::Rc),
        IBV_QPT_UC => plain(context, wanted, AnyQp::Uc),
        IBV_QPT_UD => plain(context, wanted, AnyQp::Ud),
        IBV_QPT_RAW_PACKET if let Some((table, rule)) = &wanted.spread => spread(wanted, table, rule),
        _ if wanted.spread.is_some() => {
            Err(Errno::INVALID.because("only raw packets are spread by a hash (RSS)"))
        }
        IBV_QPT_RAW_PACKET => plain(context, wanted, AnyQp::Raw),
        IBV_QPT_XRC_SEND => {
            let (Some(pd), Some(cq), None) = (wanted.pd, wanted.send_cq, wanted.srq) else {
                return Err(Errno::INVALID);
            };
            let mut capacity = check(context, wanted)?;
            (capacity.max_recv_wr, capacity.max_recv_sge) = (0, 0);
            let builder = pd.inner.xrc_initiator(&cq.inner);
            let qp = sized(builder, &capacity, wanted.signal_all).build()?;
            Ok((AnyQp::XrcSend(qp), grown(context, wanted, &capacity)))
        }
        IBV_QPT_DRIVER => match wanted.dynamic {
            Some(Dynamic::Initiator) => {
                // What belongs to receives is ignored, as libmlx5 does.
                let (Some(pd), Some(cq)) = (wanted.pd, wanted.send_cq) else {
                    return Err(Errno::INVALID);
                };
                let mut capacity = check(context, wanted)?;
                (capacity.max_recv_wr, capacity.max_recv_sge) = (0, 0);
                let builder = pd.inner.dc_initiator(&cq.inner);
                let qp = sized(builder, &capacity, wanted.signal_all).build()?;
                Ok((AnyQp::DcInitiator(qp), grown(context, wanted, &capacity)))
            }
            Some(Dynamic::Target(access_key)) => {
                let (Some(pd), Some(cq), Some(srq)) = (wanted.pd, wanted.recv_cq, wanted.srq) else {
                    return Err(Errno::INVALID);
                };
                let qp = pd.inner.dc_target(&cq.inner, &srq.inner, access_key).build()?;
                Ok((AnyQp::DcTarget(qp), zeros()))
            }
            None => Err(Errno::UNSUPPORTED.because("a type of one maker: mlx5dv_create_qp says which")),
        },
        IBV_QPT_XRC_RECV => {
            let xrcd = wanted.xrcd.ok_or(Errno::INVALID)?;
            Ok((AnyQp::XrcRecv(xrcd.domain().xrc_target().build()?), zeros()))
        }
        _ => Err(Errno::UNSUPPORTED.because("queue pairs are RC, UC, UD, RAW_PACKET, XRC or DC")),
    }
}

/// A queue pair that only spreads frames: it has no queues of its own.
fn spread(wanted: &Wanted<'_>, table: &RwqIndTable, rule: &HashRule) -> Made {
    let cap = &wanted.capacity;
    let own = wanted.send_cq.is_some()
        || wanted.recv_cq.is_some()
        || wanted.srq.is_some()
        || wanted.operations.is_some()
        || wanted.tso_header != 0
        || (cap.max_send_wr, cap.max_recv_wr) != (0, 0);
    let Some(pd) = wanted.pd.filter(|_| !own) else {
        return Err(Errno::INVALID
            .because("a queue pair with an indirection table has a PD, and no queues of its own"));
    };
    Ok((
        AnyQp::Hash(HashQueuePair::new(&pd.inner, rule, table.queues())?),
        zeros(),
    ))
}

fn plain<K: vnic_verbs::qp::Plain>(
    context: &Context,
    wanted: &Wanted<'_>,
    any: fn(QueuePair<K>) -> AnyQp,
) -> Made {
    let (Some(pd), Some(send_cq), Some(recv_cq)) = (wanted.pd, wanted.send_cq, wanted.recv_cq) else {
        return Err(Errno::INVALID);
    };
    let mut capacity = check(context, wanted)?;
    let mut builder = pd.inner.qp::<K>(&send_cq.inner, &recv_cq.inner);
    if wanted.srq.is_some() {
        (capacity.max_recv_wr, capacity.max_recv_sge) = (0, 0);
    }
    builder = sized(builder, &capacity, wanted.signal_all).max_send_sge(limits(wanted, &capacity).elements);
    if let Some(srq) = wanted.srq {
        builder = builder.srq(&srq.inner);
    }
    let qp = builder.build()?;
    Ok((any(qp), grown(context, wanted, &capacity)))
}

fn sized<K: QpKind>(builder: QpBuilder<K>, capacity: &ibv_qp_cap, signal_all: bool) -> QpBuilder<K> {
    let builder = builder
        .max_send_wr(capacity.max_send_wr)
        .max_recv_wr(capacity.max_recv_wr)
        .max_send_sge(capacity.max_send_sge)
        .max_recv_sge(capacity.max_recv_sge)
        .max_inline(capacity.max_inline_data);
    if signal_all { builder.signal_all() } else { builder }
}

/// The capacity to ask the device for, if none of its limits is exceeded. A queue has room for one element at
/// least.
fn check(context: &Context, all: &Wanted<'_>) -> Result<ibv_qp_cap, Errno> {
    let wanted = &all.capacity;
    let limits = context.seat.device.query_device();
    let within = wanted.max_send_wr <= limits.max_qp_wr
        && wanted.max_recv_wr <= limits.max_qp_wr
        && wanted.max_send_sge.saturating_add(own_elements(all)) <= limits.max_sge
        && wanted.max_recv_sge <= limits.max_sge
        && wanted.max_inline_data <= limits.max_inline;
    if !within {
        return Err(Errno::INVALID);
    }
    let elements = |n: u32, wr: u32| if wr == 0 { 0 } else { n.max(1) };
    Ok(ibv_qp_cap {
        max_send_sge: elements(wanted.max_send_sge, wanted.max_send_wr),
        max_recv_sge: elements(wanted.max_recv_sge, wanted.max_recv_wr),
        max_inline_data: match wanted.max_send_wr {
            0 => 0,
            _ => inline(all).min(limits.max_inline),
        },
        ..*wanted
    })
}

/// Inline bytes of a queue pair: with those that are asked for, all that fit into the same blocks. `rdma_xclient` asks for none, and
/// sends 16. UCX asks for 64, and sends its requests to connect, which have 65, from memory if it gets no more; it uses that memory
/// again when the peer's own request comes, although the send may not have completed.
fn inline(wanted: &Wanted<'_>) -> u32 {
    let limits = limits(wanted, &wanted.capacity);
    let target = match limits.qp_type {
        QpType::DcInitiator => size_of::<Target>(),
        _ => 0,
    };
    (send_blocks_max(&limits) as usize * BLOCK_LEN - size_of::<SendHead>() - target) as u32
}

/// Elements of a request that are our own: headers of segments are one.
fn own_elements(wanted: &Wanted<'_>) -> u32 {
    u32::from(wanted.tso_header != 0)
}

/// What work requests of such a queue pair must keep.
fn limits(wanted: &Wanted<'_>, capacity: &ibv_qp_cap) -> SendLimits {
    SendLimits {
        // (Of all types only this one has longer requests.)
        qp_type: match wanted.dynamic {
            Some(Dynamic::Initiator) => QpType::DcInitiator,
            _ => QpType::Rc,
        },
        elements: capacity.max_send_sge + own_elements(wanted),
        inline: capacity.max_inline_data,
    }
}

/// The capacity that a queue pair really gets: its rings are powers of two.
fn grown(context: &Context, all: &Wanted<'_>, wanted: &ibv_qp_cap) -> ibv_qp_cap {
    let most = context.seat.device.query_device().max_qp_wr;
    let longest = send_blocks_max(&limits(all, wanted));
    let blocks = wanted.max_send_wr.saturating_mul(longest);
    let blocks = blocks.checked_next_power_of_two().unwrap_or(blocks);
    let receives = wanted.max_recv_wr.checked_next_power_of_two();
    ibv_qp_cap {
        max_send_wr: match wanted.max_send_wr {
            0 => 0,
            _ => (blocks / longest).min(most),
        },
        max_recv_wr: match wanted.max_recv_wr {
            0 => 0,
            n => receives.unwrap_or(n).min(most),
        },
        ..*wanted
    }
}
