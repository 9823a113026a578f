//! Work queues, tables of them, and the hashes by which frames are spread over them.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; is taken back from the program"
)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use vnic_verbs::work_queue::{HASH_KEY_LEN, hash_types};
use vnic_verbs::{HashRule, QpState, WorkQueue};

use super::{Cq, Pd, only};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Unacknowledged};
use crate::handle::{Object, Use, Uses, end, maybe, publish, the};

const IPV4: u32 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
const IPV6: u32 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
const TCP: u32 = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
const UDP: u32 = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// Fields of frames that may be hashed, source and destination together.
pub const FIELDS: u32 = IPV4 | IPV6 | TCP | UDP | IBV_RX_HASH_INNER;

/// A work queue.
#[repr(C)]
pub struct Wq {
    base: UnsafeCell<ibv_wq>,
    pub inner: WorkQueue,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    _needs: Vec<Use>,
}

object!(Wq: ibv_wq);

impl Wq {
    /// Makes a work queue, without its function for receives. The room that it really has is written back.
    pub fn create(context: &Context, wanted: &mut ibv_wq_init_attr) -> Result<*mut ibv_wq, Errno> {
        only(wanted.comp_mask, IBV_WQ_INIT_ATTR_FLAGS, Errno::UNSUPPORTED)?;
        if wanted.comp_mask & IBV_WQ_INIT_ATTR_FLAGS != 0 && wanted.create_flags != 0 {
            return Err(Errno::UNSUPPORTED.because(
                "work queues strip no VLAN tags, scatter no FCS, and drop nothing late (create_flags)",
            ));
        }
        // SAFETY: pointers as `ibv_create_wq` asks for.
        let (pd, cq) = unsafe { (maybe::<Pd>(wanted.pd), maybe::<Cq>(wanted.cq.cast())) };
        let (Some(pd), Some(cq)) = (pd, cq) else {
            return Err(Errno::INVALID);
        };
        let limits = context.seat.device.query_device();
        if wanted.wq_type != IBV_WQT_RQ
            || !(1..=limits.max_qp_wr).contains(&wanted.max_wr)
            || wanted.max_sge > limits.max_sge
        {
            return Err(Errno::INVALID);
        }
        let elements = wanted.max_sge.max(1);
        let inner = WorkQueue::new(&pd.inner, &cq.inner, wanted.max_wr, elements)?;
        let entries = wanted.max_wr.checked_next_power_of_two();
        (wanted.max_wr, wanted.max_sge) = (entries.unwrap_or(wanted.max_wr).min(limits.max_qp_wr), elements);
        let (number, asynchronous) = (inner.number(), Unacknowledged::default());
        let pointer = publish(Wq {
            base: UnsafeCell::new(ibv_wq {
                context: context.pointer(),
                wq_context: wanted.wq_context,
                pd: pd.c(),
                cq: wanted.cq,
                wq_num: number,
                handle: number,
                state: IBV_WQS_RESET,
                wq_type: IBV_WQT_RQ,
                ..zeros()
            }),
            inner,
            asynchronous: asynchronous.clone(),
            uses: Uses::default(),
            _needs: vec![context.uses.one(), pd.uses.one(), cq.uses.one()],
        });
        context.register(Kind::Wq, number, pointer.expose_provenance(), asynchronous);
        Ok(pointer)
    }

    /// Changes the state.
    pub fn modify(&self, wanted: &ibv_wq_attr) -> Result<(), Errno> {
        let known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
        only(wanted.attr_mask, known, Errno::INVALID)?;
        if wanted.attr_mask & IBV_WQ_ATTR_FLAGS != 0 && wanted.flags_mask != 0 {
            return Err(Errno::UNSUPPORTED.because("work queues strip no VLAN tags (flags)"));
        }
        let now = match self.inner.state() {
            QpState::Reset => IBV_WQS_RESET,
            QpState::Err => IBV_WQS_ERR,
            _ => IBV_WQS_RDY,
        };
        if wanted.attr_mask & IBV_WQ_ATTR_CURR_STATE != 0 && wanted.curr_wq_state != now {
            return Err(Errno::INVALID);
        }
        if wanted.attr_mask & IBV_WQ_ATTR_STATE == 0 {
            return Ok(());
        }
        match wanted.wq_state {
            IBV_WQS_RDY => self.inner.to_ready()?,
            IBV_WQS_RESET => self.inner.to_reset()?,
            IBV_WQS_ERR => self.inner.to_error()?,
            _ => return Err(Errno::INVALID),
        }
        // SAFETY: a field that the program reads and only calls like this change.
        unsafe { (*self.c()).state = wanted.wq_state };
        Ok(())
    }

    /// Destroys the queue, when all its events are acknowledged. EBUSY: it is in a table.
    ///
    /// # Safety
    /// The queue is ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut ibv_wq) -> Result<(), Errno> {
        // SAFETY: by the caller's promise; the context outlives it.
        let (wq, context) = unsafe { (the::<Wq>(pointer), Context::of((*pointer).context)) };
        wq.uses.none()?;
        context.forget(Kind::Wq, wq.inner.number(), pointer.addr(), &wq.asynchronous);
        // SAFETY: by the caller's promise, and nothing of ours has it.
        unsafe { end::<Wq>(pointer) }
    }
}

/// A table of work queues. The device hears of it with the queue pair that has it.
#[repr(C)]
pub struct RwqIndTable {
    base: UnsafeCell<ibv_rwq_ind_table>,
    queues: Vec<WorkQueue>,
    pub uses: Uses,
    _needs: Vec<Use>,
}

object!(RwqIndTable: ibv_rwq_ind_table);

/// Number of the last table.
static LAST: AtomicI32 = AtomicI32::new(0);

impl RwqIndTable {
    /// Makes a table.
    ///
    /// # Safety
    /// The attributes are what `ibv_create_rwq_ind_table` asks for.
    pub unsafe fn create(
        context: &Context,
        wanted: &ibv_rwq_ind_table_init_attr,
    ) -> Result<*mut ibv_rwq_ind_table, Errno> {
        only(wanted.comp_mask, 0u32, Errno::UNSUPPORTED)?;
        let most = context.seat.device.query_device().max_hash_entries;
        let entries = 1_u32.checked_shl(wanted.log_ind_tbl_size).filter(|n| *n <= most);
        let (Some(entries), false) = (entries, wanted.ind_tbl.is_null()) else {
            return Err(Errno::INVALID);
        };
        let (mut queues, mut needs) = (Vec::new(), vec![context.uses.one()]);
        for at in 0..entries as usize {
            // SAFETY: by the caller's promise so many pointers to work queues are there.
            let queue = unsafe {
                let pointer = *wanted.ind_tbl.wrapping_add(at);
                maybe::<Wq>(pointer).filter(|_| (*pointer).context == context.pointer())
            };
            let queue = queue.ok_or(Errno::INVALID)?;
            queues.push(queue.inner.clone());
            needs.push(queue.uses.one());
        }
        let number = LAST.fetch_add(1, Relaxed);
        Ok(publish(RwqIndTable {
            base: UnsafeCell::new(ibv_rwq_ind_table {
                context: context.pointer(),
                ind_tbl_handle: number,
                ind_tbl_num: number,
                comp_mask: 0,
            }),
            queues,
            uses: Uses::default(),
            _needs: needs,
        }))
    }

    /// Its queues, by the low bits of the hash.
    pub fn queues(&self) -> &[WorkQueue] {
        &self.queues
    }
}

/// What is hashed of frames, and with which key. EOPNOTSUPP: a field without its counterpart, ports without addresses.
///
/// # Safety
/// The key has the length that is said.
pub unsafe fn rule(wanted: &ibv_rx_hash_conf) -> Result<HashRule, Errno> {
    if u32::from(wanted.rx_hash_function) != IBV_RX_HASH_FUNC_TOEPLITZ {
        return Err(Errno::UNSUPPORTED.because("the hash of frames is TOEPLITZ"));
    }
    if usize::from(wanted.rx_hash_key_len) != HASH_KEY_LEN || wanted.rx_hash_key.is_null() {
        return Err(Errno::INVALID.because("the key of the hash has 40 bytes"));
    }
    let types = types(wanted.rx_hash_fields_mask)?;
    // SAFETY: by the caller's promise, and it was looked at.
    let key = unsafe { wanted.rx_hash_key.cast::<[u8; HASH_KEY_LEN]>().read() };
    Ok(HashRule { types, key })
}

/// Types of the hash by the fields that a program names.
fn types(fields: u64) -> Result<u32, Errno> {
    only(fields, FIELDS, Errno::UNSUPPORTED)?;
    let any = |both: u32| match fields as u32 & both {
        0 => Ok(false),
        all if all == both => Ok(true),
        _ => Err(Errno::UNSUPPORTED.because("source and destination are hashed together")),
    };
    let (v4, v6, tcp, udp) = (any(IPV4)?, any(IPV6)?, any(TCP)?, any(UDP)?);
    if (tcp || udp) && !(v4 || v6) {
        return Err(Errno::UNSUPPORTED.because("ports are hashed with addresses"));
    }
    let rows = [
        (v4, hash_types::IPV4),
        (v4 && tcp, hash_types::TCPV4),
        (v4 && udp, hash_types::UDPV4),
        (v6, hash_types::IPV6),
        (v6 && tcp, hash_types::TCPV6),
        (v6 && udp, hash_types::UDPV6),
        (fields & u64::from(IBV_RX_HASH_INNER) != 0, hash_types::INNER),
    ];
    Ok(rows
        .iter()
        .filter(|(wants, _)| *wants)
        .fold(0, |all, (_, bit)| all | bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_pairs() {
        use hash_types as t;
        for (fields, expected) in [
            (0, Ok(0)),
            (IPV4, Ok(t::IPV4)),
            (IPV4 | TCP, Ok(t::IPV4 | t::TCPV4)),
            (IPV6 | UDP | IBV_RX_HASH_INNER, Ok(t::IPV6 | t::UDPV6 | t::INNER)),
            (FIELDS, Ok(t::ALL)),
            (IBV_RX_HASH_SRC_IPV4, Err(Errno::UNSUPPORTED)),
            (IPV4 | IBV_RX_HASH_DST_PORT_UDP, Err(Errno::UNSUPPORTED)),
            (TCP, Err(Errno::UNSUPPORTED)),
            (IPV4 | 1 << 8, Err(Errno::UNSUPPORTED)),
        ] {
            assert_eq!(types(fields.into()), expected, "{fields:#x}");
        }
        assert_eq!(types(1 << 40), Err(Errno::UNSUPPORTED));
    }

    #[test]
    fn a_hash_is_toeplitz_with_its_key() {
        let mut key: [u8; HASH_KEY_LEN] = std::array::from_fn(|i| i as u8);
        let good = ibv_rx_hash_conf {
            rx_hash_function: 1,
            rx_hash_key_len: 40,
            rx_hash_key: key.as_mut_ptr(),
            rx_hash_fields_mask: IPV4.into(),
        };
        // SAFETY: the key is there.
        let of = |change: &dyn Fn(&mut ibv_rx_hash_conf)| unsafe {
            let mut wanted = good;
            change(&mut wanted);
            rule(&wanted)
        };
        assert_eq!(of(&|_| ()).map(|rule| rule.key[39]), Ok(39));
        assert_eq!(of(&|w| w.rx_hash_function = 2).err(), Some(Errno::UNSUPPORTED));
        assert_eq!(of(&|w| w.rx_hash_key_len = 39).err(), Some(Errno::INVALID));
        assert_eq!(
            of(&|w| w.rx_hash_key = std::ptr::null_mut()).err(),
            Some(Errno::INVALID)
        );
    }
}
