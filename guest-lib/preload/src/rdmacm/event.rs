//! Events, as programs take and acknowledge them.

#![expect(
    unsafe_code,
    reason = "begin as the structure of the header, and are taken back from the program"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use vnic_verbs::AddressVector;
use vnic_verbs::connection::{ConnectionMessage, Transport};

use super::connect::{self, Said};
use super::header;
use super::id::{EventChannel, Id};
use super::qp;
use super::state::{Data, Letter, State};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, publish, take_back, the};
use crate::objects::ah;

/// An event that the program has.
#[repr(C)]
pub struct Event {
    base: UnsafeCell<rdma_cm_event>,
    /// What `private_data` points to.
    _private: Box<[u8]>,
    /// Whose it is.
    owner: Arc<State>,
}

object!(Event: rdma_cm_event);

/// The number of a queue pair that stands for all of a group.
const GROUP_QP: u32 = 0xff_ffff;

/// Takes the oldest event of a channel. Waits unless the descriptor is non-blocking.
pub fn get(channel: &EventChannel) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        let letter = channel
            .queue
            .get(|letter| letter.owner().unacknowledged.taken())?;
        let owner = Arc::clone(letter.owner());
        match open(letter) {
            Ok(Some(event)) => return Ok(event),
            Ok(None) => owner.unacknowledged.acknowledge(1),
            Err(e) => {
                owner.unacknowledged.acknowledge(1);
                return Err(e);
            }
        }
    }
}

/// Acknowledges an event.
///
/// # Safety
/// [`get`] made the event, and the program does not use it any more.
pub unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: by the caller's promise.
    let event = unsafe { take_back::<Event>(event) };
    event.owner.unacknowledged.acknowledge(1);
}

/// What the program sees of a letter; nothing: it is no event for it.
fn open(letter: Letter) -> Result<Option<*mut rdma_cm_event>, Errno> {
    if let Some(listener) = &letter.listener {
        return request(&letter, listener).map(Some);
    }
    let Some(id) = id_of(&letter.on) else {
        return Ok(None);
    };
    let datagrams = letter.on.lock().transport == Transport::Ud;
    let event = match (letter.kind, &letter.data) {
        (RDMA_CM_EVENT_CONNECT_RESPONSE, Data::Message(reply)) if datagrams => {
            let way = letter.on.lock().way;
            made(
                &letter,
                id,
                RDMA_CM_EVENT_ESTABLISHED,
                datagram(reply, &way),
                reply.private_data.clone(),
            )
        }
        (RDMA_CM_EVENT_CONNECT_RESPONSE, Data::Message(reply)) => response(&letter, id, reply),
        (RDMA_CM_EVENT_REJECTED, Data::Message(reject)) => {
            // SAFETY: the program takes events of identifiers that are there.
            let _ = unsafe { qp::fail(id) };
            let param = if datagrams {
                Param::Datagram(zeros())
            } else {
                connection(reject)
            };
            made(&letter, id, letter.kind, param, reject.private_data.clone())
        }
        (kind, Data::Group(way, context)) => made(&letter, id, kind, group(way, *context), Vec::new()),
        (kind, Data::Argument(argument)) => {
            // (The union has it where it has the pointer to private data.)
            let param = rdma_ud_param {
                private_data: std::ptr::without_provenance(*argument as usize),
                ..zeros()
            };
            made(&letter, id, kind, Param::Datagram(param), Vec::new())
        }
        (kind, _) => made(&letter, id, kind, Param::Connection(zeros()), Vec::new()),
    };
    Ok(Some(event))
}

/// A reply to the own request: with a queue pair the connection is completed here, without one the program does it.
fn response(letter: &Letter, id: &Id, reply: &ConnectionMessage) -> *mut rdma_cm_event {
    let private = reply.private_data.clone();
    // SAFETY: a field that the program's calls change, of which this is one.
    if unsafe { (*id.c()).qp.is_null() } {
        return made(
            letter,
            id,
            RDMA_CM_EVENT_CONNECT_RESPONSE,
            connection(reply),
            private,
        );
    }
    // SAFETY: it has a queue pair.
    let connected = unsafe { qp::connect(id, None, None) }.and_then(|()| connect::establish(id));
    match connected {
        Ok(()) => made(letter, id, RDMA_CM_EVENT_ESTABLISHED, connection(reply), private),
        Err(Errno(e)) => {
            // SAFETY: as above.
            let _ = unsafe { qp::fail(id) };
            let _ = connect::reject(id, None, &[]);
            let status = Letter {
                kind: RDMA_CM_EVENT_CONNECT_ERROR,
                status: -e,
                on: Arc::clone(&letter.on),
                listener: None,
                data: Data::Nothing,
            };
            made(
                &status,
                id,
                RDMA_CM_EVENT_CONNECT_ERROR,
                Param::Connection(zeros()),
                Vec::new(),
            )
        }
    }
}

/// A request, with an identifier for it.
fn request(letter: &Letter, listener: &Arc<State>) -> Result<*mut rdma_cm_event, Errno> {
    let (Some(listening), Data::Message(message)) = (id_of(listener), &letter.data) else {
        return Err(Errno::INVALID);
    };
    let device = letter.on.device()?;
    device.join(&letter.on.party());
    // (The address that was asked for may be a loopback address.)
    let index = letter.on.lock().way.sgid_index;
    if let Some(own) = device.device().gids()?.iter().find(|entry| entry.index == index) {
        letter.on.lock().own_gid = own.gid;
    }
    // SAFETY: fields that nobody changes while a request of it is taken.
    let (channel, context, qp_type) = unsafe {
        let base = listening.c();
        ((*base).channel, (*base).context, (*base).qp_type)
    };
    let new = Id::of(Arc::clone(&letter.on), channel, false, |base| {
        base.context = context;
        base.qp_type = match qp_type {
            // The other end of XRC.
            IBV_QPT_XRC_SEND => IBV_QPT_XRC_RECV,
            other => other,
        };
    });
    // SAFETY: just made.
    let id = unsafe { the::<Id>(new) };
    id.show_device(&device)?;
    id.show_addresses();
    if listening.is_sync() {
        // SAFETY: NULL is allowed.
        unsafe { id.migrate(std::ptr::null_mut())? };
    }
    let datagrams = message.transport == Transport::Ud;
    let private = message
        .private_data
        .get(header::LEN..)
        .unwrap_or_default()
        .to_vec();
    let param = if datagrams {
        Param::Datagram(zeros())
    } else {
        connection(message)
    };
    Ok(made(letter, id, RDMA_CM_EVENT_CONNECT_REQUEST, param, private))
}

/// The identifier of a state, as the program has it.
fn id_of<'a>(state: &Arc<State>) -> Option<&'a Id> {
    let pointer = state.lock().pointer;
    // SAFETY: an identifier is not destroyed before its events are acknowledged, and this one was counted as it was taken.
    (pointer != 0).then(|| unsafe { the(std::ptr::with_exposed_provenance_mut(pointer)) })
}

/// `param` of an event.
enum Param {
    Connection(rdma_conn_param),
    Datagram(rdma_ud_param),
}

/// What a message says of a connection. What the sender may have outstanding is what is asked of the receiver, and the reverse.
fn connection(message: &ConnectionMessage) -> Param {
    Param::Connection(rdma_conn_param {
        responder_resources: message.initiator_depth,
        initiator_depth: message.responder_resources,
        flow_control: message.flow_control.into(),
        retry_count: message.retry_count,
        rnr_retry_count: message.rnr_retry,
        srq: message.srq.into(),
        qp_num: message.qp,
        ..zeros()
    })
}

fn datagram(reply: &ConnectionMessage, way: &AddressVector) -> Param {
    Param::Datagram(rdma_ud_param {
        ah_attr: ah::attributes(way),
        qp_num: reply.qp,
        qkey: reply.qkey,
        ..zeros()
    })
}

fn group(way: &AddressVector, context: usize) -> Param {
    Param::Datagram(rdma_ud_param {
        private_data: std::ptr::with_exposed_provenance(context),
        ah_attr: ah::attributes(way),
        qp_num: GROUP_QP,
        qkey: RDMA_UDP_QKEY,
        ..zeros()
    })
}

fn made(letter: &Letter, id: &Id, kind: u32, param: Param, private: Vec<u8>) -> *mut rdma_cm_event {
    let private = private.into_boxed_slice();
    let (data, len): (*const c_void, u8) = match u8::try_from(private.len()) {
        Ok(len @ 1..) => (private.as_ptr().cast(), len),
        _ => (std::ptr::null(), 0),
    };
    let param = match param {
        Param::Connection(conn) => rdma_cm_event_param {
            conn: rdma_conn_param {
                private_data: data,
                private_data_len: len,
                ..conn
            },
        },
        Param::Datagram(ud) if len == 0 => rdma_cm_event_param { ud },
        Param::Datagram(ud) => rdma_cm_event_param {
            ud: rdma_ud_param {
                private_data: data,
                private_data_len: len,
                ..ud
            },
        },
    };
    let listener = letter.listener.as_ref().and_then(id_of);
    publish(Event {
        base: UnsafeCell::new(rdma_cm_event {
            id: id.c(),
            listen_id: listener.map_or(std::ptr::null_mut(), Object::c),
            event: kind,
            status: letter.status,
            param,
        }),
        _private: private,
        owner: Arc::clone(letter.owner()),
    })
}

/// The error of an event that a call has waited for.
fn status(event: u32, status: c_int) -> Result<(), Errno> {
    match (event, status) {
        (_, 0) => Ok(()),
        (RDMA_CM_EVENT_REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, n) => Err(Errno(n.abs())),
    }
}

/// Waits for the event of a call, if the identifier's calls wait. The event stays with the identifier (`id->event`).
///
/// # Safety
/// The identifier is the program's that calls.
pub unsafe fn complete(id: &Id) -> Result<(), Errno> {
    if !id.is_sync() {
        return Ok(());
    }
    // SAFETY: by the caller's promise.
    unsafe {
        forget(id);
        let event = get(id.channel())?;
        (*id.c()).event = event;
        status((*event).event, (*event).status)
    }
}

/// Acknowledges the event that stays with an identifier, if there is one.
///
/// # Safety
/// The identifier is the program's that calls.
pub unsafe fn forget(id: &Id) {
    // SAFETY: by the caller's promise.
    unsafe {
        let event = std::mem::replace(&mut (*id.c()).event, std::ptr::null_mut());
        if !event.is_null() {
            acknowledge(event);
        }
    }
}

/// Reads what a program says of a connection; NULL: nothing.
///
/// # Safety
/// As `rdma_connect` and `rdma_accept`; the identifier is the program's that calls.
pub unsafe fn said(id: &Id, param: *const rdma_conn_param) -> Said {
    let mut said = Said::nothing();
    // SAFETY: by the caller's promise.
    unsafe {
        if let Some(param) = param.as_ref() {
            said.private = bytes(param.private_data, param.private_data_len);
            said.responder_resources = param.responder_resources;
            said.initiator_depth = param.initiator_depth;
            said.flow_control = param.flow_control != 0;
            said.retry_count = param.retry_count;
            said.rnr_retry = param.rnr_retry_count;
            (said.qp, said.srq) = (param.qp_num, param.srq != 0);
        }
        if let Some(qp) = (*id.c()).qp.as_ref() {
            (said.qp, said.srq) = (qp.qp_num, !qp.srq.is_null());
        }
    }
    said.qkey = RDMA_UDP_QKEY;
    said
}

/// Private data of the program.
///
/// # Safety
/// So many bytes are there, or NULL.
pub unsafe fn bytes(from: *const c_void, len: u8) -> Vec<u8> {
    if from.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len.into()) }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_asks_for_the_other_side_has() {
        let message = ConnectionMessage {
            responder_resources: 3,
            initiator_depth: 5,
            qp: 7,
            ..ConnectionMessage::default()
        };
        let Param::Connection(conn) = connection(&message) else {
            panic!("a connection");
        };
        assert_eq!(
            (conn.responder_resources, conn.initiator_depth, conn.qp_num),
            (5, 3, 7)
        );
    }

    #[test]
    fn calls_that_wait_fail_as_their_events() {
        assert_eq!(status(RDMA_CM_EVENT_ESTABLISHED, 0), Ok(()));
        assert_eq!(status(RDMA_CM_EVENT_REJECTED, 28), Err(Errno(libc::ECONNREFUSED)));
        assert_eq!(
            status(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT),
            Err(Errno(libc::ETIMEDOUT))
        );
    }
}
