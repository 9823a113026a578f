//! Functions of libmlx5 by which programs use the dynamically connected transport (`mlx5dv_create_qp(3)`, `mlx5dv_wr_post(3)`). For
//! devices of others the real library has them.
//!
//! This transport is all that our devices have of that library: they say that they are not its devices, and programs that ask
//! before they use more of it use nothing.

use std::ffi::c_int;

use crate::abi::*;
use crate::devices;
use crate::errno::Errno;
use crate::exports::operations::create_extended;
use crate::handle::maybe;
use crate::objects::qp::Dynamic;
use crate::objects::{Qp, only};
use crate::work::poll::is_ours;

/// Flags that change nothing here: small data of completions are never in the completion itself.
const NOTHING: u32 = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;

export! {
    /// `man 3 mlx5dv_is_supported`: no.
    "MLX5_1.8" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool, if devices::find(device).is_some(), as plain {
        Ok(false)
    }

    /// `man 3 mlx5dv_open_device`: a device of ours is none of libmlx5's.
    "MLX5_1.7" fn mlx5dv_open_device(device: *mut ibv_device, _attributes: *mut mlx5dv_context_attr) -> *mut ibv_context,
        if devices::find(device).is_some(), as pointer {
        Err(Errno::UNSUPPORTED.because("mlx5dv_open_device: this device is none of libmlx5's; ibv_open_device opens it"))
    }
}

/// Settings that our devices do not have.
#[repr(C)]
pub struct mlx5dv_context_attr {
    _private: [u8; 0],
}

export! {
    /// `man 3 mlx5dv_query_device`: that there is nothing beyond DC, which has no pages on demand here.
    "MLX5_1.0" fn mlx5dv_query_device(context: *mut ibv_context, into: *mut mlx5dv_context) -> c_int, of context, as code {
        let known = (*into).comp_mask & u64::from(MLX5DV_CONTEXT_MASK_DC_ODP_CAPS);
        ((*into).version, (*into).flags, (*into).comp_mask) = (0, 0, known);
        if known != 0 {
            (*into).dc_odp_caps = 0;
        }
        Ok(())
    }

    /// `man 3 mlx5dv_create_qp`: initiators and targets of dynamic connections. Without `dc_init_attr` it is `ibv_create_qp_ex`.
    "MLX5_1.3" fn mlx5dv_create_qp(context: *mut ibv_context, attributes: *mut ibv_qp_init_attr_ex,
        special: *mut mlx5dv_qp_init_attr) -> *mut ibv_qp, of context, as pointer {
        let mask = if special.is_null() { 0 } else { (*special).comp_mask };
        let has = |bit: u32| mask & u64::from(bit) != 0;
        let known = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS
            | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        only(mask, u64::from(known), Errno::UNSUPPORTED)
            .map_err(|e| e.because("mlx5dv_create_qp: no streams of initiators (DCI_STREAMS)"))?;
        let flags = has(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) && (*special).create_flags & !NOTHING != 0;
        let operations = has(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && (*special).send_ops_flags != 0;
        if flags || operations {
            return Err(Errno::UNSUPPORTED.because("mlx5dv_create_qp: no flags, and no operations of memory keys"));
        }
        let dynamic = match has(MLX5DV_QP_INIT_ATTR_MASK_DC) {
            false => None,
            true => Some(match (*special).dc_init_attr {
                mlx5dv_dc_init_attr { dc_type: MLX5DV_DCTYPE_DCI, .. } => Dynamic::Initiator,
                mlx5dv_dc_init_attr { dc_type: MLX5DV_DCTYPE_DCT, dct_access_key } => Dynamic::Target(dct_access_key),
                _ => return Err(Errno::INVALID),
            }),
        };
        create_extended(context, &mut *attributes, dynamic)
    }
}

export! {
    /// `man 3 mlx5dv_wr_post`: NULL but for an initiator whose sends are built call by call. (perftest asks for NULL, too: what it has for
    /// a target.)
    "MLX5_1.10" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex,
        if qp.is_null() || is_ours((*qp).qp_base.context), as pointer {
        Ok(maybe::<Qp>(qp).map_or(std::ptr::null_mut(), Qp::of_mlx5))
    }
}
