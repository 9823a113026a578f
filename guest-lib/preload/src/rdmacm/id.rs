//! Identifiers and event channels, as programs hold them.

#![expect(
    unsafe_code,
    reason = "begin as the structures of the header, and are taken back from the program"
)]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use vnic_verbs::Gid;
use vnic_verbs::connection::Transport;

use super::address::storage;
use super::addrinfo::Resolved;
use super::devices::{CmDevice, DEFAULT_PKEY};
use super::queue::Queue;
use super::state::{Letter, State};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, end, publish, take_back, the};
use crate::sync::lock;

/// An event channel.
#[repr(C)]
pub struct EventChannel {
    base: UnsafeCell<rdma_event_channel>,
    pub queue: Arc<Queue<Letter>>,
}

object!(EventChannel: rdma_event_channel);

impl EventChannel {
    /// Makes an event channel.
    pub fn create() -> Result<*mut rdma_event_channel, Errno> {
        let queue = Arc::new(Queue::new()?);
        Ok(publish(EventChannel {
            base: UnsafeCell::new(rdma_event_channel { fd: queue.fd() }),
            queue,
        }))
    }
}

/// An identifier. Behind the structure of the header is what version 44 of the distribution's library has there: its sockets
/// (`rsocket`), which call ours for everything else, look at `sync` themselves.
#[repr(C)]
pub struct Id {
    base: UnsafeCell<rdma_cm_id>,
    _device: *mut c_void,
    _connect: *mut c_void,
    _connect_len: size_t,
    _events_completed: c_int,
    _connect_error: c_int,
    /// Whether calls wait for their events: the channel is the library's own.
    sync: AtomicI32,
    pub state: Arc<State>,
    pub kept: Mutex<Kept>,
}

object!(Id: rdma_cm_id);

const _: () = assert!(
    std::mem::offset_of!(Id, sync) == 0x1c0,
    "where that library looks"
);

/// What an identifier has for its end, or for a later call.
#[derive(Default)]
pub struct Kept {
    /// What `route.path_rec` points to.
    path: Option<Box<ibv_sa_path_rec>>,
    /// Private data of its connection, unless the call has some (`rdma_create_ep`).
    pub connect: Vec<u8>,
    /// Attributes for the queue pairs of requests (`rdma_create_ep`).
    pub requests: Option<ibv_qp_init_attr>,
    /// Multicast groups.
    pub groups: Vec<(SocketAddr, Gid)>,
    /// Addresses that were found, until the program asks for them.
    pub found: Option<Resolved>,
    /// The type is one of these; XRC's two ends connect alike.
    pub own_queues: OwnQueues,
}

/// Which completion queues are the identifier's.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnQueues {
    pub send: bool,
    pub receive: bool,
    pub srq_receive: bool,
}

/// What connects queue pairs of a type.
pub fn transport(qp_type: u32) -> Result<Transport, Errno> {
    match qp_type {
        IBV_QPT_RC => Ok(Transport::Rc),
        IBV_QPT_UC => Ok(Transport::Uc),
        IBV_QPT_UD => Ok(Transport::Ud),
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => Ok(Transport::Xrc),
        _ => Err(Errno::INVALID),
    }
}

/// The type of queue pairs of a port space.
pub fn default_type(space: u32) -> Result<u32, Errno> {
    match space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP => Ok(IBV_QPT_UD),
        RDMA_PS_IPOIB => {
            Err(Errno(libc::EPROTONOSUPPORT)
                .because("RDMA_PS_IPOIB: there is no IP over InfiniBand on Ethernet"))
        }
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    }
}

impl Id {
    /// Makes an identifier; without a channel one that waits for its events.
    ///
    /// # Safety
    /// The channel is NULL or ours.
    pub unsafe fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        space: u32,
        qp_type: u32,
    ) -> Result<*mut rdma_cm_id, Errno> {
        let transport = transport(qp_type)?;
        let sync = channel.is_null();
        let channel = if sync { EventChannel::create()? } else { channel };
        // SAFETY: by the caller's promise, or just made.
        let queue = Arc::clone(&unsafe { the::<EventChannel>(channel) }.queue);
        let state = State::new(space, transport, queue);
        Ok(Id::of(state, channel, sync, |base| {
            base.context = context;
            base.qp_type = qp_type;
        }))
    }

    /// An identifier of this state.
    pub fn of(
        state: Arc<State>,
        channel: *mut rdma_event_channel,
        sync: bool,
        fill: impl FnOnce(&mut rdma_cm_id),
    ) -> *mut rdma_cm_id {
        let mut base = rdma_cm_id {
            channel,
            ps: state.space,
            ..zeros()
        };
        fill(&mut base);
        let theirs = Arc::clone(&state);
        let pointer = publish(Id {
            base: UnsafeCell::new(base),
            _device: std::ptr::null_mut(),
            _connect: std::ptr::null_mut(),
            _connect_len: 0,
            _events_completed: 0,
            _connect_error: 0,
            sync: AtomicI32::new(sync.into()),
            state,
            kept: Mutex::default(),
        });
        theirs.lock().pointer = pointer.expose_provenance();
        pointer
    }

    /// Whether calls wait for their events.
    pub fn is_sync(&self) -> bool {
        self.sync.load(Relaxed) != 0
    }

    /// The event channel.
    pub fn channel(&self) -> &EventChannel {
        // SAFETY: a channel outlives its identifiers.
        unsafe { the((*self.c()).channel) }
    }

    /// Shows the program the device that the identifier is bound to. ENOMEM and others: there is no domain for it.
    pub fn show_device(&self, device: &CmDevice) -> Result<(), Errno> {
        let domain = device.domain()?;
        let base = self.c();
        // SAFETY: fields that the program reads, in the call that makes them valid.
        unsafe {
            (*base).verbs = device.verbs();
            (*base).port_num = 1;
            if (*base).pd.is_null() {
                (*base).pd = domain;
            }
        }
        Ok(())
    }

    /// Shows the program the addresses.
    pub fn show_addresses(&self) {
        let (source, peer, way, own_gid) = {
            let inner = self.state.lock();
            (inner.source, inner.peer, inner.way, inner.own_gid)
        };
        // SAFETY: fields that the program reads, in the call that makes them valid.
        let to = unsafe { &mut (*self.c()).route.addr };
        if let Some(source) = source {
            to.src_storage = storage(source).0;
            to.addr.sgid = ibv_gid { raw: own_gid.0 };
        }
        if let Some(peer) = peer {
            to.dst_storage = storage(peer).0;
            to.addr.dgid = ibv_gid { raw: way.dgid.0 };
        }
        to.addr.pkey = self.pkey().to_be();
    }

    /// The P_Key of its path, or else the first of its device.
    fn pkey(&self) -> u16 {
        let inner = self.state.lock();
        let device = || inner.device.as_ref().map_or(DEFAULT_PKEY, |device| device.pkey());
        inner.path.map_or_else(device, |path| path.pkey)
    }

    /// Shows the program its path.
    pub fn show_path(&self) {
        let (way, mtu, life) = {
            let inner = self.state.lock();
            (inner.way, inner.path_mtu, inner.packet_life())
        };
        let base = self.c();
        let mut kept = lock(&self.kept);
        // SAFETY: fields that the program reads, in the call that makes them valid.
        let path = unsafe {
            ibv_sa_path_rec {
                dgid: (*base).route.addr.addr.dgid,
                sgid: (*base).route.addr.addr.sgid,
                flow_label: way.flow_label.to_be(),
                hop_limit: way.hop_limit,
                traffic_class: way.traffic_class,
                reversible: 1,
                numb_path: 1,
                pkey: self.pkey().to_be(),
                sl: way.service_level,
                mtu_selector: EXACTLY,
                mtu,
                rate_selector: EXACTLY,
                packet_life_time_selector: EXACTLY,
                packet_life_time: life,
                ..zeros()
            }
        };
        let mut path = Box::new(path);
        // SAFETY: as above; the record stays until the next one, or the identifier's end.
        unsafe {
            (*base).route.path_rec = &raw mut *path;
            (*base).route.num_paths = 1;
        }
        kept.path = Some(path);
    }

    /// Moves the identifier to another channel; NULL: to one of its own, and its calls wait from then on.
    ///
    /// # Safety
    /// The channel is NULL or ours.
    pub unsafe fn migrate(&self, channel: *mut rdma_event_channel) -> Result<(), Errno> {
        let own = channel.is_null();
        let channel = if own { EventChannel::create()? } else { channel };
        // SAFETY: by the caller's promise, or just made.
        let queue = Arc::clone(&unsafe { the::<EventChannel>(channel) }.queue);
        self.state.migrate(queue);
        // (Those that it has taken are of the old channel.)
        self.state.unacknowledged.wait();
        let base = self.c();
        // SAFETY: a field that the program reads, in the call that changes it.
        let before = unsafe { std::mem::replace(&mut (*base).channel, channel) };
        if self.sync.swap(own.into(), Relaxed) != 0 {
            // SAFETY: the library's own, which nobody else has.
            unsafe { end::<EventChannel>(before)? };
        }
        Ok(())
    }

    /// Ends an identifier, when all its events are acknowledged.
    ///
    /// # Safety
    /// The identifier is ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut rdma_cm_id) -> Result<(), Errno> {
        // SAFETY: by the caller's promise.
        let id = unsafe { the::<Id>(pointer) };
        id.state.end();
        id.state.unacknowledged.wait();
        let (sync, channel) = (id.is_sync(), id.channel().c());
        // SAFETY: by the caller's promise, and nothing of ours has it.
        drop(unsafe { take_back::<Id>(pointer) });
        if sync {
            // SAFETY: the library's own, which nobody else has.
            unsafe { end::<EventChannel>(channel)? };
        }
        Ok(())
    }
}

/// Selectors of path records: exactly this.
const EXACTLY: u8 = 2;
