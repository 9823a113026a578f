//! Objects that the program holds pointers to.

use super::*;

interface! {
    struct ibv_device {
        _ops: _ibv_device_ops,
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    struct _ibv_device_ops {
        _dummy1: *const c_void,
        _dummy2: *const c_void,
    }

    struct ibv_pd {
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_td {
        context: *mut ibv_context,
    }

    struct ibv_xrcd {
        context: *mut ibv_context,
    }

    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    struct ibv_mw {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        type_: c_uint,
    }

    struct ibv_dm {
        context: *mut ibv_context,
        memcpy_to_dm: op!(fn(*mut ibv_dm, u64, *const c_void, size_t) -> c_int),
        memcpy_from_dm: op!(fn(*mut c_void, *mut ibv_dm, u64, size_t) -> c_int),
        comp_mask: u32,
        handle: u32,
    }

    struct ibv_ah {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    struct ibv_comp_channel {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }

    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_uint,
        wr_id: u64,
        start_poll: op!(fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int),
        next_poll: op!(fn(*mut ibv_cq_ex) -> c_int),
        end_poll: op!(fn(*mut ibv_cq_ex)),
        read_opcode: op!(fn(*mut ibv_cq_ex) -> c_uint),
        read_vendor_err: op!(fn(*mut ibv_cq_ex) -> u32),
        read_byte_len: op!(fn(*mut ibv_cq_ex) -> u32),
        read_imm_data: op!(fn(*mut ibv_cq_ex) -> u32),
        read_qp_num: op!(fn(*mut ibv_cq_ex) -> u32),
        read_src_qp: op!(fn(*mut ibv_cq_ex) -> u32),
        read_wc_flags: op!(fn(*mut ibv_cq_ex) -> c_uint),
        read_slid: op!(fn(*mut ibv_cq_ex) -> u32),
        read_sl: op!(fn(*mut ibv_cq_ex) -> u8),
        read_dlid_path_bits: op!(fn(*mut ibv_cq_ex) -> u8),
        read_completion_ts: op!(fn(*mut ibv_cq_ex) -> u64),
        read_cvlan: op!(fn(*mut ibv_cq_ex) -> u16),
        read_flow_tag: op!(fn(*mut ibv_cq_ex) -> u32),
        read_tm_info: *const c_void,
        read_completion_wallclock_ns: op!(fn(*mut ibv_cq_ex) -> u64),
    }

    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_wq {
        context: *mut ibv_context,
        wq_context: *mut c_void,
        pd: *mut ibv_pd,
        cq: *mut ibv_cq,
        wq_num: u32,
        handle: u32,
        state: c_uint,
        wq_type: c_uint,
        post_recv: op!(fn(*mut ibv_wq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int),
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
        comp_mask: u32,
    }

    struct ibv_rwq_ind_table {
        context: *mut ibv_context,
        ind_tbl_handle: c_int,
        ind_tbl_num: c_int,
        comp_mask: u32,
    }

    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: c_uint,
        qp_type: c_uint,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: op!(fn(*mut ibv_qp_ex, u32, u64, u64, u64)),
        wr_atomic_fetch_add: op!(fn(*mut ibv_qp_ex, u32, u64, u64)),
        wr_bind_mw: op!(fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)),
        wr_local_inv: op!(fn(*mut ibv_qp_ex, u32)),
        wr_rdma_read: op!(fn(*mut ibv_qp_ex, u32, u64)),
        wr_rdma_write: op!(fn(*mut ibv_qp_ex, u32, u64)),
        wr_rdma_write_imm: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
        wr_send: op!(fn(*mut ibv_qp_ex)),
        wr_send_imm: op!(fn(*mut ibv_qp_ex, u32)),
        wr_send_inv: op!(fn(*mut ibv_qp_ex, u32)),
        wr_send_tso: op!(fn(*mut ibv_qp_ex, *mut c_void, u16, u16)),
        wr_set_ud_addr: op!(fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)),
        wr_set_xrc_srqn: op!(fn(*mut ibv_qp_ex, u32)),
        wr_set_inline_data: op!(fn(*mut ibv_qp_ex, *mut c_void, size_t)),
        wr_set_inline_data_list: op!(fn(*mut ibv_qp_ex, size_t, *const ibv_data_buf)),
        wr_set_sge: op!(fn(*mut ibv_qp_ex, u32, u64, u32)),
        wr_set_sge_list: op!(fn(*mut ibv_qp_ex, size_t, *const ibv_sge)),
        wr_start: op!(fn(*mut ibv_qp_ex)),
        wr_complete: op!(fn(*mut ibv_qp_ex) -> c_int),
        wr_abort: op!(fn(*mut ibv_qp_ex)),
        wr_atomic_write: op!(fn(*mut ibv_qp_ex, u32, u64, *const c_void)),
    }
}
