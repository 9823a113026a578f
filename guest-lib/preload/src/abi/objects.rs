//! Objects that the program holds pointers to.

use super::*;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device {
    pub _ops: _ibv_device_ops,
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct _ibv_device_ops {
    pub _dummy1: *const c_void,
    pub _dummy2: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_td {
    pub context: *mut ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_xrcd {
    pub context: *mut ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: size_t,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub type_: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_dm {
    pub context: *mut ibv_context,
    pub memcpy_to_dm: op!(fn(*mut ibv_dm, u64, *const c_void, size_t) -> c_int),
    pub memcpy_from_dm: op!(fn(*mut c_void, *mut ibv_dm, u64, size_t) -> c_int),
    pub comp_mask: u32,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_cq_ex {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
    pub comp_mask: u32,
    pub status: c_uint,
    pub wr_id: u64,
    pub start_poll: op!(fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int),
    pub next_poll: op!(fn(*mut ibv_cq_ex) -> c_int),
    pub end_poll: op!(fn(*mut ibv_cq_ex)),
    pub read_opcode: op!(fn(*mut ibv_cq_ex) -> c_uint),
    pub read_vendor_err: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_byte_len: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_imm_data: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_qp_num: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_src_qp: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_wc_flags: op!(fn(*mut ibv_cq_ex) -> c_uint),
    pub read_slid: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_sl: op!(fn(*mut ibv_cq_ex) -> u8),
    pub read_dlid_path_bits: op!(fn(*mut ibv_cq_ex) -> u8),
    pub read_completion_ts: op!(fn(*mut ibv_cq_ex) -> u64),
    pub read_cvlan: op!(fn(*mut ibv_cq_ex) -> u16),
    pub read_flow_tag: op!(fn(*mut ibv_cq_ex) -> u32),
    pub read_tm_info: *const c_void,
    pub read_completion_wallclock_ns: op!(fn(*mut ibv_cq_ex) -> u64),
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: op!(fn(*mut ibv_qp_ex, u32, u64, u64, u64)),
    pub wr_atomic_fetch_add: op!(fn(*mut ibv_qp_ex, u32, u64, u64)),
    pub wr_bind_mw: op!(fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)),
    pub wr_local_inv: op!(fn(*mut ibv_qp_ex, u32)),
    pub wr_rdma_read: op!(fn(*mut ibv_qp_ex, u32, u64)),
    pub wr_rdma_write: op!(fn(*mut ibv_qp_ex, u32, u64)),
    pub wr_rdma_write_imm: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
    pub wr_send: op!(fn(*mut ibv_qp_ex)),
    pub wr_send_imm: op!(fn(*mut ibv_qp_ex, u32)),
    pub wr_send_inv: op!(fn(*mut ibv_qp_ex, u32)),
    pub wr_send_tso: *const c_void,
    pub wr_set_ud_addr: op!(fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)),
    pub wr_set_xrc_srqn: op!(fn(*mut ibv_qp_ex, u32)),
    pub wr_set_inline_data: op!(fn(*mut ibv_qp_ex, *mut c_void, size_t)),
    pub wr_set_inline_data_list: op!(fn(*mut ibv_qp_ex, size_t, *const ibv_data_buf)),
    pub wr_set_sge: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
    pub wr_set_sge_list: op!(fn(*mut ibv_qp_ex, size_t, *const ibv_sge)),
    pub wr_start: op!(fn(*mut ibv_qp_ex)),
    pub wr_complete: op!(fn(*mut ibv_qp_ex) -> c_int),
    pub wr_abort: op!(fn(*mut ibv_qp_ex)),
    pub wr_atomic_write: op!(fn(*mut ibv_qp_ex, u32, u64, *const c_void)),
}
