//! Protection domains and memory regions.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::*;
use crate::context::Context;
use crate::errno;
use crate::handle::{end, maybe, the};
use crate::objects::{Mr, Pd, mr};

export! {
    /// `man 3 ibv_alloc_pd`.
    "IBVERBS_1.1" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, of context, as pointer {
        Pd::alloc(Context::of(context))
    }

    /// `man 3 ibv_dealloc_pd`; parent domains, too.
    "IBVERBS_1.1" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, of (*pd).context, as code {
        the::<Pd>(pd).uses.none()?;
        end::<Pd>(pd)
    }

    /// `man 3 ibv_reg_mr`.
    "IBVERBS_1.1" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: size_t, access: c_int) -> *mut ibv_mr,
        of (*pd).context, as pointer {
        Mr::register(the(pd), addr, length, addr as u64, access.cast_unsigned())
    }

    /// `man 3 ibv_reg_mr`: with the address that peers use.
    "IBVERBS_1.7" fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: size_t, iova: u64, access: c_int)
        -> *mut ibv_mr, of (*pd).context, as pointer {
        Mr::register(the(pd), addr, length, iova, access.cast_unsigned())
    }

    /// The function that the header calls for both, if it cannot see that no optional right is
    /// asked for.
    "IBVERBS_1.8" fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: size_t, iova: u64, access: c_uint)
        -> *mut ibv_mr, of (*pd).context, as pointer {
        Mr::register(the(pd), addr, length, iova, access)
    }

    /// `man 3 ibv_dereg_mr`.
    "IBVERBS_1.1" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int, of (*mr).context, as code {
        Mr::deregister(mr)
    }

    /// `man 3 ibv_rereg_mr`. A call that fails changes nothing, so a region can always be used as
    /// before.
    "IBVERBS_1.1" fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: size_t,
        access: c_int) -> c_int, of (*mr).context, as signed {
        // Programs pass any values for fields that they do not ask for.
        let flags = flags.cast_unsigned();
        let pd = if flags & IBV_REREG_MR_CHANGE_PD != 0 { maybe::<Pd>(pd) } else { None };
        let change = mr::Change {
            flags,
            pd,
            addr,
            length,
            access: access.cast_unsigned(),
        };
        Ok(the::<Mr>(mr).change(&change).err().map_or(0, |refusal| {
            errno::set(refusal.errno);
            refusal.code
        }))
    }
}

export! {
    /// `man 3 ibv_reg_dmabuf_mr`: of exporters that let their memory be mapped; anonymous files, too.
    "IBVERBS_1.12" fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: size_t, iova: u64, fd: c_int,
        access: c_int) -> *mut ibv_mr, of (*pd).context, as pointer {
        Mr::of_dmabuf(the(pd), (fd, offset), length, iova, access.cast_unsigned())
    }
}
