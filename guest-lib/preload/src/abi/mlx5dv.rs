//! What is used here of `infiniband/mlx5dv.h` (libmlx5 44): the dynamically connected transport.

use super::*;

pub const MLX5DV_CONTEXT_MASK_DC_ODP_CAPS: c_uint = 128;
pub const MLX5DV_DCTYPE_DCI: c_uint = 2;
pub const MLX5DV_DCTYPE_DCT: c_uint = 1;
pub const MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE: c_uint = 16;
pub const MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE: c_uint = 8;
pub const MLX5DV_QP_INIT_ATTR_MASK_DC: c_uint = 2;
pub const MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS: c_uint = 1;
pub const MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS: c_uint = 4;

interface! {
    struct mlx5dv_dc_init_attr {
        dc_type: c_uint,
        dct_access_key: u64,
    }

    struct mlx5dv_qp_init_attr {
        comp_mask: u64,
        create_flags: u32,
        dc_init_attr: mlx5dv_dc_init_attr,
        send_ops_flags: u64,
    }

    struct mlx5dv_qp_ex {
        comp_mask: u64,
        wr_set_dc_addr: op!(fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64)),
        wr_mr_interleaved: op!(fn()),
        wr_mr_list: op!(fn()),
        wr_mkey_configure: op!(fn()),
        wr_set_mkey_access_flags: op!(fn()),
        wr_set_mkey_layout_list: op!(fn()),
        wr_set_mkey_layout_interleaved: op!(fn()),
        wr_set_mkey_sig_block: op!(fn()),
        wr_raw_wqe: op!(fn()),
        wr_set_dc_addr_stream: op!(fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64, u16)),
        wr_memcpy: op!(fn()),
        wr_set_mkey_crypto: op!(fn()),
    }

    struct mlx5dv_context {
        version: u8,
        flags: u64,
        comp_mask: u64,
        cqe_comp_caps: [u32; 2],
        sw_parsing_caps: [u32; 2],
        striding_rq_caps: [u32; 5],
        tunnel_offloads_caps: u32,
        max_dynamic_bfregs: u32,
        max_clock_info_update_nsec: u64,
        flow_action_flags: u32,
        dc_odp_caps: u32,
    }
}
