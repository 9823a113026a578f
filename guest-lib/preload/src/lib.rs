//! `libvnic_ibverbs.so`: libibverbs' interface on vnic's RDMA function.
//!
//! A program that was linked with the distribution's libibverbs finds our device beside the real ones when this
//! library is loaded before it (`LD_PRELOAD`), or under its name (`libibverbs.so.1`) in its place. Calls for a real
//! device go on to the real library.
//!
//! ```text
//!  program ──ibv_*──▶ exports ──ours?──▶ objects, work, events ──▶ vnic-verbs ──▶ device
//!     │                  └────no──────▶ real: the distribution's library
//!     └─inline functions of the header──▶ operations in our context
//! ```
//!
//! # What is unsafe
//! A program in C passes pointers, and the header says what they point to. The macros at the beginning of the
//! interface (`export!`, `operation!`) trust that promise. Functions that follow such pointers say so, and their
//! files are in the list of the house rules.

#[macro_use]
mod export;
#[macro_use]
mod handle;

mod abi;
mod context;
mod describe;
mod devices;
mod errno;
mod events;
mod exports;
mod named;
mod netlink;
mod objects;
mod rdmacm;
mod real;
mod sync;
mod work;
