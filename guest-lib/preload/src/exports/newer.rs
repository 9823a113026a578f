//! Functions that rdma-core added after version 44. Our devices have none of the new objects.
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::*;
use crate::context::Context;
use crate::describe::PORT;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::Mr;

/// `ibv_port_attr.active_speed` in steps of 100 Mb/s.
const SPEED_STEP: u64 = 100;

/// The memory of a new region (`struct ibv_mr_init_attr`).
#[repr(C)]
pub struct ibv_mr_init_attr {
    length: size_t,
    access: c_uint,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *mut c_void,
}

const IBV_REG_MR_MASK_IOVA: u64 = 1;
const IBV_REG_MR_MASK_ADDR: u64 = 2;
const IBV_REG_MR_MASK_FD: u64 = 4;
const IBV_REG_MR_MASK_FD_OFFSET: u64 = 8;

export! {
    /// `man 3 ibv_query_port_speed`.
    "IBVERBS_1.16" fn ibv_query_port_speed(context: *mut ibv_context, port: u32, into: *mut u64) -> c_int, of context,
        as code {
        if port != PORT {
            return Err(Errno::INVALID);
        }
        let port = Context::of(context).seat.device.query_port()?;
        into.write(u64::from(port.speed) / SPEED_STEP);
        Ok(())
    }

    /// `man 3 ibv_reg_mr_ex`: memory at an address, or a part of a dma-buf. Our devices do not have the other kinds.
    "IBVERBS_1.15" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr, of (*pd).context,
        as pointer {
        let ibv_mr_init_attr { length, access, comp_mask, iova, addr, fd, fd_offset, .. } = *attr;
        let has = |bit| comp_mask & bit != 0;
        if comp_mask & !(IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) != 0 {
            return Err(Errno::UNSUPPORTED.because("regions are of memory at an address or of a descriptor: no DMA handles and buffers"));
        }
        let by_file = has(IBV_REG_MR_MASK_FD);
        if by_file == has(IBV_REG_MR_MASK_ADDR) || by_file != has(IBV_REG_MR_MASK_FD_OFFSET) || by_file && !has(IBV_REG_MR_MASK_IOVA) {
            return Err(Errno::INVALID);
        }
        if by_file {
            return Mr::of_dmabuf(the(pd), (fd, fd_offset), length, iova, access);
        }
        let iova = if has(IBV_REG_MR_MASK_IOVA) { iova } else { addr.addr() as u64 };
        Mr::register(the(pd), addr, length, iova, access)
    }
}

lacking! {
    /// `man 3 ibv_alloc_dmah`.
    "IBVERBS_1.15" fn ibv_alloc_dmah(context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void, of context, as pointer;

    /// `man 3 ibv_dm_export_dmabuf_fd`.
    "IBVERBS_1.16" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int, of (*dm).context, as signed;

    /// `man 3 ibv_alloc_buf`.
    "IBVERBS_1.17" fn ibv_alloc_buf(pd: *mut ibv_pd, _size: size_t, _buf: *mut *mut c_void) -> *mut c_void,
        of (*pd).context, as pointer;

    /// `man 3 ibv_alloc_buf`.
    "IBVERBS_1.17" fn ibv_reg_buf_mr(pd: *mut ibv_pd, _buf: *mut c_void, _addr: *mut c_void, _length: size_t,
        _access: c_int) -> *mut ibv_mr, of (*pd).context, as pointer;

    /// `man 3 ibv_query_comp_cntr_caps`.
    "IBVERBS_1.18" fn _ibv_query_comp_cntr_caps(context: *mut ibv_context, _caps: *mut c_void, _size: size_t) -> c_int,
        of context, as code;

    /// `man 3 ibv_create_comp_cntr`.
    "IBVERBS_1.18" fn ibv_create_comp_cntr(context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void, of context,
        as pointer;

    /// `man 3 ibv_qp_attach_comp_cntr`.
    "IBVERBS_1.18" fn ibv_qp_attach_comp_cntr(qp: *mut ibv_qp, _counter: *mut c_void, _attr: *mut c_void) -> c_int,
        of (*qp).context, as code;
}

real_only! {
    /// For objects of the real library.
    "IBVERBS_1.15" fn ibv_dealloc_dmah(dmah: *mut c_void) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.17" fn ibv_free_buf(buf: *mut c_void), as plain;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_export_buf_dmabuf_fd(buf: *mut c_void) -> c_int, as signed;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_destroy_comp_cntr(counter: *mut c_void) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_set_comp_cntr(counter: *mut c_void, value: u64) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_set_err_comp_cntr(counter: *mut c_void, value: u64) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_inc_comp_cntr(counter: *mut c_void, amount: u64) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_inc_err_comp_cntr(counter: *mut c_void, amount: u64) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_read_comp_cntr(counter: *mut c_void, value: *mut u64) -> c_int, as code;
    /// For objects of the real library.
    "IBVERBS_1.18" fn ibv_read_err_comp_cntr(counter: *mut c_void, value: *mut u64) -> c_int, as code;
}
