//! Memory windows.

#![expect(unsafe_code, reason = "begins as the structure of the header")]

use std::cell::UnsafeCell;

use vnic_verbs::{MemoryWindow, MwType};

use super::Pd;
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object, Use, publish};

/// A memory window.
#[repr(C)]
pub struct Mw {
    base: UnsafeCell<ibv_mw>,
    pub inner: MemoryWindow,
    _needs: Use,
}

object!(Mw: ibv_mw);

impl Mw {
    /// Makes a memory window.
    pub fn alloc(pd: &Pd, kind: u32) -> Result<*mut ibv_mw, Errno> {
        let inner = pd.inner.alloc_mw(match kind {
            IBV_MW_TYPE_1 => MwType::Type1,
            IBV_MW_TYPE_2 => MwType::Type2,
            _ => return Err(Errno::INVALID),
        })?;
        Ok(publish(Mw {
            base: UnsafeCell::new(ibv_mw {
                context: pd.context(),
                pd: pd.c(),
                rkey: inner.rkey(),
                handle: inner.number(),
                type_: kind,
            }),
            inner,
            _needs: pd.uses.one(),
        }))
    }
}
