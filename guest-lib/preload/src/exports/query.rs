//! Queries of device, port, GIDs and P_Keys.

#![expect(unsafe_code, reason = "writes answers where programs in C want them")]

use std::ffi::c_int;
use std::mem::offset_of;

use vnic_verbs::{AddressVector, Gid};

use crate::abi::*;
use crate::context::Context;
use crate::describe::{self, PORT};
use crate::errno::Errno;

/// Bytes of the port's attributes for programs that were built before a port had a second word of capabilities.
const OLD_PORT_LEN: usize = offset_of!(ibv_port_attr, port_cap_flags2);

/// Copies as much of a structure as the program knows, and leaves zeros where the program knows more.
///
/// # Safety
/// There are `len` bytes at `to`. `T` is of the interface, and without padding that matters.
unsafe fn copy_out<T: Plain>(from: &T, to: *mut T, len: usize) {
    let known = len.min(size_of::<T>());
    // SAFETY: by the caller's promise; bytes of a structure that is there.
    unsafe {
        std::ptr::write_bytes(to.cast::<u8>(), 0, len);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), known);
    }
}

/// Checks the number of the port; there is one.
fn check_port(port: u32) -> Result<(), Errno> {
    if port == PORT { Ok(()) } else { Err(Errno::INVALID) }
}

/// The entry at an index; `None`: it is empty.
fn gid_at(context: &Context, port: u32, index: u32) -> Result<Option<ibv_gid_entry>, Errno> {
    check_port(port)?;
    let device = &context.seat.device;
    if let Some(entry) = device.gids()?.iter().find(|e| u32::from(e.index) == index) {
        return Ok(describe::gid(entry));
    }
    if index < u32::from(device.query_port()?.gid_table_len) {
        Ok(None)
    } else {
        Err(Errno::INVALID)
    }
}

operation! {
    /// `ibv_query_port` of programs that say how much of the structure they know.
    fn query_port(context: *mut ibv_context, port: u8, into: *mut ibv_port_attr, len: size_t) -> c_int, as code {
        check_port(port.into())?;
        let port = Context::of(context).seat.device.query_port()?;
        copy_out(&describe::port(&port), into, len);
        Ok(())
    }

    /// `ibv_query_device_ex`.
    fn query_device_ex(context: *mut ibv_context, input: *const ibv_query_device_ex_input, into: *mut ibv_device_attr_ex,
        len: size_t) -> c_int, as code {
        if len < size_of::<ibv_device_attr>() || (!input.is_null() && (*input).comp_mask != 0) {
            return Err(Errno::INVALID);
        }
        let device = &Context::of(context).seat.device;
        let on_demand = device.can_page().is_ok();
        copy_out(&describe::device_ex(&device.query_device(), on_demand), into, len);
        Ok(())
    }

    /// `ibv_query_rt_values_ex`. The raw clock has only nanoseconds, as that of other devices.
    fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int, as code {
        let wanted = (*values).comp_mask;
        (*values).comp_mask = 0;
        if wanted & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            let now = Context::of(context).seat.device.clock()?;
            (*values).raw_clock = libc::timespec {
                tv_sec: 0,
                tv_nsec: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
            };
            (*values).comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        }
        Ok(())
    }
}

export! {
    /// `man 3 ibv_query_device`.
    "IBVERBS_1.1" fn ibv_query_device(context: *mut ibv_context, into: *mut ibv_device_attr) -> c_int, of context, as code {
        into.write(describe::device(&Context::of(context).seat.device.query_device()));
        Ok(())
    }

    /// `man 3 ibv_query_port`, of programs that were built with old versions.
    "IBVERBS_1.1" fn ibv_query_port(context: *mut ibv_context, port: u8, into: *mut ibv_port_attr) -> c_int, of context,
        as code {
        check_port(port.into())?;
        let port = Context::of(context).seat.device.query_port()?;
        copy_out(&describe::port(&port), into, OLD_PORT_LEN);
        Ok(())
    }

    /// `man 3 ibv_query_gid`. An empty entry is zeros.
    "IBVERBS_1.1" fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, into: *mut ibv_gid) -> c_int,
        of context, as signed {
        let index = u32::try_from(index).map_err(|_| Errno::INVALID)?;
        let entry = gid_at(Context::of(context), port.into(), index)?;
        into.write(entry.map_or(zeros(), |e| e.gid));
        Ok(0)
    }

    /// `man 3 ibv_query_gid_ex`. An empty entry is an error.
    "IBVERBS_1.11" fn _ibv_query_gid_ex(context: *mut ibv_context, port: u32, index: u32, into: *mut ibv_gid_entry,
        flags: u32, len: size_t) -> c_int, of context, as code {
        if flags != 0 {
            return Err(Errno::UNSUPPORTED.because("queries of GIDs have no flags"));
        }
        let entry = gid_at(Context::of(context), port, index)?.ok_or(Errno::NO_DATA)?;
        copy_out(&entry, into, len);
        Ok(())
    }

    /// `man 3 ibv_query_gid_table`.
    "IBVERBS_1.11" fn _ibv_query_gid_table(context: *mut ibv_context, into: *mut ibv_gid_entry, room: size_t, flags: u32,
        len: size_t) -> isize, of context, as negative {
        if flags != 0 {
            return Err(Errno::UNSUPPORTED.because("queries of GIDs have no flags"));
        }
        let all = Context::of(context).seat.device.gids()?;
        let there: Vec<_> = all.iter().filter_map(describe::gid).collect();
        if there.len() > room {
            return Err(Errno::INVALID);
        }
        for (i, entry) in there.iter().enumerate() {
            copy_out(entry, into.byte_add(i * len), len);
        }
        Ok(there.len())
    }

    /// `ibv_devinfo` calls this, although the header does not have it: 1 is RoCE v2, 0 is the rest.
    "IBVERBS_PRIVATE_34" fn ibv_query_gid_type(context: *mut ibv_context, port: u8, index: u32, into: *mut u32) -> c_int,
        of context, as signed {
        let entry = gid_at(Context::of(context), port.into(), index)?;
        into.write(entry.is_some_and(|e| e.gid_type == IBV_GID_TYPE_ROCE_V2).into());
        Ok(0)
    }

    /// `man 3 ibv_query_pkey`.
    "IBVERBS_1.1" fn ibv_query_pkey(context: *mut ibv_context, port: u8, index: c_int, into: *mut u16) -> c_int, of context,
        as signed {
        check_port(port.into())?;
        let port = Context::of(context).seat.device.query_port()?;
        let pkey = usize::try_from(index).ok().and_then(|index| port.pkeys().get(index)).ok_or(Errno::INVALID)?;
        into.write(pkey.to_be());
        Ok(0)
    }

    /// `man 3 ibv_get_pkey_index`. The P_Key is in network order, as that of `ibv_query_pkey`.
    "IBVERBS_1.5" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int, of context, as signed {
        check_port(port.into())?;
        let port = Context::of(context).seat.device.query_port()?;
        let index = port.pkeys().iter().position(|own| own.to_be() == pkey);
        index.and_then(|index| c_int::try_from(index).ok()).ok_or(Errno::INVALID)
    }

    /// Finds the Ethernet address of a peer and the VLAN to it. Our device does so by itself when it makes an address
    /// handle.
    "IBVERBS_1.1" fn ibv_resolve_eth_l2_from_gid(context: *mut ibv_context, address: *mut ibv_ah_attr, mac: *mut [u8; 6],
        vlan: *mut u16) -> c_int, of context, as code {
        let ibv_ah_attr { grh, port_num, .. } = *address;
        check_port(port_num.into())?;
        let device = &Context::of(context).seat.device;
        let found = device.alloc_pd()?.create_ah(&AddressVector {
            dgid: Gid(grh.dgid.raw),
            sgid_index: grh.sgid_index.into(),
            ..AddressVector::default()
        })?.query()?;
        mac.write(found.dmac.ok_or(Errno(libc::EHOSTUNREACH))?.0);
        if !vlan.is_null() {
            let own = device.gids()?.into_iter().find(|e| e.index == found.sgid_index);
            vlan.write(own.map(|e| e.vlan).filter(|v| *v != 0).unwrap_or(NO_VLAN));
        }
        Ok(())
    }

    /// `man 3 ibv_query_qp_data_in_order`. The order in which payload is written is not defined.
    "IBVERBS_1.14" fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, _operation: u32, _flags: u32) -> c_int, of (*qp).context,
        as plain {
        Ok(0)
    }
}

/// Answer of `ibv_resolve_eth_l2_from_gid` without a VLAN.
const NO_VLAN: u16 = 0xffff;
