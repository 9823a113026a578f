//! Structures that begin as zeros, as programs in C begin them.

use std::mem::MaybeUninit;

use super::*;

/// A structure of the header.
///
/// # Safety
/// All of its bytes may be zero: it has numbers, pointers that may be NULL, and such structures.
pub unsafe trait Plain: Copy {}

/// One in which everything is zero or NULL.
pub fn zeros<T: Plain>() -> T {
    // SAFETY: that is what the trait promises.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

macro_rules! plain {
    ($($name:ident)*) => {$(
        // SAFETY: numbers, pointers, functions that may be missing; locks of pthreads begin as zeros.
        unsafe impl Plain for $name {}
    )*};
}

plain! {
    _ibv_device_ops
    ibv_ah
    ibv_ah_attr
    ibv_alloc_dm_attr
    ibv_async_element
    ibv_async_event
    ibv_comp_channel
    ibv_context
    ibv_context_ops
    ibv_cq
    ibv_cq_ex
    ibv_cq_init_attr_ex
    ibv_cq_moderation_caps
    ibv_data_buf
    ibv_device
    ibv_device_attr
    ibv_device_attr_ex
    ibv_dm
    ibv_ece
    ibv_gid
    ibv_gid_entry
    ibv_gid_global
    ibv_global_route
    ibv_grh
    ibv_moderate_cq
    ibv_modify_cq_attr
    ibv_mr
    ibv_mw
    ibv_mw_bind
    ibv_mw_bind_info
    ibv_odp_caps
    ibv_odp_transport_caps
    ibv_packet_pacing_caps
    ibv_parent_domain_init_attr
    ibv_pci_atomic_caps
    ibv_pd
    ibv_poll_cq_attr
    ibv_port_attr
    ibv_qp
    ibv_qp_attr
    ibv_qp_cap
    ibv_qp_ex
    ibv_qp_init_attr
    ibv_qp_init_attr_ex
    ibv_qp_open_attr
    ibv_qp_rate_limit_attr
    ibv_query_device_ex_input
    ibv_recv_wr
    ibv_rss_caps
    ibv_rx_hash_conf
    ibv_send_wr
    ibv_sge
    ibv_srq
    ibv_srq_attr
    ibv_srq_init_attr
    ibv_srq_init_attr_ex
    ibv_td
    ibv_td_init_attr
    ibv_tm_cap
    ibv_tm_caps
    ibv_tso_caps
    ibv_values_ex
    ibv_wc
    ibv_wc_datum
    ibv_wc_tm_info
    ibv_wr_atomic
    ibv_wr_bind_mw
    ibv_wr_datum
    ibv_wr_extra
    ibv_wr_rdma
    ibv_wr_target
    ibv_wr_tso
    ibv_wr_type
    ibv_wr_ud
    ibv_wr_xrc
    ibv_xrcd
    ibv_xrcd_init_attr
    verbs_context
}
