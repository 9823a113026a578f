//! Functions of librdmacm.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::time::Duration;

use vnic_verbs::connection::{Ece, Transport};

use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object as _, end, maybe, the};
use crate::objects::Qp;
use crate::rdmacm::address::read;
use crate::rdmacm::addrinfo::{self, Found};
use crate::rdmacm::endpoint::{self, RDMA_CM_EVENT_USER};
use crate::rdmacm::event::{self, bytes, complete, forget, said};
use crate::rdmacm::id::{EventChannel, Id, default_type};
use crate::rdmacm::state::Data;
use crate::rdmacm::{connect, devices, multicast, ours, qp, resolve};
use crate::sync::lock;

export! {
    /// `man 3 rdma_create_event_channel`.
    "RDMACM_1.0" fn rdma_create_event_channel() -> *mut rdma_event_channel, if ours(), as pointer {
        EventChannel::create()
    }

    /// `man 3 rdma_destroy_event_channel`.
    "RDMACM_1.0" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel), if ours(), as plain {
        end::<EventChannel>(channel)
    }

    /// `man 3 rdma_create_id`. Without a channel its calls wait.
    "RDMACM_1.0" fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void,
        space: u32) -> c_int, if ours(), as signed {
        id.write(Id::create(channel, context, space, default_type(space)?)?);
        Ok(0)
    }

    /// `man 3 rdma_destroy_id`.
    "RDMACM_1.0" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int, if ours(), as signed {
        forget(the(id));
        Id::destroy(id)?;
        Ok(0)
    }

    /// `man 3 rdma_create_ep`.
    "RDMACM_1.0" fn rdma_create_ep(id: *mut *mut rdma_cm_id, of: *mut rdma_addrinfo, pd: *mut ibv_pd,
        attributes: *mut ibv_qp_init_attr) -> c_int, if ours(), as signed {
        id.write(endpoint::create(&*of, pd, attributes)?);
        Ok(0)
    }

    /// `man 3 rdma_destroy_ep`.
    "RDMACM_1.0" fn rdma_destroy_ep(id: *mut rdma_cm_id), if ours(), as plain {
        endpoint::destroy(id);
        Ok(())
    }

    /// `man 3 rdma_bind_addr`.
    "RDMACM_1.0" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut libc::sockaddr) -> c_int, if ours(), as signed {
        resolve::bind(the(id), read(address)?)?;
        Ok(0)
    }

    /// `man 3 rdma_resolve_addr`.
    "RDMACM_1.0" fn rdma_resolve_addr(id: *mut rdma_cm_id, from: *mut libc::sockaddr, peer: *mut libc::sockaddr,
        milliseconds: c_int) -> c_int, if ours(), as signed {
        let patience = Duration::from_millis(u64::try_from(milliseconds).map_err(|_| Errno::INVALID)?);
        let from = if from.is_null() { None } else { Some(read(from)?) };
        resolve::address(the(id), from, read(peer)?, patience)?;
        complete(the(id))?;
        Ok(0)
    }

    /// `man 3 rdma_resolve_route`. There is one path, with what an operator's policy says of it.
    "RDMACM_1.0" fn rdma_resolve_route(id: *mut rdma_cm_id, milliseconds: c_int) -> c_int, if ours(), as signed {
        let patience = Duration::from_millis(milliseconds.max(0).unsigned_abs().into());
        resolve::route(the(id), patience)?;
        complete(the(id))?;
        Ok(0)
    }

    /// `man 3 rdma_create_qp`.
    "RDMACM_1.0" fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> c_int,
        if ours(), as signed {
        let mut all = endpoint::extended(&*attributes, pd);
        qp::create(the(id), &mut all)?;
        (*attributes).cap = all.cap;
        Ok(0)
    }

    /// `man 3 rdma_create_qp`.
    "RDMACM_1.0" fn rdma_create_qp_ex(id: *mut rdma_cm_id, attributes: *mut ibv_qp_init_attr_ex) -> c_int, if ours(),
        as signed {
        qp::create(the(id), &mut *attributes)?;
        Ok(0)
    }

    /// `man 3 rdma_destroy_qp`.
    "RDMACM_1.0" fn rdma_destroy_qp(id: *mut rdma_cm_id), if ours(), as plain {
        qp::destroy(the(id));
        Ok(())
    }

    /// `man 3 rdma_create_srq`.
    "RDMACM_1.0" fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attributes: *mut ibv_srq_init_attr) -> c_int,
        if ours(), as signed {
        let wanted = &mut *attributes;
        let xrc = (*id).qp_type == IBV_QPT_XRC_RECV;
        let mut all = ibv_srq_init_attr_ex {
            srq_context: wanted.srq_context,
            attr: wanted.attr,
            comp_mask: if pd.is_null() { 0 } else { IBV_SRQ_INIT_ATTR_PD } | if xrc { IBV_SRQ_INIT_ATTR_TYPE } else { 0 },
            srq_type: if xrc { IBV_SRQT_XRC } else { IBV_SRQT_BASIC },
            pd,
            ..zeros()
        };
        qp::create_srq(the(id), &mut all)?;
        wanted.attr = all.attr;
        Ok(0)
    }

    /// `man 3 rdma_create_srq`.
    "RDMACM_1.0" fn rdma_create_srq_ex(id: *mut rdma_cm_id, attributes: *mut ibv_srq_init_attr_ex) -> c_int, if ours(),
        as signed {
        qp::create_srq(the(id), &mut *attributes)?;
        Ok(0)
    }

    /// `man 3 rdma_destroy_srq`.
    "RDMACM_1.0" fn rdma_destroy_srq(id: *mut rdma_cm_id), if ours(), as plain {
        qp::destroy_srq(the(id))
    }

    /// `man 3 rdma_connect`.
    "RDMACM_1.0" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int, if ours(), as signed {
        let object = the::<Id>(id);
        let mut said = said(object, param);
        if said.private.is_empty() {
            said.private.clone_from(&lock(&object.kept).connect);
        }
        own_ece(object);
        connect::connect(object, said)?;
        complete(object)?;
        Ok(0)
    }

    /// `man 3 rdma_establish`.
    "RDMACM_1.2" fn rdma_establish(id: *mut rdma_cm_id) -> c_int, if ours(), as signed {
        if !(*id).qp.is_null() {
            return Err(Errno::INVALID);
        }
        connect::establish(the(id))?;
        Ok(0)
    }

    /// `man 3 rdma_listen`.
    "RDMACM_1.0" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int, if ours(), as signed {
        connect::listen(the(id), backlog)?;
        Ok(0)
    }

    /// `man 3 rdma_get_request`.
    "RDMACM_1.0" fn rdma_get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int, if ours(), as signed {
        id.write(endpoint::request(the(listener))?);
        Ok(0)
    }

    /// `man 3 rdma_accept`.
    "RDMACM_1.0" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int, if ours(), as signed {
        let object = the::<Id>(id);
        let mut said = said(object, param);
        let datagrams = object.state.lock().transport == Transport::Ud;
        if datagrams {
            connect::accept(object, &said)?;
            return Ok(0);
        }
        connect::depths(object, &mut said)?;
        if !(*id).qp.is_null() {
            qp::connect(object, Some(said.responder_resources), Some(said.initiator_depth))?;
        }
        own_ece(object);
        connect::accept(object, &said)?;
        complete(object)?;
        Ok(0)
    }

    /// `man 3 rdma_reject`.
    "RDMACM_1.0" fn rdma_reject(id: *mut rdma_cm_id, private: *const c_void, len: u8) -> c_int, if ours(), as signed {
        connect::reject(the(id), None, &bytes(private, len))?;
        Ok(0)
    }

    /// `man 3 rdma_reject`.
    "RDMACM_1.3" fn rdma_reject_ece(id: *mut rdma_cm_id, private: *const c_void, len: u8) -> c_int, if ours(), as signed {
        connect::reject(the(id), Some(connect::NO_ECE), &bytes(private, len))?;
        Ok(0)
    }

    /// `man 3 rdma_notify`. The device sees by itself that the peer sends.
    "RDMACM_1.0" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int, if ours(), as signed {
        the::<Id>(id).state.connected()?;
        if event == IBV_EVENT_COMM_EST { Ok(0) } else { Err(Errno::INVALID) }
    }

    /// `man 3 rdma_disconnect`.
    "RDMACM_1.0" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int, if ours(), as signed {
        let object = the::<Id>(id);
        object.state.connected()?;
        qp::fail(object)?;
        connect::disconnect(object)?;
        complete(object)?;
        Ok(0)
    }

    /// `man 3 rdma_join_multicast`.
    "RDMACM_1.0" fn rdma_join_multicast(id: *mut rdma_cm_id, group: *mut libc::sockaddr, context: *mut c_void) -> c_int,
        if ours(), as signed {
        let object = the::<Id>(id);
        multicast::join(object, maybe::<Qp>((*id).qp.cast()), read(group)?, context.expose_provenance(), true)?;
        complete(object)?;
        Ok(0)
    }

    /// `man 3 rdma_join_multicast_ex`.
    "RDMACM_1.1" fn rdma_join_multicast_ex(id: *mut rdma_cm_id, wanted: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void)
        -> c_int, if ours(), as signed {
        let (object, wanted) = (the::<Id>(id), &*wanted);
        if wanted.comp_mask != RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS
            || wanted.join_flags > RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER {
            return Err(Errno::INVALID);
        }
        let receives = wanted.join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
        let qp = maybe::<Qp>((*id).qp.cast());
        multicast::join(object, qp, read(wanted.addr)?, context.expose_provenance(), receives)?;
        complete(object)?;
        Ok(0)
    }

    /// `man 3 rdma_leave_multicast`.
    "RDMACM_1.0" fn rdma_leave_multicast(id: *mut rdma_cm_id, group: *mut libc::sockaddr) -> c_int, if ours(), as signed {
        multicast::leave(the(id), maybe::<Qp>((*id).qp.cast()), read(group)?)?;
        Ok(0)
    }

    /// `man 3 rdma_get_cm_event`.
    "RDMACM_1.0" fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int, if ours(),
        as signed {
        let channel = maybe::<EventChannel>(channel).ok_or(Errno::INVALID)?;
        event.write(event::get(channel)?);
        Ok(0)
    }

    /// `man 3 rdma_ack_cm_event`.
    "RDMACM_1.0" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int, if ours(), as signed {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        event::acknowledge(event);
        Ok(0)
    }

    /// `man 3 rdma_get_src_port`. In network order.
    "RDMACM_1.0" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16, if ours(), as plain {
        Ok(the::<Id>(id).state.lock().source.map_or(0, |a| a.port()).to_be())
    }

    /// `man 3 rdma_get_dst_port`. In network order.
    "RDMACM_1.0" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16, if ours(), as plain {
        Ok(the::<Id>(id).state.lock().peer.map_or(0, |a| a.port()).to_be())
    }

    /// `man 3 rdma_get_devices`.
    "RDMACM_1.0" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context, if ours(), as pointer {
        let mut all: Vec<_> = devices::all(true).iter().map(|device| device.verbs()).collect();
        if let Some(count) = count.as_mut() {
            *count = all.len() as c_int;
        }
        all.push(null_mut());
        let mut list = List(all.into());
        let pointer = list.0.as_mut_ptr();
        lock(&LISTS).push(list);
        Ok(pointer)
    }

    /// `man 3 rdma_free_devices`.
    "RDMACM_1.0" fn rdma_free_devices(list: *mut *mut ibv_context), if ours(), as plain {
        lock(&LISTS).retain(|known| known.0.as_ptr() != list.cast_const());
        Ok(())
    }

    /// `man 3 rdma_event_str`.
    "RDMACM_1.0" fn rdma_event_str(event: u32) -> *const c_char, if true, as text {
        Ok(endpoint::event_name(event))
    }

    /// `man 3 rdma_set_option`.
    "RDMACM_1.0" fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, name: c_int, value: *mut c_void, len: size_t) -> c_int,
        if ours(), as signed {
        set_option(the(id), level, name, std::slice::from_raw_parts(value.cast::<u8>(), len))?;
        Ok(0)
    }

    /// `man 3 rdma_migrate_id`.
    "RDMACM_1.0" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int, if ours(), as signed {
        forget(the(id));
        the::<Id>(id).migrate(channel)?;
        Ok(0)
    }

    /// `man 3 rdma_init_qp_attr`.
    "RDMACM_1.2" fn rdma_init_qp_attr(id: *mut rdma_cm_id, attributes: *mut ibv_qp_attr, mask: *mut c_int) -> c_int, if ours(),
        as signed {
        let (found, named) = qp::next(the(id), (*attributes).qp_state)?;
        attributes.write(found);
        mask.write(named.cast_signed());
        Ok(0)
    }

    /// `man 3 rdma_set_local_ece`.
    "RDMACM_1.3" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int, if ours(), as signed {
        let ece = ece.as_ref().filter(|ece| ece.vendor_id >> 24 == 0).ok_or(Errno::INVALID)?;
        the::<Id>(id).state.lock().own_ece = Ece { vendor: ece.vendor_id, options: ece.options };
        Ok(0)
    }

    /// `man 3 rdma_get_remote_ece`.
    "RDMACM_1.3" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int, if ours(), as signed {
        let found = the::<Id>(id).state.lock().peer_ece;
        ece.write(ibv_ece { vendor_id: found.vendor, options: found.options, comp_mask: 0 });
        Ok(0)
    }

    /// `man 3 rdma_resolve_addrinfo`.
    "RDMACM_1.4" fn rdma_resolve_addrinfo(id: *mut rdma_cm_id, node: *const c_char, service: *const c_char,
        hints: *const rdma_addrinfo) -> c_int, if ours(), as signed {
        endpoint::look_up(the(id), node, service, hints.as_ref())?;
        complete(the(id))?;
        Ok(0)
    }

    /// `man 3 rdma_query_addrinfo`. ENOENT: none were found, or the program has them.
    "RDMACM_1.4" fn rdma_query_addrinfo(id: *mut rdma_cm_id, list: *mut *mut rdma_addrinfo) -> c_int, if ours(), as signed {
        let found = lock(&the::<Id>(id).kept).found.take();
        list.write(found.ok_or(Errno(libc::ENOENT))?.take());
        Ok(0)
    }

    /// `man 3 rdma_write_cm_event`.
    "RDMACM_1.4" fn rdma_write_cm_event(id: *mut rdma_cm_id, event: c_uint, status: c_int, argument: u64) -> c_int, if ours(),
        as signed {
        if event != RDMA_CM_EVENT_USER {
            return Err(Errno::INVALID);
        }
        the::<Id>(id).state.put(event, status, Data::Argument(argument));
        Ok(0)
    }
}

own! {
    /// `man 3 rdma_getaddrinfo`. Asks the C library, whosever the addresses are.
    fn rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo,
        list: *mut *mut rdma_addrinfo) -> c_int, as signed {
        match addrinfo::find(node, service, hints.as_ref()) {
            Ok(found) => {
                list.write(found.take());
                Ok(0)
            }
            Err(Found::NoAddress(code)) => Ok(code),
            Err(Found::Failed(e)) => Err(e),
        }
    }

    /// `man 3 rdma_getaddrinfo`.
    fn rdma_freeaddrinfo(list: *mut rdma_addrinfo), as plain {
        addrinfo::free(list);
        Ok(())
    }
}

/// Lists that the program holds, NULL at the end of each.
static LISTS: Mutex<Vec<List>> = Mutex::new(Vec::new());

struct List(Box<[*mut ibv_context]>);

// SAFETY: pointers that are given on, not followed.
unsafe impl Send for List {}

/// Options of a queue pair are those of its connection, unless the program names others.
fn own_ece(id: &Id) {
    // SAFETY: a field that the program's calls change, of which this is one.
    let Some(qp) = (unsafe { maybe::<Qp>((*id.c()).qp.cast()) }) else {
        return;
    };
    let ece = *lock(&qp.ece);
    let mut inner = id.state.lock();
    if inner.own_ece == Ece::default() {
        inner.own_ece = ece;
    }
}

/// Sets an option.
fn set_option(id: &Id, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let byte = || match value {
        [byte] => Ok(*byte),
        _ => Err(Errno::INVALID),
    };
    let flag = || {
        value
            .first_chunk()
            .map(|n| c_int::from_ne_bytes(*n) != 0)
            .ok_or(Errno::INVALID)
    };
    if level.cast_unsigned() != RDMA_OPTION_ID {
        return Err(Errno::MISSING.because("paths are not set: there is one"));
    }
    let options = &mut id.state.lock().options;
    match name.cast_unsigned() {
        RDMA_OPTION_ID_TOS => options.traffic_class = Some(byte()?),
        RDMA_OPTION_ID_REUSEADDR => options.reuse = flag()?,
        RDMA_OPTION_ID_AFONLY => options.only_family = flag()?,
        RDMA_OPTION_ID_ACK_TIMEOUT => options.ack_timeout = Some(byte()?),
        _ => return Err(Errno::MISSING),
    }
    Ok(())
}
