//! The functions of libibverbs and librdmacm, as thin as they can be: whose object it is, what the call asks for, how it
//! fails.

#![expect(
    unsafe_code,
    reason = "programs in C call here: what they promise is taken on trust here"
)]

mod cm;
mod device;
mod events;
mod memory;
mod mlx5dv;
mod netlink;
mod newer;
mod operations;
mod private;
mod process;
mod query;
mod queues;
mod texts;

pub use operations::operations;

/// A function of ours that the real library has as well.
pub const PROBE_HERE: *const () = device::ibv_get_device_list as *const ();

/// Likewise, of libmlx5.
pub const MLX5_PROBE_HERE: *const () = mlx5dv::mlx5dv_is_supported as *const ();

/// Likewise, of librdmacm.
pub const CM_PROBE_HERE: *const () = cm::rdma_create_event_channel as *const ();
