//! Queue pairs of identifiers.

#![expect(
    unsafe_code,
    reason = "reads and writes what the program gives and sees by pointers"
)]

use vnic_verbs::connection::Transport;

use super::id::{Id, OwnQueues};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{Object, end, maybe, the};
use crate::objects::{Channel, Cq, Pd, Qp, Srq, cq, qp};
use crate::sync::lock;

/// Rights that a peer has by way of a connected queue pair.
const RIGHTS: u32 =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
/// RNR NAKs ask for a wait of 655.36 ms, the number 0, as Linux' `rdma_cm` has it.
const MIN_RNR_TIMER: u8 = 0;

/// Makes the queue pair of an identifier: of datagrams one that is ready, of others one that may receive. Completion queues that are
/// missing are made.
///
/// # Safety
/// The attributes are those of `rdma_create_qp_ex`: objects are of the identifier's device, or NULL.
pub unsafe fn create(id: &Id, wanted: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let base = id.c();
    // SAFETY: by the caller's promise, for all pointers here; fields of the identifier are the program's that calls.
    unsafe {
        if (*base).verbs.is_null() || !(*base).qp.is_null() {
            return Err(Errno::INVALID);
        }
        if wanted.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || wanted.pd.is_null() {
            wanted.comp_mask |= IBV_QP_INIT_ATTR_PD;
            wanted.pd = (*base).pd;
        } else if (*wanted.pd).context != (*base).verbs {
            return Err(
                Errno::INVALID.because("the protection domain is another device's, or of another context")
            );
        }
        if wanted.qp_type == IBV_QPT_XRC_RECV
            && (wanted.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || wanted.xrcd.is_null())
        {
            wanted.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
            wanted.xrcd = id.state.device()?.xrc_domain()?;
        }
        let made = queues(id, wanted)?;
        wanted.send_cq = or(wanted.send_cq, (*base).send_cq);
        wanted.recv_cq = or(wanted.recv_cq, (*base).recv_cq);
        wanted.srq = or(wanted.srq, (*base).srq);
        lock(&id.kept).own_queues = made;
        let qp = match make(id, wanted).and_then(|qp| ready(id, qp).map_err(|e| undo(qp, e))) {
            Ok(qp) => qp,
            Err(e) => {
                free_queues(id);
                return Err(e);
            }
        };
        (*base).qp = qp;
        (*base).pd = wanted.pd;
    }
    Ok(())
}

fn or<T>(first: *mut T, second: *mut T) -> *mut T {
    if first.is_null() { second } else { first }
}

/// Takes a queue pair back that is no use.
///
/// # Safety
/// It was just made.
unsafe fn undo(qp: *mut ibv_qp, e: Errno) -> Errno {
    // SAFETY: by the caller's promise.
    let _ = unsafe { Qp::destroy(qp.cast()) };
    e
}

/// # Safety
/// As [`create`].
unsafe fn make(id: &Id, wanted: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: by the caller's promise; the identifier has a device.
    unsafe {
        let context = (*id.c()).verbs;
        let xrcd = wanted.comp_mask & IBV_QP_INIT_ATTR_XRCD != 0;
        let operations = wanted.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        let flags = wanted.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0;
        let tso = wanted.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER != 0;
        let extended = qp::Extended {
            mask: wanted.comp_mask,
            flags: if flags { wanted.create_flags } else { 0 },
            tso_header: if tso { wanted.max_tso_header } else { 0 },
        };
        extended.check()?;
        if wanted.comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH) != 0 {
            return Err(Errno::UNSUPPORTED.because("queue pairs of connections spread no frames (RSS)"));
        }
        let mut all = qp::Wanted {
            context: wanted.qp_context,
            pd: maybe::<Pd>(wanted.pd),
            xrcd: if xrcd { maybe(wanted.xrcd) } else { None },
            send_cq: maybe::<Cq>(wanted.send_cq.cast()),
            recv_cq: maybe::<Cq>(wanted.recv_cq.cast()),
            srq: maybe::<Srq>(wanted.srq),
            capacity: wanted.cap,
            kind: wanted.qp_type,
            signal_all: wanted.sq_sig_all != 0,
            operations: operations.then_some(wanted.send_ops_flags),
            dynamic: None,
            tso_header: extended.tso_header,
            spread: None,
        };
        let qp = Qp::create(Context::of(context), &mut all)?;
        wanted.cap = all.capacity;
        Ok(qp)
    }
}

/// Makes the completion queues that the program does not bring.
///
/// # Safety
/// As [`create`].
unsafe fn queues(id: &Id, wanted: &ibv_qp_init_attr_ex) -> Result<OwnQueues, Errno> {
    let base = id.c();
    let mut made = OwnQueues::default();
    // SAFETY: by the caller's promise; fields of the identifier are the program's that calls.
    unsafe {
        let clash =
            |own: *mut ibv_cq, theirs: *mut ibv_cq| !own.is_null() && !theirs.is_null() && own != theirs;
        if clash((*base).send_cq, wanted.send_cq) || clash((*base).recv_cq, wanted.recv_cq) {
            return Err(Errno::INVALID);
        }
        if wanted.send_cq.is_null() && (*base).send_cq.is_null() && wanted.cap.max_send_wr > 0 {
            ((*base).send_cq_channel, (*base).send_cq) = queue(id, wanted.cap.max_send_wr)?;
            made.send = true;
        }
        if wanted.recv_cq.is_null() && (*base).recv_cq.is_null() && wanted.cap.max_recv_wr > 0 {
            ((*base).recv_cq_channel, (*base).recv_cq) = queue(id, wanted.cap.max_recv_wr)?;
            made.receive = true;
        }
    }
    Ok(made)
}

/// A completion queue with a channel of its own.
///
/// # Safety
/// The identifier has a device.
unsafe fn queue(id: &Id, entries: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let context = Context::of((*id.c()).verbs);
        let channel = Channel::create(context)?;
        let wanted = cq::Wanted {
            entries,
            context: id.c().cast(),
            channel: Some(the(channel)),
            vector: 0,
            parent: None,
        };
        match Cq::create(context, &wanted) {
            Ok(cq) => Ok((channel, cq.cast())),
            Err(e) => {
                end::<Channel>(channel)?;
                Err(e)
            }
        }
    }
}

/// Frees the completion queues that the library has made for the queue pair.
///
/// # Safety
/// No queue pair uses them.
unsafe fn free_queues(id: &Id) {
    let base = id.c();
    let made = std::mem::take(&mut lock(&id.kept).own_queues);
    // SAFETY: by the caller's promise; they were made here.
    unsafe {
        if made.send {
            free(&mut (*base).send_cq, &mut (*base).send_cq_channel);
        }
        if made.receive || made.srq_receive {
            free(&mut (*base).recv_cq, &mut (*base).recv_cq_channel);
        }
    }
}

/// # Safety
/// They were made here, and nobody uses them.
unsafe fn free(cq: &mut *mut ibv_cq, channel: &mut *mut ibv_comp_channel) {
    let (cq, channel) = (
        std::mem::replace(cq, std::ptr::null_mut()),
        std::mem::replace(channel, std::ptr::null_mut()),
    );
    // SAFETY: by the caller's promise.
    unsafe {
        let freed = Cq::destroy(cq.cast()).and_then(|()| end::<Channel>(channel));
        if let Err(Errno(e)) = freed {
            crate::errno::complain(&format_args!("a completion queue stays: errno {e}"));
        }
    }
}

/// Destroys the queue pair of an identifier.
///
/// # Safety
/// As `rdma_destroy_qp`.
pub unsafe fn destroy(id: &Id) {
    let base = id.c();
    // SAFETY: by the caller's promise.
    unsafe {
        let qp = std::mem::replace(&mut (*base).qp, std::ptr::null_mut());
        if !qp.is_null() {
            for (_, gid) in &lock(&id.kept).groups {
                let _ = the::<Qp>(qp.cast()).detach(*gid);
            }
            let _ = Qp::destroy(qp.cast());
            // Those of XRC are its shared receive queue's, too.
            if (*base).qp_type != IBV_QPT_XRC_RECV || (*base).srq.is_null() {
                free_queues(id);
            }
        }
    }
}

/// Makes the shared receive queue of an identifier; for XRC with a completion queue, unless the program brings one.
///
/// # Safety
/// As `rdma_create_srq_ex`.
pub unsafe fn create_srq(id: &Id, wanted: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    let base = id.c();
    // SAFETY: by the caller's promise.
    unsafe {
        if (*base).verbs.is_null() || !(*base).srq.is_null() {
            return Err(Errno::INVALID);
        }
        let has = |bit: u32| wanted.comp_mask & bit != 0;
        let pd = if has(IBV_SRQ_INIT_ATTR_PD) && !wanted.pd.is_null() {
            wanted.pd
        } else {
            (*base).pd
        };
        let xrc = has(IBV_SRQ_INIT_ATTR_TYPE) && wanted.srq_type == IBV_SRQT_XRC;
        let of_xrc = if xrc {
            let xrcd = if has(IBV_SRQ_INIT_ATTR_XRCD) && !wanted.xrcd.is_null() {
                wanted.xrcd
            } else {
                id.state.device()?.xrc_domain()?
            };
            let mut cq = if has(IBV_SRQ_INIT_ATTR_CQ) {
                wanted.cq
            } else {
                std::ptr::null_mut()
            };
            if cq.is_null() {
                // (That of the queue pair, if there is one.)
                if (*base).recv_cq.is_null() {
                    ((*base).recv_cq_channel, (*base).recv_cq) = queue(id, wanted.attr.max_wr)?;
                    lock(&id.kept).own_queues.srq_receive = true;
                }
                cq = (*base).recv_cq;
            }
            Some((the(xrcd), the::<Cq>(cq.cast())))
        } else {
            None
        };
        (*base).srq = Srq::create(the(pd), wanted.srq_context, &mut wanted.attr, of_xrc)?;
        (*base).pd = pd;
    }
    Ok(())
}

/// Destroys the shared receive queue of an identifier.
///
/// # Safety
/// As `rdma_destroy_srq`.
pub unsafe fn destroy_srq(id: &Id) -> Result<(), Errno> {
    let base = id.c();
    // SAFETY: by the caller's promise.
    unsafe {
        let srq = std::mem::replace(&mut (*base).srq, std::ptr::null_mut());
        if srq.is_null() {
            return Err(Errno::INVALID);
        }
        Srq::destroy(srq)?;
        if (*base).qp.is_null() {
            free_queues(id);
        }
    }
    Ok(())
}

/// Brings a new queue pair as far as it can be.
fn ready(id: &Id, qp: *mut ibv_qp) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: it was just made.
    let object = unsafe { the::<Qp>(qp.cast()) };
    let last = match id.state.lock().transport {
        Transport::Ud => IBV_QPS_RTS,
        _ => IBV_QPS_INIT,
    };
    for state in IBV_QPS_INIT..=last {
        let (attributes, mask) = attributes(id, state, zeros())?;
        object.modify(&attributes, mask)?;
    }
    Ok(qp)
}

/// Brings the queue pair to RTR and RTS, with these READs and atomics: `None`: what was agreed.
///
/// # Safety
/// The identifier has a queue pair.
pub unsafe fn connect(
    id: &Id,
    responder_resources: Option<u8>,
    initiator_depth: Option<u8>,
) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    let qp = unsafe { the::<Qp>((*id.c()).qp.cast()) };
    let agreed = agreed(id)?;
    for state in IBV_QPS_RTR..=IBV_QPS_RTS {
        let (mut attributes, mask) = attributes(id, state, agreed)?;
        match (state, responder_resources, initiator_depth) {
            (IBV_QPS_RTR, Some(n), _) => attributes.max_dest_rd_atomic = n,
            (IBV_QPS_RTS, _, Some(n)) => attributes.max_rd_atomic = n,
            _ => {}
        }
        qp.modify(&attributes, mask)?;
    }
    Ok(())
}

/// Moves the queue pair to ERR, if there is one.
///
/// # Safety
/// The identifier is the program's that calls.
pub unsafe fn fail(id: &Id) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    let Some(qp) = (unsafe { maybe::<Qp>((*id.c()).qp.cast()) }) else {
        return Ok(());
    };
    let attributes = ibv_qp_attr {
        qp_state: IBV_QPS_ERR,
        ..zeros()
    };
    qp.modify(&attributes, IBV_QP_STATE)
}

/// Attributes with which the identifier's queue pair gets into a state, and their mask (`rdma_init_qp_attr`).
pub fn next(id: &Id, state: u32) -> Result<(ibv_qp_attr, u32), Errno> {
    id.state.device()?;
    let datagrams = id.state.lock().transport == Transport::Ud;
    let agreed = if datagrams || state == IBV_QPS_INIT {
        zeros()
    } else {
        agreed(id)?
    };
    attributes(id, state, agreed)
}

/// What both ends have agreed on.
fn agreed(id: &Id) -> Result<ibv_qp_attr, Errno> {
    let (device, connection) = id.state.connected()?;
    let found = device.connections()?.query(connection)?.attributes;
    Ok(qp::shown(&found, Some(found.address.into()), zeros()))
}

/// Attributes for a state, of what was agreed on.
fn attributes(id: &Id, state: u32, agreed: ibv_qp_attr) -> Result<(ibv_qp_attr, u32), Errno> {
    let (transport, psn, ack_timeout) = {
        let inner = id.state.lock();
        (inner.transport, inner.psn, inner.options.ack_timeout)
    };
    let datagrams = transport == Transport::Ud;
    let (mut all, mut mask) = (agreed, IBV_QP_STATE);
    (all.qp_state, all.port_num) = (state, 1);
    match (state, datagrams) {
        (IBV_QPS_INIT, false) => {
            all.qp_access_flags = RIGHTS;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        }
        (IBV_QPS_INIT, true) => {
            all.qkey = RDMA_UDP_QKEY;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        }
        (IBV_QPS_RTR, false) => {
            // The side that accepts has not told its peer yet.
            all.rq_psn = psn;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if reliable(transport) {
                all.min_rnr_timer = MIN_RNR_TIMER;
                mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            }
        }
        (IBV_QPS_RTR, true) => {}
        (IBV_QPS_RTS, datagrams) => {
            mask |= IBV_QP_SQ_PSN;
            if !datagrams && reliable(transport) {
                all.timeout = ack_timeout.unwrap_or(all.timeout);
                mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
            }
        }
        _ => return Err(Errno::INVALID),
    }
    Ok((all, mask))
}

fn reliable(transport: Transport) -> bool {
    matches!(transport, Transport::Rc | Transport::Xrc)
}
