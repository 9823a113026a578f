//! Work requests, completions, events.

use super::*;

interface! {
    struct ibv_sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    struct ibv_data_buf {
        addr: *mut c_void,
        length: size_t,
    }

    struct ibv_mw_bind_info {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }

    struct ibv_mw_bind {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_uint,
        send_flags: c_uint,
        datum: ibv_wr_datum,
        wr: ibv_wr_target,
        qp_type: ibv_wr_type,
        extra: ibv_wr_extra,
    }

    union ibv_wr_datum {
        imm_data: u32,
        invalidate_rkey: u32,
    }

    union ibv_wr_target {
        rdma: ibv_wr_rdma,
        atomic: ibv_wr_atomic,
        ud: ibv_wr_ud,
    }

    struct ibv_wr_rdma {
        remote_addr: u64,
        rkey: u32,
    }

    struct ibv_wr_atomic {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }

    struct ibv_wr_ud {
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }

    union ibv_wr_type {
        xrc: ibv_wr_xrc,
    }

    struct ibv_wr_xrc {
        remote_srqn: u32,
    }

    union ibv_wr_extra {
        bind_mw: ibv_wr_bind_mw,
        tso: ibv_wr_tso,
    }

    struct ibv_wr_bind_mw {
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_wr_tso {
        hdr: *mut c_void,
        hdr_sz: u16,
        mss: u16,
    }

    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    struct ibv_wc {
        wr_id: u64,
        status: c_uint,
        opcode: c_uint,
        vendor_err: u32,
        byte_len: u32,
        datum: ibv_wc_datum,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    union ibv_wc_datum {
        imm_data: u32,
        invalidated_rkey: u32,
    }

    struct ibv_poll_cq_attr {
        comp_mask: u32,
    }

    struct ibv_async_event {
        element: ibv_async_element,
        event_type: c_uint,
    }

    union ibv_async_element {
        cq: *mut ibv_cq,
        qp: *mut ibv_qp,
        srq: *mut ibv_srq,
        wq: *mut ibv_wq,
        port_num: c_int,
    }

    struct ibv_grh {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: ibv_gid,
        dgid: ibv_gid,
    }
}
