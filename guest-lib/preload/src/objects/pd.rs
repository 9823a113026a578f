//! Protection domains, thread domains, parent domains.

#![expect(unsafe_code, reason = "begins as the structure of the header")]

use std::cell::UnsafeCell;

use vnic_verbs::ProtectionDomain;

use super::only;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::{Object, Use, Uses, publish};
use crate::named::{Keys, Listed, Table};

/// A protection domain, or a parent domain, which is a domain under another name.
#[repr(C)]
pub struct Pd {
    base: UnsafeCell<ibv_pd>,
    pub inner: ProtectionDomain,
    pub uses: Uses,
    /// Regions of the device.
    pub(super) regions: Table<Keys>,
    _listed: Option<Listed<(ProtectionDomain, Uses)>>,
    /// The context; for a parent domain also its domain and its thread domain.
    _needs: Vec<Use>,
}

/// A thread domain: a promise of the program's that we make no use of.
#[repr(C)]
pub struct Td {
    base: UnsafeCell<ibv_td>,
    pub uses: Uses,
    _needs: Use,
}

object!(Pd: ibv_pd);
object!(Td: ibv_td);

impl Pd {
    /// Makes a protection domain.
    pub fn alloc(context: &Context) -> Result<*mut ibv_pd, Errno> {
        let inner = context.seat.device.alloc_pd()?;
        let mut pd = Pd::new(context, inner.clone(), vec![context.uses.one()]);
        let listed = (inner, pd.uses.same());
        pd._listed = Some(context.seat.named.domains.list(listed.0.number(), listed));
        Ok(publish(pd))
    }

    /// The domain with a number, under another pointer: it has the users of all its pointers.
    pub fn import(context: &Context, number: u32) -> Result<*mut ibv_pd, Errno> {
        let found = context.seat.named.domains.find(number)?;
        let mut pd = Pd::new(context, found.0.clone(), vec![context.uses.one()]);
        pd.uses = found.1.same();
        Ok(publish(pd))
    }

    fn new(context: &Context, inner: ProtectionDomain, needs: Vec<Use>) -> Pd {
        Pd {
            base: UnsafeCell::new(ibv_pd {
                context: context.pointer(),
                handle: inner.number(),
            }),
            inner,
            uses: Uses::default(),
            regions: context.seat.named.regions.clone(),
            _listed: None,
            _needs: needs,
        }
    }

    /// The context of the domain.
    pub fn context(&self) -> *mut ibv_context {
        // SAFETY: a field that nobody changes.
        unsafe { (*self.c()).context }
    }

    /// Makes a parent domain: the same domain under another name. Its allocators are not called: memory of our
    /// queues must be shared with the device, which they cannot do.
    pub fn of_parent(
        context: &Context,
        parent: &Pd,
        td: Option<&Td>,
        attributes: &ibv_parent_domain_init_attr,
    ) -> Result<*mut ibv_pd, Errno> {
        let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        only(attributes.comp_mask, known, Errno::UNSUPPORTED)
            .map_err(|e| e.because("parent domains have allocators and a context, and nothing else"))?;
        if attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0
            && (attributes.alloc.is_none() || attributes.free.is_none())
        {
            return Err(Errno::INVALID);
        }
        let needs = [context.uses.one(), parent.uses.one()]
            .into_iter()
            .chain(td.map(|td| td.uses.one()))
            .collect();
        Ok(publish(Pd::new(context, parent.inner.clone(), needs)))
    }
}

impl Td {
    /// Makes a thread domain.
    pub fn alloc(context: &Context, attributes: &ibv_td_init_attr) -> Result<*mut ibv_td, Errno> {
        only(attributes.comp_mask, 0u32, Errno::INVALID)?;
        Ok(publish(Td {
            base: UnsafeCell::new(ibv_td {
                context: context.pointer(),
            }),
            uses: Uses::default(),
            _needs: context.uses.one(),
        }))
    }
}
