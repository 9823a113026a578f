//! The context: what inline functions of the header call.

use super::*;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_context_ops {
    pub _compat_query_device: *const c_void,
    pub _compat_query_port: *const c_void,
    pub _compat_alloc_pd: *const c_void,
    pub _compat_dealloc_pd: *const c_void,
    pub _compat_reg_mr: *const c_void,
    pub _compat_rereg_mr: *const c_void,
    pub _compat_dereg_mr: *const c_void,
    pub alloc_mw: op!(fn(*mut ibv_pd, c_uint) -> *mut ibv_mw),
    pub bind_mw: op!(fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int),
    pub dealloc_mw: op!(fn(*mut ibv_mw) -> c_int),
    pub _compat_create_cq: *const c_void,
    pub poll_cq: op!(fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int),
    pub req_notify_cq: op!(fn(*mut ibv_cq, c_int) -> c_int),
    pub _compat_cq_event: *const c_void,
    pub _compat_resize_cq: *const c_void,
    pub _compat_destroy_cq: *const c_void,
    pub _compat_create_srq: *const c_void,
    pub _compat_modify_srq: *const c_void,
    pub _compat_query_srq: *const c_void,
    pub _compat_destroy_srq: *const c_void,
    pub post_srq_recv: op!(fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int),
    pub _compat_create_qp: *const c_void,
    pub _compat_query_qp: *const c_void,
    pub _compat_modify_qp: *const c_void,
    pub _compat_destroy_qp: *const c_void,
    pub post_send: op!(fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int),
    pub post_recv: op!(fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int),
    pub _compat_create_ah: *const c_void,
    pub _compat_destroy_ah: *const c_void,
    pub _compat_attach_mcast: *const c_void,
    pub _compat_detach_mcast: *const c_void,
    pub _compat_async_event: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct verbs_context {
    pub query_port: op!(fn(*mut ibv_context, u8, *mut ibv_port_attr, size_t) -> c_int),
    pub advise_mr: op!(fn(*mut ibv_pd, c_uint, u32, *mut ibv_sge, u32) -> c_int),
    pub alloc_null_mr: op!(fn(*mut ibv_pd) -> *mut ibv_mr),
    pub read_counters: *const c_void,
    pub attach_counters_point_flow: *const c_void,
    pub create_counters: *const c_void,
    pub destroy_counters: *const c_void,
    pub reg_dm_mr: op!(fn(*mut ibv_pd, *mut ibv_dm, u64, size_t, c_uint) -> *mut ibv_mr),
    pub alloc_dm: op!(fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm),
    pub free_dm: op!(fn(*mut ibv_dm) -> c_int),
    pub modify_flow_action_esp: *const c_void,
    pub destroy_flow_action: *const c_void,
    pub create_flow_action_esp: *const c_void,
    pub modify_qp_rate_limit: op!(fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int),
    pub alloc_parent_domain: op!(fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd),
    pub dealloc_td: op!(fn(*mut ibv_td) -> c_int),
    pub alloc_td: op!(fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td),
    pub modify_cq: op!(fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int),
    pub post_srq_ops: *const c_void,
    pub destroy_rwq_ind_table: *const c_void,
    pub create_rwq_ind_table: *const c_void,
    pub destroy_wq: *const c_void,
    pub modify_wq: *const c_void,
    pub create_wq: *const c_void,
    pub query_rt_values: op!(fn(*mut ibv_context, *mut ibv_values_ex) -> c_int),
    pub create_cq_ex: op!(fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex),
    pub priv_: *mut c_void,
    pub query_device_ex:
        op!(fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, size_t) -> c_int),
    pub ibv_destroy_flow: *const c_void,
    pub abi_placeholder2: *const c_void,
    pub ibv_create_flow: *const c_void,
    pub abi_placeholder1: *const c_void,
    pub open_qp: op!(fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp),
    pub create_qp_ex: op!(fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp),
    pub get_srq_num: op!(fn(*mut ibv_srq, *mut u32) -> c_int),
    pub create_srq_ex: op!(fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq),
    pub open_xrcd: op!(fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd),
    pub close_xrcd: op!(fn(*mut ibv_xrcd) -> c_int),
    pub _abi_placeholder3: u64,
    pub sz: size_t,
    pub context: ibv_context,
}
