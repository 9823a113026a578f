//! `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`, `ibv_bind_mw`: lists of work requests in, at most one
//! doorbell for each list.

#![expect(unsafe_code, reason = "walks lists of work requests of programs in C")]

use std::ffi::{c_int, c_uint};

use arrayvec::ArrayVec;
use vnic_device::queue::RECEIVE_ELEMENTS_MAX;
use vnic_verbs::wr::{SendHead, send_flags};
use vnic_verbs::{Access, Data, MwType, Operation, PostError, PostReason, RecvWr, SendWr, Sending, Sge};

use super::INLINE_MAX;
use super::segments::Headers;
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{maybe, the};
use crate::objects::qp::AnyQp;
use crate::objects::{Ah, Mr, Mw, Qp, Srq, Wq};

// The layout of elements is the same, so that lists are passed on.
const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, len) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

/// Flags that are the same in a work request of the device.
pub const PLAIN_FLAGS: c_uint = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/// `ibv_access_flags` that give no right (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL_ACCESS: c_uint = 0x3ff0_0000;

operation! {
    /// `ibv_post_send`. ENOMEM: no room. EINVAL: the state, or the work request at `bad`. EOPNOTSUPP: an operation that
    /// this device does not have. EIO: the device is gone.
    fn post_send(qp: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int, as code {
        post_sends(the::<Qp>(qp.cast()), first).map_err(|(at, errno)| refuse(bad, at, errno))
    }

    /// `ibv_post_recv`. Errors are those of [`post_send`].
    fn post_recv(qp: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int, as code {
        let wrs = Receives { next: first };
        let result = match &the::<Qp>(qp.cast()).inner {
            AnyQp::Rc(qp) => qp.post_recv_from(wrs),
            AnyQp::Uc(qp) => qp.post_recv_from(wrs),
            AnyQp::Ud(qp) => qp.post_recv_from(wrs),
            AnyQp::Raw(qp) => qp.post_recv_from(wrs),
            AnyQp::XrcSend(_)
            | AnyQp::XrcRecv(_)
            | AnyQp::DcInitiator(_)
            | AnyQp::DcTarget(_)
            | AnyQp::Hash(_) => Err(PostError {
                posted: 0,
                reason: PostReason::NoQueue,
            }),
        };
        received(result, first, bad)
    }

    /// `ibv_post_srq_recv`. Errors are those of [`post_send`].
    fn post_srq_recv(srq: *mut ibv_srq, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int, as code {
        let result = the::<Srq>(srq).inner.post_from(Receives { next: first });
        received(result, first, bad)
    }

    /// `ibv_post_wq_recv`. Errors are those of [`post_send`].
    fn post_wq_recv(wq: *mut ibv_wq, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int, as code {
        let result = the::<Wq>(wq).inner.post_recv_from(Receives { next: first });
        received(result, first, bad)
    }

    /// `ibv_bind_mw`, for windows of type 1: `mw->rkey` is from now on the key that the window will have.
    fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int, as code {
        let bind = &*bind;
        let window: &Mw = the(mw);
        if window.inner.kind() != MwType::Type1 {
            return Err(Errno::INVALID);
        }
        let new = window.inner.next_rkey();
        let wr = bound(mw, new, &bind.bind_info)?
            .id(bind.wr_id)
            .flags(plain_flags(bind.send_flags)?);
        let mut sending = sending(the(qp.cast()))?;
        sending.post(&wr)?;
        sending.ring()?;
        window.inner.set_key(new);
        (*mw).rkey = new;
        Ok(())
    }
}

/// Writes which request was refused.
///
/// # Safety
/// `bad` is NULL or may be written.
#[cold]
unsafe fn refuse<T>(bad: *mut *mut T, at: *mut T, errno: Errno) -> Errno {
    // SAFETY: by the caller's promise.
    if let Some(bad) = unsafe { bad.as_mut() } {
        *bad = at;
    }
    errno
}

/// The destination in a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// None: there is one peer.
    Connected,
    /// An address handle, a queue pair and its key.
    Datagram,
    /// The peer's shared receive queue.
    Extended,
    /// The frame says where it goes.
    Frames,
}

impl Service {
    #[inline]
    fn of(qp: &AnyQp) -> Service {
        match qp {
            AnyQp::Ud(_) => Service::Datagram,
            AnyQp::XrcSend(_) => Service::Extended,
            AnyQp::Raw(_) => Service::Frames,
            _ => Service::Connected,
        }
    }
}

/// Begins to post sends.
#[inline(always)]
pub fn sending(qp: &Qp) -> Result<Sending<'_>, PostReason> {
    let queue = match &qp.inner {
        AnyQp::Rc(qp) => qp.send_queue(),
        AnyQp::Uc(qp) => qp.send_queue(),
        AnyQp::Ud(qp) => qp.send_queue(),
        AnyQp::Raw(qp) => qp.send_queue(),
        AnyQp::XrcSend(qp) => qp.send_queue(),
        AnyQp::DcInitiator(qp) => qp.send_queue(),
        AnyQp::XrcRecv(_) | AnyQp::DcTarget(_) | AnyQp::Hash(_) => return Err(PostReason::NoQueue),
    };
    queue.sending()
}

/// Posts a list; if a request has an error, those before it. The error names the request.
///
/// # Safety
/// `first` is a list as `ibv_post_send` asks for.
#[inline]
unsafe fn post_sends(qp: &Qp, first: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, Errno)> {
    let mut sending = sending(qp).map_err(|reason| (first, reason.into()))?;
    let service = Service::of(&qp.inner);
    let mut next = first;
    // SAFETY: by the caller's promise.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: by the caller's promise.
        if let Err(errno) = unsafe { post_one(qp, service, &mut sending, wr) } {
            sending.ring().map_err(|reason| (first, reason.into()))?;
            return Err((next, errno));
        }
        next = wr.next;
    }
    sending.ring().map_err(|reason| (first, reason.into()))
}

/// Flags of a work request without INLINE.
#[inline]
fn plain_flags(flags: c_uint) -> Result<u8, Errno> {
    if flags & !PLAIN_FLAGS != 0 {
        return Err(Errno::INVALID);
    }
    Ok(flags as u8)
}

/// # Safety
/// `wr` is a work request as `ibv_post_send` asks for.
#[inline]
unsafe fn post_one(
    qp: &Qp,
    service: Service,
    sending: &mut Sending<'_>,
    wr: &ibv_send_wr,
) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let list = elements(wr.sg_list, wr.num_sge)?;
        if matches!(
            wr.opcode,
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_LOCAL_INV | IBV_WR_BIND_MW
        ) {
            return post_special(service, sending, wr, list);
        }
        if wr.opcode == IBV_WR_TSO {
            return post_segmented(qp, sending, wr, list);
        }
        let mut head = head(service, wr)?;
        match wr.send_flags {
            flags if flags & !PLAIN_FLAGS == 0 => {
                head.flags = flags as u8;
                Ok(sending.post_list(head, list)?)
            }
            _ => post_flagged(service, sending, wr, head, list),
        }
    }
}

/// Posts a request with more flags than the plain ones.
///
/// # Safety
/// As [`post_one`].
#[inline(never)]
unsafe fn post_flagged(
    service: Service,
    sending: &mut Sending<'_>,
    wr: &ibv_send_wr,
    mut head: SendHead,
    list: &[Sge],
) -> Result<(), Errno> {
    let mut flags = wr.send_flags;
    let mut checksum = 0;
    match service {
        // Our devices compute no checksums of payload, which datagrams may ask for all the same.
        Service::Datagram => flags &= !IBV_SEND_IP_CSUM,
        Service::Frames if flags & IBV_SEND_IP_CSUM != 0 => {
            flags &= !IBV_SEND_IP_CSUM;
            checksum = send_flags::CHECKSUM;
        }
        _ => {}
    }
    head.flags = plain_flags(flags & !IBV_SEND_INLINE)? | checksum;
    if flags & IBV_SEND_INLINE == 0 {
        return Ok(sending.post_list(head, list)?);
    }
    if let [one] = list {
        // SAFETY: the program's memory, which it does not change while it posts it.
        let bytes = unsafe { bytes(one.addr, one.len as usize) };
        return Ok(sending.post(&SendWr::from_parts(head, Data::inline(bytes)))?);
    }
    // SAFETY: as above.
    unsafe { post_pieces(sending, head, list.iter().map(|e| (e.addr, e.len as usize))) }
}

/// Posts a frame that the device cuts into segments: headers, then what the list has.
///
/// # Safety
/// As [`post_one`], with `tso` in the union.
#[cold]
unsafe fn post_segmented(
    qp: &Qp,
    sending: &mut Sending<'_>,
    wr: &ibv_send_wr,
    list: &[Sge],
) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    let (wanted, bytes) = unsafe {
        let tso = &wr.extra.tso;
        let at = tso.hdr.expose_provenance() as u64;
        (tso, bytes(at, usize::from(tso.hdr_sz)))
    };
    room_of(qp)?;
    if bytes.is_empty() || wanted.mss == 0 {
        return Err(Errno::INVALID);
    }
    let head = SendHead {
        wr_id: wr.wr_id,
        operation: Operation::Send.number(),
        // The checksums are made in any case; the bytes are never inline.
        flags: plain_flags(wr.send_flags & !IBV_SEND_IP_CSUM)? | send_flags::SEGMENT,
        remote_srq: wanted.mss.into(),
        ..SendHead::default()
    };
    post_headed(qp, bytes, list, |elements| sending.post_list(head, elements))
}

/// The room for headers of a queue pair.
fn room_of(qp: &Qp) -> Result<&Headers, Errno> {
    qp.headers.as_ref().ok_or_else(|| {
        Errno::UNSUPPORTED
            .because("segments (TSO) take a raw packet queue pair that was made with max_tso_header")
    })
}

/// Posts a frame of headers and what the list has.
pub fn post_headed(
    qp: &Qp,
    headers: &[u8],
    list: &[Sge],
    post: impl FnOnce(&[Sge]) -> Result<(), PostReason>,
) -> Result<(), Errno> {
    let room = room_of(qp)?;
    if headers.len() > room.most() {
        return Err(Errno::INVALID);
    }
    let mut elements = ArrayVec::<Sge, { RECEIVE_ELEMENTS_MAX as usize }>::new();
    elements.push(room.put(headers));
    elements.try_extend_from_slice(list).map_err(|_| Errno::INVALID)?;
    post(&elements)?;
    room.posted();
    Ok(())
}

/// Posts a request without a list of elements.
///
/// # Safety
/// As [`post_one`].
#[inline(never)]
unsafe fn post_special(
    service: Service,
    sending: &mut Sending<'_>,
    wr: &ibv_send_wr,
    list: &[Sge],
) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    Ok(sending.post(&unsafe { special(service, wr, list) }?)?)
}

/// Posts a request whose bytes are gathered.
///
/// # Safety
/// There are as many bytes as given at each of the addresses.
#[inline(never)]
unsafe fn post_pieces(
    sending: &mut Sending<'_>,
    head: SendHead,
    pieces: impl Iterator<Item = (u64, usize)>,
) -> Result<(), Errno> {
    let mut gathered = ArrayVec::<u8, INLINE_MAX>::new();
    for (addr, len) in pieces {
        // Too much: no need to read all of it.
        if len > gathered.remaining_capacity() {
            return Err(Errno::INVALID);
        }
        // SAFETY: by the caller's promise.
        let piece = unsafe { bytes(addr, len) };
        gathered
            .try_extend_from_slice(piece)
            .map_err(|_| Errno::INVALID)?;
    }
    Ok(sending.post(&SendWr::from_parts(head, Data::inline(&gathered)))?)
}

/// Bytes of the program.
///
/// # Safety
/// The bytes are there, and nobody changes them meanwhile.
#[inline]
pub unsafe fn bytes<'a>(addr: u64, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(addr as usize), len) }
}

/// A list of elements.
///
/// # Safety
/// `list` is one, if `count` is more than 0.
#[inline]
pub unsafe fn elements<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Errno> {
    match count {
        ..0 => Err(Errno::INVALID),
        0 => Ok(&[]),
        // SAFETY: by the caller's promise; the layout is the same, as was checked above.
        _ => Ok(unsafe { std::slice::from_raw_parts(list.cast(), count as usize) }),
    }
}

/// The head of a request with elements or inline bytes, without its flags.
///
/// # Safety
/// `wr` is a work request as `ibv_post_send` asks for.
#[inline(always)]
unsafe fn head(service: Service, wr: &ibv_send_wr) -> Result<SendHead, Errno> {
    let mut head = SendHead {
        wr_id: wr.wr_id,
        // Checked below.
        operation: wr.opcode as u8,
        ..SendHead::default()
    };
    // SAFETY: by the caller's promise each union has what belongs to the operation.
    unsafe {
        head.imm = match wr.opcode {
            IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_SEND_WITH_IMM => u32::from_be(wr.datum.imm_data),
            IBV_WR_SEND_WITH_INV => wr.datum.invalidate_rkey,
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_READ | IBV_WR_SEND => 0,
            _ => return Err(Errno::UNSUPPORTED.because("no such operation (IBV_WR_*) of this queue pair")),
        };
        match service {
            Service::Datagram => {
                let to = wr.wr.ud;
                let handle = maybe::<Ah>(to.ah).ok_or(Errno::INVALID)?;
                head.remote = SendHead::datagram(handle.inner.number(), to.remote_qpn);
                head.rkey = to.remote_qkey;
            }
            Service::Connected | Service::Frames => {}
            Service::Extended => head.remote_srq = wr.qp_type.xrc.remote_srqn,
        }
        if let IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ = wr.opcode {
            let to = wr.wr.rdma;
            head.remote = to.remote_addr;
            head.rkey = to.rkey;
        }
    }
    Ok(head)
}

/// A request without a list of elements.
///
/// # Safety
/// `wr` is a work request as `ibv_post_send` asks for.
unsafe fn special(service: Service, wr: &ibv_send_wr, list: &[Sge]) -> Result<SendWr<'static>, Errno> {
    // SAFETY: by the caller's promise each union has what belongs to the operation.
    let mut post = unsafe {
        match wr.opcode {
            IBV_WR_LOCAL_INV => SendWr::local_invalidate(wr.datum.invalidate_rkey),
            IBV_WR_BIND_MW => {
                let bind = &wr.extra.bind_mw;
                bound_type_2(bind.mw, bind.rkey, &bind.bind_info)?
            }
            _ => {
                let atomic = wr.wr.atomic;
                let &[into] = list else {
                    return Err(Errno::INVALID);
                };
                let (operation, swap) = if wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP {
                    (Operation::CompareSwap, atomic.swap)
                } else {
                    (Operation::FetchAdd, 0)
                };
                SendWr::of(operation, Data::atomic(into, atomic.compare_add, swap))
                    .at(atomic.remote_addr, atomic.rkey)
            }
        }
    };
    if service == Service::Extended {
        // The device looks keys up in the domain of that queue, also those of atomics. SAFETY: by the caller's promise.
        post = post.to_srq(unsafe { wr.qp_type.xrc.remote_srqn });
    }
    Ok(post.id(wr.wr_id).flags(plain_flags(wr.send_flags)?))
}

/// A bind of a window of type 2, whose key the program has chosen.
///
/// # Safety
/// As [`bound`].
#[inline]
pub unsafe fn bound_type_2(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendWr<'static>, Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let window: &Mw = maybe(mw).ok_or(Errno::INVALID)?;
        if window.inner.kind() != MwType::Type2 {
            return Err(Errno::INVALID);
        }
        bound(mw, rkey, info)
    }
}

/// A bind.
///
/// # Safety
/// The window is one of ours; the region is NULL or one of ours.
unsafe fn bound(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Result<SendWr<'static>, Errno> {
    let access = Access::from_bits(info.mw_access_flags & !OPTIONAL_ACCESS).ok_or(Errno::INVALID)?;
    // SAFETY: by the caller's promise.
    unsafe {
        let window: &Mw = the(mw);
        if info.mr.is_null() && info.length != 0 {
            return Err(Errno::INVALID);
        }
        let region = maybe::<Mr>(info.mr).map(Mr::lock);
        let region = region.as_ref().and_then(|region| region.as_ref());
        Ok(window
            .inner
            .bind_raw(rkey, region, info.addr, info.length, access))
    }
}

/// A list of receives.
struct Receives {
    /// The next request, NULL at the end of a list as `ibv_post_recv` asks for.
    next: *mut ibv_recv_wr,
}

impl Iterator for Receives {
    type Item = RecvWr<'static>;

    #[inline]
    fn next(&mut self) -> Option<RecvWr<'static>> {
        // SAFETY: by the promise of who made it.
        unsafe {
            let wr = self.next.as_ref()?;
            self.next = wr.next;
            // Inline bytes cannot be received into: the post of this request is refused.
            let data = elements(wr.sg_list, wr.num_sge).map_or(Data::inline(&[]), Data::from);
            Some(RecvWr::new(data).id(wr.wr_id))
        }
    }
}

/// Result of a list of receives.
///
/// # Safety
/// `first` is the list, and `bad` NULL or may be written.
#[inline]
unsafe fn received(
    result: Result<usize, PostError>,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> Result<(), Errno> {
    result.map(drop).map_err(|e| {
        let mut at = first;
        // SAFETY: by the caller's promise; so many were there.
        unsafe {
            for _ in 0..e.posted {
                at = (*at).next;
            }
            refuse(bad, at, e.reason.into())
        }
    })
}

#[cfg(test)]
mod tests;
