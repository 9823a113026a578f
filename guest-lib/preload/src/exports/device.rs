//! Finding and opening devices.

#![expect(
    unsafe_code,
    reason = "lists of pointers to devices, ours and the real library's"
)]

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

use super::operations::operations;
use crate::abi::*;
use crate::context::Context;
use crate::devices;
use crate::errno::Errno;
use crate::sync::lock;

/// Lists that the program holds: our devices, then those of the real library.
static LISTS: Mutex<Vec<List>> = Mutex::new(Vec::new());

struct List {
    /// Pointers to the devices, NULL at the end.
    devices: Box<[*mut ibv_device]>,
    /// The list of the real library.
    real: *mut *mut ibv_device,
}

// SAFETY: pointers that are given on, not followed.
unsafe impl Send for List {}

type GetList = c_fn!(fn(*mut c_int) -> *mut *mut ibv_device);
type FreeList = c_fn!(fn(*mut *mut ibv_device));

own! {
    /// `man 3 ibv_get_device_list`: our devices, and after them those of the real library.
    fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device, as pointer {
        let mut all: Vec<_> = devices::list().iter().map(|d| d.pointer()).collect();
        let mut real = std::ptr::null_mut();
        if let Some(get) = real_function!(ibv_get_device_list, "IBVERBS_1.1").find::<GetList>() {
            let mut count = 0;
            real = get(&raw mut count);
            if real.is_null() && all.is_empty() {
                // There are no devices at all; the real library knows why.
                if !number.is_null() {
                    number.write(0);
                }
                return Ok(real);
            }
            for i in 0..if real.is_null() { 0 } else { count } {
                all.push(*real.offset(i as isize));
            }
        }
        if !number.is_null() {
            number.write(all.len() as c_int);
        }
        all.push(std::ptr::null_mut());
        let mut list = List { devices: all.into(), real };
        let pointer = list.devices.as_mut_ptr();
        lock(&LISTS).push(list);
        Ok(pointer)
    }

    /// Frees both lists: each library counts the users of its devices.
    fn ibv_free_device_list(list: *mut *mut ibv_device), as plain {
        let mut lists = lock(&LISTS);
        let at = lists.iter().position(|l| l.devices.as_ptr() == list.cast_const());
        let real = match at.map(|i| lists.swap_remove(i)) {
            Some(ours) => ours.real,
            None => list,
        };
        drop(lists);
        if let Some(free) = real_function!(ibv_free_device_list, "IBVERBS_1.1").find::<FreeList>()
            && !real.is_null()
        {
            free(real);
        }
        Ok(())
    }
}

export! {
    /// `man 3 ibv_get_device_name`.
    "IBVERBS_1.1" fn ibv_get_device_name(device: *mut ibv_device) -> *mut c_char, if devices::find(device).is_some(),
        as pointer {
        let device = devices::find(device).ok_or(Errno::INVALID)?;
        Ok(device.name().as_ptr().cast_mut())
    }

    /// `man 3 ibv_get_device_guid`. Opens the device for it; 0 if that is not possible.
    "IBVERBS_1.1" fn ibv_get_device_guid(device: *mut ibv_device) -> u64, if devices::find(device).is_some(), as plain {
        let device = devices::find(device).ok_or(Errno::INVALID)?;
        Ok(device.guid())
    }

    /// `man 3 ibv_get_device_index`. The kernel does not know our devices.
    "IBVERBS_1.9" fn ibv_get_device_index(device: *mut ibv_device) -> c_int, if devices::find(device).is_some(),
        as plain {
        Ok(-1)
    }

    /// `man 3 ibv_open_device`.
    "IBVERBS_1.1" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context, if devices::find(device).is_some(),
        as pointer {
        let device = devices::find(device).ok_or(Errno::INVALID)?;
        Context::open(device, operations())
    }
}

export! {
    /// `man 3 ibv_close_device`. Objects that are left stay usable, as long as there are any.
    "IBVERBS_1.1" fn ibv_close_device(context: *mut ibv_context) -> c_int, of context, as signed {
        Context::close(context);
        Ok(0)
    }
}
